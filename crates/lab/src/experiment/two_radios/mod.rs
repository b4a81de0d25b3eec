//! A session over two radios at once, compared with the limit of both together.
//!
//! Each [`Cell`] is a bundle of links with something that happens on it, and the bound of its figure.

pub mod bundle;
mod play;

use std::fmt::Write;

use bentpipe_channel::SpecError;

use crate::experiment::table::{align, table};
use crate::result::Row;
use bundle::Bundle;
pub use play::run;

/// Transfer or event of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Play {
    /// Single objects of this size, each after a pause. The figure is p95 over the limit.
    Object(u64),
    /// One endless download. The figure is its goodput over the capacity.
    Bulk,
    /// The first path dies 0.2 s after the request of 10 KB. The figure is p95 in seconds.
    DiesAfterRequest,
    /// The path at this index dies under an endless download. The figure is the longest gap that
    /// begins within 2 s, in seconds.
    DiesUnderBulk(usize),
}

/// A cell.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Name, unique among all cells.
    pub name: String,
    /// The links.
    pub bundle: Bundle,
    /// Transfer or event.
    pub play: Play,
    /// Bound of the figure: at least this for [`Play::Bulk`], at most for all others.
    pub bound: f64,
    /// Maximum of sent bytes per delivered byte, if that has a bound.
    pub max_overhead: Option<f64>,
}

/// Figures of a cell.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The cell.
    pub cell: Cell,
    /// The figure; `None` if a transfer did not end.
    pub figure: Option<f64>,
    /// Bytes sent towards the aircraft on all paths per byte delivered.
    pub overhead: f64,
    /// Number of samples.
    pub samples: usize,
}

impl Outcome {
    /// Returns `true` if the figure and the overhead keep their bounds.
    pub fn holds(&self) -> bool {
        let Some(figure) = self.figure else { return false };
        let kept = match self.cell.play {
            Play::Bulk => figure >= self.cell.bound,
            _ => figure <= self.cell.bound,
        };
        kept && self.cell.max_overhead.is_none_or(|most| self.overhead <= most)
    }

    /// The figure as a row of results.
    pub fn row(&self, seed: u64) -> Row {
        Row {
            experiment: "two-radios".into(),
            engine: "sim".into(),
            workload: Some(self.cell.name.clone()),
            metric: self.metric().into(),
            unit: self.unit().into(),
            n: self.samples,
            p95: self.figure,
            limit: Some(self.cell.bound),
            seed: Some(seed),
            ..Row::default()
        }
    }

    fn metric(&self) -> &'static str {
        match self.cell.play {
            Play::Object(_) | Play::DiesAfterRequest => "completion",
            Play::Bulk => "goodput",
            Play::DiesUnderBulk(_) => "gap",
        }
    }

    fn unit(&self) -> &'static str {
        match self.cell.play {
            Play::Object(_) | Play::Bulk => "ratio",
            Play::DiesAfterRequest | Play::DiesUnderBulk(_) => "s",
        }
    }
}

/// All cells.
///
/// # Errors
///
/// Returns an error if a link cannot have the losses of a cell.
pub fn cells() -> Result<Vec<Cell>, SpecError> {
    let cell = |name: &str, bundle: &Bundle, play, bound, max_overhead| Cell {
        name: name.into(),
        bundle: bundle.clone(),
        play,
        bound,
        max_overhead,
    };
    let (both, fours, twenties) =
        (Bundle::of_paper(1.0)?, Bundle::of_paper(4.0)?, Bundle::of_paper(20.0)?);
    let object = |kilobytes: u64| Play::Object(1000 * kilobytes);
    Ok(vec![
        cell("10 KB", &both, object(10), 1.10, None),
        cell("30 KB", &both, object(30), 1.09, None),
        cell("100 KB", &both, object(100), 1.09, None),
        cell("1 MB", &both, object(1000), 1.09, None),
        cell("10 KB in bursts of 4", &fours, object(10), 1.27, Some(2.5)),
        cell("10 KB in bursts of 20", &twenties, object(10), 1.32, Some(2.5)),
        cell("100 KB in bursts of 4", &fours, object(100), 1.20, Some(1.6)),
        cell("100 KB in bursts of 20", &twenties, object(100), 1.50, Some(1.6)),
        cell("bulk", &both, Play::Bulk, 0.95, Some(1.13)),
        cell("the short path dies after the request", &both, Play::DiesAfterRequest, 1.25, None),
        // Two round trips of the dead path and one of the other.
        cell("da2gc dies under bulk", &both, Play::DiesUnderBulk(0), 1.335, None),
        cell("mss dies under bulk", &both, Play::DiesUnderBulk(1), 1.834, None),
    ])
}

/// A table with a line for each cell. Missed bounds have a mark.
pub fn text(outcomes: &[Outcome]) -> String {
    let mut table = table(&["cell", "limit", "figure", "bound", "sent per byte", ""]);
    for one in outcomes {
        let limit = match one.cell.play {
            Play::Object(bytes) => format!("{:.3} s", one.cell.bundle.limit_s(bytes)),
            Play::Bulk => format!("{:.3} Mbit/s", one.cell.bundle.capacity_bps() / 1e6),
            _ => "–".into(),
        };
        let most = one.cell.max_overhead.map_or(String::new(), |most| format!(" ≤ {most}"));
        let unit = if one.unit() == "s" { " s" } else { " ×" };
        table.add_row([
            one.cell.name.clone(),
            limit,
            one.figure.map_or("–".into(), |figure| format!("{figure:.3}{unit}")),
            format!("{}{unit}", one.cell.bound),
            format!("{:.2}{most}", one.overhead),
            if one.holds() { String::new() } else { "missed".into() },
        ]);
    }
    align(&mut table, &[1, 2, 3, 4]);
    let met = outcomes.iter().filter(|one| one.holds()).count();
    let mut text = String::new();
    let _ = writeln!(text, "{}\n{met} of {} bounds are kept.", table.trim_fmt(), outcomes.len());
    text
}

#[cfg(test)]
mod tests;
