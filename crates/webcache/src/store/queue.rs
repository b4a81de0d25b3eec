//! Jobs that wait for the disk: one for each object, which later jobs for it replace. No files
//! here.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::entry::Entry;

/// Objects of which something waits to be done, beyond which no new ones are taken: those stay in memory
/// only. A disk of 100 writes a second is 40 s behind then. Heads that have changed and files to be
/// deleted always wait, for they must not be forgotten: one for each object that has files, of which there
/// are at most 65,536, so that all that waits takes 6 MiB at most beside the bodies.
pub const MOST_WAITING: usize = 4096;

/// Bodies that wait to be written, bytes; while there are more, objects stay in memory only.
pub const MOST_WAITING_BYTES: u64 = 32 << 20;

/// Job on the files of one object.
pub enum Job {
    /// Both are to be written, with the head as it is by then.
    Write { entry: Arc<Entry>, body: Bytes },
    /// The head has changed.
    Rewrite(Arc<Entry>),
    /// They are to go.
    Delete,
    /// The object was used: it only says what to keep longest after a restart.
    Touch,
}

/// Next job of the disk's thread.
pub enum Next {
    /// Something for the object of this id.
    Job(u64, Job),
    /// All that was told before is done.
    Settled(oneshot::Sender<()>),
}

/// Waiting jobs.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    bell: Condvar,
    /// Objects whose files were not written because too much waited.
    refused: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// The turns, some of which have nothing to do any more.
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
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is held, so what it guards is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if one more object may wait to be written; counts the refusals.
    pub fn has_room(&self) -> bool {
        let waiting = self.waiting();
        let has = waiting.body_bytes < MOST_WAITING_BYTES && waiting.jobs.len() < MOST_WAITING;
        self.refused.fetch_add(u64::from(!has), Relaxed);
        has
    }

    /// Number of refusals.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The files of `entry` are to be written.
    pub fn write(&self, entry: Arc<Entry>, body: Bytes) {
        let mut waiting = self.waiting();
        waiting.body_bytes += body.len() as u64;
        let id = entry.id;
        waiting.put(id, Job::Write { entry, body });
        self.bell.notify_one();
    }

    /// The head of `entry`, which has files or will have, has changed.
    pub fn rewrite(&self, entry: Arc<Entry>) {
        let mut waiting = self.waiting();
        // What is to be written takes the newest head anyway.
        if !matches!(waiting.jobs.get(&entry.id), Some(Job::Write { .. } | Job::Delete)) {
            waiting.put(entry.id, Job::Rewrite(entry));
            self.bell.notify_one();
        }
    }

    /// The files of `id` are to go.
    pub fn delete(&self, id: u64) {
        let mut waiting = self.waiting();
        waiting.put(id, Job::Delete);
        self.bell.notify_one();
    }

    /// The object of `id` was used. Left out where much waits.
    pub fn touch(&self, id: u64) {
        let mut waiting = self.waiting();
        if waiting.jobs.len() < MOST_WAITING && !waiting.jobs.contains_key(&id) {
            waiting.put(id, Job::Touch);
            self.bell.notify_one();
        }
    }

    /// `done` hears when all that was told so far is done.
    pub fn settle(&self, done: oneshot::Sender<()>) {
        self.waiting().turns.push_back(Turn::Settle(done));
        self.bell.notify_one();
    }

    /// Nothing more will be told.
    pub fn close(&self) {
        self.waiting().closed = true;
        self.bell.notify_one();
    }

    /// Waits for what is to be done next; `None` where all is done and nothing more will be told.
    pub fn next(&self) -> Option<Next> {
        let mut waiting = self.waiting();
        loop {
            match waiting.turns.pop_front() {
                Some(Turn::Settle(done)) => return Some(Next::Settled(done)),
                Some(Turn::Object(id)) => {
                    if let Some(job) = waiting.take(id) {
                        return Some(Next::Job(id, job));
                    }
                }
                None if waiting.closed => return None,
                None => {
                    waiting = self.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Waiting {
    /// `job` takes the place of what waited for the same object; else it waits at the end.
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
            guessable: true,
            invalidated: false,
            pinned: false,
        };
        Arc::new(Entry::new(id, key, head, Bytes::from_static(b"body")))
    }

    /// Jobs in order, until nothing waits.
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
    fn one_thing_waits_for_each_object() {
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
        assert_eq!(queue.waiting().body_bytes, 4);
        assert_eq!(all(&queue), ["write 1", "rewrite 2", "delete 3", "settled", "delete 4"]);
        assert_eq!(queue.waiting().body_bytes, 0);
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_refused_counted() {
        let queue = Queue::default();
        for id in 0.. {
            if !queue.has_room() {
                break;
            }
            queue.write(entry(id), Bytes::new());
        }
        queue.touch(1 << 40);
        assert_eq!(queue.waiting().jobs.len(), MOST_WAITING);
        assert_eq!(queue.refused(), 1);
        // These must not be forgotten.
        queue.delete(1 << 40);
        queue.rewrite(entry(1 << 41));
        assert_eq!(queue.waiting().jobs.len(), MOST_WAITING + 2);
        let queue = Queue::default();
        queue.write(entry(1), vec![0; MOST_WAITING_BYTES as usize].into());
        assert!(!queue.has_room());
        queue.delete(1);
        assert!(queue.has_room());
    }
}
