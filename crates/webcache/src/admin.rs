//! Administration of the store: insert, pin, invalidate and look up.

use bytes::Bytes;
use http::header::{CONTENT_LOCATION, LOCATION};
use http::{HeaderMap, Method, Response, StatusCode};

use crate::cache::{Cache, Clock};
use crate::head::{Head, content_length};
use crate::key::Key;
use crate::policy::{self, Use, usable};
use crate::store::{Counts, Occupancy};

impl Cache {
    /// Invalidates the stored responses that a request may have changed (RFC 9111 §4.4). `method`,
    /// `status` and `headers` are those of the request and its response. Call this only if the
    /// response certainly comes from the origin of `key`.
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

    /// Stores the `response` to a GET of `key` with the fields `request`, if policy allows. With
    /// `pinned`, protects it from eviction. Returns `true` if the object is stored, and pinned if
    /// requested.
    pub fn insert(
        &self,
        key: &Key,
        request: &HeaderMap,
        response: Response<Bytes>,
        pinned: bool,
    ) -> bool {
        let now = self.now();
        let (parts, body) = response.into_parts();
        let answer = (parts.status, &parts.headers);
        let complete =
            content_length(&parts.headers).is_none_or(|bytes| bytes == body.len() as u64);
        let head = policy::storable(key, request, answer, (now, now)).filter(|_| complete);
        let entry = head.and_then(|head| self.0.store.put(key, request, head, body));
        entry.is_some_and(|entry| !pinned || self.0.store.pin(&entry, true))
    }

    /// Pins or unpins the response that is stored under `key` and fits `request`. A pinned response
    /// is replaced only by a newer one of its origin, which is then pinned too. Pinned objects use
    /// at most half of the disk, or half of the memory without a disk. Returns `true` if the object
    /// is stored and in the requested state.
    pub fn pin(&self, key: &Key, request: &HeaderMap, pinned: bool) -> bool {
        let entry = self.0.store.find(key, request);
        entry.is_some_and(|entry| self.0.store.pin(&entry, pinned))
    }

    /// Returns `true` if a GET of `key` with the fields `request` would be answered from the store
    /// at once.
    pub fn has(&self, key: &Key, request: &HeaderMap) -> bool {
        let entry = self.0.store.find(key, request);
        let usable = |head: &Head| usable(head, request, &self.0.rules, self.now());
        entry.is_some_and(|entry| usable(&entry.head()) == Use::Fresh)
    }

    /// Hashes ([`Key::hash64`]) of fresh objects whose keys begin with `prefix`, for example
    /// `http://example.net:80/`. Returns the `max` newest ones, newest first. They make up a cache
    /// digest.
    pub fn fresh_hashes(&self, prefix: &str, max: usize) -> Vec<u64> {
        let now = self.now();
        self.0.store.hashes(prefix, max, |head| head.remaining(&self.0.rules, now) > 0)
    }

    /// Current use of memory and disk.
    pub fn occupancy(&self) -> Occupancy {
        self.0.store.occupancy()
    }

    /// Numbers of stored and evicted objects.
    pub fn counts(&self) -> Counts {
        self.0.store.counts()
    }

    /// Clock of the cache.
    pub fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    /// Number of objects that were kept in memory only, because too many writes were pending.
    pub fn unwritten(&self) -> u64 {
        self.0.store.unwritten()
    }

    /// Waits until the directory has been read and all objects stored so far are written.
    pub async fn settle(&self) {
        self.0.store.settle().await;
    }
}
