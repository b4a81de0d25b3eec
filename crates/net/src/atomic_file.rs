//! Files that are replaced as a whole: a reader sees the old content or the new content.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Permissions of a file that only its owner may read.
pub const OWNER_ONLY: u32 = 0o600;

/// Permissions of a file that its owner's group may read.
pub const GROUP_READABLE: u32 = 0o640;

/// Path of the temporary file that receives the next content of `path`.
pub fn temporary(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    Ok(path.with_file_name(name))
}

/// Replaces the content of `path`. After a power cut the file may be missing or empty.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    put(path, content, mode, |_| Ok(()))
}

/// Replaces the content of `path`. The change survives a power cut after this returns.
pub fn replace_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    put(path, content, mode, File::sync_all)?;
    // The folder contains the name, so it is synced too.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn put(
    path: &Path,
    content: &[u8],
    mode: u32,
    sync: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path)?;
    // Remove a leftover of a crash. Opening it again would keep its permissions.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    // The umask may have removed permissions.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    sync(&file)?;
    std::fs::rename(&temporary, path)
}
