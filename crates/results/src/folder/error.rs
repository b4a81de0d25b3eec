//! Reasons why a folder cannot be used.

use std::io;
use std::path::PathBuf;

use crate::measured::Cell;
use crate::parquet::TableError;

/// Reason why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file operation failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file is damaged.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Fault.
        why: String,
    },
    /// The folder holds another run.
    #[error(
        "{} holds results of another run ({found}, not {wanted}): name another folder, or remove it",
        path.display()
    )]
    Another {
        /// The folder.
        path: PathBuf,
        /// Run that it holds.
        found: String,
        /// Run that it should hold.
        wanted: String,
    },
    /// The folder holds results of another build of the program.
    #[error(
        "{} holds results of another build ({found}, not {wanted}): name another folder, or go on with \
         this one all the same (--mix-builds); the report will say so",
        path.display()
    )]
    AnotherBuild {
        /// The folder.
        path: PathBuf,
        /// Build that made it.
        found: String,
        /// Build that wants to continue.
        wanted: String,
    },
    /// Two shards have different results for one cell.
    #[error(
        "{paper} {grid} {cell} is in two folders, with different results: leave one of them out"
    )]
    Twice {
        /// Study.
        paper: String,
        /// Grid.
        grid: String,
        /// Cell.
        cell: Cell,
    },
    /// A run gave a value that files cannot represent.
    #[error(
        "{paper} {grid} {cell}: {metric} of run {run} is {value}, which is not a finite number"
    )]
    NotFinite {
        /// Study.
        paper: String,
        /// Grid.
        grid: String,
        /// Cell.
        cell: Cell,
        /// Metric.
        metric: String,
        /// Number of the run.
        run: u32,
        /// Value of the cell.
        value: f64,
    },
    /// Error of a table.
    #[error(transparent)]
    Table(#[from] TableError),
}
