//! What the resolver keeps over restarts.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dns::Front;
use bentpipe_dns::journal::{File, Place, Record, Records};
use tokio::task::{JoinHandle, spawn_blocking, yield_now};
use tokio::time::{MissedTickBehavior, interval};

use super::Board;
use crate::net::StartError;
use crate::quiet::Quiet;

/// What was learned within this time is lost with the power.
const INTERVAL: Duration = Duration::from_secs(1);

/// After an error it is tried again to begin a new file.
const PAUSE_AFTER_ERROR: u32 = 60;

/// Writes the journal: encoding, checksums and the disk are a thread's work, which has one piece of it
/// at a time.
pub struct Keeper {
    place: Arc<Place>,
    file: Option<File>,
    /// What is being written. Whoever drops a future of this keeper leaves it here, so that nothing
    /// else is written to the file meanwhile.
    job: Option<JoinHandle<io::Result<File>>>,
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
        let place = Place::claim(path).map_err(cannot)?;
        let bytes = place.read().map_err(cannot)?;
        let (mut read, mut count) = (0usize, 0);
        for record in Records::of(&bytes) {
            read += 1;
            front.restore(record, now);
            count = front.kept().0;
        }
        let (mut records, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let some;
            (some, next) = front.snapshot(from, now);
            records.extend(some);
        }
        let file = place.begin(&records).map_err(cannot)?;
        if !bytes.is_empty() {
            tracing::info!(file = %path.display(), read, kept = count, "DNS answers of the last run");
        }
        let (place, file) = (Arc::new(place), Some(file));
        Ok(Self { place, file, job: None, quiet: Quiet::default(), pause: 0 })
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
        let place = self.place.clone();
        // From here to the job's end nothing waits: whoever drops this leaves the file or the job.
        let file = self.file.take().filter(|_| appends);
        self.job = Some(spawn_blocking(move || match file {
            Some(mut file) => file.append(&records).map(|()| file),
            None => place.begin(&records),
        }));
        self.wait().await;
    }

    /// Waits until nothing is being written.
    async fn wait(&mut self) {
        let Some(job) = &mut self.job else { return };
        let done = job.await;
        self.job = None;
        match done {
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
