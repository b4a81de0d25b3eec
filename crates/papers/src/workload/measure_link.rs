//! `measure-link`: the emulator's measurement of its radio link before the run.

use bentpipe_lab::emu::LinkMeasured;
use bentpipe_results::Row;

use crate::job::Job;

/// Values of the cell's direction, and the round-trip time.
pub fn values(job: &Job<'_>, measured: &LinkMeasured) -> Vec<Row> {
    let own = if job.is_up() { &measured.return_ } else { &measured.forward };
    let delays = [&measured.forward, &measured.return_].map(|one| one.delay_s);
    let mut values = vec![Row::of("link-loss", own.loss.measured, true)];
    if let Some(rate) = own.rate_bps {
        values.push(Row::of("link-rate", rate.measured, true));
    }
    if let [Some(there), Some(back)] = delays {
        values.push(Row::of("link-rtt", there.measured + back.measured, true));
    }
    values
}
