//! Queue of disk jobs. An object has at most one job; a later job replaces it. No files here.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::entry::Entry;

/// Maximum number of objects with pending jobs. If there are more, new objects stay in memory only.
/// A disk with 100 writes per second is then 40 s behind. Header updates and deletes are always
/// queued, because they must not be lost. At most 65,536 objects have files, so the queue needs at
/// most 6 MiB in addition to the bodies.
pub const MAX_PENDING_OBJECTS: usize = 4096;

/// Maximum size of the bodies that wait to be written, bytes. Beyond it, new objects stay in memory
/// only.
pub const MAX_PENDING_BYTES: u64 = 32 << 20;

/// Job for the files of one object.
pub enum Job {
    /// Writes both files. The header is the one at the time of writing.
    Write { entry: Arc<Entry>, body: Bytes },
    /// Writes the header file again.
    Rewrite(Arc<Entry>),
    /// Deletes the files.
    Delete,
    /// Updates the time of last use, which decides what is kept longest after a restart.
    Touch,
}

/// Next job of the disk thread.
pub enum Next {
    /// A job for the object with this id.
    Job(u64, Job),
    /// All earlier jobs are done.
    Settled(oneshot::Sender<()>),
}

/// Pending jobs.
#[derive(Default)]
pub struct Queue {
    pending: Mutex<Pending>,
    wakeup: Condvar,
    /// Number of objects that were not written because the queue was full.
    refused: AtomicU64,
}

#[derive(Default)]
struct Pending {
    /// Order of the jobs. Some of them may have been replaced.
    turns: VecDeque<Turn>,
    jobs: HashMap<u64, Job>,
    body_bytes: u64,
    closed: bool,
}

enum Turn {
    Object(u64),
    Settle(oneshot::Sender<()>),
}

impl Queue {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock()
    }

    /// Returns `true` if one more object can be written. Counts refusals.
    pub fn has_room(&self) -> bool {
        let pending = self.pending();
        let has =
            pending.body_bytes < MAX_PENDING_BYTES && pending.jobs.len() < MAX_PENDING_OBJECTS;
        self.refused.fetch_add(u64::from(!has), Relaxed);
        has
    }

    /// Number of refusals.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Queues writing the files of `entry`.
    pub fn write(&self, entry: Arc<Entry>, body: Bytes) {
        let mut pending = self.pending();
        pending.body_bytes += body.len() as u64;
        let id = entry.id;
        pending.put(id, Job::Write { entry, body });
        self.wakeup.notify_one();
    }

    /// Queues writing the header of `entry`, which has files or will have.
    pub fn rewrite(&self, entry: Arc<Entry>) {
        let mut pending = self.pending();
        // A pending write uses the newest header anyway.
        if !matches!(pending.jobs.get(&entry.id), Some(Job::Write { .. } | Job::Delete)) {
            pending.put(entry.id, Job::Rewrite(entry));
            self.wakeup.notify_one();
        }
    }

    /// Queues deleting the files of `id`.
    pub fn delete(&self, id: u64) {
        let mut pending = self.pending();
        pending.put(id, Job::Delete);
        self.wakeup.notify_one();
    }

    /// Queues an update of the time of last use, unless the queue is full.
    pub fn touch(&self, id: u64) {
        let mut pending = self.pending();
        if pending.jobs.len() < MAX_PENDING_OBJECTS && !pending.jobs.contains_key(&id) {
            pending.put(id, Job::Touch);
            self.wakeup.notify_one();
        }
    }

    /// Notifies `done` when all earlier jobs are done.
    pub fn settle(&self, done: oneshot::Sender<()>) {
        self.pending().turns.push_back(Turn::Settle(done));
        self.wakeup.notify_one();
    }

    /// Ends the queue. No job may be added after this.
    pub fn close(&self) {
        self.pending().closed = true;
        self.wakeup.notify_one();
    }

    /// Waits for the next job. Returns `None` if the queue is closed and empty.
    pub fn next(&self) -> Option<Next> {
        let mut pending = self.pending();
        loop {
            match pending.turns.pop_front() {
                Some(Turn::Settle(done)) => return Some(Next::Settled(done)),
                Some(Turn::Object(id)) => {
                    if let Some(job) = pending.take(id) {
                        return Some(Next::Job(id, job));
                    }
                }
                None if pending.closed => return None,
                None => {
                    self.wakeup.wait(&mut pending);
                }
            }
        }
    }
}

impl Pending {
    /// Replaces the pending job of the object, or appends a new one.
    fn put(&mut self, id: u64, job: Job) {
        match self.jobs.insert(id, job) {
            Some(before) => self.uncount(&before),
            None => self.turns.push_back(Turn::Object(id)),
        }
    }

    fn take(&mut self, id: u64) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        self.uncount(&job);
        Some(job)
    }

    fn uncount(&mut self, job: &Job) {
        if let Job::Write { body, .. } = job {
            self.body_bytes -= body.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Head;
    use crate::key::Key;

    fn entry(id: u64) -> Arc<Entry> {
        let key = Key::parse("http://a.test:80/").unwrap();
        let head = Head {
            status: http::StatusCode::OK,
            headers: http::HeaderMap::new(),
            selection: crate::vary::Selection::default(),
            requested_at: Default::default(),
            received_at: Default::default(),
            heuristic_ok: true,
            invalidated: false,
            pinned: false,
        };
        Arc::new(Entry::new(id, key, head, Bytes::from_static(b"body")))
    }

    /// Names of the jobs in order, until the queue is empty.
    fn all(queue: &Queue) -> Vec<String> {
        queue.close();
        let name = |next| match next {
            Next::Settled(_) => "settled".into(),
            Next::Job(id, Job::Write { .. }) => format!("write {id}"),
            Next::Job(id, Job::Rewrite(_)) => format!("rewrite {id}"),
            Next::Job(id, Job::Delete) => format!("delete {id}"),
            Next::Job(id, Job::Touch) => format!("touch {id}"),
        };
        std::iter::from_fn(|| queue.next().map(name)).collect()
    }

    #[test]
    fn an_object_has_at_most_one_job() {
        let queue = Queue::default();
        queue.write(entry(1), Bytes::from_static(b"body"));
        queue.rewrite(entry(1));
        queue.touch(1);
        queue.touch(2);
        queue.rewrite(entry(2));
        queue.write(entry(3), Bytes::from_static(b"body"));
        let (done, _) = oneshot::channel();
        queue.settle(done);
        queue.delete(3);
        queue.rewrite(entry(3));
        queue.delete(4);
        assert_eq!(queue.pending().body_bytes, 4);
        assert_eq!(all(&queue), ["write 1", "rewrite 2", "delete 3", "settled", "delete 4"]);
        assert_eq!(queue.pending().body_bytes, 0);
    }

    #[test]
    fn the_queue_is_bounded_and_counts_refusals() {
        let queue = Queue::default();
        for id in 0.. {
            if !queue.has_room() {
                break;
            }
            queue.write(entry(id), Bytes::new());
        }
        queue.touch(1 << 40);
        assert_eq!(queue.pending().jobs.len(), MAX_PENDING_OBJECTS);
        assert_eq!(queue.refused(), 1);
        // These must not be lost.
        queue.delete(1 << 40);
        queue.rewrite(entry(1 << 41));
        assert_eq!(queue.pending().jobs.len(), MAX_PENDING_OBJECTS + 2);
        let queue = Queue::default();
        queue.write(entry(1), vec![0; MAX_PENDING_BYTES as usize].into());
        assert!(!queue.has_room());
        queue.delete(1);
        assert!(queue.has_room());
    }
}
