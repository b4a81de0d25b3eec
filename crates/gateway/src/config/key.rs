//! The private key that a config names.

use std::path::{Path, PathBuf};

use bentpipe_link::SecretKey;

/// Why a key file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file does not hold a key; its content stays out of messages.
    #[error("{} holds no private key: it should be one line of 44 characters of base64", .0.display())]
    Content(PathBuf),
    /// The file could not be read.
    #[error("the private key in {} cannot be read: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Reads the key file that `bentpipe keys` writes.
pub fn read(file: &Path) -> Result<SecretKey, KeyFileError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| KeyFileError::Unreadable { file: file.to_owned(), source })?;
    text.parse().map_err(|_| KeyFileError::Content(file.to_owned()))
}
