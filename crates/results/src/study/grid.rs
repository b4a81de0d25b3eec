//! Measurements as blocks of columns, and the cells that they stand for.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use crate::measured::{Cell, Pattern};

/// The most cells of a grid: ten times the largest there is, and 10 MB in memory.
pub(super) const MOST_CELLS: usize = 20_000;

/// A set of measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Its name.
    pub id: String,
    /// Work of one run.
    pub workload: Workload,
    /// Metrics of a run.
    pub metrics: Vec<String>,
    /// Meaning of the column `x`, if cells have it.
    pub x: Option<String>,
    /// Settings of the workload.
    pub settings: toml::Table,
    /// Its cells in the order of the blocks; within a block the first column in alphabetical order
    /// changes last, and values keep the order of the file.
    pub cells: Vec<Planned>,
    /// Those of a quick run.
    pub quick: Vec<Planned>,
}

/// Work of one run of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// The emulator's measurement of its link.
    MeasureLink,
    /// A document and its objects.
    Page,
    /// A site of several domains, replayed.
    Archive,
    /// A file on each of several connections, all begun at once.
    Files,
    /// Readers of pages and of files for a fixed time.
    Mixed,
    /// The page's objects one after another on one connection.
    Sequence,
    /// Endless transfers, measured in steady state.
    Bulk,
    /// A reader of public services, with and without saturated lower effort.
    RuralPolicy,
}

/// A cell to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The cell.
    pub cell: Cell,
    /// Number of runs.
    pub runs: u32,
    /// Time after which a run is cut off.
    pub deadline: Duration,
}

/// One part of a run that is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    of: usize,
}

/// A text that names no shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{written:?} is no shard: write \"2/8\" for the second of eight")]
pub struct ShardError {
    written: String,
}

/// A block of columns, read.
pub(super) struct Block {
    pub columns: Pattern,
    pub runs: u32,
    pub deadline: Duration,
}

/// All combinations of all blocks, each once, with the most runs and that block's deadline.
pub(super) fn expand(blocks: &[Block]) -> Result<Vec<Planned>, String> {
    let mut all: Vec<Planned> = Vec::new();
    let mut places: HashMap<Cell, usize> = HashMap::new();
    for Block { columns, runs, deadline } in blocks {
        let count = columns.columns().fold(1_usize, |n, (_, one)| n.saturating_mul(one.len()));
        if count.saturating_add(all.len()) > MOST_CELLS {
            return Err(format!("stands for more than {MOST_CELLS} cells: take some values away"));
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
    /// The cell in the full grid.
    pub fn planned(&self, cell: &Cell) -> Option<&Planned> {
        self.cells.iter().find(|planned| planned.cell == *cell)
    }
}

impl Shard {
    /// The whole as one shard.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// The `number`th (from 1) of `of` shards; `None` unless there is such a one.
    pub fn new(number: usize, of: usize) -> Option<Self> {
        (1..=of).contains(&number).then(|| Self { index: number - 1, of })
    }

    /// Its part of `all`: every so manyth, so that neighbours, which take about as long as one
    /// another, fall to different shards. All shards together have everything, each once.
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
