//! Results of lookups of names that aircraft dial, and lookups in progress.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dns::Key;
use bentpipe_flow::ResetCode;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// Maximum number of cached answers: 8,192 × about 1 KiB = 8 MiB.
const MAX_CACHED: usize = 8_192;

/// Maximum lifetime of a cached answer: a host may move.
const MAX_LIFETIME: Duration = Duration::from_secs(3_600);

/// Result of a lookup.
pub type Found = Result<Vec<IpAddr>, ResetCode>;

/// Cached results, and lookups in progress.
#[derive(Default)]
pub struct Cache {
    known: Mutex<HashMap<Key, Known>>,
    /// Locks of the lookups in progress. Dials limit their number.
    asked: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

struct Known {
    found: Found,
    until: Instant,
}

/// Turn for a lookup that no equal lookup shares.
pub struct Turn<'a> {
    cache: &'a Cache,
    key: Key,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Cache {
    /// Returns the result of an earlier lookup.
    pub fn get(&self, key: &Key) -> Option<Found> {
        let known = self.known.lock();
        known.get(key).filter(|it| it.until > Instant::now()).map(|it| it.found.clone())
    }

    /// Keeps a result for `lifetime`.
    pub fn put(&self, key: Key, found: Found, lifetime: Duration) {
        let (mut known, now) = (self.known.lock(), Instant::now());
        if known.len() >= MAX_CACHED {
            known.retain(|_, it| it.until > now);
        }
        if known.len() >= MAX_CACHED {
            // Any one: all are in use, and the next lookup restores it.
            let one = known.keys().next().cloned();
            one.and_then(|one| known.remove(&one));
        }
        known.insert(key, Known { found, until: now + lifetime.min(MAX_LIFETIME) });
    }

    /// Waits until no other lookup of `key` is in progress.
    pub async fn turn(&self, key: &Key) -> Turn<'_> {
        let lock = self.asked.lock().entry(key.clone()).or_default().clone();
        let mut turn = Turn { cache: self, key: key.clone(), guard: None };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut asked = self.cache.asked.lock();
        self.guard = None;
        // Others that wait have a reference of their own.
        if asked.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            asked.remove(&self.key);
        }
    }
}
