//! A stored response.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::head::Head;
use crate::key::Key;
use crate::record::{PieceSums, Record, Sum};

/// Memory of a header in addition to its encoded length, for map entries.
const HEAD_COST: u64 = 512;

/// A stored response.
pub struct Entry {
    pub id: u64,
    pub key: Key,
    /// The key's [`Key::hash64`].
    pub hash: u64,
    pub body_bytes: u64,
    /// Checksum of the body. Set once the body is written.
    body_sum: OnceLock<Sum>,
    /// Held while the body is read from disk, so that only one reader does so.
    pub loading: tokio::sync::Mutex<()>,
    /// Length of the header file when the response was stored.
    head_bytes: u64,
    state: Mutex<State>,
}

struct State {
    head: Arc<Head>,
    body: Option<Bytes>,
    /// Checksums of its segments on disk, once they have been read.
    sums: Option<PieceSums>,
}

impl Entry {
    /// Creates an entry whose body is in memory.
    pub fn new(id: u64, key: Key, head: Head, body: Bytes) -> Self {
        Self {
            id,
            hash: key.hash64(),
            body_bytes: body.len() as u64,
            body_sum: OnceLock::new(),
            loading: tokio::sync::Mutex::default(),
            head_bytes: Record::encoded_bytes(&key, &head) as u64,
            key,
            state: Mutex::new(State { head: head.into(), body: Some(body), sums: None }),
        }
    }

    /// Creates an entry whose body is on disk.
    pub fn of_record(record: Record) -> Self {
        let Record { id, key, head, body_bytes, body_sum } = record;
        let mut entry = Self::new(id, key, head, Bytes::new());
        entry.body_bytes = body_bytes;
        entry.body_sum = body_sum.into();
        entry.state().body = None;
        entry
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub fn head(&self) -> Arc<Head> {
        self.state().head.clone()
    }

    pub fn body(&self) -> Option<Bytes> {
        self.state().body.clone()
    }

    pub fn set_body(&self, body: Bytes) {
        self.state().body = Some(body);
    }

    /// Drops the body from memory, and returns it.
    pub fn forget_body(&self) -> Option<Bytes> {
        self.state().body.take()
    }

    /// Length of the header file when the response was stored.
    pub fn head_bytes(&self) -> u64 {
        self.head_bytes
    }

    pub fn body_sum(&self) -> Option<Sum> {
        self.body_sum.get().copied()
    }

    pub fn set_body_sum(&self, sum: Sum) {
        // The checksum of the same body is the same.
        let _ = self.body_sum.set(sum);
    }

    /// Checksums of the segments on disk, if they are known.
    pub fn sums(&self) -> Option<PieceSums> {
        self.state().sums.clone()
    }

    pub fn set_sums(&self, sums: PieceSums) {
        self.state().sums = Some(sums);
    }

    /// Forgets the checksums, because a segment was damaged.
    pub fn forget_sums(&self) {
        self.state().sums = None;
    }

    /// Returns `true` if the body in memory has readers.
    pub fn is_being_read(&self) -> bool {
        self.state().body.as_ref().is_some_and(|body| !body.is_unique())
    }

    /// Size of the body in memory.
    pub fn warm_bytes(&self) -> u64 {
        self.state().body.as_ref().map_or(0, |body| body.len() as u64)
    }

    pub fn set_head(&self, head: Head) {
        self.state().head = head.into();
    }

    /// Content of the header file. Returns `None` until the body's checksum is known.
    pub fn record(&self) -> Option<Record> {
        let (id, key, head) = (self.id, self.key.clone(), Head::clone(&self.head()));
        Some(Record { id, key, head, body_bytes: self.body_bytes, body_sum: self.body_sum()? })
    }

    /// Memory of the header.
    pub fn head_cost(&self) -> u64 {
        self.head_bytes + HEAD_COST
    }

    /// Size of the entry for the limits on pinned objects.
    pub fn cost(&self) -> u64 {
        self.body_bytes + self.head_cost()
    }
}
