//! Failures of a pair of gateways.

use std::io;
use std::path::PathBuf;

/// Reason why the pair could not be started.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error from the system.
        source: io::Error,
    },
    /// The system provides no random bytes.
    #[error("cannot make keys: {0}")]
    Random(String),
    /// The program could not be run.
    #[error("cannot run the {which} gateway: {source}")]
    Run {
        /// `air` or `ground`.
        which: &'static str,
        /// Error from the system.
        source: io::Error,
    },
    /// A gateway ended immediately after its start.
    #[error("the {which} gateway ended at its start:\n{said}")]
    Ended {
        /// `air` or `ground`.
        which: &'static str,
        /// Its last lines of output.
        said: String,
    },
}
