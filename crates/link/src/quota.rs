//! Bytes that a path may still carry.
//!
//! The keeper of the count on disk reserves bytes first and adds them here afterwards. A crash therefore
//! wastes what was reserved, and nothing is ever spent twice.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::DayUse;
use parking_lot::{Condvar, Mutex};

/// Bytes of a path's daily limit. Clones share them: all sessions that use the path.
#[derive(Debug, Clone)]
pub struct PathQuota(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    /// Bytes reserved at once, and maximum that the peer may send without asking.
    chunk: u64,
    state: Mutex<State>,
    spent: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes reserved of today's limit.
    reserved: u64,
    /// Reserved bytes that nobody has spent.
    left: u64,
    /// Bytes held for packets that are being composed.
    held: u64,
    /// Bytes that the peer may still send.
    entrusted: u64,
}

impl PartialEq for PathQuota {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PathQuota {}

impl PathQuota {
    /// Creates the quota of a path that may carry `limit` bytes a day and reserves `chunk` bytes at
    /// once. Nothing is reserved yet.
    pub fn new(limit: u64, chunk: u64) -> Self {
        let (state, spent) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Shared { limit, chunk, state, spent }))
    }

    /// Bytes reserved at once.
    pub fn chunk(&self) -> u64 {
        self.0.chunk
    }

    /// Adds bytes that have been reserved on disk.
    pub fn add(&self, bytes: u64) {
        let mut state = self.0.state.lock();
        state.reserved += bytes;
        state.left += bytes;
    }

    /// Begins a day of whose limit `reserved` bytes are reserved already.
    pub fn begin_day(&self, reserved: u64) {
        self.0.state.lock().reserved = reserved;
    }

    /// Bytes reserved earlier that may still be spent.
    pub fn unspent(&self) -> u64 {
        let state = self.0.state.lock();
        state.left + state.held + state.entrusted
    }

    /// Bytes reserved and neither spent nor entrusted to the peer.
    pub fn left(&self) -> u64 {
        self.0.state.lock().left
    }

    /// Use of the limit.
    pub fn usage(&self) -> DayUse {
        let state = self.0.state.lock();
        let used_bytes = state.reserved.saturating_sub(state.left + state.held);
        DayUse { limit_bytes: self.0.limit, used_bytes }
    }

    /// Waits until less than half a chunk is left, for at most `patience`.
    pub fn wait_low(&self, patience: Duration) {
        let mut state = self.0.state.lock();
        let is_enough = |state: &mut State| state.left >= self.0.chunk / 2;
        self.0.spent.wait_while_for(&mut state, is_enough, patience);
    }

    /// Spends `bytes`. Returns `false` if fewer are left.
    pub fn take(&self, bytes: u64) -> bool {
        let mut state = self.0.state.lock();
        let is_there = state.left >= bytes;
        state.left -= if is_there { bytes } else { 0 };
        self.tell(&state);
        is_there
    }

    /// Holds at most `bytes` for a packet, and returns their number.
    pub(crate) fn hold(&self, bytes: u64) -> u64 {
        let mut state = self.0.state.lock();
        let held = bytes.min(state.left);
        state.left -= held;
        state.held += held;
        held
    }

    /// Ends a hold of `held` bytes, of which `spent` were spent.
    pub(crate) fn release(&self, held: u64, spent: u64) {
        let mut state = self.0.state.lock();
        state.held -= held;
        state.left += held.saturating_sub(spent);
        self.tell(&state);
    }

    /// Lets the peer send up to `bytes`, and returns how many.
    pub fn entrust(&self, bytes: u64) -> u64 {
        self.entrust_from(1, bytes)
    }

    /// Lets the peer send up to `bytes`, unless that is less than `min`.
    pub(crate) fn entrust_from(&self, min: u64, bytes: u64) -> u64 {
        let mut state = self.0.state.lock();
        let room = self.0.chunk.saturating_sub(state.entrusted);
        let bytes = bytes.min(room).min(state.left);
        if bytes < min {
            return 0;
        }
        state.left -= bytes;
        state.entrusted += bytes;
        self.tell(&state);
        bytes
    }

    /// Notes that the peer has sent `bytes` of those entrusted to it, or will not send them.
    pub fn settle(&self, bytes: u64) {
        let mut state = self.0.state.lock();
        state.entrusted = state.entrusted.saturating_sub(bytes);
    }

    fn tell(&self, state: &State) {
        if state.left < self.0.chunk / 2 {
            self.0.spent.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spent_once() {
        let quota = PathQuota::new(1000, 400);
        assert!(!quota.take(1));
        quota.add(400);
        assert!(quota.take(100));
        assert_eq!(quota.hold(250), 250);
        assert_eq!(quota.hold(250), 50);
        assert_eq!((quota.left(), quota.unspent()), (0, 300));
        quota.release(250, 200);
        quota.release(50, 0);
        assert_eq!(
            (quota.left(), quota.usage()),
            (100, DayUse { limit_bytes: 1000, used_bytes: 300 })
        );
        assert_eq!(quota.entrust(200), 100);
        assert_eq!((quota.left(), quota.unspent()), (0, 100));
        quota.settle(60);
        assert_eq!(quota.unspent(), 40);
        assert_eq!(quota.usage().used_bytes, 400);
    }

    #[test]
    fn the_peer_is_entrusted_with_a_chunk_at_most() {
        let quota = PathQuota::new(10_000, 400);
        quota.add(4000);
        assert_eq!(quota.entrust(300), 300);
        assert_eq!(quota.entrust(300), 100);
        quota.settle(250);
        assert_eq!(quota.entrust(300), 250);
        quota.settle(10);
        assert_eq!(quota.entrust_from(11, 300), 0, "too little to tell the peer");
        assert_eq!(quota.entrust_from(10, 300), 10);
    }
}
