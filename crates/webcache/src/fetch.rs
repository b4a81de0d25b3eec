//! One request to an origin. Its response is stored, only forwarded, or dropped.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode};
use tokio::sync::oneshot;

use crate::cache::{Cache, ClientRequest};
use crate::error::OriginError;
use crate::fill::{FillReader, SEGMENT_BYTES};
use crate::flight::{Leader, Progress, ReuseReason, Transfer, Waiters};
use crate::head::{Moment, content_length, is_for_one};
use crate::key::Key;
use crate::origin::{Answer, Origin, OriginRequest};
use crate::policy;
use crate::pump::Pump;
use crate::range::without_range;
use crate::store::Entry;
use crate::validate;

/// Largest object that is fetched whole for a range request, bytes: 4 s of the link at 8 Mbit/s.
pub const MAX_WHOLE_FOR_RANGE_BYTES: u64 = 4 << 20;

/// Time for which the cache remembers that a response could not be stored, or was too large to be
/// fetched whole. No client waits for another one's fetch of that key meanwhile.
const NEGATIVE_MEMORY: Duration = Duration::from_secs(120);

/// An answer, with the times of its request and of its arrival.
type TimedAnswer = (Answer, (Moment, Moment));

/// A request to be sent.
pub(crate) struct Fetch {
    pub cache: Cache,
    pub key: Key,
    pub request: Request<()>,
    pub origin: Arc<dyn Origin>,
    /// Stored response to validate, if any.
    pub revalidation: Option<Revalidation>,
    /// `true` if the client wants a range, and the whole object is fetched.
    pub is_range: bool,
    /// `true` if the fetch continues although no client waits for it.
    pub is_background: bool,
}

/// A stored response to be validated, and the failures in which it may be used stale.
#[derive(Clone)]
pub(crate) struct Revalidation {
    pub entry: Arc<Entry>,
    /// `true` if it may be used when the origin fails.
    pub if_error: bool,
    /// `true` if it may be used when the origin cannot be reached.
    pub if_offline: bool,
}

impl Revalidation {
    /// Returns `true` if the stored response may be used after `error`.
    pub fn allows_stale(&self, error: &OriginError) -> bool {
        if error.is_offline() { self.if_offline } else { self.if_error }
    }
}

/// Result for the client that caused the fetch.
pub(crate) enum FetchResult {
    /// A response that is not stored, for this client alone.
    Unshared(Answer),
    /// A response that is arriving. The reader keeps the transfer alive until the client has a
    /// reader of its own.
    Receiving(Transfer, FillReader),
    /// The stored response is used.
    Stored(Arc<Entry>, ReuseReason),
    /// The object is too large to be fetched whole for a range.
    TooLarge,
    Failed(OriginError),
}

impl Fetch {
    pub fn new(cache: &Cache, client: ClientRequest<'_>) -> Self {
        Self {
            cache: cache.clone(),
            key: client.key.clone(),
            request: client.request.clone(),
            origin: client.origin.clone(),
            revalidation: None,
            is_range: false,
            is_background: false,
        }
    }

    /// Sends the request in a task of its own, because other clients may wait for the response after
    /// this one has gone.
    pub async fn start(self, leader: Option<Leader>) -> FetchResult {
        let (result, first) = oneshot::channel();
        // Counts this client as a waiting one.
        let _subscription = leader.as_ref().map(Leader::subscribe);
        tokio::spawn(self.run(leader, result));
        // The task always sends a result, unless the runtime shuts down first.
        first.await.unwrap_or(FetchResult::Failed(OriginError::Stalled))
    }

