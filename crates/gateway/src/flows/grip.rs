//! A flow's entry in the tables that bound flows: when something last moved on it, and the way to end it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The part of a ticket that the tables hold too.
pub struct Grip {
    id: u64,
    number: u32,
    began: Instant,
    moved_ms: AtomicU64,
    over: CancellationToken,
}

impl Grip {
    /// An entry of the passenger `number`, on which something moves now. All entries of a table have the
    /// same beginning of time.
    pub fn new(id: u64, number: u32, began: Instant) -> Arc<Self> {
        let (moved_ms, over) = Default::default();
        let grip = Self { id, number, began, moved_ms, over };
        grip.touch();
        Arc::new(grip)
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Notes that something moves now.
    pub fn touch(&self) {
        self.moved_ms.store(self.began.elapsed().as_millis() as u64, Relaxed);
    }

    /// Time of the last movement.
    pub fn moved_ms(&self) -> u64 {
        self.moved_ms.load(Relaxed)
    }

    /// Cancelled when the entry has to make room.
    pub fn over(&self) -> &CancellationToken {
        &self.over
    }
}
