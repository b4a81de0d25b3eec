//! Questions that are asked over streams: one stream each, for as long as the question is under way.

use std::collections::HashMap;
use std::future::pending;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, abortable};
use futures_util::stream::FuturesUnordered;

/// Answers over streams that are awaited at once, each a flow of the link. Where there is nothing but
/// streams, no more questions than that are under way.
pub const MOST_STREAMS: usize = 256;

/// The streams, each of which is a future that gives its question's id at its end.
pub struct Streams<F> {
    running: FuturesUnordered<Abortable<F>>,
    /// By the question's id: no more than one each.
    open: HashMap<u16, AbortHandle>,
}

/// Result of a question that was to be sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// It has a stream now.
    Now,
    /// It had one before.
    Already,
    /// As many as may be are open.
    Full,
}

impl<F> Default for Streams<F> {
    fn default() -> Self {
        Self { running: FuturesUnordered::new(), open: HashMap::new() }
    }
}

impl<F: Future<Output = u16>> Streams<F> {
    /// Asks the question `id` by `asking`, unless it is being asked.
    pub fn ask(&mut self, id: u16, asking: impl FnOnce() -> F) -> Asked {
        if self.open.contains_key(&id) {
            return Asked::Already;
        }
        if self.open.len() >= MOST_STREAMS {
            return Asked::Full;
        }
        let (asking, handle) = abortable(asking());
        self.running.push(asking);
        self.open.insert(id, handle);
        Asked::Now
    }

    /// Returns `true` if no question has a stream.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Ends the streams of the questions that are not under way any more.
    pub fn retain(&mut self, is_asking: impl Fn(u16) -> bool) {
        self.open.retain(|id, handle| {
            let stays = is_asking(*id);
            if !stays {
                handle.abort();
            }
            stays
        });
    }

    /// Lets them go on until one is over; for ever where there is none.
    pub async fn next(&mut self) {
        match self.running.next().await {
            Some(Ok(id)) => drop(self.open.remove(&id)),
            // Its place has been given back already.
            Some(Err(_)) => {}
            None => pending().await,
        }
    }
}
