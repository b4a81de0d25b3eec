//! Idle connections to origins, kept for further requests.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_prefetch::address::Origin;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A connection that takes one request after another.
pub type Sender = SendRequest<Empty<Bytes>>;

/// Maximum number of idle connections per origin: as many as a page may use in parallel.
const MAX_PER_ORIGIN: usize = 6;

/// Maximum number of idle connections: 256 × about 20 KiB = 5 MiB.
const MAX_KEPT: usize = 256;

/// Lifetime of an idle connection. Servers close theirs after 5 to 75 s, and a closed one costs a
/// retry.
const KEEP: Duration = Duration::from_secs(15);

/// Idle connections by origin. They carry no cookies or authorization, so all passengers may share
/// them.
#[derive(Default)]
pub struct Pool(Mutex<BTreeMap<Origin, Vec<Idle>>>);

struct Idle {
    sender: Sender,
    since: Instant,
}

impl Pool {
    /// Takes a connection that is probably still open.
    pub fn take(&self, origin: &Origin) -> Option<Sender> {
        let mut all = self.0.lock();
        let kept = all.get_mut(origin)?;
        let mut open = None;
        // The most recently used connection is the likeliest to be open.
        while let (None, Some(idle)) = (&open, kept.pop()) {
            open = (idle.since.elapsed() < KEEP && !idle.sender.is_closed()).then_some(idle.sender);
        }
        if kept.is_empty() {
            all.remove(origin);
        }
        open
    }

    /// Stores a connection whose last response has been read to its end.
    pub fn put(&self, origin: Origin, sender: Sender) {
        let mut all = self.0.lock();
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
