//! Shortage of memory that a session shares with others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Memory that a session may use, in addition to what it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lending {
    /// As much as its own limits permit.
    #[default]
    Free,
    /// No flow is lent more, but bytes that were written are sent.
    NoLoans,
    /// Each flow has its reserve, and no more.
    ReservesOnly,
}

/// Shortage as one session sees it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Pressure(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lending: AtomicU8,
    refused: AtomicU64,
}

impl Pressure {
    /// Sets what the session may use.
    pub fn set(&self, lending: Lending) {
        self.0.lending.store(lending as u8, Relaxed);
    }

    /// Returns `true` if no flow is lent more.
    pub fn is_on(&self) -> bool {
        self.0.lending.load(Relaxed) >= Lending::NoLoans as u8
    }

    /// Returns `true` if each flow has its reserve, and no more.
    pub fn leaves_reserves(&self) -> bool {
        self.0.lending.load(Relaxed) >= Lending::ReservesOnly as u8
    }

    /// Counts a writer that waits because of the shortage.
    pub fn refuse(&self) {
        self.0.refused.fetch_add(1, Relaxed);
    }

    /// Takes the number of writers refused since the last call.
    pub fn take_refused(&self) -> u64 {
        self.0.refused.swap(0, Relaxed)
    }
}
