//! The handshake counter that outlives the process.
//!
//! The hub refuses a handshake whose counter is not above the last one it saw, so
//! a counter must never be used twice, over crashes and power cuts too. Each start
//! claims a whole block of counters before it uses any; nothing is written after.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Counters per start: a handshake a second for 136 years.
const BLOCK: u64 = 1 << 32;

/// The counter could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// The file could not be read or written.
    #[error(
        "the handshake counter in {} cannot be kept: {source}\n\
         name a file that this user may write with state-file under [link]", .file.display()
    )]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file holds something else.
    #[error(
        "{} does not hold a handshake counter: name another file with state-file under [link], \
         or remove this one", .0.display()
    )]
    Content(PathBuf),
}

/// Claims the next block of counters in `file` and gives its first.
///
/// Where the file is missing, the clock takes its place: a lost file then does no
/// harm as long as the clock is right.
pub fn claim(file: &Path) -> Result<u64, CounterError> {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    claim_at(file, clock.as_secs())
}

fn claim_at(file: &Path, clock_s: u64) -> Result<u64, CounterError> {
    let failed = |source| CounterError::File { file: file.to_owned(), source };
    let stored = match fs::read_to_string(file) {
        Ok(text) => text.trim().parse().map_err(|_| CounterError::Content(file.to_owned()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed(error)),
    };
    // One block for each second of the clock: stored and clock stay comparable.
    let first: u64 = clock_s.saturating_mul(BLOCK).max(stored);
    let next = first.checked_add(BLOCK).ok_or_else(|| CounterError::Content(file.to_owned()))?;
    replace(file, &format!("{next}\n")).map_err(failed)?;
    Ok(first)
}

/// The new content is on the disk before the old one goes.
pub(super) fn replace(file: &Path, content: &str) -> io::Result<()> {
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(".new");
    let mut new = File::create(&fresh)?;
    new.write_all(content.as_bytes())?;
    new.sync_all()?;
    fs::rename(&fresh, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counter_is_given_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state");
        let first = claim_at(&file, 100).unwrap();
        assert_eq!(first, 100 * BLOCK);
        // Within the same second, with a clock gone back, and with one gone ahead.
        assert_eq!(claim_at(&file, 100).unwrap(), first + BLOCK);
        assert_eq!(claim_at(&file, 3).unwrap(), first + 2 * BLOCK);
        assert_eq!(claim_at(&file, 1000).unwrap(), 1000 * BLOCK);
        assert!(claim(&file).unwrap() > 1000 * BLOCK);
    }

    #[test]
    fn a_strange_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state");
        std::fs::write(&file, "my notes").unwrap();
        let error = claim(&file).unwrap_err().to_string();
        assert!(error.contains("does not hold a handshake counter"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "my notes");
        let nowhere = claim(Path::new("/nonexistent/air.state")).unwrap_err().to_string();
        assert!(nowhere.contains("state-file under [link]"), "{nowhere}");
    }
}
