//! The files: `<id>.head` and `<id>.body` for each object, written by one thread.
//!
//! A body is complete before its head's file takes its name, by renaming; so a head without its body
//! cannot be, but after a power cut, and lengths and sums show that. There is no index file that could
//! disagree with the files: the heads are the index, and are read when the cache opens.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};

use super::entry::Entry;
use super::index::Index;
use super::lock;
use super::pieces::{Pieces, sums};
use super::queue::{Job, Next, Queue};
use crate::record::{MOST_HEAD_BYTES, Record, sum};

/// Time without writes after the disk failed.
const PAUSE: Duration = Duration::from_secs(30);

/// Bodies that are read at once: with the largest of 16 MiB each, 64 MiB.
const MOST_READS: usize = 4;

/// Reason for which the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be made, read or written.
    #[error("the cache's directory {} cannot be used: {source}; let the gateway's user write there", path.display())]
    Unusable {
        /// The directory, or what in it.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Somebody else has it.
    #[error("another gateway uses the cache's directory {}; give each one of its own", path.display())]
    Taken {
        /// The directory.
        path: PathBuf,
    },
}

/// Reason for which a file was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// It is not there, or not what was written.
    Gone,
    /// For a reason that says nothing of it: there are no descriptors left, no memory, the disk failed.
    NotNow,
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // Its end came too soon.
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => Self::Gone,
            _ => Self::NotNow,
        }
    }
}

/// Sender of jobs to the disk's thread. Dropped, it lets the thread end when all is done.
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

/// Time of the disk's last failure.
#[derive(Default)]
struct Pause(Mutex<Option<Instant>>);

impl Pause {
    fn failed_at(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn lasts(&self) -> bool {
        self.failed_at().is_some_and(|at| at.elapsed() < PAUSE)
    }
}

struct Thread {
    directory: Arc<PathBuf>,
    index: Arc<Mutex<Index>>,
    queue: Arc<Queue>,
    object_bytes: u64,
    pause: Arc<Pause>,
    /// Holds the lock of the directory for as long as the thread runs.
    _lock: File,
}

impl Writer {
    /// Takes the directory and begins to read it; gives the highest id there.
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
                // A body without its head shows when the heads have been read.
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
        let thread = Thread {
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
        let reads = Arc::new(Semaphore::new(MOST_READS));
        Ok((Self { queue, pause, directory, reads }, highest))
    }

    /// Returns `true` if the disk works, and little enough waits for it that one more may.
    pub fn has_time(&self) -> bool {
        !self.pause.lasts() && self.queue.has_room()
    }

    /// Queue of the disk.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    pub async fn settle(&self) {
        let (done, wait) = oneshot::channel();
        self.queue.settle(done);
        let _ = wait.await;
    }

    /// The body of `entry`, exactly as it was written. Read and summed on a thread that may block.
    pub async fn read(&self, entry: &Entry) -> Result<Bytes, Unread> {
        let told = entry.body_sum().ok_or(Unread::Gone)?;
        let (path, bytes) = (path_of(&self.directory, entry.id, "body"), entry.body_bytes);
        self.reading(move || {
            if fs::metadata(&path)?.len() != bytes {
                return Err(Unread::Gone);
            }
            let body = fs::read(&path)?;
            if sum(&body) == told { Ok(Bytes::from(body)) } else { Err(Unread::Gone) }
        })
        .await
    }

    /// The body of `entry` to be read piece by piece, exactly as it was written. The first time all of it
    /// is read and summed on a thread that may block.
    pub async fn pieces(&self, entry: &Arc<Entry>) -> Result<Pieces, Unread> {
        let told = entry.body_sum().ok_or(Unread::Gone)?;
        let (path, bytes) = (path_of(&self.directory, entry.id, "body"), entry.body_bytes);
        let known = entry.sums();
        let (file, sums) = self
            .reading(move || {
                let file = File::open(&path)?;
                let sums = match known {
                    Some(sums) => sums,
                    None => sums(&file, bytes, told)?.ok_or(Unread::Gone)?,
                };
                Ok((file, sums))
            })
            .await?;
        entry.set_sums(sums.clone());
        Ok(Pieces::new(entry.clone(), file, sums))
    }

    /// Does `work` on a thread that may block, when not too much is being read.
    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Unread> + Send + 'static,
    ) -> Result<T, Unread> {
        let _one = self.reads.acquire().await.map_err(|_| Unread::NotNow)?;
        tokio::task::spawn_blocking(work).await.map_err(|_| Unread::NotNow)?
    }
}

