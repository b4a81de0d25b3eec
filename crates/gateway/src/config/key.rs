//! Keys as the config files hold them: 32 bytes in base64.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The length of either key in bytes.
const KEY_BYTES: usize = 32;

/// Why a key was not taken.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text is not 32 bytes in base64.
    #[error("{0:?} is not a key: a key is 44 characters of base64; make one with `bentpipe keys`")]
    Public(String),
    /// The file does not hold a key; its content stays out of messages.
    #[error("{} holds no private key: it should be one line of 44 characters of base64", .0.display())]
    Private(PathBuf),
    /// The file could not be read.
    #[error("the private key in {} cannot be read: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Who the other gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

/// Who this gateway is. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(pub [u8; KEY_BYTES]);

impl PrivateKey {
    /// Reads the key file that `bentpipe keys` writes.
    pub fn read(file: &Path) -> Result<Self, KeyError> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| KeyError::Unreadable { file: file.to_owned(), source })?;
        decode(&text).map(Self).ok_or_else(|| KeyError::Private(file.to_owned()))
    }
}

fn decode(text: &str) -> Option<[u8; KEY_BYTES]> {
    STANDARD.decode(text.trim()).ok()?.try_into().ok()
}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self).ok_or_else(|| KeyError::Public(text.chars().take(60).collect()))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(hidden)")
    }
}
