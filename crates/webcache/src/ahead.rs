//! Objects that are fetched before anybody asks for them, and stay.

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
use crate::give::content_length;
use crate::head::{Head, Moment, is_for_one};
use crate::key::Key;
use crate::origin::{Answer, Failure, Origin, OriginBody, STALLED};
use crate::policy;
use crate::store::Entry;
use crate::validate;

/// A body of which nothing comes for so long has failed: what is fetched ahead yields to everybody, and
/// so waits longer than a passenger would.
const STALL: Duration = Duration::from_secs(600);

/// Bytes that may still cross the link, and that have crossed it.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
    came: AtomicU64,
}

impl Budget {
    /// One of so many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes), came: AtomicU64::new(0) }
    }

    /// Bytes left after the announced lengths of bodies in progress.
    pub fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    /// Bytes received, of bodies in progress and of failed ones too.
    pub fn came(&self) -> u64 {
        self.came.load(Relaxed)
    }

    /// Takes `bytes` that are to come, if it has as many.
    fn hold(&self, bytes: u64) -> Option<Held<'_>> {
        let taken = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok().then(|| Held { budget: self, left: bytes })
    }

    /// Takes what has come already, and says whether all of it was there.
    fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let before = self.left.fetch_update(Relaxed, Relaxed, less);
        before.is_ok_and(|left| left >= bytes)
    }
}

/// Bytes that one body may still take of a budget that it has used already.
struct Held<'a> {
    budget: &'a Budget,
    left: u64,
}

impl Held<'_> {
    /// Notes what came; beyond what was held, the budget itself has to have it.
    fn spend(&mut self, bytes: u64) -> bool {
        self.budget.came.fetch_add(bytes, Relaxed);
        let held = bytes.min(self.left);
        self.left -= held;
        self.budget.take(bytes - held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.left, Relaxed);
    }
}

/// An object is here, pinned, and as its origin has it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// It was here, and the origin said that it still holds.
    Confirmed,
    /// It was fetched.
    Stored {
        /// Its body, bytes.
        bytes: u64,
    },
}

/// Reason for which an object is not here, pinned, and as its origin has it now. Earlier content
/// stays unless the reason forbids it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAhead {
    /// The origin gave no whole answer.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// It answered something else than the object.
    #[error("the origin answers {status}{}", moved(.to))]
    Status {
        /// The status.
        status: StatusCode,
        /// Location to which it redirects.
        to: Option<String>,
    },
    /// It is not for everybody; whatever was here is removed.
    #[error("it may not be stored: {0}")]
    NotForAll(&'static str),
    /// Other requests get something else; whatever was here is removed.
    #[error("it may not be stored: it varies by {0}")]
    Varies(String),
    /// It is larger than objects may be.
    #[error("it is larger than the {most} bytes that an object may have")]
    TooLarge {
        /// The most, bytes.
        most: u64,
    },
    /// The budget does not reach so far.
    #[error("what may be fetched at a time is used up")]
    Budget,
    /// Bodies on their way have all the memory there is for them just now.
    #[error("there is no memory for it while others are on their way")]
    Busy,
    /// Pinned objects have taken all that they may.
    #[error("there is no room: pinned objects may have half of the cache")]
    Room,
}

fn moved(to: &Option<String>) -> String {
    to.as_ref().map(|to| format!(", and names {to}")).unwrap_or_default()
}

/// Answer of an origin, and the times of request and answer.
type Said = (Answer, (Moment, Moment));

impl Cache {
    /// Fetches what `request`, a GET of `key`, asks for, or has it confirmed where it is here, and pins
    /// it. Passengers who ask meanwhile are served as ever: nobody waits for this. `budget` is charged
    /// with the bytes of bodies, also of those that come to nothing.
    pub async fn ahead(
        &self,
        key: &Key,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
        budget: &Budget,
    ) -> Result<Ahead, NotAhead> {
        let mut known = self.0.store.find(key, request.headers());
        let mut said = self.ask(request, origin, known.as_deref()).await?;
        if is_unmodified(&said)
            && known.as_ref().is_some_and(|entry| !confirms(&said, entry))
            && let Some(other) = known.take()
        {
            self.0.store.supersede(&other);
            said = self.ask(request, origin, None).await?;
        }
        let (Answer { response, trusted, .. }, times) = said;
        if let Some(entry) =
            known.as_ref().filter(|_| response.status() == StatusCode::NOT_MODIFIED)
        {
            if is_for_one(response.headers()) {
                self.0.store.remove(entry);
                return Err(NotAhead::NotForAll(why_not(response.headers())));
            }
            let freshen = |head: &mut Head| head.freshen(response.headers(), times.0, times.1);
            self.0.store.change(entry, freshen);
            return self.kept(entry, Ahead::Confirmed);
        }
        let head = match self.head_of(key, request.headers(), &response, trusted, times) {
            Ok(head) => head,
            Err(error) => {
                let superseded = matches!(error, NotAhead::NotForAll(_) | NotAhead::Varies(_));
                if let Some(entry) = known.filter(|_| superseded) {
                    self.0.store.remove(&entry);
                }
                return Err(error);
            }
        };
        let body = self.body_of(response, budget).await?;
        let bytes = body.len() as u64;
        let entry = self.0.store.put(key, request.headers(), head, body);
        let entry = entry.ok_or(NotAhead::Room)?;
        self.kept(&entry, Ahead::Stored { bytes })
    }

