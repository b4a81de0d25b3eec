//! Files of a folder: listing, reading, and atomic writing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::FolderError;

/// Extension of incomplete files.
const PART: &str = "part";

/// Sorted list of the complete cell files below `root`, with this extension or, for `None`, with
/// any.
pub(super) fn cell_files(root: &Path, only: Option<&str>) -> Result<Vec<PathBuf>, FolderError> {
    let mut files = Vec::new();
    for paper in entries(&root.join("cells"))? {
        for grid in entries(&paper)? {
            let wanted = |path: &PathBuf| match (path.extension(), only) {
                (Some(found), Some(only)) => found == only,
                (found, None) => found.is_none_or(|found| found != PART),
                (None, Some(_)) => false,
            };
            files.extend(entries(&grid)?.into_iter().filter(wanted));
        }
    }
    Ok(files)
}

/// Text of a file of lines, one of which may be incomplete. Empty if the file does not exist.
pub(super) fn lines(path: &Path) -> Result<String, FolderError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        bytes => Ok(String::from_utf8_lossy(&bytes.map_err(io_at(path))?).into_owned()),
    }
}

/// Sorted contents of a folder. Empty if the folder does not exist.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let listed = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(io_at(folder))?,
    };
    let paths: Result<Vec<_>, _> = listed.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(io_at(folder))?;
    paths.sort();
    Ok(paths)
}

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("rows and manifests are plain data");
    bytes.push(b'\n');
    bytes
}

pub(super) fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, FolderError> {
    let bytes = fs::read(path).map_err(io_at(path))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| FolderError::Damaged { path: path.into(), why: error.to_string() })
}

/// Writes a file completely or not at all, even if the machine stops.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let part = part(path);
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().map_err(io_at(path))
}

/// Copies a file of any size completely or not at all.
pub(super) fn copy_whole(from: &Path, to: &Path) -> Result<(), FolderError> {
    let (folder, part) = (to.parent().unwrap_or(to), part(to));
    fs::create_dir_all(folder).map_err(io_at(folder))?;
    fs::copy(from, &part).map_err(io_at(from))?;
    fs::rename(&part, to).map_err(io_at(to))
}

fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(PART);
    name.into()
}

/// Like [`write_whole`], and creates the file's folder if necessary.
pub(super) fn write_below(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(io_at(folder))?;
    write_whole(path, bytes)
}

pub(super) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Io { path, source }
}
