//! Storage of the resolver's state across restarts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dns::Resolver as ResolverCore;
use bentpipe_dns::journal::{self, JournalFile, JournalLock, Record, Records};
use tokio::task::{JoinHandle, spawn_blocking, yield_now};
use tokio::time::{MissedTickBehavior, interval};

use super::resolver::Resolver;
use crate::error::StartError;
use bentpipe_metering::rate_limited_log::RateLimitedLog;

/// Interval of writes; a power cut loses the changes of this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Number of intervals after an error before a new file is attempted.
const PAUSE_AFTER_ERROR: u32 = 60;

/// Log line while the journal cannot be written.
const NOT_KEPT: &str = "DNS answers are not kept over a restart; the resolver works without";

/// Writes the journal. Encoding, checksums and disk access run on a blocking thread, one job at a
/// time.
pub struct JournalWriter {
    path: PathBuf,
    /// Lock on the journal, once acquired.
    place: Option<Arc<JournalLock>>,
    file: Option<JournalFile>,
    /// Write in progress. If the keeper's future is dropped, the job remains here, so that no other
    /// write overlaps it.
    job: Option<JoinHandle<io::Result<Written>>>,
    log: RateLimitedLog,
    /// Number of intervals until the next attempt.
    pause: u32,
}

/// Lock on the journal, and its file.
type Written = (Arc<JournalLock>, JournalFile);

impl JournalWriter {
    /// Restores `front` from the file at `path`, and rewrites the file from it. If the disk is full
    /// or read-only, this is logged and retried later, because only persistence is lost. Returns an
    /// error only if another process holds the file.
    pub fn restore<C>(
        path: &Path,
        core: &mut ResolverCore<C>,
        now: Duration,
    ) -> Result<Self, StartError> {
        let (path, log) = (path.to_owned(), RateLimitedLog::default());
        let place = match JournalLock::acquire(&path) {
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
        restore(&path, &bytes, core, now);
        let begun = place.as_ref().map(|place| place.rewrite(&all_records(core, now))).transpose();
        let file = begun.unwrap_or_else(|error| {
            warn(&path, &error);
            None
        });
        let pause = if file.is_none() { PAUSE_AFTER_ERROR } else { 0 };
        Ok(Self { path, place, file, job: None, log, pause })
    }

    /// Writes changes once a second. Never returns.
    pub async fn keep(&mut self, resolver: &Resolver) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.pause.checked_sub(1) {
                Some(less) => self.pause = less,
                None => self.write(resolver).await,
            }
        }
    }

    /// Writes all remaining changes, after any write in progress.
    pub async fn finish(&mut self, resolver: &Resolver) {
        self.wait().await;
        self.write(resolver).await;
    }

    /// Writes changes. A full disk affects only persistence.
    async fn write(&mut self, resolver: &Resolver) {
        self.wait().await;
        let appends = self.file.as_ref().is_some_and(|file| !file.is_wasteful());
        let records = match appends {
            true => resolver.lock().take_journal(),
            false => snapshot(resolver).await,
        };
        if appends && records.is_empty() {
            return;
        }
        let (place, path) = (self.place.clone(), self.path.clone());
        // There is no await until the job is stored, so a dropped future loses neither the file nor
        // the job.
        let file = self.file.take().filter(|_| appends);
        self.job = Some(spawn_blocking(move || {
            let place = match place {
                Some(place) => place,
                None => Arc::new(JournalLock::acquire(&path)?),
            };
            let file = match file {
                Some(mut file) => file.append(&records).map(|()| file),
                None => place.rewrite(&records),
            };
            Ok((place, file?))
        }));
        self.wait().await;
    }

    /// Waits until no write is in progress.
    async fn wait(&mut self) {
        let Some(job) = &mut self.job else { return };
        let done = job.await;
        self.job = None;
        match done {
            Ok(Ok((place, file))) => (self.place, self.file) = (Some(place), Some(file)),
            Ok(Err(error)) => {
                self.log.warn(NOT_KEPT, &error);
                self.pause = PAUSE_AFTER_ERROR;
            }
            // The runtime is shutting down.
            Err(_) => {}
        }
    }
}

/// Restores the records in `bytes`, read from `path`, to `front`.
fn restore<C>(path: &Path, bytes: &[u8], core: &mut ResolverCore<C>, now: Duration) {
    let (mut read, mut count) = (0usize, 0);
    for record in Records::of(bytes) {
        read += 1;
        core.restore(record, now);
        count = core.cached().0;
    }
    if !bytes.is_empty() {
        tracing::info!(file = %path.display(), read, kept = count, "DNS answers of the last run");
    }
}

/// Returns all records, before any query arrives.
fn all_records<C>(core: &mut ResolverCore<C>, now: Duration) -> Vec<Record> {
    let (mut records, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let some;
        (some, next) = core.snapshot(from, now);
        records.extend(some);
    }
    records
}

/// Logs why the journal cannot be written.
fn warn(path: &Path, error: &io::Error) {
    tracing::warn!(
        file = %path.display(), %error,
        "{NOT_KEPT}. Make room there, or let the gateway write to the file and its folder"
    );
}

/// Returns all records, collected in portions so that queries are answered meanwhile.
async fn snapshot(resolver: &Resolver) -> Vec<Record> {
    let (mut records, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let some;
        (some, next) = resolver.lock().snapshot(from, resolver.clock.now());
        records.extend(some);
        yield_now().await;
    }
    records
}
