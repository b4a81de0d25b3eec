//! A bounded set of keys, each for a limited time.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::head::Moment;
use crate::key::Key;

/// Maximum number of keys: 128 KiB.
const MAX_KEYS: usize = 8192;

/// Keys with a property that was found out recently.
#[derive(Debug, Default)]
pub struct Recent(Mutex<HashMap<u64, Moment>>);

impl Recent {
    /// Adds `key` for `lasting` from `now`.
    pub fn insert(&self, key: &Key, now: Moment, lasting: Duration) {
        let mut until = self.0.lock();
        if until.len() >= MAX_KEYS {
            until.retain(|_, until| *until > now);
        }
        // All entries are still valid. Clearing is cheaper than growing, or than searching each
        // time.
        if until.len() >= MAX_KEYS {
            until.clear();
        }
        until.insert(key.hash64(), now + lasting);
    }

    /// Returns `true` if `key` is in the set and has not expired.
    pub fn contains(&self, key: &Key, now: Moment) -> bool {
        let until = self.0.lock();
        until.get(&key.hash64()).is_some_and(|until| *until > now)
    }
}