impl Thread {
    fn run(self, ids: &[u64]) {
        self.scan(ids);
        while let Some(next) = self.queue.next() {
            match next {
                Next::Job(_, Job::Write { entry, body }) => self.write(&entry, &body),
                Next::Job(_, Job::Rewrite(entry)) => self.rewrite(&entry),
                Next::Job(id, Job::Delete) => self.delete(id),
                Next::Job(id, Job::Touch) => {
                    let file = File::options().append(true).open(self.path(id, "head"));
                    // It only says what to keep longest after a restart.
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

    /// Reads the heads, what was used last first, as far as the budget goes, and removes all else.
    fn scan(&self, ids: &[u64]) {
        let mut heads: Vec<(SystemTime, u64)> = ids
            .iter()
            .map(|id| {
                let modified = fs::metadata(self.path(*id, "head")).and_then(|it| it.modified());
                (modified.unwrap_or(SystemTime::UNIX_EPOCH), *id)
            })
            .collect();
        // Those inserted last are taken for used last.
        heads.sort_unstable();
        let (mut lost, mut unread) = (0, 0);
        for (_, id) in heads {
            match self.take_in(id) {
                Ok(()) => {}
                Err(why) => {
                    // What stays unread would count in no budget, and nothing would invalidate it.
                    *if why == Unread::Gone { &mut lost } else { &mut unread } += 1;
                    self.delete(id);
                }
            }
        }
        if lost > 0 {
            tracing::info!(objects = lost, "the HTTP cache dropped what was not whole");
        }
        if unread > 0 {
            tracing::warn!(
                objects = unread,
                "the HTTP cache could not read all that it had, and dropped it"
            );
        }
    }

    /// Takes in what the files of `id` hold, unless they are not whole or of no use.
    fn take_in(&self, id: u64) -> Result<(), Unread> {
        let file = read_at_most(&self.path(id, "head"), MOST_HEAD_BYTES)?;
        let record = Record::decode(&file).filter(|record| record.id == id);
        let record = record.ok_or(Unread::Gone)?;
        let body = fs::metadata(self.path(id, "body"))?.len();
        if body != record.body_bytes || record.body_bytes > self.object_bytes {
            return Err(Unread::Gone);
        }
        let entry = Arc::new(Entry::of_record(record));
        let mut gone = Vec::new();
        let mut index = lock(&self.index);
        // What came later is newer: meanwhile, or while this one could not be read.
        let selection = &entry.head().selection;
        let same = index.all_of(&entry.key);
        let same = same.iter().find(|other| other.head().selection == *selection);
        match same {
            Some(other) if other.id > id => return Err(Unread::Gone),
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
        if taken { Ok(()) } else { Err(Unread::Gone) }
    }

    fn write(&self, entry: &Entry, body: &[u8]) {
        if self.pause.lasts() {
            lock(&self.index).not_written(entry.id, false);
            return;
        }
        entry.set_body_sum(sum(body));
        let Some(head) = entry.record().and_then(|record| record.encode()) else {
            // It has grown since it was stored.
            lock(&self.index).not_written(entry.id, false);
            return;
        };
        let written = self
            .replace(entry.id, "body", body)
            .and_then(|()| self.replace(entry.id, "head", &head));
        if let Err(error) = &written {
            tracing::warn!(%error, "the HTTP cache cannot write: it keeps to memory for a while");
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
        // An old head that is only older is confirmed before it is used after a restart.
        if !written && entry.head().invalidated {
            // It would promise what is not so any more: rather none.
            self.delete(id);
            lock(&self.index).remove(id);
        }
    }

    /// Gives the file new content at one stroke.
    fn replace(&self, id: u64, kind: &str, content: &[u8]) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let temporary = self.path(id, "tmp");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        io::Write::write_all(&mut options.open(&temporary)?, content)?;
        fs::rename(&temporary, self.path(id, kind))
    }

    fn delete(&self, id: u64) {
        // The head first: a body alone is nothing.
        for kind in ["head", "body", "tmp"] {
            // What is not there is deleted.
            let _ = fs::remove_file(self.path(id, kind));
        }
    }
}

/// Bodies of passengers' pages are nobody else's on this machine.
fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn path_of(directory: &Path, id: u64, kind: &str) -> PathBuf {
    directory.join(format!("{id:016x}.{kind}"))
}

/// The id and kind of a file of ours.
fn parse_name(name: &str) -> Option<(u64, &str)> {
    let (id, kind) = name.split_once('.')?;
    let ours = id.len() == 16 && ["head", "body", "tmp"].contains(&kind);
    let id = ours.then(|| u64::from_str_radix(id, 16).ok()).flatten()?;
    // One more must be possible.
    (id < u64::MAX).then_some((id, kind))
}

fn read_at_most(path: &Path, bytes: usize) -> Result<Vec<u8>, Unread> {
    if fs::metadata(path)?.len() > bytes as u64 {
        return Err(Unread::Gone);
    }
    Ok(fs::read(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_speaks_of_the_file_says_that_it_is_gone() {
        let unread = |code| Unread::from(io::Error::from_raw_os_error(code));
        assert_eq!(unread(libc::ENOENT), Unread::Gone);
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EACCES, libc::EIO] {
            assert_eq!(unread(code), Unread::NotNow, "{code}");
        }
    }
}
