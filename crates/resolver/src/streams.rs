//! Queries over streams: one stream for each query while it is pending.

use std::collections::HashMap;
use std::future::pending;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, abortable};
use futures_util::stream::FuturesUnordered;

/// Maximum number of concurrent streams, each a flow of the link. If the transport has only
/// streams, it also limits the pending queries.
pub const MAX_STREAMS: usize = 256;

/// Concurrent streams. Each is a future that returns its query's ID.
pub struct Streams<F> {
    running: FuturesUnordered<Abortable<F>>,
    /// Handles by query ID; each query has at most one stream.
    open: HashMap<u16, AbortHandle>,
}

impl<F> Default for Streams<F> {
    fn default() -> Self {
        Self { running: FuturesUnordered::new(), open: HashMap::new() }
    }
}

impl<F: Future<Output = u16>> Streams<F> {
    /// Returns `true` if query `id` has a stream or can have one.
    pub fn has_room_for(&self, id: u16) -> bool {
        self.open.len() < MAX_STREAMS || self.open.contains_key(&id)
    }

    /// Sends query `id` with `asking`. Returns `false` if it already has a stream or there is no
    /// room.
    pub fn ask(&mut self, id: u16, asking: impl FnOnce() -> F) -> bool {
        if self.open.contains_key(&id) || !self.has_room_for(id) {
            return false;
        }
        let (asking, handle) = abortable(asking());
        self.running.push(asking);
        self.open.insert(id, handle);
        true
    }

    /// Returns `true` if there are no streams.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Ends the streams of queries that are no longer pending.
    pub fn retain(&mut self, is_asking: impl Fn(u16) -> bool) {
        self.open.retain(|id, handle| {
            let stays = is_asking(*id);
            if !stays {
                handle.abort();
            }
            stays
        });
    }

    /// Runs the streams until one ends; waits forever if there are none.
    pub async fn next(&mut self) {
        match self.running.next().await {
            Some(Ok(id)) => drop(self.open.remove(&id)),
            // Its handle has been removed already.
            Some(Err(_)) => {}
            None => pending().await,
        }
    }
}
