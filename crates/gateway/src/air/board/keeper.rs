//! Storage of the resolver's state over restarts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dns::Front;
use bentpipe_dns::journal::{self, File, Place, Record, Records};
use tokio::task::{JoinHandle, spawn_blocking, yield_now};
use tokio::time::{MissedTickBehavior, interval};

use super::Board;
use crate::net::StartError;
use crate::quiet::Quiet;

/// Interval of writes: knowledge of this time is lost with the power.
const INTERVAL: Duration = Duration::from_secs(1);

/// After an error it is tried again to begin a new file.
const PAUSE_AFTER_ERROR: u32 = 60;

/// Log line while nothing can be written.
const NOT_KEPT: &str = "DNS answers are not kept over a restart; the resolver works without";

/// Writes the journal: encoding, checksums and the disk are a thread's work, which has one piece of it
/// at a time.
pub struct Keeper {
    path: PathBuf,
    /// The journal's place, unless it could not be claimed so far.
    place: Option<Arc<Place>>,
    file: Option<File>,
    /// Write in progress. A dropped future of this keeper leaves it here, so that nothing else is
    /// written to the file meanwhile.
    job: Option<JoinHandle<io::Result<Written>>>,
    quiet: Quiet,
    /// Ticks until it is tried again.
    pause: u32,
}

/// The journal's place, and the file there.
type Written = (Arc<Place>, File);

impl Keeper {
    /// Gives `front` what stands in the file at `path`, and begins the file anew with it. A disk that is full
    /// or read-only costs what is kept over restarts: it is logged, and tried again later. An error only if
    /// another process holds the file.
    pub fn restore<C>(
        path: &Path,
        front: &mut Front<C>,
        now: Duration,
    ) -> Result<Self, StartError> {
        let (path, quiet) = (path.to_owned(), Quiet::default());
        let place = match Place::claim(&path) {
            Ok(place) => Some(Arc::new(place)),
            Err(source) if source.kind() == io::ErrorKind::ResourceBusy => {
                return Err(StartError::DnsCache { path, source });
            }
            Err(error) => {
                warn(&path, &error);
                None
            }
        };
        let bytes = journal::read(&path).unwrap_or_else(|error| {
            warn(&path, &error);
            Vec::new()
        });
        restore(&path, &bytes, front, now);
        let begun = place.as_ref().map(|place| place.begin(&all_records(front, now))).transpose();
        let file = begun.unwrap_or_else(|error| {
            warn(&path, &error);
            None
        });
        let pause = if file.is_none() { PAUSE_AFTER_ERROR } else { 0 };
        Ok(Self { path, place, file, job: None, quiet, pause })
    }

    /// Writes what is new once a second; for ever.
    pub async fn keep(&mut self, board: &Board) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.pause.checked_sub(1) {
                Some(less) => self.pause = less,
                None => self.write(board).await,
            }
        }
    }

    /// Writes what is new and has not been written, whether or not something is being written now.
    pub async fn finish(&mut self, board: &Board) {
        self.wait().await;
        self.write(board).await;
    }

    /// Writes what is new. A disk that is full costs what is kept over restarts, and nothing else.
    async fn write(&mut self, board: &Board) {
        self.wait().await;
        let appends = self.file.as_ref().is_some_and(|file| !file.is_wasteful());
        let records = match appends {
            true => board.lock().take_journal(),
            false => snapshot(board).await,
        };
        if appends && records.is_empty() {
            return;
        }
        let (place, path) = (self.place.clone(), self.path.clone());
        // From here to the job's end nothing waits: whoever drops this leaves the file or the job.
        let file = self.file.take().filter(|_| appends);
        self.job = Some(spawn_blocking(move || {
            let place = match place {
                Some(place) => place,
                None => Arc::new(Place::claim(&path)?),
            };
            let file = match file {
                Some(mut file) => file.append(&records).map(|()| file),
                None => place.begin(&records),
            };
            Ok((place, file?))
        }));
        self.wait().await;
    }

    /// Waits until nothing is being written.
    async fn wait(&mut self) {
        let Some(job) = &mut self.job else { return };
        let done = job.await;
        self.job = None;
        match done {
            Ok(Ok((place, file))) => (self.place, self.file) = (Some(place), Some(file)),
            Ok(Err(error)) => {
                self.quiet.warn(NOT_KEPT, &error);
                self.pause = PAUSE_AFTER_ERROR;
            }
            // The runtime is going away.
            Err(_) => {}
        }
    }
}

/// Gives `front` the records in `bytes`, which were read at `path`.
fn restore<C>(path: &Path, bytes: &[u8], front: &mut Front<C>, now: Duration) {
    let (mut read, mut count) = (0usize, 0);
    for record in Records::of(bytes) {
        read += 1;
        front.restore(record, now);
        count = front.kept().0;
    }
    if !bytes.is_empty() {
        tracing::info!(file = %path.display(), read, kept = count, "DNS answers of the last run");
    }
}

/// All records, before anybody asks.
fn all_records<C>(front: &mut Front<C>, now: Duration) -> Vec<Record> {
    let (mut records, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let some;
        (some, next) = front.snapshot(from, now);
        records.extend(some);
    }
    records
}

/// Says why nothing can be kept.
fn warn(path: &Path, error: &io::Error) {
    tracing::warn!(
        file = %path.display(), %error,
        "{NOT_KEPT}. Make room there, or let the gateway write to the file and its folder"
    );
}

/// All records, taken some at a time: whoever asks meanwhile is answered.
async fn snapshot(board: &Board) -> Vec<Record> {
    let (mut records, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let some;
        (some, next) = board.lock().snapshot(from, board.clock.now());
        records.extend(some);
        yield_now().await;
    }
    records
}
