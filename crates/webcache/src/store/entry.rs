//! A stored answer.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;

use super::pieces::Sums;
use crate::head::Head;
use crate::key::Key;
use crate::record::{Record, Sum};

/// Memory of a head in addition to its encoded length: the maps' share.
const HEAD_COST: u64 = 512;

/// A stored answer.
pub struct Entry {
    pub id: u64,
    pub key: Key,
    /// [`Key::hash64`].
    pub hash: u64,
    pub body_bytes: u64,
    /// Known once the body has been on disk.
    body_sum: OnceLock<Sum>,
    /// Held by who reads the body from disk, so that one does.
    pub loading: tokio::sync::Mutex<()>,
    /// The length of its head's file when it was stored.
    head_bytes: u64,
    state: Mutex<State>,
}

struct State {
    head: Arc<Head>,
    body: Option<Bytes>,
    /// Sums of its pieces on disk, once they have been read.
    sums: Option<Sums>,
}

impl Entry {
    /// One that is in memory.
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

    /// One whose body is on disk.
    pub fn of_record(record: Record) -> Self {
        let Record { id, key, head, body_bytes, body_sum } = record;
        let mut entry = Self::new(id, key, head, Bytes::new());
        entry.body_bytes = body_bytes;
        entry.body_sum = body_sum.into();
        entry.state().body = None;
        entry
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Forgets the body in memory, and gives it.
    pub fn forget_body(&self) -> Option<Bytes> {
        self.state().body.take()
    }

    /// The length of its head's file when it was stored.
    pub fn head_bytes(&self) -> u64 {
        self.head_bytes
    }

    pub fn body_sum(&self) -> Option<Sum> {
        self.body_sum.get().copied()
    }

    pub fn set_body_sum(&self, sum: Sum) {
        // The same body has the same one.
        let _ = self.body_sum.set(sum);
    }

    /// The sums of its pieces on disk, where they are known.
    pub fn sums(&self) -> Option<Sums> {
        self.state().sums.clone()
    }

    pub fn set_sums(&self, sums: Sums) {
        self.state().sums = Some(sums);
    }

    /// They have to be found out anew: something was not as it was written.
    pub fn forget_sums(&self) {
        self.state().sums = None;
    }

    /// Returns `true` if somebody reads the body in memory.
    pub fn is_lent(&self) -> bool {
        self.state().body.as_ref().is_some_and(|body| !body.is_unique())
    }

    /// The bytes of the body in memory.
    pub fn warm_bytes(&self) -> u64 {
        self.state().body.as_ref().map_or(0, |body| body.len() as u64)
    }

    pub fn set_head(&self, head: Head) {
        self.state().head = head.into();
    }

    /// Content of its head's file, if the body's sum is known.
    pub fn record(&self) -> Option<Record> {
        let (id, key, head) = (self.id, self.key.clone(), Head::clone(&self.head()));
        Some(Record { id, key, head, body_bytes: self.body_bytes, body_sum: self.body_sum()? })
    }

    /// Memory of its head.
    pub fn head_cost(&self) -> u64 {
        self.head_bytes + HEAD_COST
    }

    /// Size for which it counts if it is pinned.
    pub fn cost(&self) -> u64 {
        self.body_bytes + self.head_cost()
    }
}
