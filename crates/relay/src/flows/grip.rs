//! Entry of a flow in the tables that limit flows: time of its last activity, and a handle to end
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Part of a ticket that the tables share.
pub struct Grip {
    id: u64,
    number: u32,
    began: Instant,
    moved_ms: AtomicU64,
    over: CancellationToken,
}

impl Grip {
    /// Creates an entry of passenger `number` that is active now. All entries of a table use the
    /// same `began`.
    pub fn new(id: u64, number: u32, began: Instant) -> Arc<Self> {
        let (moved_ms, over) = Default::default();
        let grip = Self { id, number, began, moved_ms, over };
        grip.touch();
        Arc::new(grip)
    }

    /// Number of the entry.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Passenger of the entry.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Records activity at the current time.
    pub fn touch(&self) {
        self.moved_ms.store(self.began.elapsed().as_millis() as u64, Relaxed);
    }

    /// Time of the last activity, since `began`.
    pub fn moved_ms(&self) -> u64 {
        self.moved_ms.load(Relaxed)
    }

    /// Token that is cancelled when the entry must make room.
    pub fn over(&self) -> &CancellationToken {
        &self.over
    }
}
