//! A file that is there as a whole or not at all.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use super::{Document, SCHEMA};

/// Its owner may read and write it, its group may read it: it may tell what passengers do.
const MODE: u32 = 0o640;

/// More than a gateway writes; a file that is longer is none of ours.
const MOST_BYTES: u64 = 64 << 20;

/// Reason for which a file cannot be read as a status.
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
        /// Cause.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no status of a gateway: {why}", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Cause.
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

/// The file of a gateway that runs: others may write it meanwhile, but not after it was removed.
#[derive(Debug, Clone)]
pub struct Place {
    path: PathBuf,
    /// Held while the file is written or removed; `true` once it was removed for good.
    is_over: Arc<Mutex<bool>>,
}

impl Place {
    /// The file at `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), is_over: Arc::default() }
    }

    /// [`replace`]s the content, unless the file was removed.
    pub fn replace(&self, content: &[u8]) -> io::Result<()> {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_over { Ok(()) } else { replace(&self.path, content) }
    }

    /// Nobody should take the file for that of a gateway that runs: it goes, and stays away. Waits
    /// for who writes it at the moment.
    pub fn remove(&self) {
        let mut is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        *is_over = true;
        // Either may never have been there.
        let _ = std::fs::remove_file(&self.path);
        let _ = beside(&self.path).and_then(std::fs::remove_file);
    }
}

/// Temporary file for the next content of `path`.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    Ok(path.with_file_name(name))
}

/// `content` becomes the content of `path` at once: whoever reads meanwhile has the old or the new.
///
/// Not synced: after the machine stopped nobody asks what a gateway carried before.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    put(path, content, |_| Ok(()))
}

/// The same; once it is done, a power cut does not undo it.
pub fn replace_for_good(path: &Path, content: &[u8]) -> io::Result<()> {
    put(path, content, File::sync_all)?;
    // The folder has the name.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn put(path: &Path, content: &[u8], sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    let new = beside(path)?;
    // One that a crash left; opened again it would keep its rights.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
    // Whatever the umask takes away.
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(content)?;
    sync(&file)?;
    std::fs::rename(&new, path)
}

/// Reads a gateway's status.
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
