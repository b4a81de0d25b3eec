//! `measure-link`: what the emulator measured of its radio link before the run.

use bentpipe_lab::emu::LinkMeasured;

use crate::job::{Job, Value};

/// The cell's direction, and the round trip.
pub fn values(job: &Job<'_>, measured: &LinkMeasured) -> Vec<Value> {
    let own = if job.is_up() { &measured.return_ } else { &measured.forward };
    let delays = [&measured.forward, &measured.return_].map(|one| one.delay_s);
    let mut values = vec![Value::of("link-loss", own.loss.measured, true)];
    if let Some(rate) = own.rate_bps {
        values.push(Value::of("link-rate", rate.measured, true));
    }
    if let [Some(there), Some(back)] = delays {
        values.push(Value::of("link-rtt", there.measured + back.measured, true));
    }
    values
}
