//! Table of the outcomes, and their traces as CSV.

use std::fmt::Write;

use super::play::Outcome;
use crate::experiment::table::{align, table};
use crate::record::TraceRow;

/// A table with a line for each target. Missed targets have a mark.
pub fn outcomes(outcomes: &[Outcome]) -> String {
    let mut table = table(&["case", "cell", "figure", "found", "bound", ""]);
    let mut text = String::new();
    for outcome in outcomes {
        for (place, found) in outcome.found.iter().enumerate() {
            let figure = found.target.figure;
            table.add_row([
                if place == 0 { outcome.case.to_string() } else { String::new() },
                if place == 0 { outcome.name.clone() } else { String::new() },
                figure.name().to_owned(),
                found.value.map_or("–".into(), |value| figure.show(value)),
                found.target.to_string(),
                if found.holds() { String::new() } else { "missed".into() },
            ]);
        }
        if let Some(broken) = &outcome.broken {
            let _ = writeln!(text, "broken: {broken}");
        }
    }
    align(&mut table, &[3, 4]);
    let all: Vec<bool> =
        outcomes.iter().flat_map(|one| one.found.iter().map(|found| found.holds())).collect();
    let met = all.iter().filter(|met| **met).count();
    let _ = writeln!(text, "{}\n{met} of {} targets are met.", table.trim_fmt(), all.len());
    text
}

/// A trace as CSV, with a line of names.
pub fn csv(rows: &[TraceRow]) -> String {
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
