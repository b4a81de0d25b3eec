//! Files of a service manager (`systemd.exec(5)`).
//!
//! One configuration serves a service and its operator. The service finds its key among its
//! credentials and its state in its own folder. The operator's commands find them as the file says.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the credential with the name of `file`, if the service manager passed one.
pub fn credential(file: &Path) -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os("CREDENTIALS_DIRECTORY")?).join(file.file_name()?);
    path.exists().then_some(path)
}

/// Returns the path of `file` in the service's folder for state, if it has one.
pub fn state_file(file: &Path) -> Option<PathBuf> {
    let folders = env::var_os("STATE_DIRECTORY")?;
    // Several folders are separated by colons; the first is the one for this.
    let first = env::split_paths(&folders).next()?;
    Some(first.join(file.file_name()?))
}
