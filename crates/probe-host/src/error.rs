//! Errors that end the command.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::store;

/// Error that ends the command.
#[derive(Debug, Error)]
pub enum Error {
    /// The list of names cannot be used.
    #[error("{}: {why}", file.display())]
    Names {
        /// The file.
        file: PathBuf,
        /// Fault.
        why: String,
    },
    /// A file for the report cannot be used.
    #[error("{}: {why}", file.display())]
    Input {
        /// The file.
        file: PathBuf,
        /// Fault.
        why: String,
    },
    /// The command line asks for something impossible.
    #[error("{0}")]
    Arguments(String),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The run ends with records that the store did not take.
    #[error("{records} records of this run are lost: {} did not take them. Make room, or name another file with --store", path.display())]
    Unstored {
        /// Number.
        records: u64,
        /// The store.
        path: PathBuf,
    },
    /// The store has no pings that make a profile.
    #[error("{} has no answered pings to a public address, so it makes no profile", store.display())]
    NoProfile {
        /// The store.
        store: PathBuf,
    },
    /// The receiver does not take the records.
    #[error("{to} refuses the records: {why}")]
    Refused {
        /// The receiver.
        to: String,
        /// Cause.
        why: String,
    },
    /// Output cannot be written.
    #[error("writing {what} failed: {source}")]
    Output {
        /// Destination.
        what: String,
        /// Cause.
        source: io::Error,
    },
    /// The system refuses something that the probe cannot do without.
    #[error("{what} failed: {source}")]
    System {
        /// Operation.
        what: &'static str,
        /// Cause.
        source: io::Error,
    },
}
