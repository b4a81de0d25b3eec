//! Files of the store: `<id>.head` and `<id>.body` for each object, written by one thread.
//!
//! A body is complete before its header file is renamed into place. Only a power cut can leave a
//! header without its body; lengths and checksums detect that. No index file exists that could
//! disagree with the files: the headers are the index, and are read when the cache opens.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::entry::Entry;
use super::index::{Index, lock};
use super::pieces::{Pieces, sums};
use super::queue::{Job, Next, Queue};
use crate::record::{MAX_HEAD_BYTES, Record, sum};

/// Pause of writes after a disk failure.
const PAUSE: Duration = Duration::from_secs(30);

/// Maximum number of bodies read at once: 4 × 16 MiB = 64 MiB with the largest objects.
const MAX_READS: usize = 4;

/// Reason why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be created, read or written.
    #[error("the cache's directory {} cannot be used: {source}; let the gateway's user write there", path.display())]
    Unusable {
        /// The directory, or a file in it.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("another gateway uses the cache's directory {}; give each one of its own", path.display())]
    Taken {
        /// The directory.
        path: PathBuf,
    },
}

/// Reason why a file was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// The file is missing or damaged.
    Gone,
    /// The file could not be read for an unrelated reason: no descriptors, no memory, or a disk
    /// failure.
    NotNow,
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The file is shorter than its header says.
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => Self::Gone,
            _ => Self::NotNow,
        }
    }
}

/// Handle of the disk thread. The thread finishes its jobs and ends when this is dropped.
pub struct Writer {
    queue: Arc<Queue>,
    pause: Arc<Pause>,
    directory: Arc<PathBuf>,
    reads: Arc<Semaphore>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Time of the last disk failure.
#[derive(Default)]
struct Pause(Mutex<Option<Instant>>);

impl Pause {
    fn failed_at(&self) -> parking_lot::MutexGuard<'_, Option<Instant>> {
        self.0.lock()
    }

    fn lasts(&self) -> bool {
        self.failed_at().is_some_and(|at| at.elapsed() < PAUSE)
    }
}

struct DiskThread {
    directory: Arc<PathBuf>,
    index: Arc<Mutex<Index>>,
    queue: Arc<Queue>,
    object_bytes: u64,
    pause: Arc<Pause>,
    /// Lock of the directory, held while the thread runs.
    _lock: File,
}

