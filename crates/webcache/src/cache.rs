//! The cache: what becomes of a GET or a HEAD.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::answer::{Content, answer};
use crate::body::Body;
use crate::directives::Directives;
use crate::fetch::{Direct, Fetch};
use crate::flight::{Flights, Flowing, Held, Progress, Role};
use crate::head::{Head, Moment, Rules};
use crate::key::Key;
use crate::origin::{Answer, Failure, Origin};
use crate::policy::{self, Use, usable};
use crate::range::Asked;
use crate::recent::Recent;
use crate::status::{Forwarded, Outcome};
use crate::store::{Entry, Occupancy, OpenError, Settings, Store};
use crate::validate;

/// RFC 9211.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// How long one waits for a fetch that somebody else began to bring a head; then one asks for oneself.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A range that begins further on is asked for as it is: what lies before would have to come first.
pub const FURTHEST_RANGE_START: u64 = 1 << 20;

/// The largest object that is fetched whole when a client asks for a range of it, bytes: at 8 Mbit/s it
/// takes 4 s of the link.
pub const MOST_BEHIND_RANGE: u64 = 4 << 20;

/// How long it is remembered that an answer could not be stored, or was too large to be fetched whole.
/// Meanwhile nobody waits for another who asks for the same.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(120);

/// Answers that are asked for anew at once behind stale ones.
const MOST_REFRESHES: usize = 32;

/// How often what is stored is looked at again, because it had gone when it was wanted.
const MOST_LOOKS: usize = 3;

/// Tells the time since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> Moment + Send + Sync>;

/// A shared cache; its clones are the same one.
#[derive(Clone)]
pub struct Cache(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub store: Store,
    pub rules: Rules,
    pub clock: Clock,
    pub flights: Arc<Flights>,
    /// What was not for all.
    pub unstorable: Recent,
    /// What was too large to be fetched whole for a range.
    pub large: Recent,
    refreshes: Arc<Semaphore>,
    next_flight: AtomicU64,
}

/// An answer, or why there is none, and what was done for it.
pub struct Served {
    /// The answer. Via is for the caller to add.
    pub response: Result<Response<Body>, Failure>,
    /// What was done.
    pub outcome: Outcome,
}

impl Cache {
    /// A cache that keeps what `settings` say by `rules`, on the system's clock. Needs a directory that
    /// no other process uses; what lies there is read meanwhile.
    pub fn open(settings: &Settings, rules: Rules) -> Result<Self, OpenError> {
        let clock = || {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            // Before 1970 nothing has an age.
            since.unwrap_or_default()
        };
        Self::with_clock(settings, rules, Arc::new(clock))
    }

    /// The same on another clock.
    pub fn with_clock(settings: &Settings, rules: Rules, clock: Clock) -> Result<Self, OpenError> {
        Ok(Self(Arc::new(Shared {
            store: Store::open(settings)?,
            rules,
            clock,
            flights: Arc::default(),
            unstorable: Recent::default(),
            large: Recent::default(),
            refreshes: Arc::new(Semaphore::new(MOST_REFRESHES)),
            next_flight: AtomicU64::new(1),
        })))
    }

    /// Answers `request`, a GET or a HEAD of `key` without a body, from here or from `origin`.
    pub async fn serve(
        &self,
        key: &Key,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
    ) -> Served {
        let asked = Directives::of_request(request.headers());
        let headers = request.headers();
        if asked.no_store
            || headers.contains_key(AUTHORIZATION)
            || validate::is_for_the_origin(headers)
        {
            return self.pass(key, request, origin, Forwarded::Request).await;
        }
        for _ in 0..MOST_LOOKS {
            let served = match self.0.store.find(key, headers) {
                Some(entry) => self.serve_stored(key, request, origin, entry, &asked).await,
                None if asked.only_if_cached => Some(not_here()),
                None => self.serve_missing(key, request, origin).await,
            };
            if let Some(served) = served {
                return served;
            }
        }
        self.pass(key, request, origin, Forwarded::Bypass).await
    }

