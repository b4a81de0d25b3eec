//! Connections to origins that are kept for the next request.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bentpipe_prefetch::address::Origin;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

/// A connection that takes requests, one after the other.
pub type Sender = SendRequest<Empty<Bytes>>;

/// Connections that are kept for one origin: what a page may use at once.
const MAX_PER_ORIGIN: usize = 6;

/// Connections that are kept in all: at about 20 KiB each, 5 MiB.
const MAX_KEPT: usize = 256;

/// Lifetime of an idle connection: servers close theirs after 5 to 75 s, and a closed one costs a
/// retry.
const KEEP: Duration = Duration::from_secs(15);

/// Idle connections by their origins. They carry no cookies and no authorization, so they are
/// everybody's.
#[derive(Default)]
pub struct Pool(Mutex<BTreeMap<Origin, Vec<Idle>>>);

struct Idle {
    sender: Sender,
    since: Instant,
}

impl Pool {
    /// One that may still be open.
    pub fn take(&self, origin: &Origin) -> Option<Sender> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = all.get_mut(origin)?;
        let mut open = None;
        // The one that was used last is the likeliest to be open.
        while let (None, Some(idle)) = (&open, kept.pop()) {
            open = (idle.since.elapsed() < KEEP && !idle.sender.is_closed()).then_some(idle.sender);
        }
        if kept.is_empty() {
            all.remove(origin);
        }
        open
    }

    /// Keeps one whose last answer has been read to its end.
    pub fn put(&self, origin: Origin, sender: Sender) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, kept| {
            kept.retain(|idle| idle.since.elapsed() < KEEP && !idle.sender.is_closed());
            !kept.is_empty()
        });
        let in_all: usize = all.values().map(Vec::len).sum();
        let kept = all.entry(origin).or_default();
        if in_all < MAX_KEPT && kept.len() < MAX_PER_ORIGIN {
            kept.push(Idle { sender, since: Instant::now() });
        }
    }
}
