//! The simulated figures as text that is readable in a diff: a line for each cell.
//!
//! The columns are `cell`, `n` (samples), `median`, `figure` and `sent-per-byte`. [`super::Play`] says
//! what a figure is. An unknown one is empty.

use super::Outcome;

/// Header line.
pub const HEADER: &str = "cell,n,median,figure,sent-per-byte";

/// The file with these outcomes.
pub fn text(outcomes: &[Outcome]) -> String {
    let lines = outcomes.iter().map(line);
    std::iter::once(HEADER.to_owned()).chain(lines).map(|line| line + "\n").collect()
}

/// Line of a cell.
pub fn line(outcome: &Outcome) -> String {
    let written = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    let (median, figure) = (written(outcome.median), written(outcome.figure));
    format!("{},{},{median},{figure},{:.3}", outcome.cell.name, outcome.samples, outcome.overhead)
}
