//! Status file that is always replaced as a whole.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;

use super::{Document, SCHEMA};
use crate::atomic_file::{self, GROUP_READABLE as MODE};

/// Maximum size that is read; a gateway never writes more.
const MAX_BYTES: u64 = 64 << 20;

/// Reason why a file cannot be read as a status.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error(
        "cannot read {}: {source}; a gateway writes it while it runs, where [status] of its \
         configuration says so",
        file.display()
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file has another format.
    #[error("{} is not a status of a gateway: {why}", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Cause.
        why: String,
    },
    /// The file is from another release.
    #[error(
        "{} has the format {found}, and this command reads {SCHEMA}: use that of the gateway's \
         release",
        file.display()
    )]
    Schema {
        /// The file.
        file: PathBuf,
        /// Format version of the file.
        found: u32,
    },
}

/// Status file of a running gateway. Other threads may be writing it, but cannot write it again
/// after its removal.
#[derive(Debug, Clone)]
pub struct Place {
    path: PathBuf,
    /// Held while the file is written or removed; `true` after the final removal.
    is_over: Arc<Mutex<bool>>,
}

impl Place {
    /// Creates a handle for the file at `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), is_over: Arc::default() }
    }

    /// Replaces the content, unless the file has been removed.
    pub fn replace(&self, content: &[u8]) -> io::Result<()> {
        let is_over = self.is_over.lock();
        if *is_over { Ok(()) } else { atomic_file::replace(&self.path, content, MODE) }
    }

    /// Removes the file permanently, so that it is not mistaken for a running gateway's. Waits
    /// until a write in progress ends.
    pub fn remove(&self) {
        let mut is_over = self.is_over.lock();
        *is_over = true;
        // Either file may not exist.
        let _ = std::fs::remove_file(&self.path);
        let _ = atomic_file::temporary(&self.path).and_then(std::fs::remove_file);
    }
}

/// Reads the status of a gateway.
pub fn read(path: &Path) -> Result<Document, ReadError> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let file = || path.to_owned();
    let mut text = Vec::new();
    std::fs::File::open(path)
        .and_then(|opened| opened.take(MAX_BYTES).read_to_end(&mut text))
        .map_err(|source| ReadError::Unreadable { file: file(), source })?;
    let foreign =
        |error: serde_json::Error| ReadError::Foreign { file: file(), why: error.to_string() };
    let Head { schema } = serde_json::from_slice(&text).map_err(foreign)?;
    if schema != SCHEMA {
        return Err(ReadError::Schema { file: file(), found: schema });
    }
    serde_json::from_slice(&text).map_err(foreign)
}
