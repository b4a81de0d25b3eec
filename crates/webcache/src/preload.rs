//! Preloading: objects that are fetched before any client requests them, and pinned.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{LOCATION, SET_COOKIE, VARY, WWW_AUTHENTICATE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::cache::Cache;
use crate::directives::Directives;
use crate::error::OriginError;
use crate::head::{Head, Moment, content_length, is_for_one};
use crate::key::Key;
use crate::origin::{Answer, Origin, OriginBody, OriginRequest};
use crate::policy;
use crate::store::Entry;
use crate::validate;

/// Maximum silence in a body. It is longer than a passenger's, because preloads yield to all other
/// traffic.
const STALL: Duration = Duration::from_secs(600);

/// Byte budget of preloads: how many bytes may still cross the link, and how many have.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
    received: AtomicU64,
}

impl Budget {
    /// Creates a budget of `bytes`.
    pub const fn new(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes), received: AtomicU64::new(0) }
    }

    /// Bytes left, minus the announced lengths of bodies in progress.
    pub fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    /// Bytes received, those of unfinished and failed bodies included.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Reserves `bytes` for a body, if that many are left.
    fn reserve(&self, bytes: u64) -> Option<Reservation<'_>> {
        let reserved = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
        reserved.is_ok().then(|| Reservation { budget: self, left: bytes })
    }

    /// Deducts received bytes. Returns `false` if fewer were left.
    fn spend(&self, bytes: u64) -> bool {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let before = self.left.fetch_update(Relaxed, Relaxed, less);
        before.is_ok_and(|left| left >= bytes)
    }
}

/// Reserved bytes that a body has not used yet. Dropping it returns them to the budget.
struct Reservation<'a> {
    budget: &'a Budget,
    left: u64,
}

impl Reservation<'_> {
    /// Counts received bytes. Bytes beyond the reservation are taken from the budget itself.
    fn spend(&mut self, bytes: u64) -> bool {
        self.budget.received.fetch_add(bytes, Relaxed);
        let reserved = bytes.min(self.left);
        self.left -= reserved;
        self.budget.spend(bytes - reserved)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.left, Relaxed);
    }
}

/// Result of a preload: the object is stored, pinned and up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preloaded {
    /// The origin confirmed the stored object.
    Confirmed,
    /// The object was fetched.
    Stored {
        /// Length of its body.
        bytes: u64,
    },
}

