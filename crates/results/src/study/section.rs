//! Contents of the report for a grid, and claims of a paper that no run can test.

use serde::Deserialize;

use super::{Grid, Stated};
use crate::measured::{Cell, Pattern};
use crate::statistics::Statistic;

/// Part of the report about a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Name of the section.
    pub id: String,
    /// Place in the paper.
    pub at: String,
    /// Heading of the section.
    pub title: String,
    /// Grid of its cells.
    pub grid: String,
    /// Selection of the cells.
    pub cells: Pattern,
    /// Baseline: the system under test that stands for the paper's system with today's software.
    pub today: Option<String>,
    /// System under test that is compared with the baseline.
    pub with: Option<String>,
    /// Further systems with separate panels.
    pub beside: Vec<String>,
    /// Method of the paper.
    pub method: String,
    /// Our method.
    pub ours: String,
    /// Deviations of our method from the paper's.
    pub deviations: Vec<String>,
    /// Figure.
    pub figure: Figure,
    /// Metrics that the tables show besides the figure's.
    pub also: Vec<String>,
    /// Spread that the tables of all cells show.
    pub spread: Spread,
    /// Remark, for example that the paper contradicts itself.
    pub note: Option<String>,
    /// Reason why the measurements differ from the paper's values, if it is the same for all.
    pub differs: Option<String>,
    /// Values from the paper.
    pub paper: Vec<Stated>,
}

/// Columns and metrics of a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Kind of figure.
    pub kind: FigureKind,
    /// Column or metric of the x axis.
    pub x: String,
    /// Metric of the y axis.
    pub y: String,
    /// Column that decides the colour.
    pub colour: Option<String>,
    /// Column that decides the panel.
    pub facet: Option<String>,
    /// Statistic over a cell's values, in bars and lines.
    pub statistic: Statistic,
    /// Column whose cells are averaged into one.
    pub pool: Option<String>,
}

/// Spread of a cell's values in tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// Interval of the median by bootstrap.
    #[default]
    Interval,
    /// In addition the mean with its standard deviation, as the paper shows it.
    Deviation,
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
    /// Place in the paper.
    pub at: String,
    /// The claim.
    pub claim: String,
    /// Reason why it cannot be tested here.
    pub why: String,
}

impl Section {
    /// Columns in which the section's cells of `grid` differ.
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
