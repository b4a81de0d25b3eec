//! What the report shows of a grid, and what of a paper no run can show.

use serde::Deserialize;

use super::{Grid, Stated};
use crate::measured::{Cell, Pattern};
use crate::statistics::Statistic;

/// What the report shows of a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its name.
    pub id: String,
    /// Its place in the paper.
    pub at: String,
    /// Its heading.
    pub title: String,
    /// Whose cells.
    pub grid: String,
    /// Which of them.
    pub cells: Pattern,
    /// The contender that plays the paper's part with today's software.
    pub today: Option<String>,
    /// The contender beside it.
    pub with: Option<String>,
    /// Further ones that have panels of their own.
    pub beside: Vec<String>,
    /// What the paper did.
    pub method: String,
    /// What we do.
    pub ours: String,
    /// Each difference.
    pub deviations: Vec<String>,
    /// What is drawn.
    pub figure: Figure,
    /// Metrics that the tables show besides the figure's.
    pub also: Vec<String>,
    /// Where the paper contradicts itself, and the like.
    pub note: Option<String>,
    /// Why what is measured differs from what the paper gives, where that is the same for all of it.
    pub differs: Option<String>,
    /// What the paper found.
    pub paper: Vec<Stated>,
}

/// What is drawn: the names of columns or metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// How.
    pub kind: FigureKind,
    /// Along.
    pub x: String,
    /// Upwards.
    pub y: String,
    /// By colours.
    pub colour: Option<String>,
    /// Side by side.
    pub facet: Option<String>,
    /// What is made of a cell's values, in bars and lines.
    pub statistic: Statistic,
    /// The column whose cells become one by their mean.
    pub pool: Option<String>,
}

/// How a figure is drawn.
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
    /// What it says.
    pub claim: String,
    /// Why nobody here can tell.
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
