//! Measurements as blocks of columns, and the cells into which they expand.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use crate::measured::{Cell, Pattern};

/// Maximum cells of a grid, 10 MB in memory. More is a mistake in the file.
pub(super) const MAX_CELLS: usize = 20_000;

/// A set of measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Name of the grid.
    pub id: String,
    /// Work of one run.
    pub workload: Workload,
    /// Metrics of a run.
    pub metrics: Vec<String>,
    /// Meaning of the column `x`, if cells have it.
    pub x: Option<String>,
    /// Settings of the workload.
    pub settings: toml::Table,
    /// Cells in the order of the blocks. Within a block, the first column in alphabetical order
    /// changes slowest, and values keep the order of the file.
    pub cells: Vec<Planned>,
    /// Cells of a quick run.
    pub quick: Vec<Planned>,
}

/// Work in one run of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// The emulator's measurement of its link.
    MeasureLink,
    /// A document and its objects.
    Page,
    /// A site of several domains, replayed.
    Archive,
    /// One file on each of several connections, all started together.
    Files,
    /// Readers of pages and of files, for a fixed time.
    Mixed,
    /// The page's objects, one after another on one connection.
    Sequence,
    /// Endless transfers, measured in steady state.
    Bulk,
    /// A call over UDP.
    Call,
    /// A reader of public services, with and without saturated lower-effort traffic.
    RuralPolicy,
}

/// A cell to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The cell.
    pub cell: Cell,
    /// Number of runs.
    pub runs: u32,
    /// Time after which a run is cut off.
    pub deadline: Duration,
}

/// One part of a run that is divided among machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    of: usize,
}

/// The text does not name a shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{written:?} is not a shard: write \"2/8\" for the second of eight")]
pub struct ShardError {
    written: String,
}

/// A parsed block of columns.
pub(super) struct Block {
    pub columns: Pattern,
    pub runs: u32,
    pub deadline: Duration,
}

/// Expands all blocks into their distinct combinations. A combination in several blocks takes the
/// largest number of runs, and the deadline of that block.
pub(super) fn expand(blocks: &[Block]) -> Result<Vec<Planned>, String> {
    let mut all: Vec<Planned> = Vec::new();
    let mut places: HashMap<Cell, usize> = HashMap::new();
    for Block { columns, runs, deadline } in blocks {
        let count = columns.columns().fold(1_usize, |n, (_, one)| n.saturating_mul(one.len()));
        if count.saturating_add(all.len()) > MAX_CELLS {
            return Err(format!("stands for more than {MAX_CELLS} cells: take some values away"));
        }
        for cell in combinations(columns) {
            let planned = Planned { cell: cell.clone(), runs: *runs, deadline: *deadline };
            match places.get(&cell) {
                Some(&place) if all[place].runs >= *runs => {}
                Some(&place) => all[place] = planned,
                None => {
                    places.insert(cell, all.len());
                    all.push(planned);
                }
            }
        }
    }
    Ok(all)
}

fn combinations(columns: &Pattern) -> Vec<Cell> {
    columns.columns().fold(vec![Cell::default()], |cells, (column, values)| {
        let more = |cell: Cell| values.iter().map(move |value| cell.with(column, value));
        cells.into_iter().flat_map(more).collect()
    })
}

impl Grid {
    /// Finds the cell in the full grid.
    pub fn planned(&self, cell: &Cell) -> Option<&Planned> {
        self.cells.iter().find(|planned| planned.cell == *cell)
    }
}

impl Shard {
    /// The whole run as one shard.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Shard `number` (counted from 1) of `of` shards. `None` if the number is out of range.
    pub fn new(number: usize, of: usize) -> Option<Self> {
        (1..=of).contains(&number).then(|| Self { index: number - 1, of })
    }

    /// Items of `all` that belong to this shard: every n-th one. Neighbours take about the same
    /// time, so they go to different shards. All shards together have every item once.
    pub fn part<T>(self, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        all.into_iter().skip(self.index).step_by(self.of)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let parse = || {
            let (number, of) = text.split_once('/')?;
            Self::new(number.parse().ok()?, of.parse().ok()?)
        };
        parse().ok_or_else(|| ShardError { written: text.into() })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.of)
    }
}
