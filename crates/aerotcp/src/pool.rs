//! Memory shared by all connections of an association.

use crate::settings::RESERVE_BYTES;

/// Counts the memory used in one direction. Beyond [`RESERVE_BYTES`] each, connections together use
/// at most the pool's size plus one packet.
#[derive(Debug)]
pub struct Pool {
    size: usize,
    in_use: usize,
}

impl Pool {
    /// Creates a pool of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self { size, in_use: 0 }
    }

    /// Returns `true` if a connection that uses `own` bytes may use `more`.
    pub fn admits(&self, own: usize, more: usize) -> bool {
        own + more <= RESERVE_BYTES || self.in_use + more <= self.size
    }

    /// Counts bytes as used.
    pub fn take(&mut self, bytes: usize) {
        self.in_use += bytes;
    }

    /// Counts bytes as free.
    pub fn give_back(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.in_use, "{bytes} of {}", self.in_use);
        self.in_use = self.in_use.saturating_sub(bytes);
    }

    /// Number of bytes in use.
    pub fn in_use(&self) -> usize {
        self.in_use
    }
}
