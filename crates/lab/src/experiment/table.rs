//! Tables of transfers and of links for display.

pub use bentpipe_results::outcome::table::{
    align, groups, megabits, pairs, seconds, table, written,
};

use std::fmt::Write as _;

use super::measure::Line;
use super::report::Report;
use super::transfers::{Cell, Plan, limit};
use crate::emu::{LATE, Lateness};
use crate::profile::Profile;
use crate::result::{Percentile, Sample};
use crate::workload::Workload;

/// Table of the transfers: a row for each workload and system under test, in 80 columns.
pub fn transfers(profile: &Profile, cells: &[Cell]) -> String {
    let mut table = table(&["", "system", "median", "ratio", "p95", "ratio", "wire", "runs"]);
    for (index, group) in cells.chunk_by(|a, b| a.workload == b.workload).enumerate() {
        if index > 0 {
            table.add_row([""; 8]);
        }
        let limit = limit(profile, &group[0].workload);
        let title = group[0].workload.title();
        let below = limit.map_or(String::new(), |limit| format!("limit {}", unit(group, limit)));
        let mut names = [title, below].into_iter().filter(|name| !name.is_empty());
        for cell in group {
            let [median, ratio, p95, p95_ratio] = figures(cell, limit);
            let (system, name) = (cell.system.name().into(), names.next());
            let name = name.unwrap_or_default();
            let (wire, runs) = (overhead(cell), runs(cell));
            table.add_row([name, system, median, ratio, p95, p95_ratio, wire, runs]);
        }
        for name in names {
            table.add_row([name.as_str(), "", "", "", "", "", "", ""]);
        }
    }
    align(&mut table, &[2, 3, 4, 5, 6, 7]);
    format!("{}\n", table.trim_fmt())
}

/// Runs `plan` and reports its figures.
pub fn report(plan: &Plan<'_>) -> anyhow::Result<Report> {
    let cells = plan.show()?;
    let (about, table) = (&plan.profile.about, transfers(plan.profile, &cells));
    let text = format!("{about}\n{table}{}", notes(&cells));
    Ok(Report { text, rows: plan.rows(&cells), goals: Vec::new() })
}

/// Failures and the emulator's timing, as lines after the table.
pub fn notes(cells: &[Cell]) -> String {
    let mut text = String::new();
    for cell in cells {
        if let Some(first) = cell.found.failures.first() {
            let (system, workload) = (cell.system, &cell.workload);
            let count = cell.found.failures.len();
            let _ = writeln!(text, "{system}, {workload}: {count} runs broke; the first: {first}");
        }
    }
    let punctuality = cells.iter().map(|cell| cell.found.punctuality);
    let all = punctuality.fold(Lateness::default(), Lateness::and);
    let (packets, late, worst) = (all.delivered, all.late, all.worst);
    let _ = writeln!(
        text,
        "Every link was measured before use and found as declared. The emulator delivered\n\
         {packets} packets, {:.3} % of them over {} ms late, the worst by {:.1} ms.",
        100.0 * late as f64 / packets.max(1) as f64,
        LATE.as_millis(),
        worst.as_secs_f64() * 1e3
    );
    text
}

fn unit(group: &[Cell], value: f64) -> String {
    if group[0].workload == Workload::Bulk { megabits(value) } else { seconds(value) }
}

/// Median, its ratio to the limit, 95th percentile and its ratio.
fn figures(cell: &Cell, limit: Option<f64>) -> [String; 4] {
    let samples = &cell.found.samples;
    let (median, p95) = (samples.percentile(0.5), samples.percentile(0.95));
    if cell.workload == Workload::Bulk {
        // For a rate that was not reached in time, a lower bound is of no interest. The highest
        // rates need no attention, so there is no 95th percentile.
        let known = median.and_then(Percentile::known);
        let share = known.zip(limit).map(|(rate, limit)| format!("{:.1} %", 100.0 * rate / limit));
        let none = || "–".to_owned();
        let rate = known.map_or_else(none, megabits);
        return [rate, share.unwrap_or_else(none), String::new(), String::new()];
    }
    [written(median, seconds), ratio(median, limit), written(p95, seconds), ratio(p95, limit)]
}

/// Number of finished runs, and of all runs.
fn runs(cell: &Cell) -> String {
    let all = &cell.found.samples.0;
    let finished = all.iter().filter(|sample| matches!(sample, Sample::Finished(_))).count();
    if finished == all.len() { finished.to_string() } else { format!("{finished}/{}", all.len()) }
}

/// Table of the emulator's accuracy: declared values next to measured ones.
pub fn measured(lines: &[Line]) -> String {
    let mut table =
        table(&["link", "direction", "", "declared", "measured", "must be within", "packets"]);
    for line in lines {
        let value = |value: f64| match (line.unit, value.is_finite()) {
            (_, false) => "unlimited".into(),
            ("s", _) => format!("{:.2} ms", value * 1e3),
            ("bit/s", _) => format!("{:.4} Mbit/s", value / 1e6),
            _ => format!("{:.2} %", value * 1e2),
        };
        let figure = line.figure;
        table.add_row([
            line.link.into(),
            line.direction.into(),
            line.quantity.into(),
            line.declared.map_or("unlimited".into(), value),
            value(figure.measured),
            format!("{} – {}", value(figure.low.max(0.0)), value(figure.high)),
            line.packets.to_string(),
        ]);
    }
    align(&mut table, &[3, 4, 5, 6]);
    format!("{}\n", table.trim_fmt())
}

fn overhead(cell: &Cell) -> String {
    if cell.overheads.is_empty() {
        return "–".into();
    }
    let mean = cell.overheads.iter().sum::<f64>() / cell.overheads.len() as f64;
    format!("{mean:.2}")
}

fn ratio(value: Option<Percentile>, limit: Option<f64>) -> String {
    let Some(limit) = limit else { return "–".into() };
    let times = |value: f64| match value / limit {
        ratio @ ..9.95 => format!("{ratio:.2}×"),
        ratio => format!("{ratio:.0}×"),
    };
    written(value, times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::cell::Found;
    use crate::result::Samples;
    use crate::system::{BENTPIPE, E2E_CUBIC, SystemUnderTest};

    fn cell(system: &'static dyn SystemUnderTest, workload: &str, samples: Vec<Sample>) -> Cell {
        let found = Found { samples: Samples(samples), ..Found::default() };
        Cell { system, workload: workload.parse().unwrap(), found, overheads: vec![1.17] }
    }

    #[test]
    fn the_table_fits_a_terminal_and_never_invents_a_number() {
        let mss = Profile::named("mss").unwrap();
        let finished = |value| vec![Sample::Finished(value)];
        let cells = [
            cell(&E2E_CUBIC, "file-1600k", vec![Sample::Cut(150.0)]),
            cell(&BENTPIPE, "file-1600k", finished(8.3)),
            cell(&BENTPIPE, "page-25", finished(6.1)),
            cell(&E2E_CUBIC, "bulk", vec![Sample::Cut(12.0)]),
            cell(&BENTPIPE, "bulk", finished(1.65e6)),
        ];
        let text = transfers(&mss, &cells);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}\n{text}");
        for part in [
            "1.6 MB file",
            "limit 7.97 s",
            "> 150 s",
            "> 19×",
            "0/1",
            "8.30 s",
            "1.04×",
            "limit 2.98 s",
            "92.9 %",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(!text.contains("12.0"), "{text}");
    }
}
