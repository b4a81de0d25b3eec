//! Faults of a store.

use std::path::PathBuf;

use thiserror::Error;

use super::schema::VERSION;

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
    /// Another process uploads.
    #[error("another upload of {} is running. Wait for its end", path.display())]
    Uploading {
        /// The file.
        path: PathBuf,
    },
    /// The receiver has records that the store does not have.
    #[error("{}: the receiver claims records of session {session} that the store does not have. Is it a copy of another store?", path.display())]
    Receipt {
        /// The file.
        path: PathBuf,
        /// Identifier of the session.
        session: String,
    },
    /// Records that were not sent yet cannot be packed.
    #[error("{}: the records of session {session} that were not sent yet cannot be read or compressed. Check the file with sqlite3, and the free memory", path.display())]
    Unpacked {
        /// The file.
        path: PathBuf,
        /// Identifier of the session.
        session: String,
    },
    /// The file is something else.
    #[error("{} is not a store of bentpipe probe. Name another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is of a later version.
    #[error("{} has format {found}, and this version reads up to {}. Use a later version", path.display(), VERSION)]
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
