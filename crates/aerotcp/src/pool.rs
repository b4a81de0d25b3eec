//! The memory that all connections of an association share.

use crate::settings::RESERVE_BYTES;

/// Counts what is held in one direction. Beyond [`RESERVE_BYTES`] each, connections hold together
/// at most the pool's size, and the packet with which one was at its limit.
#[derive(Debug)]
pub struct Pool {
    size: usize,
    held: usize,
}

impl Pool {
    /// A pool of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self { size, held: 0 }
    }

    /// Returns `true` if a connection that holds `own` bytes may hold `more`.
    pub fn admits(&self, own: usize, more: usize) -> bool {
        own + more <= RESERVE_BYTES || self.held + more <= self.size
    }

    /// Counts bytes in.
    pub fn take(&mut self, bytes: usize) {
        self.held += bytes;
    }

    /// Counts bytes out.
    pub fn give_back(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.held, "{bytes} of {}", self.held);
        self.held = self.held.saturating_sub(bytes);
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held
    }
}
