//! The grid as text that is readable in a diff: a file for each link, a line for each work and
//! cell.
//!
//! The columns are:
//!
//! - `workload`, `loss` (% in each direction), `burst` (packet times) and `n`
//! - `p50` and `p95`: completion ÷ limit; for bulk, the mean and the lowest goodput ÷ ((1−p)·rate)
//! - `header`, `repair` and `retransmission`: fractions of the bytes sent towards the aircraft
//! - `ack`: bytes of the aircraft's reports ÷ those bytes
//! - `repairs-per-source`

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::outcome::Outcome;
use super::{Cell, Work};
use crate::result::{Percentile, Sample};

/// Header line.
pub const HEADER: &str =
    "workload,loss,burst,n,p50,p95,header,repair,retransmission,ack,repairs-per-source";

/// Writes `outcomes` to the files in `folder`. They replace the lines for the same works in the
/// same cells.
pub fn update(folder: &Path, outcomes: &[Outcome]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for outcome in outcomes {
        files.entry(&outcome.cell.profile).or_default().extend(line(outcome));
    }
    for (link, lines) in files {
        let path = folder.join(format!("{link}.csv"));
        let old = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            old => old?,
        };
        fs::write(path, merged(&old, &lines))?;
    }
    Ok(())
}

/// Text of a file in which `lines` replace those with the same key.
fn merged(old: &str, lines: &[String]) -> String {
    let kept = old.lines().filter(|line| *line != HEADER);
    let kept = kept.filter(|line| lines.iter().all(|new| key(new) != key(line)));
    let mut all: Vec<&str> = kept.chain(lines.iter().map(String::as_str)).collect();
    all.sort_by(|a, b| order(a, b));
    all.into_iter().fold(format!("{HEADER}\n"), |text, line| text + line + "\n")
}

/// Key of a line: workload, loss and burst.
fn key(line: &str) -> Vec<&str> {
    line.split(',').take(3).collect()
}

/// Compares by workload, then by loss, then by burst.
fn order(a: &str, b: &str) -> Ordering {
    let of = |line: &str| {
        let key = key(line);
        let work = key.first().and_then(|name| name.parse::<Work>().ok());
        let work = work.map(|work| (work.beside_bulk, work.workload.bytes()));
        let numbers: Vec<f64> = key.iter().skip(1).filter_map(|field| field.parse().ok()).collect();
        (work, numbers)
    };
    of(a).partial_cmp(&of(b)).unwrap_or(Ordering::Equal)
}

/// Prefix of the line of a work in a cell.
pub fn prefix(cell: &Cell, work: &Work) -> String {
    let loss = cell.loss.to_string();
    format!("{work},{},{},", loss.trim_end_matches(" %"), cell.burst)
}

/// Line of one outcome. `None` if its traffic was not counted.
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
    let mut line = prefix(&outcome.cell, &outcome.work);
    let _ = write!(line, "{},{},{}", outcome.samples.len(), written(p50), written(p95));
    let ack = traffic.acks_per_forward();
    let shares = [forward.header(), forward.repair(), forward.retransmission(), ack];
    for value in shares.into_iter().chain([forward.redundancy()]) {
        let _ = write!(line, ",{value:.3}");
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_replaces_its_own_lines_and_keeps_the_order() {
        let old =
            format!("{HEADER}\nbulk,6,1,3,0.9\nobject-10k,3.3,1,400,1.1\nobject-1m,6,1,100,1\n");
        let new = ["object-10k,20,1,400,1.3", "bulk,6,1,3,0.95", "object-10k,3.3,4,400,1.2"];
        let text = merged(&old, &new.map(str::to_owned));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                HEADER,
                "bulk,6,1,3,0.95",
                "object-10k,3.3,1,400,1.1",
                "object-10k,3.3,4,400,1.2",
                "object-10k,20,1,400,1.3",
                "object-1m,6,1,100,1"
            ]
        );
    }
}
