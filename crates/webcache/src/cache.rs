//! The cache: what becomes of a GET or a HEAD.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::header::{AUTHORIZATION, RANGE};
use http::{HeaderName, Method, Request, Response};
use tokio::sync::Semaphore;

use crate::body::Body;
use crate::directives::Directives;
use crate::fetch::{Fetch, Known};
use crate::flight::{Flights, Progress};
use crate::give::not_here;
use crate::head::{Moment, Rules};
use crate::key::Key;
use crate::origin::{Failure, Origin};
use crate::policy::{Use, usable};
use crate::range::Asked;
use crate::recent::Recent;
use crate::status::{Forwarded, Member, Outcome};
use crate::store::{Entry, OpenError, Settings, Store};
use crate::validate;

/// RFC 9211.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Maximum wait for another client's fetch to bring a head; after it the client makes its own
/// request.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A range that begins further on is asked for as it is: what lies before would have to come first.
pub const FURTHEST_RANGE_START: u64 = 1 << 20;

/// The largest object that is fetched whole when a client asks for a range of it, bytes: at 8 Mbit/s it
/// takes 4 s of the link.
pub const MOST_BEHIND_RANGE: u64 = 4 << 20;

/// Time for which the cache remembers that an answer could not be stored, or was too large to be
/// fetched whole. Meanwhile nobody waits for another who requests the same.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(120);

/// Answers that are asked for anew at once behind stale ones.
const MOST_REFRESHES: usize = 32;

/// Maximum number of looks at the store after an entry was gone when it was wanted.
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
    /// Keys whose answers were not for everybody.
    pub unstorable: Recent,
    /// Keys whose answers were too large to be fetched whole for a range.
    pub large: Recent,
    pub refreshes: Arc<Semaphore>,
    next_flight: AtomicU64,
}

/// An answer, or why there is none, and what was done for it.
pub struct Served {
    /// The answer. Via is for the caller to add.
    pub response: Result<Response<Body>, Failure>,
    /// Outcome.
    pub outcome: Outcome,
}

/// Request of a client.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub key: &'a Key,
    pub request: &'a Request<()>,
    pub origin: &'a Arc<dyn Origin>,
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
        let ask = Ask { key, request, origin };
        let headers = request.headers();
        let asked = Directives::of_request(headers);
        if asked.no_store
            || headers.contains_key(AUTHORIZATION)
            || validate::is_for_the_origin(headers)
        {
            return self.pass(ask, Forwarded::Request).await;
        }
        for _ in 0..MOST_LOOKS {
            let served = match self.0.store.find(key, headers) {
                Some(entry) => self.serve_stored(ask, entry, &asked).await,
                None if asked.only_if_cached => Some(not_here()),
                None => {
                    let knows = self.0.store.knows(key);
                    let why = if knows { Forwarded::VaryMiss } else { Forwarded::UriMiss };
                    self.fetch(ask, None, why).await
                }
            };
            if let Some(served) = served {
                return served;
            }
        }
        if asked.only_if_cached {
            return not_here();
        }
        self.pass(ask, Forwarded::Bypass).await
    }

    /// Answers with `entry`; `None` where it has gone meanwhile, or cannot be read now.
    async fn serve_stored(
        &self,
        ask: Ask<'_>,
        entry: Arc<Entry>,
        asked: &Directives,
    ) -> Option<Served> {
        let (head, now) = (entry.head(), self.now());
        match usable(&head, ask.request.headers(), &self.0.rules, now) {
            Use::Fresh => self.give(&entry, ask, Outcome::Hit, Member::hit()).await,
            Use::StaleAsked => self.give(&entry, ask, Outcome::StaleHit, Member::hit()).await,
            Use::StaleMeanwhile => {
                self.refresh(ask, &entry);
                self.give(&entry, ask, Outcome::StaleHit, Member::hit()).await
            }
            Use::Validate { .. } if asked.only_if_cached => Some(not_here()),
            Use::Validate { if_error, if_offline } => {
                let fresh = head.remaining(&self.0.rules, now) > 0 && !head.directives().no_cache;
                let why = if fresh { Forwarded::Request } else { Forwarded::Stale };
                self.fetch(ask, Some(Known { entry, if_error, if_offline }), why).await
            }
        }
    }

    /// Asks the origin, with others who want the same where that can be, whether `known` still holds, or
    /// for what is not here. `None` where what is stored has to be looked at again.
    async fn fetch(&self, ask: Ask<'_>, known: Option<Known>, why: Forwarded) -> Option<Served> {
        let (headers, now) = (ask.request.headers(), self.now());
        let is_head = *ask.request.method() == Method::HEAD;
        let is_ranged = headers.contains_key(RANGE);
        // Asked whether what is here still holds, an origin does not send all of it for nothing.
        let confirms =
            known.as_ref().is_some_and(|it| validate::has_validator(&it.entry.head().headers));
        let near = match Asked::of(headers) {
            _ if confirms => true,
            Asked::From(first, _) => first <= FURTHEST_RANGE_START,
            Asked::Last(_) => false,
            Asked::Whole => !is_ranged,
        };
        let too_large = is_ranged && !confirms && self.0.large.knows(ask.key, now);
        let as_it_is = is_head || !near || too_large;
        let alone = as_it_is
            // Its answer may be 304, which is for nobody else.
            || (known.is_none() && validate::is_conditional(headers))
            || self.0.unstorable.knows(ask.key, now);
        if !alone {
            let fetch = Fetch { known, ranged: is_ranged, ..Fetch::new(self, ask) };
            return self.share(fetch, ask, why).await;
        }
        // Somebody else's fetch may already be bringing it.
        if known.is_none()
            && let Some(Progress::Flowing(flowing)) = self.0.flights.look(ask.key)
            && self.fits(&flowing.head, headers, false)
            && let Some(served) = self.give_collapsed(&flowing, ask, why)
        {
            return Some(served);
        }
        if as_it_is {
            return Some(self.pass_or_stand_in(ask, known, why).await);
        }
        // What it brings may be stored, but nobody waits for it.
        let fetch = Fetch { known, ranged: is_ranged, ..Fetch::new(self, ask) };
        Some(self.lead(fetch, None, ask, why).await)
    }

    pub(crate) fn now(&self) -> Moment {
        (self.0.clock)()
    }

    pub(crate) fn next_flight(&self) -> u64 {
        self.0.next_flight.fetch_add(1, Relaxed)
    }
}
