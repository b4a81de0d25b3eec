//! Tables for a terminal, and numbers in them.

use comfy_table::{Cell as Field, CellAlignment, Table, TableComponent, presets};

use super::row::{Percentile, Samples};

/// Table with a name and a value in each row.
pub fn pairs(rows: &[(String, String)]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for (name, value) in rows {
        table.add_row([name, value]);
    }
    align(&mut table, &[1]);
    format!("{}\n", table.trim_fmt())
}

/// Table of a benchmark: a row for each measurement, with a line between loads.
pub fn groups<const N: usize>(header: [&str; N], lines: &[[String; N]]) -> String {
    let mut table = table(&header);
    for (index, group) in lines.chunk_by(|a, b| a[0] == b[0]).enumerate() {
        if index > 0 {
            table.add_row([""; N]);
        }
        for (index, line) in group.iter().enumerate() {
            let load = if index == 0 { line[0].as_str() } else { "" };
            table.add_row([load].into_iter().chain(line[1..].iter().map(String::as_str)));
        }
    }
    align(&mut table, &(2..N).collect::<Vec<_>>());
    format!("{}\n", table.trim_fmt())
}

/// Table with these column titles.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.iter().map(Field::new));
    table.set_style(TableComponent::HeaderLines, '─');
    table
}

/// Aligns these columns to the right.
pub fn align(table: &mut Table, right: &[usize]) {
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// A percentile in `unit`, or its lower bound.
pub fn written(value: Option<Percentile>, unit: impl Fn(f64) -> String) -> String {
    match value {
        Some(Percentile::Known(value)) => unit(value),
        Some(Percentile::Above(value)) => format!("> {}", unit(value)),
        None => "–".into(),
    }
}

/// Formats seconds with three significant digits.
pub fn seconds(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2} s"),
        ..99.95 => format!("{value:.1} s"),
        _ => format!("{value:.0} s"),
    }
}

/// Formats a rate in Mbit/s.
pub fn megabits(bps: f64) -> String {
    match bps / 1e6 {
        rate @ ..9.995 => format!("{rate:.2} Mbit/s"),
        rate @ ..99.95 => format!("{rate:.1} Mbit/s"),
        rate => format!("{rate:.0} Mbit/s"),
    }
}

/// A percentile of times for a table, or `lost` if the rank falls on a lost sample.
pub fn delay(samples: &Samples, q: f64) -> String {
    match samples.percentile(q) {
        Some(Percentile::Known(value)) => millis(value),
        Some(Percentile::Above(_)) => "lost".into(),
        None => "–".into(),
    }
}

/// A time in whole milliseconds. Small values have one decimal.
pub fn millis(seconds: f64) -> String {
    match seconds * 1e3 {
        ms @ ..99.95 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

/// A fraction in per cent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.8061, 12.34, 151.2].map(seconds), ["0.81 s", "12.3 s", "151 s"]);
        assert_eq!([1.6e6, 4.2e7].map(megabits), ["1.60 Mbit/s", "42.0 Mbit/s"]);
    }
}
