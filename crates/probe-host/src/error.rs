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
    /// The command line asks for something impossible.
    #[error("{0}")]
    Arguments(String),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] store::StoreError),
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