    async fn run(mut self, leader: Option<Leader>, mut result: oneshot::Sender<FetchResult>) {
        let is_background = self.is_background;
        let abandoned = async {
            result.closed().await;
            match &leader {
                _ if is_background => pending().await,
                Some(leader) => leader.abandoned().await,
                None => {}
            }
        };
        let waiters = leader.as_ref().map(Leader::waiters);
        let answered = tokio::select! {
            biased;
            answered = async { self.query(waiters).await } => answered,
            () = abandoned => return,
        };
        match answered {
            Ok((answer, times)) => self.handle(answer, times, leader, result).await,
            Err(error) => {
                let offline = error.is_offline();
                let reason = if offline { ReuseReason::Offline } else { ReuseReason::Error(None) };
                let stale = self.revalidation.filter(|stored| stored.allows_stale(&error));
                let (progress, direct) = match stale {
                    Some(Revalidation { entry, .. }) => (
                        Progress::Stored(entry.clone(), reason),
                        FetchResult::Stored(entry, reason),
                    ),
                    None => (Progress::Failed(error.clone()), FetchResult::Failed(error)),
                };
                publish(leader.as_ref(), progress);
                let _ = result.send(direct);
            }
        }
    }

    /// Sends the request. Sends it once more, without the cache's own conditions, if the first answer
    /// is a 304 that confirms nothing.
    async fn query(&mut self, others: Option<Waiters>) -> Result<TimedAnswer, OriginError> {
        let as_it_came = self.request.headers().clone();
        without_range(self.request.headers_mut());
        let Some(stored) = &self.revalidation else { return self.send(false, others).await };
        let head = stored.entry.head();
        validate::make_conditional(self.request.headers_mut(), &head);
        let first = self.send(true, others.clone()).await?;
        let (answer, _) = &first;
        if answer.response.status() != StatusCode::NOT_MODIFIED {
            return Ok(first);
        }
        if !answer.trusted {
            // Anybody may have sent this 304, so it confirms nothing. The client cannot use it
            // either, because the conditions were the cache's.
            *self.request.headers_mut() = as_it_came;
            return self.send(false, others).await;
        }
        if validate::confirms(answer.response.headers(), &head) {
            return Ok(first);
        }
        // The 304 is about a response that is not stored here.
        self.cache.0.store.supersede(&stored.entry);
        self.revalidation = None;
        validate::unconditional(self.request.headers_mut());
        self.send(true, others).await
    }

    async fn send(
        &self,
        revalidating: bool,
        others: Option<Waiters>,
    ) -> Result<TimedAnswer, OriginError> {
        let clock = &self.cache.0.clock;
        let requested_at = clock();
        let stale_ok = self.revalidation.as_ref().is_some_and(|stored| stored.if_offline);
        let request =
            OriginRequest { request: self.request.clone(), stale_ok, revalidating, others };
        let answer = self.origin.send(request).await?;
        Ok((answer, (requested_at, clock())))
    }

    /// Decides whether `answer` is stored, shared or forwarded, and transfers its body.
    async fn handle(
        self,
        answer: Answer,
        times: (Moment, Moment),
        leader: Option<Leader>,
        result: oneshot::Sender<FetchResult>,
    ) {
        let store = &self.cache.0.store;
        let status = answer.response.status();
        if let Some((entry, reason)) = self.reuse(&answer, times) {
            publish(leader.as_ref(), Progress::Stored(entry.clone(), reason));
            let _ = result.send(FetchResult::Stored(entry, reason));
            return;
        }
        let length = content_length(answer.response.headers());
        if self.is_range
            && status == StatusCode::OK
            && length.is_none_or(|it| it > MAX_WHOLE_FOR_RANGE_BYTES)
        {
            self.cache.0.large.insert(&self.key, times.1, NEGATIVE_MEMORY);
            self.note_superseded(&answer);
            publish(leader.as_ref(), Progress::NotShared);
            let _ = result.send(FetchResult::TooLarge);
            return;
        }
        let response = (status, answer.response.headers());
        let head = policy::storable(&self.key, self.request.headers(), response, times)
            .filter(|_| answer.trusted && *self.request.method() == Method::GET);
        let fits = length.is_none_or(|it| it <= store.object_bytes());
        if head.is_none() || !fits {
            self.note_unstorable(&answer, times, fits);
        }
        let mut room = store.room();
        let first = length.unwrap_or(u64::MAX).min(SEGMENT_BYTES as u64);
        let Some(head) = head.filter(|_| fits && room.grow_to(store, first)) else {
            self.note_superseded(&answer);
            publish(leader.as_ref(), Progress::NotShared);
            let _ = result.send(FetchResult::Unshared(answer));
            return;
        };
        let transfer =
            Transfer { head: head.into(), fill: Arc::default(), length, pushed: answer.pushed };
        publish(leader.as_ref(), Progress::Receiving(transfer.clone()));
        if let Some(reader) = transfer.fill.read(0, None) {
            let _ = result.send(FetchResult::Receiving(transfer.clone(), reader));
        }
        let request = self.request.headers().clone();
        let mut pump =
            Pump::new(self.cache, self.key, request, transfer, room, (leader, self.origin));
        // A client that requests one range usually requests more, and each fetch starts at byte 0.
        pump.run(answer.response, self.is_background || self.is_range).await;
    }

