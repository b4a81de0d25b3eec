//! A shared counter.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Raises the number to `counted`, the total of another counter.
    pub fn follow(&self, counted: u64) {
        self.0.fetch_max(counted, Relaxed);
    }

    /// Current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
