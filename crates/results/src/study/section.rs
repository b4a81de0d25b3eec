//! Contents of the report for a grid, and claims of a paper that no run can show.

use serde::Deserialize;

use super::{Grid, Stated};
use crate::measured::{Cell, Pattern};
use crate::statistics::Statistic;

/// Part of the report about a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its name.
    pub id: String,
    /// Its place in the paper.
    pub at: String,
    /// Its heading.
    pub title: String,
    /// Grid of its cells.
    pub grid: String,
    /// Selection of the cells.
    pub cells: Pattern,
    /// The contender that plays the paper's part with today's software.
    pub today: Option<String>,
    /// The contender beside it.
    pub with: Option<String>,
    /// Further ones that have panels of their own.
    pub beside: Vec<String>,
    /// Method of the paper.
    pub method: String,
    /// Our method.
    pub ours: String,
    /// Each difference.
    pub deviations: Vec<String>,
    /// Figure.
    pub figure: Figure,
    /// Metrics that the tables show besides the figure's.
    pub also: Vec<String>,
    /// Remark, for example that the paper contradicts itself.
    pub note: Option<String>,
    /// Reason for which measurements differ from the paper's values, if it is the same for all.
    pub differs: Option<String>,
    /// Values that the paper found.
    pub paper: Vec<Stated>,
}

/// Columns and metrics of a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Kind of figure.
    pub kind: FigureKind,
    /// Along.
    pub x: String,
    /// Upwards.
    pub y: String,
    /// By colours.
    pub colour: Option<String>,
    /// Side by side.
    pub facet: Option<String>,
    /// Statistic over a cell's values, in bars and lines.
    pub statistic: Statistic,
    /// The column whose cells become one by their mean.
    pub pool: Option<String>,
}

/// Kind of figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their own names")]
pub enum FigureKind {
    Lines,
    Bars,
    Cdf,
    Box,
    Scatter,
    Waterfall,
    Table,
}

/// A claim of the paper that no run here can judge.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unchecked {
    /// Its place in the paper.
    pub at: String,
    /// The claim.
    pub claim: String,
    /// Reason for which it cannot be tested here.
    pub why: String,
}

impl Section {
    /// The columns in which the cells of `grid` that the section shows differ.
    pub fn varying(&self, grid: &Grid) -> Vec<&'static str> {
        let cells: Vec<&Cell> = grid
            .cells
            .iter()
            .map(|planned| &planned.cell)
            .filter(|cell| self.cells.matches(cell))
            .collect();
        let varies = |column: &&str| {
            cells.iter().any(|cell| cell.on(column) != cells.first().and_then(|one| one.on(column)))
        };
        crate::measured::COLUMNS.into_iter().filter(varies).collect()
    }
}
