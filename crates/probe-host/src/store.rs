//! The store: one SQLite file, written by one process and committed every second.
//!
//! | module | contents |
//! |---|---|
//! | `schema` | tables and pragmas, and records as rows |
//! | `writer` | [`Writer`]: commits, and goes on when the disk does not |
//! | `reader` | [`read`]: sessions and their records |
//!
//! WAL with `synchronous=FULL` syncs the log at every commit, so a committed record survives the end of the
//! process and of the power. Between commits a record is at risk for a second.

mod reader;
mod schema;
mod writer;

use std::env;
use std::path::PathBuf;

use thiserror::Error;

pub use reader::{Item, read};
pub use writer::{Flushed, Writer};

/// Fault of a store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The folder cannot be made.
    #[error("the folder of {} cannot be made: {source}. Name another file with --store", path.display())]
    Folder {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The lock of the writer cannot be made.
    #[error("{}.lock cannot be written: {source}. Name another file with --store", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Another process writes.
    #[error("another probe writes to {}. Stop it, or name another file with --store", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{} is not a store of bentpipe probe. Name another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is of a later version.
    #[error("{} has format {found}, and this version reads up to {}. Use a later version", path.display(), schema::VERSION)]
    Later {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
    /// SQLite refuses.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: rusqlite::Error,
    },
    /// A row does not hold a record.
    #[error("{}: session {session}, record {number} cannot be read: {source}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Session.
        session: i64,
        /// Record.
        number: i64,
        /// Cause.
        source: serde_json::Error,
    },
}

/// Default place: `bentpipe/probe.sqlite` in `$XDG_DATA_HOME`, or in `~/.local/share`. Returns `None` if the
/// environment names neither.
pub fn default_place() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME");
    let data = data.or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("bentpipe").join("probe.sqlite"))
}

#[cfg(test)]
mod tests;