impl Writer {
    /// Locks the directory and starts to read it. Returns the highest id in it.
    pub fn start(
        directory: &Path,
        object_bytes: u64,
        index: Arc<Mutex<Index>>,
    ) -> Result<(Self, u64), OpenError> {
        let unusable = |source| OpenError::Unusable { path: directory.to_owned(), source };
        make_private(directory).map_err(unusable)?;
        let lock = File::create(directory.join("lock")).map_err(unusable)?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => OpenError::Taken { path: directory.to_owned() },
            fs::TryLockError::Error(source) => unusable(source),
        })?;
        let mut ids = Vec::new();
        for file in fs::read_dir(directory).map_err(unusable)? {
            let file = file.map_err(unusable)?;
            match file.file_name().to_str().and_then(parse_name) {
                Some((id, "head")) => ids.push(id),
                // Bodies without a header are found after the headers have been read.
                Some((id, _)) => ids.push(id),
                None => {}
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let highest = ids.last().copied().unwrap_or_default();
        let directory = Arc::new(directory.to_owned());
        let queue = Arc::<Queue>::default();
        let pause = Arc::new(Pause::default());
        let thread = DiskThread {
            directory: directory.clone(),
            index,
            queue: queue.clone(),
            object_bytes,
            pause: pause.clone(),
            _lock: lock,
        };
        std::thread::Builder::new()
            .name("webcache".into())
            .spawn(move || thread.run(&ids))
            .map_err(unusable)?;
        let reads = Arc::new(Semaphore::new(MAX_READS));
        Ok((Self { queue, pause, directory, reads }, highest))
    }

    /// Returns `true` if the disk works, and the queue has room for one more write.
    pub fn accepts_writes(&self) -> bool {
        !self.pause.lasts() && self.queue.has_room()
    }

    /// Queue of jobs.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    pub async fn settle(&self) {
        let (done, wait) = oneshot::channel();
        self.queue.settle(done);
        let _ = wait.await;
    }

    /// Reads and verifies the body of `entry` on a blocking thread.
    pub async fn read(&self, entry: &Entry) -> Result<Bytes, ReadError> {
        let checksum = entry.body_sum().ok_or(ReadError::Gone)?;
        let (path, bytes) = (path_of(&self.directory, entry.id, "body"), entry.body_bytes);
        self.reading(move || {
            if fs::metadata(&path)?.len() != bytes {
                return Err(ReadError::Gone);
            }
            let body = fs::read(&path)?;
            if sum(&body) == checksum { Ok(Bytes::from(body)) } else { Err(ReadError::Gone) }
        })
        .await
    }

    /// Opens the body of `entry` for reading in pieces. The first time, the whole file is verified
    /// on a blocking thread.
    pub async fn pieces(&self, entry: &Arc<Entry>) -> Result<Pieces, ReadError> {
        let checksum = entry.body_sum().ok_or(ReadError::Gone)?;
        let (path, bytes) = (path_of(&self.directory, entry.id, "body"), entry.body_bytes);
        let known = entry.sums();
        let (file, sums) = self
            .reading(move || {
                let file = File::open(&path)?;
                let sums = match known {
                    Some(sums) => sums,
                    None => sums(&file, bytes, checksum)?.ok_or(ReadError::Gone)?,
                };
                Ok((file, sums))
            })
            .await?;
        entry.set_sums(sums.clone());
        Ok(Pieces::new(entry.clone(), file, sums))
    }

    /// Runs `work` on a blocking thread, at most [`MAX_READS`] at a time.
    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let _one = self.reads.acquire().await.map_err(|_| ReadError::NotNow)?;
        tokio::task::spawn_blocking(work).await.map_err(|_| ReadError::NotNow)?
    }
}

impl DiskThread {
    fn run(self, ids: &[u64]) {
        self.scan(ids);
        while let Some(next) = self.queue.next() {
            match next {
                Next::Job(_, Job::Write { entry, body }) => self.write(&entry, &body),
                Next::Job(_, Job::Rewrite(entry)) => self.rewrite(&entry),
                Next::Job(id, Job::Delete) => self.delete(id),
                Next::Job(id, Job::Touch) => {
                    let file = File::options().append(true).open(self.path(id, "head"));
                    // The time only decides what is kept longest after a restart.
                    let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
                }
                Next::Settled(done) => {
                    let _ = done.send(());
                }
            }
        }
    }

    fn path(&self, id: u64, kind: &str) -> PathBuf {
        path_of(&self.directory, id, kind)
    }

    /// Reads the headers in the order of their last use, within the budget, and deletes all other
    /// files.
    fn scan(&self, ids: &[u64]) {
        let mut heads: Vec<(SystemTime, u64)> = ids
            .iter()
            .map(|id| {
                let modified = fs::metadata(self.path(*id, "head")).and_then(|it| it.modified());
                (modified.unwrap_or(SystemTime::UNIX_EPOCH), *id)
            })
            .collect();
        // Entries inserted last count as most recently used.
        heads.sort_unstable();
        let (mut lost, mut unread) = (0, 0);
        for (_, id) in heads {
            match self.load(id) {
                Ok(()) => {}
                Err(why) => {
                    // An unread file would count in no budget, and nothing could invalidate it.
                    *if why == ReadError::Gone { &mut lost } else { &mut unread } += 1;
                    self.delete(id);
                }
            }
        }
        if lost > 0 {
            tracing::info!(objects = lost, "the HTTP cache dropped damaged files");
        }
        if unread > 0 {
            tracing::warn!(objects = unread, "the HTTP cache dropped files that it could not read");
        }
    }

