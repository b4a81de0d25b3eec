//! Handshake counter that outlives the process.
//!
//! The hub refuses a handshake whose counter is not above the last one it received. A counter must
//! therefore never be used twice, even after a crash or a power cut. Each start claims a block of
//! counters before it uses any. Afterwards the file is written only if nobody answers. A lock next
//! to the file admits one process at a time.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bentpipe_link::io::Air;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;

// A lock that another user takes would keep the gateway from starting.
use bentpipe_net::atomic_file::{self, OWNER_ONLY as MODE};

/// Counters per start: a handshake a second for 136 years.
const BLOCK: u64 = 1 << 32;

/// Reason why the counter cannot be stored.
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
        /// Error of the system.
        source: io::Error,
    },
    /// Another process holds the lock.
    #[error(
        "another gateway runs with the state file {}: stop it first, or give this one a key of its \
         own and another state-file under [link]; two with one key shut each other out", .0.display()
    )]
    Held(PathBuf),
    /// The file has other contents.
    #[error(
        "{} does not hold a handshake counter: name another file with state-file under [link], \
         or remove this one", .0.display()
    )]
    Content(PathBuf),
}

/// Locks that this process holds until it ends.
static HELD: Mutex<Vec<(PathBuf, Flock<File>)>> = Mutex::new(Vec::new());

/// Claims the next block of counters in `file`, and returns its first. No other process can claim
/// one while this process runs.
///
/// If the file is missing, the clock replaces it. A lost file is therefore harmless if the clock is
/// right.
pub fn claim(file: &Path) -> Result<u64, CounterError> {
    let mut held = HELD.lock();
    if !held.iter().any(|(of, _)| of == file) {
        held.push((file.to_owned(), lock(file)?));
    }
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    claim_at(file, clock.as_secs())
}

/// Returns the first counter of the clock's previous second. A gateway that starts afterwards, with
/// any state file, has higher ones.
pub fn before_now() -> u64 {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    clock.as_secs().saturating_sub(1).saturating_mul(BLOCK)
}

/// Silence after which another block is claimed; it doubles each time …
const PATIENCE: Duration = Duration::from_secs(30);
/// … up to this limit. An outage of a day costs 30 writes.
const MAX_PATIENCE: Duration = Duration::from_secs(3600);
/// Polling interval.
const LOOK: Duration = Duration::from_secs(5);

/// Claims another block for `air` if its handshakes stay unanswered, because the ground is silent if
/// another gateway with this key has used higher counters. Runs in a task of the current runtime
/// while `air` is in use.
pub fn renew(air: &Air, file: &Path) {
    let (air, file) = (air.watch(), file.to_owned());
    tokio::spawn(async move {
        let mut due = Due::default();
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(air) = air.air() else { return };
            if !due.is_due(air.unanswered_for()) {
                continue;
            }
            match claim(&file) {
                Ok(first) => air.raise_counter(first),
                Err(error) => tracing::warn!(%error, "handshakes go on with the counters at hand"),
            }
        }
    });
}

/// Schedule of further blocks: after 30, 60, 120 s … of silence, and then every hour.
#[derive(Debug, Default)]
struct Due(Option<Duration>);

impl Due {
    fn is_due(&mut self, unanswered: Option<Duration>) -> bool {
        let Some(unanswered) = unanswered else {
            self.0 = None;
            return false;
        };
        let due = self.0.unwrap_or(PATIENCE);
        let is_due = unanswered >= due;
        self.0 = Some(if is_due { due + due.min(MAX_PATIENCE) } else { due });
        is_due
    }
}

/// Locks a file beside `file`, which itself is replaced each time it is written.
fn lock(file: &Path) -> Result<Flock<File>, CounterError> {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    let failed = |source| CounterError::File { file: file.to_owned(), source };
    let mut options = File::options();
    let open = options.write(true).create(true).truncate(false).mode(MODE).open(&name);
    let open = open.map_err(failed)?;
    // Fails if another user owns the file, who may lock it anyway.
    let _ = open.set_permissions(fs::Permissions::from_mode(MODE));
    Flock::lock(open, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => CounterError::Held(file.to_owned()),
        other => failed(other.into()),
    })
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
    atomic_file::replace_durably(file, format!("{next}\n").as_bytes(), MODE).map_err(failed)?;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counter_is_used_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state");
        let first = claim_at(&file, 100).unwrap();
        assert_eq!(first, 100 * BLOCK);
        // In the same second, after the clock went back, and after it went ahead.
        assert_eq!(claim_at(&file, 100).unwrap(), first + BLOCK);
        assert_eq!(claim_at(&file, 3).unwrap(), first + 2 * BLOCK);
        assert_eq!(claim_at(&file, 1000).unwrap(), 1000 * BLOCK);
        assert!(claim(&file).unwrap() > 1000 * BLOCK);
    }

    #[test]
    fn only_the_owner_reads_and_locks_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state");
        let names = ["air.state", "air.state.lock"].map(|name| folder.path().join(name));
        // File of an earlier version.
        for name in &names {
            std::fs::write(name, "1\n").unwrap();
            std::fs::set_permissions(name, fs::Permissions::from_mode(0o644)).unwrap();
        }
        claim(&file).unwrap();
        for name in &names {
            let mode = std::fs::metadata(name).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, MODE, "{}", name.display());
        }
    }

    #[test]
    fn a_file_that_another_process_holds_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state");
        // Locks of separately opened files conflict, as those of two processes do.
        let other = lock(&file).unwrap();
        let error = claim(&file).unwrap_err().to_string();
        assert!(error.contains("another gateway runs") && error.contains("air.state"), "{error}");
        assert!(!file.exists(), "nothing was claimed");
        drop(other);
        let first = claim(&file).unwrap();
        assert!(matches!(lock(&file), Err(CounterError::Held(_))));
        assert!(claim(&file).unwrap() > first, "the process itself may claim more");
    }

    #[test]
    fn further_blocks_are_due_at_growing_intervals() {
        let mut due = Due::default();
        let mut seconds = |to: u64| -> Vec<u64> {
            let is_due = |at: &u64| due.is_due(Some(Duration::from_secs(*at)));
            (0..to).step_by(5).filter(is_due).collect()
        };
        let all = [30, 60, 120, 240, 480, 960, 1920, 3840, 7440, 11_040];
        assert_eq!(seconds(12_000), all);
        assert!(!due.is_due(None));
        assert!(due.is_due(Some(Duration::from_secs(31))), "and anew after an answer");
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
