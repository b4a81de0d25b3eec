//! Shortage of memory that several sessions share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A flag that all sessions of an end share. While it is set, nobody is lent more than it has.
#[derive(Debug, Clone, Default)]
pub struct Pressure(Arc<AtomicBool>);

impl Pressure {
    /// Memory is short from now on, or is not any more.
    pub fn set(&self, short: bool) {
        self.0.store(short, Relaxed);
    }

    pub fn is_on(&self) -> bool {
        self.0.load(Relaxed)
    }
}
