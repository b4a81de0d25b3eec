//! A file that is there as a whole or not at all.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Document, SCHEMA};

/// Its owner may read and write it, its group may read it: it may tell what passengers do.
const MODE: u32 = 0o640;

/// More than a gateway writes; a file that is longer is none of ours.
const MOST_BYTES: u64 = 64 << 20;

/// Why a file tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error(
        "cannot read {}: {source}; a gateway writes it while it runs, where [status] of its \
         configuration says so",
        file.display()
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no status of a gateway: {why}", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// It is of another release.
    #[error(
        "{} has the format {found}, and this command reads {SCHEMA}: use that of the gateway's \
         release",
        file.display()
    )]
    Schema {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
}

/// `content` becomes the content of `path` at once: whoever reads meanwhile has the old or the new.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    // One that a crash left; opened again it would keep its rights.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
    // Whatever the umask takes away.
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(content)?;
    // Not synced: after the machine stopped nobody asks what a gateway carried before.
    std::fs::rename(&new, path)
}

/// What a gateway wrote.
pub fn read(path: &Path) -> Result<Document, ReadError> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let file = || path.to_owned();
    let mut text = Vec::new();
    std::fs::File::open(path)
        .and_then(|opened| opened.take(MOST_BYTES).read_to_end(&mut text))
        .map_err(|source| ReadError::Unreadable { file: file(), source })?;
    let foreign =
        |error: serde_json::Error| ReadError::Foreign { file: file(), why: error.to_string() };
    let Head { schema } = serde_json::from_slice(&text).map_err(foreign)?;
    if schema != SCHEMA {
        return Err(ReadError::Schema { file: file(), found: schema });
    }
    serde_json::from_slice(&text).map_err(foreign)
}
