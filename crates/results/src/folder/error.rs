//! Why a folder cannot be used.

use std::io;
use std::path::PathBuf;

use crate::measured::Cell;
use crate::parquet::TableError;

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// How.
        why: String,
    },
    /// It holds another run.
    #[error(
        "{} holds results of another run ({found}, not {wanted}): name another folder, or remove it",
        path.display()
    )]
    Another {
        /// Which.
        path: PathBuf,
        /// What it is of.
        found: String,
        /// What it should be of.
        wanted: String,
    },
    /// It holds results of another build of the program.
    #[error(
        "{} holds results of another build ({found}, not {wanted}): name another folder, or go on with \
         this one all the same (--mix-builds); the report will say so",
        path.display()
    )]
    AnotherBuild {
        /// Which.
        path: PathBuf,
        /// What it was made by.
        found: String,
        /// What would go on.
        wanted: String,
    },
    /// Two shards have different results of one cell.
    #[error(
        "{paper} {grid} {cell} is in two folders, with different results: leave one of them out"
    )]
    Twice {
        /// Of which study.
        paper: String,
        /// Of which grid.
        grid: String,
        /// Which.
        cell: Cell,
    },
    /// A run gave what no file of numbers holds.
    #[error("{paper} {grid} {cell}: {metric} of run {run} is {value}, which is no finite number")]
    NotFinite {
        /// Of which study.
        paper: String,
        /// Of which grid.
        grid: String,
        /// In which cell.
        cell: Cell,
        /// Of what.
        metric: String,
        /// In which run.
        run: u32,
        /// What it gave.
        value: f64,
    },
    /// A table.
    #[error(transparent)]
    Table(#[from] TableError),
}
