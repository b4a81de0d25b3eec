//! What a person sees of results.

use comfy_table::{Cell as Field, CellAlignment, Table, presets};

use super::measure::Line;
use super::transfers::{Cell, limit};
use crate::profile::Profile;
use crate::result::Percentile;
use crate::workload::Workload;

/// The transfers' table: one row for each workload and contender, in at most 80 columns.
pub fn transfers(profile: &Profile, cells: &[Cell]) -> String {
    let mut out = String::new();
    let timed: Vec<&Cell> = cells.iter().filter(|cell| cell.workload != Workload::Bulk).collect();
    if !timed.is_empty() {
        out += &completion_table(profile, &timed);
    }
    let bulk: Vec<&Cell> = cells.iter().filter(|cell| cell.workload == Workload::Bulk).collect();
    if !bulk.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        out += &bulk_table(profile, &bulk);
    }
    out
}

fn completion_table(profile: &Profile, cells: &[&Cell]) -> String {
    let mut table = table(&[
        "",
        "limit",
        "contender",
        "median",
        "÷ limit",
        "p95",
        "÷ limit",
        "runs",
        "sent ÷ got",
    ]);
    let mut last = None;
    for cell in cells {
        let limit = limit(profile, &cell.workload);
        let first = last != Some(&cell.workload);
        if first && last.is_some() {
            table.add_row([""; 9]);
        }
        last = Some(&cell.workload);
        let samples = &cell.found.samples;
        let (median, p95) = (samples.percentile(0.5), samples.percentile(0.95));
        let finished =
            samples.0.iter().filter(|s| matches!(s, crate::result::Sample::Finished(_))).count();
        let runs = match samples.len() {
            all if all == finished => all.to_string(),
            all => format!("{finished}/{all}"),
        };
        table.add_row([
            if first { cell.workload.title() } else { String::new() },
            if first { limit.map_or("–".into(), seconds) } else { String::new() },
            cell.contender.name().into(),
            written(median, seconds),
            ratio(median, limit),
            written(p95, seconds),
            ratio(p95, limit),
            overhead(cell),
            runs,
        ]);
    }
    align(&mut table, &[1, 3, 4, 5, 6, 7, 8]);
    format!("{}\n", table.trim_fmt())
}

fn bulk_table(profile: &Profile, cells: &[&Cell]) -> String {
    let limit = limit(profile, &Workload::Bulk);
    let mut table = table(&["", "limit", "contender", "goodput", "of (1−p)·rate", "wire", "runs"]);
    for (index, cell) in cells.iter().enumerate() {
        let median = cell.found.samples.percentile(0.5);
        let share = match (median, limit) {
            (Some(Percentile::Known(value)), Some(limit)) => {
                format!("{:.1} %", 100.0 * value / limit)
            }
            _ => "–".into(),
        };
        table.add_row([
            if index == 0 { "bulk".into() } else { String::new() },
            limit.filter(|_| index == 0).map_or(String::new(), megabits),
            cell.contender.name().into(),
            // A rate that was not reached in time has no lower bound worth telling.
            median.and_then(Percentile::known).map_or("–".into(), megabits),
            share,
            overhead(cell),
            cell.found.samples.len().to_string(),
        ]);
    }
    align(&mut table, &[1, 3, 4, 5, 6]);
    format!("{}\n", table.trim_fmt())
}

/// The emulator's accuracy: declared beside measured.
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

/// A table of a name and a value in each row.
pub fn pairs(rows: &[(String, String)]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for (name, value) in rows {
        table.add_row([name, value]);
    }
    align(&mut table, &[1]);
    format!("{}\n", table.trim_fmt())
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(header.iter().map(Field::new));
    table.remove_style(comfy_table::TableComponent::HorizontalLines);
    table.remove_style(comfy_table::TableComponent::MiddleIntersections);
    table.remove_style(comfy_table::TableComponent::LeftBorderIntersections);
    table.remove_style(comfy_table::TableComponent::RightBorderIntersections);
    table
}

fn align(table: &mut Table, right: &[usize]) {
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn overhead(cell: &Cell) -> String {
    if cell.overheads.is_empty() {
        return "–".into();
    }
    let mean = cell.overheads.iter().sum::<f64>() / cell.overheads.len() as f64;
    format!("{mean:.2}")
}

fn written(value: Option<Percentile>, unit: impl Fn(f64) -> String) -> String {
    match value {
        Some(Percentile::Known(value)) => unit(value),
        Some(Percentile::Above(value)) => format!("> {}", unit(value)),
        None => "–".into(),
    }
}

fn ratio(value: Option<Percentile>, limit: Option<f64>) -> String {
    let Some(limit) = limit else { return "–".into() };
    let times = |value: f64| match value / limit {
        ratio @ ..9.95 => format!("{ratio:.2}×"),
        ratio => format!("{ratio:.0}×"),
    };
    written(value, times)
}

/// Three digits that matter.
pub fn seconds(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2} s"),
        ..99.95 => format!("{value:.1} s"),
        _ => format!("{value:.0} s"),
    }
}

/// A rate.
pub fn megabits(bps: f64) -> String {
    match bps / 1e6 {
        rate @ ..9.995 => format!("{rate:.2} Mbit/s"),
        rate @ ..99.95 => format!("{rate:.1} Mbit/s"),
        rate => format!("{rate:.0} Mbit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Contender;
    use crate::experiment::cell::Found;
    use crate::result::{Sample, Samples};

    fn cell(contender: Contender, workload: &str, samples: Vec<Sample>) -> Cell {
        let found = Found { samples: Samples(samples), ..Found::default() };
        Cell { contender, workload: workload.parse().unwrap(), found, overheads: vec![1.17] }
    }

    #[test]
    fn the_table_fits_a_terminal_and_never_invents_a_number() {
        let mss = Profile::named("mss").unwrap();
        let finished = |value| vec![Sample::Finished(value)];
        let cells = [
            cell(Contender::E2eCubic, "file-1600k", vec![Sample::Cut(150.0)]),
            cell(Contender::Bentpipe, "file-1600k", finished(8.3)),
            cell(Contender::Bentpipe, "page-25", finished(6.1)),
            cell(Contender::E2eCubic, "bulk", vec![Sample::Cut(12.0)]),
            cell(Contender::Bentpipe, "bulk", finished(1.65e6)),
        ];
        let text = transfers(&mss, &cells);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}\n{text}");
        for part in
            ["1.6 MB file", "7.97 s", "> 150 s", "> 19×", "0/1", "8.30 s", "1.04×", "92.9 %"]
        {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(!text.contains("12.0"), "{text}");
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.8061, 12.34, 151.2].map(seconds), ["0.81 s", "12.3 s", "151 s"]);
        assert_eq!([1.6e6, 4.2e7].map(megabits), ["1.60 Mbit/s", "42.0 Mbit/s"]);
    }
}
