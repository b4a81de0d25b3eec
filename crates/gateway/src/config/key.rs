//! The private key that a config names.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bentpipe_link::SecretKey;
use zeroize::Zeroizing;

/// Permissions of those who are neither the owner nor of the file's group, and writing by that group.
const EXPOSED: u32 = 0o027;

/// Longest file of a secret.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// Reason for which a key file was not accepted.
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
        /// Error of the system.
        source: std::io::Error,
    },
}

/// Reads the key file that `bentpipe keys` writes.
pub fn read(file: &Path) -> Result<SecretKey, KeyFileError> {
    let text = secret(file)
        .map_err(|source| KeyFileError::Unreadable { file: file.to_owned(), source })?;
    text.parse().map_err(|_| KeyFileError::Content(file.to_owned()))
}

/// Reads a file that only its owner should read, and warns if others can. The text is erased when it
/// is dropped.
pub fn secret(file: &Path) -> std::io::Result<Zeroizing<String>> {
    let opened = std::fs::File::open(file)?;
    let mode = opened.metadata()?.permissions().mode();
    if let Some(exposed) = exposed(file, mode) {
        tracing::warn!("{exposed}");
    }
    // A text that grows leaves copies behind.
    let room = opened.metadata()?.len().min(MAX_SECRET_BYTES) as usize + 1;
    let mut text = Zeroizing::new(String::with_capacity(room));
    opened.take(MAX_SECRET_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Warning about a secret in `file` that others can read or change.
fn exposed(file: &Path, mode: u32) -> Option<String> {
    (mode & EXPOSED != 0).then(|| {
        format!(
            "{} can be read or changed by others (mode {:03o}): `chmod 600` it, and replace the secret \
             if others use this machine",
            file.display(),
            mode & 0o777
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_others_can_read_is_told() {
        let of = |mode: u32| exposed(Path::new("a.key"), 0o100_000 | mode);
        assert_eq!(of(0o600), None);
        // As systemd gives credentials to a service.
        assert_eq!(of(0o440), None);
        for mode in [0o644, 0o660, 0o602] {
            let said = of(mode).expect("others have rights");
            assert!(
                said.contains(&format!("a.key can be read or changed by others (mode {mode:o})"))
            );
        }
    }

    #[test]
    fn a_file_without_end_is_no_secret() {
        let error = secret(Path::new("/dev/zero")).map(|text| text.len());
        assert_eq!(error.unwrap(), MAX_SECRET_BYTES as usize);
    }
}
