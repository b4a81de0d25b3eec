//! The cache and what its parts share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderName, Request, Response};
use tokio::sync::Semaphore;

use crate::body::Body;
use crate::error::OriginError;
use crate::flight::Flights;
use crate::head::{Moment, Rules};
use crate::key::Key;
use crate::origin::Origin;
use crate::recent::Recent;
use crate::status::Outcome;
use crate::store::{OpenError, Settings, Store};

/// The Cache-Status field (RFC 9211).
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Maximum time a client waits for the header of another client's fetch. After it the client sends
/// its own request.
pub const MAX_COLLAPSE_WAIT: Duration = Duration::from_secs(10);

/// Maximum number of simultaneous background revalidations (`stale-while-revalidate`).
const MAX_REFRESHES: usize = 32;

/// Source of the time since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> Moment + Send + Sync>;

/// A shared cache. Clones share one store.
#[derive(Clone)]
pub struct Cache(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub store: Store,
    pub rules: Rules,
    pub clock: Clock,
    pub flights: Arc<Flights>,
    /// Keys whose responses could not be stored.
    pub unstorable: Recent,
    /// Keys whose responses were too large to be fetched whole for a range request.
    pub large: Recent,
    pub refreshes: Arc<Semaphore>,
    next_flight: AtomicU64,
}

/// Response of the cache, or the reason why there is none.
pub struct Served {
    /// The response. The caller adds Via.
    pub response: Result<Response<Body>, OriginError>,
    /// Outcome of the request.
    pub outcome: Outcome,
}

/// A client's request, and the origin to forward it to.
#[derive(Clone, Copy)]
pub(crate) struct ClientRequest<'a> {
    pub key: &'a Key,
    pub request: &'a Request<()>,
    pub origin: &'a Arc<dyn Origin>,
}

impl Cache {
    /// Opens a cache on the system's clock. Its directory must not be used by another process.
    ///
    /// Objects on disk become available while a background thread reads their headers.
    pub fn open(settings: &Settings, rules: Rules) -> Result<Self, OpenError> {
        // Before 1970 the clock stands at zero.
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::with_clock(settings, rules, Arc::new(clock))
    }

    /// Opens a cache on `clock`.
    pub fn with_clock(settings: &Settings, rules: Rules, clock: Clock) -> Result<Self, OpenError> {
        Ok(Self(Arc::new(Shared {
            store: Store::open(settings)?,
            rules,
            clock,
            flights: Arc::default(),
            unstorable: Recent::default(),
            large: Recent::default(),
            refreshes: Arc::new(Semaphore::new(MAX_REFRESHES)),
            next_flight: AtomicU64::new(1),
        })))
    }

    pub(crate) fn now(&self) -> Moment {
        (self.0.clock)()
    }

    pub(crate) fn next_flight(&self) -> u64 {
        self.0.next_flight.fetch_add(1, Relaxed)
    }
}
