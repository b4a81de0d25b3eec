//! What the resolver keeps over restarts.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_dns::Front;
use bentpipe_dns::journal::{self, File, Records};
use tokio::time::{MissedTickBehavior, interval};

use super::Board;
use crate::net::StartError;
use crate::quiet::Quiet;

/// What was learned within this time is lost with the power.
const INTERVAL: Duration = Duration::from_secs(1);

/// After an error it is tried again to begin a new file.
const PAUSE_AFTER_ERROR: u32 = 60;

/// Writes the journal.
pub struct Keeper {
    path: PathBuf,
    file: Option<File>,
    quiet: Quiet,
    /// Ticks until it is tried again.
    pause: u32,
}

impl Keeper {
    /// Gives `front` what stands in the file at `path`, and begins the file anew with it.
    pub fn restore<C>(
        path: &Path,
        front: &mut Front<C>,
        now: Duration,
    ) -> Result<Self, StartError> {
        let cannot = |source| StartError::DnsCache { path: path.to_owned(), source };
        let bytes = journal::read(path).map_err(cannot)?;
        let (mut read, mut count) = (0usize, 0);
        for record in Records::of(&bytes) {
            read += 1;
            front.restore(record, now);
            count = front.kept().0;
        }
        let file = File::begin(path, &front.snapshot(now)).map_err(cannot)?;
        if !bytes.is_empty() {
            tracing::info!(file = %path.display(), read, kept = count, "DNS answers of the last run");
        }
        Ok(Self { path: path.to_owned(), file: Some(file), quiet: Quiet::default(), pause: 0 })
    }

    /// Writes what is new once a second; for ever.
    pub async fn keep(&mut self, board: &Board) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.write(board).await;
        }
    }

    /// Writes what is new. A disk that is full costs what is kept over restarts, and nothing else.
    pub async fn write(&mut self, board: &Board) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let wasteful = self.file.as_ref().is_none_or(File::is_wasteful);
        let (file, path) = (self.file.take(), self.path.clone());
        let now = board.clock.now();
        let records = {
            let mut front = board.lock();
            if wasteful { front.snapshot(now) } else { front.take_journal() }
        };
        let work = move || -> io::Result<File> {
            match file {
                Some(mut file) if !wasteful => {
                    if !records.is_empty() {
                        file.append(&records)?;
                    }
                    Ok(file)
                }
                _ => File::begin(&path, &records),
            }
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(file)) => self.file = Some(file),
            Ok(Err(error)) => {
                self.quiet.warn("DNS answers are not kept over a restart", &error);
                self.pause = PAUSE_AFTER_ERROR;
            }
            // The runtime is going away.
            Err(_) => {}
        }
    }
}
