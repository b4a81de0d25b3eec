//! Files of traces: CSV for programs and SVG for people.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use super::chart;
use super::play::Outcome;
use crate::record::TraceRow;

/// Writes the trace of each cell in `engine` to `folder`.
pub fn write(folder: &Path, engine: &str, outcomes: &[Outcome]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for outcome in outcomes {
        let name: String = (outcome.name.chars())
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .collect();
        let path = folder.join(format!("{:02}-{name}-{engine}", outcome.case));
        fs::write(path.with_extension("csv"), csv(&outcome.trace))?;
        fs::write(path.with_extension("svg"), chart::svg(&outcome.name, &outcome.trace))?;
    }
    Ok(())
}

/// A trace as CSV, with a line of names.
fn csv(rows: &[TraceRow]) -> String {
    let mut text = String::from(
        "at_s,capacity_bps,rate_bps,sent_bps,delivered_bps,goodput_bps,queue_s,dropped\n",
    );
    for row in rows {
        let TraceRow { at_s, capacity_bps, rate_bps, sent_bps, .. } = row;
        let TraceRow { delivered_bps, goodput_bps, queue_s, dropped, .. } = row;
        let _ = writeln!(
            text,
            "{at_s:.3},{capacity_bps:.0},{rate_bps:.0},{sent_bps:.0},{delivered_bps:.0},\
             {goodput_bps:.0},{queue_s:.6},{dropped}"
        );
    }
    text
}
