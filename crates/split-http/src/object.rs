//! A promised object: its bytes as they arrive, for the requests that may use it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_prefetch::pushable;
use bentpipe_prefetch::wire::Head;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use http::header::{ACCEPT_LANGUAGE, AGE, COOKIE, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Time after its header during which a single-use object may be used by a GET.
pub const ONCE_WITHIN: Duration = Duration::from_secs(30);

/// Properties shared by all objects of a page.
#[derive(Debug)]
pub struct PageFacts {
    /// Time of the page's request. All objects were fetched after it.
    asked_at: Instant,
    /// Header fields of the page's request that identify the browser.
    said: [Option<HeaderValue>; 2],
    /// Time of the last bytes received on the page's stream.
    heard_at: Mutex<Instant>,
    /// Number of received headers that allow requests with any cookie, minus the number of others.
    for_any_cookie: AtomicI32,
}

/// A promised object.
#[derive(Debug)]
pub struct Object {
    page: Arc<PageFacts>,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    head: Option<(Head, Instant)>,
    chunks: Vec<Bytes>,
    end: Option<Result<(), PromiseBroken>>,
    is_given: bool,
}

/// The rest of the object will not arrive, or may not be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the ground has not sent what it promised")]
pub struct PromiseBroken;

/// Bytes of an object, from the first.
pub struct ObjectBody(BoxStream<'static, Result<Bytes, PromiseBroken>>);

impl PageFacts {
    /// Creates the facts of a page that is requested now, with these header fields.
    pub fn new(headers: &HeaderMap) -> Self {
        let now = Instant::now();
        let (heard_at, for_any_cookie) = (Mutex::new(now), AtomicI32::new(0));
        Self { asked_at: now, said: said(headers), heard_at, for_any_cookie }
    }

    /// Records that data has arrived.
    pub fn heard(&self) {
        *self.heard_at.lock() = Instant::now();
    }

    fn heard_at(&self) -> Instant {
        *self.heard_at.lock()
    }

    /// Returns whether a request with a cookie should wait for an object. It should if at least
    /// half of the objects received so far allow requests with a cookie.
    fn is_hopeful(&self) -> bool {
        self.for_any_cookie.load(Relaxed) >= 0
    }

    /// Returns `true` if a request with these header fields comes from the same browser, because
    /// responses may depend on these fields.
    pub fn is_same_client(&self, headers: &HeaderMap) -> bool {
        self.said == said(headers)
    }
}

fn said(headers: &HeaderMap) -> [Option<HeaderValue>; 2] {
    [USER_AGENT, ACCEPT_LANGUAGE].map(|name| headers.get(name).cloned())
}

impl Object {
    /// Creates an object of the page with these facts.
    pub fn new(page: Arc<PageFacts>) -> Self {
        Self { page, state: watch::Sender::default() }
    }

    /// Facts of the object's page.
    pub fn page(&self) -> &PageFacts {
        &self.page
    }

    /// Returns the object for one GET with these `headers`, if it is at most `most_age` old. Waits
    /// for the header until the page's stream has been silent for `patience`.
    ///
    /// An object that its origin declares fresh is given to all requests, with its age. Any other
    /// object is what the browser would have received just now. It is therefore given once, within
    /// [`ONCE_WITHIN`], and only to a request without a cookie: it was fetched without one, and the
    /// response with a cookie may differ.
    pub async fn give(
        &self,
        headers: &HeaderMap,
        patience: Duration,
        most_age: Duration,
    ) -> Result<(Head, ObjectBody), PromiseBroken> {
        let shows_cookie = headers.contains_key(COOKIE);
        if shows_cookie && self.state.borrow().head.is_none() && !self.page.is_hopeful() {
            return Err(PromiseBroken);
        }
        self.wait(patience).await?;
        let mut given = Err(PromiseBroken);
        self.state.send_if_modified(|state| {
            given = self.take(state, most_age, shows_cookie).ok_or(PromiseBroken);
            // Nobody waits for this change.
            false
        });
        Ok((given?, self.body()))
    }

    /// Returns `true` if no further request can use the object.
    pub fn is_spent(&self) -> bool {
        let state = self.state.borrow();
        state.head.is_some() && !self.is_for_somebody(&state, false)
    }

    async fn wait(&self, patience: Duration) -> Result<(), PromiseBroken> {
        let mut state = self.state.subscribe();
        loop {
            let until = self.page.heard_at() + patience;
            let decided = state.wait_for(|state| state.head.is_some() || state.end.is_some());
            match timeout_at(until, decided).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(_)) => return Err(PromiseBroken),
                Err(_) if self.page.heard_at() + patience > until => {}
                Err(_) => return Err(PromiseBroken),
            }
        }
    }

    /// Returns the header, with its age, for a request that uses the object.
    fn take(&self, state: &mut State, most_age: Duration, shows_cookie: bool) -> Option<Head> {
        if !self.is_for_somebody(state, shows_cookie) {
            return None;
        }
        let (head, _) = state.head.as_ref()?;
        let age = pushable::age(&head.headers) + self.page.asked_at.elapsed();
        if age > most_age {
            return None;
        }
        let mut head = head.clone();
        head.headers.insert(AGE, age.as_secs().into());
        state.is_given = true;
        Some(head)
    }

    fn is_for_somebody(&self, state: &State, shows_cookie: bool) -> bool {
        state.head.as_ref().is_some_and(|(head, came_at)| {
            let is_fresh = self.page.asked_at.elapsed() < pushable::fresh_for(&head.headers);
            let is_first = !state.is_given && came_at.elapsed() < ONCE_WITHIN;
            is_fresh || is_first && !shows_cookie
        })
    }

    /// Returns the body: the bytes received so far, and those still to come.
    fn body(&self) -> ObjectBody {
        let state = self.state.subscribe();
        let chunks = stream::try_unfold((state, 0), |(mut state, at)| async move {
            let next = {
                let there = |state: &State| state.chunks.len() > at || state.end.is_some();
                let state = state.wait_for(there).await.map_err(|_| PromiseBroken)?;
                match (state.chunks.get(at), state.end) {
                    (Some(bytes), _) => Some(bytes.clone()),
                    (None, Some(Ok(()))) => None,
                    (None, _) => return Err(PromiseBroken),
                }
            };
            Ok(next.map(|bytes| (bytes, (state, at + 1))))
        });
        ObjectBody(chunks.boxed())
    }

    pub(super) fn begin(&self, head: Head) {
        let now = Instant::now();
        let is_for_any = pushable::is_for_any_cookie(&head.headers);
        self.page.for_any_cookie.fetch_add(if is_for_any { 1 } else { -1 }, Relaxed);
        self.state.send_modify(|state| state.head = Some((head, now)));
    }

    pub(super) fn push(&self, bytes: Bytes) {
        self.state.send_modify(|state| state.chunks.push(bytes));
    }

    pub(super) fn end(&self, end: Result<(), PromiseBroken>) {
        self.state.send_modify(|state| {
            state.end.get_or_insert(end);
        });
    }
}

impl Stream for ObjectBody {
    type Item = Result<Bytes, PromiseBroken>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}