    /// Answers with `entry`; `None` where it has gone meanwhile.
    async fn serve_stored(
        &self,
        key: &Key,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
        entry: Arc<Entry>,
        asked: &Directives,
    ) -> Option<Served> {
        let head = entry.head();
        match usable(&head, request.headers(), &self.0.rules, (self.0.clock)()) {
            Use::Fresh => self.give(&entry, request, Outcome::Hit).await,
            Use::StaleAsked => self.give(&entry, request, Outcome::StaleHit).await,
            Use::StaleMeanwhile => {
                self.refresh(key, request, origin, &entry);
                self.give(&entry, request, Outcome::StaleHit).await
            }
            Use::Validate { .. } if asked.only_if_cached => Some(not_here()),
            Use::Validate { .. } if *request.method() == Method::HEAD => {
                Some(self.pass(key, request, origin, Forwarded::Stale).await)
            }
            Use::Validate { if_error, if_offline } => {
                let fetch = Fetch {
                    known: Some((entry, if_error, if_offline)),
                    ..Fetch::new(self, key, request, origin)
                };
                self.share(fetch, request, Forwarded::Stale).await
            }
        }
    }

    async fn serve_missing(
        &self,
        key: &Key,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
    ) -> Option<Served> {
        let (headers, now) = (request.headers(), (self.0.clock)());
        let why = if self.0.store.knows(key) { Forwarded::VaryMiss } else { Forwarded::UriMiss };
        let near = match Asked::of(headers) {
            Asked::From(first, _) => first <= FURTHEST_RANGE_START,
            Asked::Last(_) => false,
            Asked::Whole => !headers.contains_key(RANGE),
        };
        let is_ranged = headers.contains_key(RANGE);
        let alone = *request.method() == Method::HEAD
            || !near
            || (is_ranged && self.0.large.knows(key, now))
            // Its answer may be 304, which is for nobody else.
            || validate::is_conditional(headers)
            || self.0.unstorable.knows(key, now);
        let fetch = Fetch { ranged: is_ranged, ..Fetch::new(self, key, request, origin) };
        if !alone {
            return self.share(fetch, request, why).await;
        }
        // Somebody else's fetch may already be bringing it.
        if let Some(Progress::Flowing(flowing)) = self.0.flights.look(key)
            && self.fits(&flowing.head, headers, false)
            && let Some(served) = self.give_flowing(&flowing, request, Outcome::Collapsed)
        {
            return Some(served);
        }
        if is_ranged || *request.method() == Method::HEAD {
            return Some(self.pass(key, request, origin, why).await);
        }
        // What it brings may be stored, but nobody waits for it.
        Some(self.lead(fetch, None, request, why).await)
    }

    /// Joins the fetch under way, or begins it; `None` where what is stored has to be looked at again.
    async fn share(&self, fetch: Fetch, request: &Request<()>, why: Forwarded) -> Option<Served> {
        match self.0.flights.join(&fetch.key, || self.0.next_flight.fetch_add(1, Relaxed)) {
            Role::Leads(lead) => Some(self.lead(fetch, Some(lead), request, why).await),
            Role::Follows(progress) => match self.follow(progress, request).await {
                Some(served) => Some(served),
                None => Some(self.lead(fetch, None, request, why).await),
            },
        }
    }

    /// Fetches, for all who wait for it too if `lead` is there.
    async fn lead(
        &self,
        fetch: Fetch,
        lead: Option<crate::flight::Lead>,
        request: &Request<()>,
        why: Forwarded,
    ) -> Served {
        let (key, origin) = (fetch.key.clone(), fetch.origin.clone());
        let failed = |failure| Served { response: Err(failure), outcome: Outcome::Failed };
        match fetch.begin(lead).await {
            Direct::Passing(answer) => self.passed(answer, why),
            Direct::Flowing(flowing, _hold) => {
                match self.give_flowing(&flowing, request, Outcome::Miss(why)) {
                    Some(served) => served,
                    None => self.pass(&key, request, &origin, why).await,
                }
            }
            Direct::Stored(entry, held) => {
                match self.give(&entry, request, outcome_of(held)).await {
                    Some(served) => served,
                    None => self.pass(&key, request, &origin, why).await,
                }
            }
            // Asked for as the client did, this time.
            Direct::TooLarge => self.pass(&key, request, &origin, why).await,
            Direct::Failed(failure) => failed(failure),
        }
    }

