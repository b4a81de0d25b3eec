//! A bounded memory of addresses, each for a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::head::Moment;
use crate::key::Key;

/// The most addresses remembered: 128 KiB.
const MOST: usize = 8192;

/// Addresses that something was found out about.
#[derive(Debug, Default)]
pub struct Recent(Mutex<HashMap<u64, Moment>>);

impl Recent {
    /// Remembers `key` until `lasting` after `now`.
    pub fn note(&self, key: &Key, now: Moment, lasting: Duration) {
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if until.len() >= MOST {
            until.retain(|_, until| *until > now);
        }
        // Full of what still counts: rather forget all than grow, or look through it each time.
        if until.len() >= MOST {
            until.clear();
        }
        until.insert(key.hash64(), now + lasting);
    }

    /// Returns `true` if `key` is remembered.
    pub fn knows(&self, key: &Key, now: Moment) -> bool {
        let until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.get(&key.hash64()).is_some_and(|until| *until > now)
    }
}
