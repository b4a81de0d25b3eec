//! An object that was promised to the cabin: its bytes as they come, for those who may have it.

use std::pin::Pin;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_prefetch::judge;
use bentpipe_prefetch::wire::Head;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use http::header::{ACCEPT_LANGUAGE, AGE, COOKIE, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Time, from its head on, for which an object that may not be given twice is there for its one
/// GET.
pub const ONCE_WITHIN: Duration = Duration::from_secs(30);

/// Facts shared by all objects of a page.
#[derive(Debug)]
pub struct PageFacts {
    /// Time of the page's request: no object of it was fetched before.
    asked_at: Instant,
    /// Fields of the page's request that identify the browser.
    said: [Option<HeaderValue>; 2],
    /// Time of the last bytes on the page's stream.
    heard_at: Mutex<Instant>,
    /// Heads that have come of its objects: of those that requests with a cookie may have less the others.
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

/// The object, or what is left of it, will not come, or is not to be given any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the ground has not sent what it promised")]
pub struct PromiseBroken;

/// An object's bytes, from the first on.
pub struct ObjectBody(BoxStream<'static, Result<Bytes, PromiseBroken>>);

impl PageFacts {
    /// Facts of a page that is requested now, by a request with these fields.
    pub fn new(headers: &HeaderMap) -> Self {
        let now = Instant::now();
        let (heard_at, for_any_cookie) = (Mutex::new(now), AtomicI32::new(0));
        Self { asked_at: now, said: said(headers), heard_at, for_any_cookie }
    }

    /// Something has come.
    pub fn heard(&self) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn heard_at(&self) -> Instant {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether an object is worth waiting for by a request with a cookie: as many of those that have come as
    /// not may be given to one.
    fn is_hopeful(&self) -> bool {
        self.for_any_cookie.load(Relaxed) >= 0
    }

    /// Returns `true` if a request with these fields comes from the same browser: answers may
    /// differ by these fields.
    pub fn is_same_client(&self, headers: &HeaderMap) -> bool {
        self.said == said(headers)
    }
}

fn said(headers: &HeaderMap) -> [Option<HeaderValue>; 2] {
    [USER_AGENT, ACCEPT_LANGUAGE].map(|name| headers.get(name).cloned())
}

impl Object {
    /// Object of the page with these facts.
    pub fn new(page: Arc<PageFacts>) -> Self {
        Self { page, state: watch::Sender::default() }
    }

    /// Its page.
    pub fn page(&self) -> &PageFacts {
        &self.page
    }

    /// The object for one GET with these `headers`, which may have it up to `most_age` old. Waits for its head
    /// as long as the page's stream is never silent for longer than `patience`.
    ///
    /// What its origin calls fresh is given to all who ask, with its age. All else is what the page's
    /// reader would have been given just now, and so is given once, within [`ONCE_WITHIN`], and only to a
    /// request without a cookie: it was fetched without one, and nobody says that it is the same with.
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
            // Nobody waits for that.
            false
        });
        Ok((given?, self.body()))
    }

    /// Returns `true` if nobody will be given it any more.
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

    /// The head, with its age, for one who gets the object.
    fn take(&self, state: &mut State, most_age: Duration, shows_cookie: bool) -> Option<Head> {
        if !self.is_for_somebody(state, shows_cookie) {
            return None;
        }
        let (head, _) = state.head.as_ref()?;
        let age = judge::age(&head.headers) + self.page.asked_at.elapsed();
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
            let is_fresh = self.page.asked_at.elapsed() < judge::fresh_for(&head.headers);
            let is_first = !state.is_given && came_at.elapsed() < ONCE_WITHIN;
            is_fresh || is_first && !shows_cookie
        })
    }

    /// Its bytes: those that are there, and those that come.
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
        let is_for_any = judge::is_for_any_cookie(&head.headers);
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