    /// What another's fetch brings, where it is for this request too.
    async fn follow(
        &self,
        mut progress: watch::Receiver<Progress>,
        request: &Request<()>,
    ) -> Option<Served> {
        let waited = matches!(*progress.borrow(), Progress::Waiting);
        let known = |progress: &Progress| !matches!(progress, Progress::Waiting);
        let now = timeout(PATIENCE, progress.wait_for(known)).await.ok()?.ok()?.clone();
        match now {
            Progress::Flowing(flowing) => {
                let fits = self.fits(&flowing.head, request.headers(), waited);
                let outcome = if flowing.pushed { Outcome::Pushed } else { Outcome::Collapsed };
                fits.then(|| self.give_flowing(&flowing, request, outcome)).flatten()
            }
            Progress::Stored(entry, held)
                if self.fits(&entry.head(), request.headers(), waited) =>
            {
                self.give(&entry, request, outcome_of(held)).await
            }
            Progress::Failed(failure) => {
                Some(Served { response: Err(failure), outcome: Outcome::Failed })
            }
            _ => None,
        }
    }

    /// Whether an answer that comes just now is for a request with these fields: one that was `waited`
    /// for is, even if it must be confirmed each time (RFC 9111 §4).
    fn fits(&self, head: &Head, request: &HeaderMap, waited: bool) -> bool {
        let usable = || usable(head, request, &self.0.rules, (self.0.clock)());
        head.selection.fits(request) && (waited || usable() == Use::Fresh)
    }

    /// Asks anew for `entry` behind an answer that has been given.
    fn refresh(
        &self,
        key: &Key,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
        entry: &Arc<Entry>,
    ) {
        let Ok(permit) = self.0.refreshes.clone().try_acquire_owned() else { return };
        let number = || self.0.next_flight.fetch_add(1, Relaxed);
        let Role::Leads(lead) = self.0.flights.join(key, number) else { return };
        let fetch = Fetch {
            known: Some((entry.clone(), true, true)),
            wanted: true,
            ..Fetch::new(self, key, request, origin)
        };
        tokio::spawn(async move {
            let _permit = permit;
            // For nobody: an answer that cannot be stored ends here.
            drop(fetch.begin(Some(lead)).await);
        });
    }

    /// Answers with what is stored; `None` where it has gone.
    async fn give(
        &self,
        entry: &Arc<Entry>,
        request: &Request<()>,
        outcome: Outcome,
    ) -> Option<Served> {
        let head = entry.head();
        let unread = *request.method() == Method::HEAD
            || (head.status == StatusCode::OK && validate::client_has_it(request.headers(), &head));
        let content = if unread {
            Content::Unread(entry.body_bytes)
        } else {
            Content::Whole(self.0.store.body(entry).await?)
        };
        self.answered(&head, content, request, outcome, false)
    }

    fn give_flowing(
        &self,
        flowing: &Flowing,
        request: &Request<()>,
        outcome: Outcome,
    ) -> Option<Served> {
        if flowing.fill.is_stuck(PATIENCE) {
            return None;
        }
        let content = Content::Filling(&flowing.fill, flowing.length);
        self.answered(&flowing.head, content, request, outcome, true)
    }

    fn answered(
        &self,
        head: &Head,
        content: Content<'_>,
        request: &Request<()>,
        outcome: Outcome,
        stored: bool,
    ) -> Option<Served> {
        let now = (self.0.clock)();
        let age = head.age(now).filter(|_| !matches!(outcome, Outcome::Miss(_)));
        let asked = (request.method(), request.headers());
        let mut response = answer(head, content, asked, age)?;
        let ttl = head.remaining(&self.0.rules, now);
        response.headers_mut().append(CACHE_STATUS, outcome.field(Some(ttl), stored));
        Some(Served { response: Ok(response), outcome })
    }

    /// Sends `request` on as it is; what comes is for this client alone.
    async fn pass(
        &self,
        key: &Key,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
        why: Forwarded,
    ) -> Served {
        match origin.send(request.clone()).await {
            Ok(answer) => {
                if *request.method() == Method::HEAD && answer.trusted {
                    self.note_head(key, request, &answer);
                }
                self.passed(answer, why)
            }
            Err(failure) => Served { response: Err(failure), outcome: Outcome::Failed },
        }
    }

    fn passed(&self, answer: Answer, why: Forwarded) -> Served {
        let outcome = Outcome::Miss(why);
        let mut response = answer.response.map(Body::passing);
        response.headers_mut().append(CACHE_STATUS, outcome.field(None, false));
        Served { response: Ok(response), outcome }
    }

