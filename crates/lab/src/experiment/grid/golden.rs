//! The grid as text that reads well in a diff: a file for each link, a line for each work and cell.
//!
//! The columns are `workload`, `loss` (% in each direction), `burst` (packet times), `n`; `p50`
//! and `p95` (completion ÷ limit; of bulk goodput ÷ ((1−p)·rate) as mean and lowest); then the
//! shares of bytes sent towards the aircraft: `header`, `repair`, `retransmission`; `ack` (bytes of
//! the aircraft's reports ÷ those bytes); and `repairs-per-source`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::outcome::Outcome;
use crate::result::{Percentile, Sample};

/// The first line.
pub const HEADER: &str =
    "workload,loss,burst,n,p50,p95,header,repair,retransmission,ack,repairs-per-source";

/// The files' texts by the links' names.
pub fn files(outcomes: &[Outcome]) -> BTreeMap<String, String> {
    let mut sorted: Vec<_> = outcomes.iter().filter_map(|o| Some((o, line(o)?))).collect();
    sorted.sort_by(|(a, _), (b, _)| {
        let key = |one: &Outcome| (one.work.beside_bulk, one.work.workload.bytes());
        let at = |one: &Outcome| (one.cell.loss.get(), one.cell.burst);
        key(a).cmp(&key(b)).then(at(a).partial_cmp(&at(b)).unwrap_or(std::cmp::Ordering::Equal))
    });
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (outcome, line) in sorted {
        let file = files.entry(outcome.cell.profile.clone()).or_insert(format!("{HEADER}\n"));
        let _ = writeln!(file, "{line}"); // a String takes everything
    }
    files
}

/// The line of one outcome; `None` where traffic was not counted.
pub fn line(outcome: &Outcome) -> Option<String> {
    let traffic = outcome.traffic?;
    let [p50, p95] = if outcome.is_bulk() {
        let lowest = outcome.ratios.0.iter().filter_map(|sample| match sample {
            Sample::Finished(ratio) => Some(*ratio),
            Sample::Cut(_) => None,
        });
        [outcome.utilization(), lowest.reduce(f64::min)].map(|value| value.map(Percentile::Known))
    } else {
        [0.5, 0.95].map(|q| outcome.completion(q))
    };
    let written = |value: Option<Percentile>| match value {
        Some(Percentile::Known(value)) => format!("{value:.3}"),
        Some(Percentile::Above(value)) => format!(">{value:.3}"),
        None => String::new(),
    };
    let forward = &traffic.forward;
    let ack = traffic.back.kinds.report_bytes / forward.bytes.max(1) as f64;
    let shares = [forward.header(), forward.repair(), forward.retransmission(), ack];
    let mut line = format!("{},{},{}", outcome.work, per_cent(outcome), outcome.cell.burst);
    let _ = write!(line, ",{},{},{}", outcome.samples.len(), written(p50), written(p95));
    for value in shares.into_iter().chain([forward.redundancy()]) {
        let _ = write!(line, ",{value:.3}");
    }
    Some(line)
}

/// As it was asked for: 3.3 and not 3.3000000000000003.
fn per_cent(outcome: &Outcome) -> String {
    outcome.cell.loss.to_string().trim_end_matches(" %").to_owned()
}