    /// Returns the stored response if `answer` confirms it, or is an error for which it may be used
    /// stale.
    fn reuse(&self, answer: &Answer, times: (Moment, Moment)) -> Option<(Arc<Entry>, ReuseReason)> {
        let stored = self.revalidation.as_ref()?;
        let status = answer.response.status();
        if status == StatusCode::NOT_MODIFIED && answer.trusted {
            let newer = answer.response.headers();
            if is_for_one(newer) {
                // The body was public until now, so this client still gets it.
                self.cache.0.store.supersede(&stored.entry);
                return Some((stored.entry.clone(), ReuseReason::Validated));
            }
            let freshen = |head: &mut crate::head::Head| head.freshen(newer, times.0, times.1);
            self.cache.0.store.change(&stored.entry, freshen);
            return Some((stored.entry.clone(), ReuseReason::Validated));
        }
        let is_stale_ok = stored.if_error && is_server_failure(status);
        is_stale_ok.then(|| (stored.entry.clone(), ReuseReason::Error(Some(status))))
    }

    /// Removes the stored response if `answer`, which is not stored itself, supersedes it for all
    /// clients.
    fn note_superseded(&self, answer: &Answer) {
        let status = answer.response.status();
        if let Some(stored) = self.revalidation.as_ref().filter(|_| self.is_for_all(answer))
            && !is_server_failure(status)
        {
            self.cache.0.store.supersede(&stored.entry);
        }
    }

    /// Remembers that responses under this key cannot be stored, so that clients do not wait for
    /// each other. Ignores an answer that was unstorable only because of its client, the form of its
    /// request, or a temporary failure.
    fn note_unstorable(&self, answer: &Answer, times: (Moment, Moment), fits: bool) {
        let status = answer.response.status();
        let response = (status, answer.response.headers());
        let for_nobody =
            || policy::storable(&self.key, &HeaderMap::new(), response, times).is_none();
        if self.is_for_all(answer) && !status.is_server_error() && (!fits || for_nobody()) {
            self.cache.0.unstorable.insert(&self.key, times.1, NEGATIVE_MEMORY);
        }
    }

    /// Returns `true` if `answer` certainly comes from the origin, and other clients would get the
    /// same one.
    fn is_for_all(&self, answer: &Answer) -> bool {
        let about_one =
            matches!(answer.response.status().as_u16(), 206 | 304 | 401 | 407 | 412 | 416);
        let headers = answer.response.headers();
        answer.trusted && !about_one && !policy::depends_on_client(self.request.headers(), headers)
    }
}

/// Returns `true` for a status in place of which a stale response may be used (RFC 5861 §4).
fn is_server_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

fn publish(leader: Option<&Leader>, progress: Progress) {
    if let Some(leader) = leader {
        leader.publish(progress);
    }
}