    /// What the answer to a HEAD says of what is stored (RFC 9111 §4.3.5).
    fn note_head(&self, key: &Key, request: &Request<()>, answer: &Answer) {
        let newer = answer.response.headers();
        let Some(entry) = self.0.store.find(key, request.headers()) else { return };
        if answer.response.status() != StatusCode::OK {
            return;
        }
        let mut head = Head::clone(&entry.head());
        let now = (self.0.clock)();
        let said = (answer.response.status(), newer);
        let storable = policy::storable(key, request.headers(), said, (now, now)).is_some();
        // What may not be stored, as that of somebody's own, says nothing of what everybody has.
        if !storable {
            return;
        }
        if validate::same_object(newer, &head, entry.body_bytes) {
            head.freshen(newer, now, now);
        } else {
            head.invalidated = true;
        }
        self.0.store.set_head(&entry, head);
    }

    /// Notes that a request of `method` for `key` was answered with `status` and these fields: what it
    /// may have changed has to be confirmed before it is used again (RFC 9111 §4.4).
    pub fn changed(&self, key: &Key, method: &Method, (status, headers): (StatusCode, &HeaderMap)) {
        if !policy::invalidates(method, status) {
            return;
        }
        self.0.store.invalidate(key);
        for name in [http::header::LOCATION, http::header::CONTENT_LOCATION] {
            let named = headers.get(&name).and_then(|value| value.to_str().ok());
            if let Some(other) = named.and_then(|reference| key.same_origin(reference)) {
                self.0.store.invalidate(&other);
            }
        }
    }

    /// Stores the `response` to a GET of `key` with the fields `request`, where that is allowed;
    /// `pinned`, it stays whatever else wants its place. Gives whether it is stored as was asked.
    pub fn insert(
        &self,
        key: &Key,
        request: &HeaderMap,
        response: Response<Bytes>,
        pinned: bool,
    ) -> bool {
        let now = (self.0.clock)();
        let (parts, body) = response.into_parts();
        let said = (parts.status, &parts.headers);
        let complete =
            content_length(&parts.headers).is_none_or(|bytes| bytes == body.len() as u64);
        let head = policy::storable(key, request, said, (now, now)).filter(|_| complete);
        let entry = head.and_then(|head| self.0.store.put(key, request, head, body));
        entry.is_some_and(|entry| !pinned || self.0.store.pin(&entry, true))
    }

    /// Keeps what is stored under `key` and fits `request` whatever comes, or no longer. Pinned objects
    /// have at most half of the room. Gives whether it is there and as was asked.
    pub fn pin(&self, key: &Key, request: &HeaderMap, pinned: bool) -> bool {
        let entry = self.0.store.find(key, request);
        entry.is_some_and(|entry| self.0.store.pin(&entry, pinned))
    }

    /// Whether a GET of `key` with the fields `request` would be answered from here at once.
    pub fn has(&self, key: &Key, request: &HeaderMap) -> bool {
        let entry = self.0.store.find(key, request);
        let usable = |head: &Head| usable(head, request, &self.0.rules, (self.0.clock)());
        entry.is_some_and(|entry| usable(&entry.head()) == Use::Fresh)
    }

    /// The hashes ([`Key::hash64`]) of what is fresh here of the addresses that begin with `prefix`, such
    /// as `http://example.net:80/`: the `most` that were stored last, the newest first. What a digest for
    /// the ground is made of.
    pub fn fresh_hashes(&self, prefix: &str, most: usize) -> Vec<u64> {
        let now = (self.0.clock)();
        self.0.store.hashes(prefix, most, |head| head.remaining(&self.0.rules, now) > 0)
    }

    /// How much is here.
    pub fn occupancy(&self) -> Occupancy {
        self.0.store.occupancy()
    }

    /// Waits until what lay in the directory has been read, and all that was stored so far is written.
    pub async fn settle(&self) {
        self.0.store.settle().await;
    }

    pub(crate) fn next_flight(&self) -> u64 {
        self.0.next_flight.fetch_add(1, Relaxed)
    }
}

/// The length that is told, where it is told once.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Removes what asks for a part.
pub(crate) fn without_range(headers: &mut HeaderMap) {
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
}

fn outcome_of(held: Held) -> Outcome {
    match held {
        Held::Confirmed => Outcome::Validated,
        Held::Error | Held::Offline => Outcome::StaleHit,
    }
}

/// RFC 9111 §5.2.1.7.
fn not_here() -> Served {
    let outcome = Outcome::NotHere;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response.headers_mut().insert(CONTENT_LENGTH, 0.into());
    response.headers_mut().append(CACHE_STATUS, outcome.field(None, false));
    Served { response: Ok(response), outcome }
}