/// Reason why an object could not be preloaded. An older stored object stays, unless the variant says
/// otherwise.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PreloadError {
    /// The request failed.
    #[error(transparent)]
    Failed(#[from] OriginError),
    /// The status is not 200.
    #[error("the origin answers {status}{}", moved(.to))]
    Status {
        /// Status of the response.
        status: StatusCode,
        /// Location, if the origin redirects.
        to: Option<String>,
    },
    /// The object is not public. A stored one is removed.
    #[error("it may not be stored: {0}")]
    NotForAll(&'static str),
    /// The object varies by this field. A stored one is removed.
    #[error("it may not be stored: it varies by {0}")]
    Varies(String),
    /// The object is larger than [`Settings::object_bytes`](crate::Settings::object_bytes).
    #[error("it is larger than the {max_bytes} bytes that an object may have")]
    TooLarge {
        /// Maximum size of an object, bytes.
        max_bytes: u64,
    },
    /// The budget is used up.
    #[error("the byte budget of this run is used up")]
    Budget,
    /// Other transfers use all memory for transfers. Try again later.
    #[error("other transfers use all memory for transfers")]
    Busy,
    /// Pinned objects use all space that they may.
    #[error("there is no room: pinned objects may have half of the cache")]
    Room,
}

fn moved(to: &Option<String>) -> String {
    to.as_ref().map(|to| format!(", and names {to}")).unwrap_or_default()
}

/// An answer, with the times of its request and of its arrival.
type TimedAnswer = (Answer, (Moment, Moment));

impl Cache {
    /// Fetches or validates an object, and pins it. `request` is a GET of `key`.
    ///
    /// Requests of clients for the same object do not wait for this one. `budget` is charged with the
    /// bytes of bodies, those of failed preloads included.
    pub async fn preload(
        &self,
        key: &Key,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
        budget: &Budget,
    ) -> Result<Preloaded, PreloadError> {
        let mut stored = self.0.store.find(key, request.headers());
        let mut timed = self.query(request, origin, stored.as_deref()).await?;
        if is_unmodified(&timed)
            && stored.as_ref().is_some_and(|entry| !confirms(&timed, entry))
            && let Some(other) = stored.take()
        {
            self.0.store.supersede(&other);
            timed = self.query(request, origin, None).await?;
        }
        let (Answer { response, trusted, .. }, times) = timed;
        if let Some(entry) =
            stored.as_ref().filter(|_| response.status() == StatusCode::NOT_MODIFIED)
        {
            if is_for_one(response.headers()) {
                self.0.store.remove(entry);
                return Err(PreloadError::NotForAll(why_not(response.headers())));
            }
            let freshen = |head: &mut Head| head.freshen(response.headers(), times.0, times.1);
            self.0.store.change(entry, freshen);
            return self.pinned_as(entry, Preloaded::Confirmed);
        }
        let head = match self.head_of(key, request.headers(), &response, trusted, times) {
            Ok(head) => head,
            Err(error) => {
                let superseded =
                    matches!(error, PreloadError::NotForAll(_) | PreloadError::Varies(_));
                if let Some(entry) = stored.filter(|_| superseded) {
                    self.0.store.remove(&entry);
                }
                return Err(error);
            }
        };
        let body = self.body_of(response, budget).await?;
        let bytes = body.len() as u64;
        let entry = self.0.store.put(key, request.headers(), head, body);
        let entry = entry.ok_or(PreloadError::Room)?;
        self.pinned_as(&entry, Preloaded::Stored { bytes })
    }

    /// Returns `true` if a response for this request is stored, fresh or stale.
    pub fn holds(&self, key: &Key, request: &HeaderMap) -> bool {
        self.0.store.find(key, request).is_some()
    }

    /// Keys of pinned objects.
    pub fn pinned(&self) -> Vec<Key> {
        self.0.store.pinned()
    }

    /// Unpins all objects under `key`. They can be evicted from now on.
    pub fn unpin(&self, key: &Key) {
        for entry in self.0.store.all_of(key) {
            self.0.store.pin(&entry, false);
        }
    }

    async fn query(
        &self,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
        stored: Option<&Entry>,
    ) -> Result<TimedAnswer, OriginError> {
        let mut request = OriginRequest::from(request.clone());
        validate::unconditional(request.request.headers_mut());
        if let Some(entry) = stored {
            validate::make_conditional(request.request.headers_mut(), &entry.head());
        }
        let clock = &self.0.clock;
        let requested_at = clock();
        Ok((origin.send(request).await?, (requested_at, clock())))
    }

    fn pinned_as(&self, entry: &Arc<Entry>, how: Preloaded) -> Result<Preloaded, PreloadError> {
        if self.0.store.pin(entry, true) { Ok(how) } else { Err(PreloadError::Room) }
    }

    /// Builds the stored header of a response that is public.
    fn head_of(
        &self,
        key: &Key,
        request: &HeaderMap,
        response: &Response<OriginBody>,
        trusted: bool,
        times: (Moment, Moment),
    ) -> Result<Head, PreloadError> {
        let (status, headers) = (response.status(), response.headers());
        if status != StatusCode::OK {
            let to = headers.get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.map(|to| to.chars().take(MAX_SHOWN_CHARS).collect());
            return Err(PreloadError::Status { status, to });
        }
        if let Some(name) = varies_by(headers) {
            return Err(PreloadError::Varies(name));
        }
        if !trusted {
            return Err(PreloadError::NotForAll(
                "the end of its body cannot be told from a broken connection",
            ));
        }
        policy::storable(key, request, (status, headers), times)
            .ok_or_else(|| PreloadError::NotForAll(why_not(headers)))
    }

    async fn body_of(
        &self,
        response: Response<OriginBody>,
        budget: &Budget,
    ) -> Result<Bytes, PreloadError> {
        let store = &self.0.store;
        let max_bytes = store.object_bytes();
        let announced = content_length(response.headers());
        if announced.is_some_and(|length| length > max_bytes) {
            return Err(PreloadError::TooLarge { max_bytes });
        }
        let mut room = store.room();
        if !room.grow_to(store, announced.unwrap_or_default()) {
            return Err(PreloadError::Busy);
        }
        if budget.left() == 0 {
            return Err(PreloadError::Budget);
        }
        // Reserved before the first byte: if several bodies together exceed the budget, the first ones
        // are still completed. The unused part is returned.
        let mut reservation =
            budget.reserve(announced.unwrap_or_default()).ok_or(PreloadError::Budget)?;
        // At most the size of an object.
        let mut whole = BytesMut::with_capacity(announced.unwrap_or_default() as usize);
        let mut body = response.into_body();
        while let Some(frame) =
            timeout(STALL, body.frame()).await.map_err(|_| OriginError::Stalled)?
        {
            let Ok(bytes) = frame?.into_data() else { continue };
            let length = (whole.len() + bytes.len()) as u64;
            if !reservation.spend(bytes.len() as u64) {
                return Err(PreloadError::Budget);
            }
            if length > max_bytes {
                return Err(PreloadError::TooLarge { max_bytes });
            }
            if !room.grow_to(store, length) {
                return Err(PreloadError::Busy);
            }
            whole.extend_from_slice(&bytes);
        }
        if announced.is_some_and(|length| length != whole.len() as u64) {
            return Err(OriginError::Stalled.into());
        }
        Ok(whole.freeze())
    }
}

/// Maximum length of origin-supplied text in an error, characters.
const MAX_SHOWN_CHARS: usize = 200;

fn is_unmodified((answer, _): &TimedAnswer) -> bool {
    answer.response.status() == StatusCode::NOT_MODIFIED
}

fn confirms((answer, _): &TimedAnswer, entry: &Entry) -> bool {
    validate::confirms(answer.response.headers(), &entry.head())
}

/// Field by which the response varies between clients, if any. Accept-Encoding does not count, because
/// all browsers send the same value for one scheme.
fn varies_by(response: &HeaderMap) -> Option<String> {
    let lists = response.get_all(VARY).iter().filter_map(|value| value.to_str().ok());
    let mut names = lists.flat_map(|list| list.split(',')).map(str::trim);
    let is_alike = |name: &str| name.is_empty() || name.eq_ignore_ascii_case("accept-encoding");
    names.find(|name| !is_alike(name)).map(|name| name.chars().take(MAX_SHOWN_CHARS).collect())
}

/// Rule of [`policy::storable`] that a response with status 200 breaks.
fn why_not(response: &HeaderMap) -> &'static str {
    let directives = Directives::of_response(response);
    if response.contains_key(SET_COOKIE) || response.contains_key("set-cookie2") {
        "it sets a cookie"
    } else if directives.no_store {
        "its origin says no-store"
    } else if directives.private {
        "its origin says private"
    } else if response.contains_key(WWW_AUTHENTICATE) {
        "its origin asks for authentication"
    } else if !validate::has_validator(response) {
        "it is stale at once, and has neither ETag nor Last-Modified to validate it by"
    } else {
        "it is not public"
    }
}