    /// Loads the entry `id`, unless it is damaged, superseded or too large.
    fn load(&self, id: u64) -> Result<(), ReadError> {
        let file = read_at_most(&self.path(id, "head"), MAX_HEAD_BYTES)?;
        let record = Record::decode(&file).filter(|record| record.id == id);
        let record = record.ok_or(ReadError::Gone)?;
        let body = fs::metadata(self.path(id, "body"))?.len();
        if body != record.body_bytes || record.body_bytes > self.object_bytes {
            return Err(ReadError::Gone);
        }
        let entry = Arc::new(Entry::of_record(record));
        let mut gone = Vec::new();
        let mut index = lock(&self.index);
        // A higher id is newer: it was stored while this one was unread.
        let selection = &entry.head().selection;
        let same = index.all_of(&entry.key);
        let same = same.iter().find(|other| other.head().selection == *selection);
        match same {
            Some(other) if other.id > id => return Err(ReadError::Gone),
            Some(other) => gone.extend(index.remove(other.id)),
            None => {}
        }
        let taken = index.insert(entry.clone(), &mut gone);
        let taken = taken && index.reserve_disk(&entry, &mut gone);
        if taken {
            index.written(id);
        } else {
            index.remove(id);
        }
        drop(index);
        gone.iter().for_each(|id| self.delete(*id));
        if taken { Ok(()) } else { Err(ReadError::Gone) }
    }

    fn write(&self, entry: &Entry, body: &[u8]) {
        if self.pause.lasts() {
            lock(&self.index).not_written(entry.id, false);
            return;
        }
        entry.set_body_sum(sum(body));
        let Some(head) = entry.record().and_then(|record| record.encode()) else {
            // The header has grown beyond the limit since the response was stored.
            lock(&self.index).not_written(entry.id, false);
            return;
        };
        let written = self
            .replace(entry.id, "body", body)
            .and_then(|()| self.replace(entry.id, "head", &head));
        if let Err(error) = &written {
            tracing::warn!(%error, "the HTTP cache cannot write, and uses memory only for a while");
            *self.pause.failed_at() = Some(Instant::now());
            self.delete(entry.id);
            lock(&self.index).not_written(entry.id, true);
        } else {
            lock(&self.index).written(entry.id);
        }
    }

    fn rewrite(&self, entry: &Entry) {
        let id = entry.id;
        if !self.path(id, "head").exists() {
            return;
        }
        let head = entry.record().and_then(|record| record.encode());
        let written = head.is_some_and(|head| {
            lock(&self.index).head_grows(id, head.len());
            self.replace(id, "head", &head).is_ok()
        });
        // An outdated header is validated before use after a restart. Only a lost invalidation does
        // harm.
        if !written && entry.head().invalidated {
            // The file would claim a freshness that the response no longer has.
            self.delete(id);
            lock(&self.index).remove(id);
        }
    }

    /// Replaces a file atomically.
    fn replace(&self, id: u64, kind: &str, content: &[u8]) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let temporary = self.path(id, "tmp");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        io::Write::write_all(&mut options.open(&temporary)?, content)?;
        fs::rename(&temporary, self.path(id, kind))
    }

    fn delete(&self, id: u64) {
        // The header goes first, because a body without a header is ignored.
        for kind in ["head", "body", "tmp"] {
            // A missing file is fine.
            let _ = fs::remove_file(self.path(id, kind));
        }
    }
}

/// Creates the directory for this user alone, because it holds passengers' pages.
fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn path_of(directory: &Path, id: u64, kind: &str) -> PathBuf {
    directory.join(format!("{id:016x}.{kind}"))
}

/// Parses the name of a file of the store into id and kind.
fn parse_name(name: &str) -> Option<(u64, &str)> {
    let (id, kind) = name.split_once('.')?;
    let ours = id.len() == 16 && ["head", "body", "tmp"].contains(&kind);
    let id = ours.then(|| u64::from_str_radix(id, 16).ok()).flatten()?;
    // The next id must exist.
    (id < u64::MAX).then_some((id, kind))
}

fn read_at_most(path: &Path, bytes: usize) -> Result<Vec<u8>, ReadError> {
    if fs::metadata(path)?.len() > bytes as u64 {
        return Err(ReadError::Gone);
    }
    Ok(fs::read(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_the_file_mean_that_it_is_gone() {
        let unread = |code| ReadError::from(io::Error::from_raw_os_error(code));
        assert_eq!(unread(libc::ENOENT), ReadError::Gone);
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EACCES, libc::EIO] {
            assert_eq!(unread(code), ReadError::NotNow, "{code}");
        }
    }
}