    /// Returns `true` if the object is here and pinned, and came or was confirmed at `since` or
    /// later.
    pub fn is_ahead(&self, key: &Key, request: &HeaderMap, since: Moment) -> bool {
        let head = self.0.store.find(key, request).map(|entry| entry.head());
        head.is_some_and(|head| head.pinned && !head.invalidated && head.received_at >= since)
    }

    /// Returns `true` if anything is here that fits.
    pub fn holds(&self, key: &Key, request: &HeaderMap) -> bool {
        self.0.store.find(key, request).is_some()
    }

    /// Keys of pinned objects.
    pub fn pinned(&self) -> Vec<Key> {
        self.0.store.pinned()
    }

    /// Unpins everything under `key`, which may go from now on.
    pub fn unpin(&self, key: &Key) {
        for entry in self.0.store.all_of(key) {
            self.0.store.pin(&entry, false);
        }
    }

    async fn ask(
        &self,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
        known: Option<&Entry>,
    ) -> Result<Said, Failure> {
        let mut request = request.clone();
        validate::unconditional(request.headers_mut());
        if let Some(entry) = known {
            validate::ask_whether(request.headers_mut(), &entry.head());
        }
        let clock = &self.0.clock;
        let requested_at = clock();
        Ok((origin.send(request).await?, (requested_at, clock())))
    }

    fn kept(&self, entry: &Arc<Entry>, how: Ahead) -> Result<Ahead, NotAhead> {
        if self.0.store.pin(entry, true) { Ok(how) } else { Err(NotAhead::Room) }
    }

    /// The head under which the answer may be stored for everybody.
    fn head_of(
        &self,
        key: &Key,
        request: &HeaderMap,
        response: &Response<OriginBody>,
        trusted: bool,
        times: (Moment, Moment),
    ) -> Result<Head, NotAhead> {
        let (status, headers) = (response.status(), response.headers());
        if status != StatusCode::OK {
            let to = headers.get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.map(|to| to.chars().take(MOST_SHOWN).collect());
            return Err(NotAhead::Status { status, to });
        }
        if let Some(name) = varies_by(headers) {
            return Err(NotAhead::Varies(name));
        }
        if !trusted {
            return Err(NotAhead::NotForAll("its end cannot be told from a break"));
        }
        policy::storable(key, request, (status, headers), times)
            .ok_or_else(|| NotAhead::NotForAll(why_not(headers)))
    }

    async fn body_of(
        &self,
        response: Response<OriginBody>,
        budget: &Budget,
    ) -> Result<Bytes, NotAhead> {
        let store = &self.0.store;
        let most = store.object_bytes();
        let told = content_length(response.headers());
        if told.is_some_and(|told| told > most) {
            return Err(NotAhead::TooLarge { most });
        }
        let mut room = store.room();
        if !room.grow_to(store, told.unwrap_or_default()) {
            return Err(NotAhead::Busy);
        }
        if budget.left() == 0 {
            return Err(NotAhead::Budget);
        }
        // Taken before anything comes, so that of several that would use it up together the first are
        // whole; what does not come is given back.
        let mut held = budget.hold(told.unwrap_or_default()).ok_or(NotAhead::Budget)?;
        // No more than an object may have.
        let mut whole = BytesMut::with_capacity(told.unwrap_or_default() as usize);
        let mut body = response.into_body();
        let stalled = || Failure { offline: false, code: STALLED };
        while let Some(frame) = timeout(STALL, body.frame()).await.map_err(|_| stalled())? {
            let Ok(bytes) = frame?.into_data() else { continue };
            let length = (whole.len() + bytes.len()) as u64;
            if !held.spend(bytes.len() as u64) {
                return Err(NotAhead::Budget);
            }
            if length > most {
                return Err(NotAhead::TooLarge { most });
            }
            if !room.grow_to(store, length) {
                return Err(NotAhead::Busy);
            }
            whole.extend_from_slice(&bytes);
        }
        if told.is_some_and(|told| told != whole.len() as u64) {
            return Err(stalled().into());
        }
        Ok(whole.freeze())
    }
}

/// The most that is told of where an origin sends its clients, characters.
const MOST_SHOWN: usize = 200;

fn is_unmodified((answer, _): &Said) -> bool {
    answer.response.status() == StatusCode::NOT_MODIFIED
}

fn confirms((answer, _): &Said, entry: &Entry) -> bool {
    validate::confirms(answer.response.headers(), &entry.head())
}

/// Field by which the answer varies among passengers, if any. Their accepted encodings are the same
/// in all browsers, as long as they use the same scheme.
fn varies_by(response: &HeaderMap) -> Option<String> {
    let lists = response.get_all(VARY).iter().filter_map(|value| value.to_str().ok());
    let mut names = lists.flat_map(|list| list.split(',')).map(str::trim);
    let known = |name: &str| name.is_empty() || name.eq_ignore_ascii_case("accept-encoding");
    names.find(|name| !known(name)).map(|name| name.chars().take(MOST_SHOWN).collect())
}

/// Rule of [`policy::storable`] that an answer with status 200 breaks.
fn why_not(response: &HeaderMap) -> &'static str {
    let said = Directives::of_response(response);
    if response.contains_key(SET_COOKIE) || response.contains_key("set-cookie2") {
        "it sets a cookie"
    } else if said.no_store {
        "its origin says no-store"
    } else if said.private {
        "its origin says private"
    } else if response.contains_key(WWW_AUTHENTICATE) {
        "its origin asks who is there"
    } else if !validate::has_validator(response) {
        "it is stale at once, and has neither ETag nor Last-Modified to confirm it by"
    } else {
        "it is not for everybody"
    }
}
