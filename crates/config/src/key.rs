//! Private key named by a configuration file.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bentpipe_link::SecretKey;
use zeroize::Zeroizing;

/// Permission bits of users other than the owner and the file's group, and write permission of the
/// group.
const EXPOSED: u32 = 0o027;

/// Maximum size of a file with a secret.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// Reason why a key file was rejected.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file does not hold a key. Its content is not shown in messages.
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

/// Reads a key file written by `bentpipe keys`.
pub fn read(file: &Path) -> Result<SecretKey, KeyFileError> {
    let text = secret(file)
        .map_err(|source| KeyFileError::Unreadable { file: file.to_owned(), source })?;
    text.parse().map_err(|_| KeyFileError::Content(file.to_owned()))
}

/// Reads a secret text file, and warns if other users can read it. The text is erased when dropped.
pub fn secret(file: &Path) -> std::io::Result<Zeroizing<String>> {
    let bytes = secret_bytes(file)?;
    let text = str::from_utf8(&bytes).map_err(|_| std::io::ErrorKind::InvalidData)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Reads secret bytes, like [`secret`].
pub fn secret_bytes(file: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let opened = std::fs::File::open(file)?;
    let mode = opened.metadata()?.permissions().mode();
    if let Some(exposed) = exposed(file, mode) {
        tracing::warn!("{exposed}");
    }
    // Reserve the full size: growing the buffer would leave copies of the secret in memory.
    let room = opened.metadata()?.len().min(MAX_SECRET_BYTES) as usize + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    opened.take(MAX_SECRET_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Warning if other users can read or change the secret in `file`.
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
        // Mode that systemd uses for a service's credentials.
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
