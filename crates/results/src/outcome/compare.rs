//! Differences between the two engines, figure by figure.

use super::row::Row;
use super::table::{align, millis, table};

/// Relative difference to the simulator's figure above which a figure is marked.
pub const APART: f64 = 0.1;

/// Mark after a figure that differs much.
const MARK: char = '!';

/// One figure from both engines.
struct Pair<'a> {
    row: &'a Row,
    /// Figure of the row: a percentile, or empty if there is only one.
    what: &'static str,
    sim: Option<f64>,
    emu: Option<f64>,
}

impl Pair<'_> {
    /// Ratio of the emulator's figure to the simulator's.
    fn ratio(&self) -> Option<f64> {
        let (sim, emu) = self.sim.zip(self.emu)?;
        if sim == emu { Some(1.0) } else { Some(emu / sim).filter(|ratio| ratio.is_finite()) }
    }

    /// Returns `true` if they differ by more than `apart`, or if only one engine has the figure.
    fn is_apart(&self, apart: f64) -> bool {
        let both = self.sim.is_none() && self.emu.is_none();
        !both && self.ratio().is_none_or(|ratio| (ratio - 1.0).abs() > apart)
    }
}

/// A table of all common figures in 80 columns: `sim`, `emu` and their ratio. Figures that differ by
/// more than `apart` have a mark.
pub fn engines(sim: &[Row], emu: &[Row], apart: f64) -> String {
    let pairs: Vec<Pair<'_>> = sim
        .iter()
        .filter_map(|row| Some((row, emu.iter().find(|other| is_same(row, other))?)))
        .flat_map(|(row, other)| pairs(row, other))
        .collect();
    if pairs.is_empty() {
        return String::new();
    }
    let is_alone = pairs.iter().all(|pair| pair.row.profile == pairs[0].row.profile);
    let mut table = table(&["", "", "", "sim", "emu", "emu ÷ sim", ""]);
    let mut last = (String::new(), "");
    for pair in &pairs {
        let (name, metric) = (name(pair.row, is_alone), pair.row.metric.as_str());
        // Do not repeat what the line above already shows.
        let again = (name == last.0, name == last.0 && metric == last.1);
        let ratio = pair.ratio().map_or("–".into(), |ratio| format!("{ratio:.3}"));
        table.add_row([
            if again.0 { String::new() } else { name.clone() },
            if again.1 { String::new() } else { metric.to_owned() },
            pair.what.to_owned(),
            write(pair.row, pair.sim),
            write(pair.row, pair.emu),
            ratio,
            if pair.is_apart(apart) { MARK.to_string() } else { String::new() },
        ]);
        last = (name, metric);
    }
    align(&mut table, &[3, 4, 5]);
    let marked = pairs.iter().filter(|pair| pair.is_apart(apart)).count();
    let (near, all, percent) = (pairs.len() - marked, pairs.len(), apart * 100.0);
    let rest = if marked > 0 { format!("; {MARK}: the others") } else { String::new() };
    format!(
        "Both engines:\n\n{}\n{near} of {all} figures are within {percent:.0} %{rest}.\n",
        table.trim_fmt()
    )
}

/// Returns `true` if two rows describe the same figure of different engines.
fn is_same(one: &Row, other: &Row) -> bool {
    let what = |row: &'_ Row| {
        let Row { experiment, system, profile, workload, metric, .. } = row.clone();
        (experiment, system, profile, workload, metric, row.loss, row.burst)
    };
    what(one) == what(other)
}

/// Pairs of figures: median and 95th percentile for several times and for figures without a mean, and
/// the mean for everything else.
fn pairs<'a>(row: &'a Row, other: &Row) -> Vec<Pair<'a>> {
    let pair = |what, of: fn(&Row) -> Option<f64>| Pair { row, what, sim: of(row), emu: of(other) };
    let is_time = row.unit == "s" && (row.p50.is_some() || row.mean.is_none());
    if is_time || (row.mean.is_none() && row.p95.is_some()) {
        vec![pair("median", |row| row.p50), pair("p95", |row| row.p95)]
    } else {
        vec![pair("", |row| row.mean.or(row.p50))]
    }
}

/// Name of the workload, with the bursts if the user chose them, and with the link unless it `is_alone`.
fn name(row: &Row, is_alone: bool) -> String {
    let burst = row.burst.map_or(String::new(), |burst| format!(", bursts of {burst}"));
    let link = row.profile.as_ref().filter(|_| !is_alone);
    let link = link.map_or(String::new(), |link| format!("{link}: "));
    format!("{link}{}{burst}", row.workload.as_deref().unwrap_or(&row.experiment))
}

fn write(row: &Row, value: Option<f64>) -> String {
    match (value, &*row.unit) {
        (None, _) => "–".into(),
        (Some(value), "s") => millis(value),
        (Some(value), "bit/s") => format!("{:.1} kbit/s", value / 1e3),
        (Some(value), _) => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workload: &str, metric: &str, unit: &str, value: Option<f64>) -> Row {
        Row {
            workload: Some(workload.into()),
            metric: metric.into(),
            unit: unit.into(),
            p50: value,
            p95: value.map(|value| 2.0 * value),
            mean: value,
            ..Row::default()
        }
    }

    #[test]
    fn figures_that_are_apart_are_marked() {
        let sim = [
            row("call", "delay", "s", Some(0.010)),
            row("call", "residual-loss", "ratio", Some(0.0)),
            row("bulk", "rate", "bit/s", Some(1e6)),
            row("object", "completion", "s", None),
            row("page", "plt", "s", Some(2.0)),
            row("gone", "plt", "s", Some(2.0)),
        ];
        let emu = [
            row("bulk", "rate", "bit/s", Some(0.95e6)),
            row("call", "delay", "s", Some(0.012)),
            row("call", "residual-loss", "ratio", Some(0.0)),
            row("object", "completion", "s", None),
            row("page", "plt", "s", None),
        ];
        let text = engines(&sim, &emu, APART);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let has = |wanted: &str| lines.iter().any(|line| line.join(" ") == wanted);
        for wanted in [
            "call delay median 10.0 ms 12.0 ms 1.200 !",
            "p95 20.0 ms 24.0 ms 1.200 !",
            "residual-loss 0.0000 0.0000 1.000",
            "bulk rate 1000.0 kbit/s 950.0 kbit/s 0.950",
            "object completion median – – –",
            "page plt median 2000 ms – – !",
            "4 of 8 figures are within 10 %; !: the others.",
        ] {
            assert!(has(wanted), "{wanted} is missing:\n{text}");
        }
        assert!(!text.contains("gone"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(engines(&sim, &[], APART), "");
    }
}
