//! Maintenance of the store: put in, pin, invalidate, and look up.

use bytes::Bytes;
use http::header::{CONTENT_LOCATION, LOCATION};
use http::{HeaderMap, Method, Response, StatusCode};

use crate::cache::{Cache, Clock};
use crate::give::content_length;
use crate::head::Head;
use crate::key::Key;
use crate::policy::{self, Use, usable};
use crate::store::{Counts, Occupancy};

impl Cache {
    /// Notes that a request of `method` for `key` was answered with `status` and these fields: what it
    /// may have changed has to be confirmed before it is used again (RFC 9111 §4.4). Only for answers
    /// that are certain to come from the origin of `key`.
    pub fn changed(&self, key: &Key, method: &Method, (status, headers): (StatusCode, &HeaderMap)) {
        if !policy::invalidates(method, status) {
            return;
        }
        self.0.store.invalidate(key);
        for name in [LOCATION, CONTENT_LOCATION] {
            let named = headers.get(&name).and_then(|value| value.to_str().ok());
            if let Some(other) = named.and_then(|reference| key.same_origin(reference)) {
                self.0.store.invalidate(&other);
            }
        }
    }

    /// Stores the `response` to a GET of `key` with the fields `request`, where that is allowed;
    /// `pinned`, it stays whatever else wants its place. Gives whether it is stored as was asked.
    pub fn insert(
        &self,
        key: &Key,
        request: &HeaderMap,
        response: Response<Bytes>,
        pinned: bool,
    ) -> bool {
        let now = self.now();
        let (parts, body) = response.into_parts();
        let said = (parts.status, &parts.headers);
        let complete =
            content_length(&parts.headers).is_none_or(|bytes| bytes == body.len() as u64);
        let head = policy::storable(key, request, said, (now, now)).filter(|_| complete);
        let entry = head.and_then(|head| self.0.store.put(key, request, head, body));
        entry.is_some_and(|entry| !pinned || self.0.store.pin(&entry, true))
    }

    /// Keeps what is stored under `key` and fits `request` whatever comes, or no longer: only a newer
    /// answer of its origin's takes its place, and is pinned too. Pinned objects have at most half of the
    /// disk, or of the memory without one. Gives whether it is there and as was asked.
    pub fn pin(&self, key: &Key, request: &HeaderMap, pinned: bool) -> bool {
        let entry = self.0.store.find(key, request);
        entry.is_some_and(|entry| self.0.store.pin(&entry, pinned))
    }

    /// Returns `true` if a GET of `key` with the fields `request` would be answered from here at
    /// once.
    pub fn has(&self, key: &Key, request: &HeaderMap) -> bool {
        let entry = self.0.store.find(key, request);
        let usable = |head: &Head| usable(head, request, &self.0.rules, self.now());
        entry.is_some_and(|entry| usable(&entry.head()) == Use::Fresh)
    }

    /// The hashes ([`Key::hash64`]) of what is fresh here of the addresses that begin with `prefix`, such
    /// as `http://example.net:80/`: the `most` that were stored last, the newest first. What a digest for
    /// the ground is made of.
    pub fn fresh_hashes(&self, prefix: &str, most: usize) -> Vec<u64> {
        let now = self.now();
        self.0.store.hashes(prefix, most, |head| head.remaining(&self.0.rules, now) > 0)
    }

    /// Occupancy of the store.
    pub fn occupancy(&self) -> Occupancy {
        self.0.store.occupancy()
    }

    /// Counts of stored and evicted objects.
    pub fn counts(&self) -> Counts {
        self.0.store.counts()
    }

    /// Clock of this cache.
    pub fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    /// Objects so far that stayed in memory alone because too much waited for the disk.
    pub fn unwritten(&self) -> u64 {
        self.0.store.unwritten()
    }

    /// Waits until what lay in the directory has been read, and all that was stored so far is written.
    pub async fn settle(&self) {
        self.0.store.settle().await;
    }
}
