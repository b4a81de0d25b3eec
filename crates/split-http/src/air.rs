//! Split HTTP in the air gateway: requests pages, and answers from pushed objects.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bentpipe_prefetch::address::{Address, Origin};
use bentpipe_prefetch::eligible::max_age;
use bentpipe_prefetch::passenger::{Outcome, Passenger};
use bentpipe_prefetch::push_cache::{Expired, PageId, PushCache, PushStats};
use bentpipe_prefetch::wire::{Head, Refusal, VERSION_CONDITIONAL};
use bytes::Bytes;
use http::HeaderMap;
use http::header::REFERER;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::negative_cache::NegativeCache;
use super::object::{Object, ObjectBody, PageFacts, PromiseBroken};
use super::push_budgets::PushBudgets;
use super::quota::{Share, SlotQuota};
use crate::counters::Counters;

/// Maximum number of page streams in progress, equal to the ground gateway's default for one
/// aircraft. In addition to its objects, each takes up to 3 MiB for decompressed data and data that
/// its reader has not read. Further pages cross the link object by object.
const MAX_PAGES: usize = 16;

/// Maximum for one passenger, who could otherwise block the others by reading slowly.
const MAX_PAGES_EACH: usize = 4;

/// Separate slots for downloads, which may take hours; each also takes up to 3 MiB. If pages and
/// downloads together reach the sum of both limits, a page crosses the link object by object.
const MAX_DOWNLOADS: usize = 16;

/// Maximum number of downloads of one passenger.
const MAX_DOWNLOADS_EACH: usize = 4;

/// Maximum number of pages whose streams have ended while their objects are kept. Each takes a task
/// and some hundred bytes; the bytes and number of objects have their own limits. Further pages are
/// discarded at once.
pub(super) const MAX_HELD: usize = 1024;

/// Settings of Split HTTP in the air gateway.
#[derive(Debug, Clone)]
pub struct AirSettings {
    /// Share of a page's bytes that may be pushed without being used: 0 to 1.
    pub waste_share: f64,
    /// Maximum number of bytes pushed for one page.
    pub page_bytes: u64,
    /// Maximum number of bytes in pushed objects, over all passengers.
    pub memory_bytes: u64,
    /// Time for which a page's objects are kept for its passenger after all have arrived.
    pub keep: Duration,
    /// Maximum silence on a page's stream while a GET waits for a promised object. After that, the
    /// GET crosses the link.
    pub patience: Duration,
    /// Maximum silence of a download: the idle timeout of a flow.
    pub idle: Duration,
}

/// State of Split HTTP in the air gateway.
pub struct AirPages {
    pub(super) settings: AirSettings,
    pub(super) counters: Arc<Counters>,
    pub(super) held_bytes: AtomicU64,
    pub(super) promised: Mutex<PushCache<Arc<Object>>>,
    pub(super) push_budgets: Mutex<PushBudgets>,
    pub(super) slots: Arc<SlotQuota>,
    pub(super) held: Semaphore,
    pub(super) negative_cache: Mutex<NegativeCache>,
    epoch: Instant,
    pub(super) next_page: AtomicU64,
}

/// Passenger who reads a page.
pub struct Reader {
    /// Address, to which objects are promised.
    pub address: Passenger,
    /// Label of the passenger, which may have many addresses.
    pub label: Arc<str>,
}

#[cfg(test)]
impl From<Passenger> for Reader {
    fn from(address: Passenger) -> Self {
        Self { address, label: address.to_string().into() }
    }
}

/// The request that a page's stream answers.
#[derive(Clone)]
pub(super) struct Asked {
    pub origin: Origin,
    /// Label of the passenger.
    pub reader: Arc<str>,
    pub is_conditional: bool,
    pub facts: Arc<PageFacts>,
}

/// Push allowance of a page. Settles the page's accounts when dropped.
pub(super) struct Granted {
    pub half: Arc<AirPages>,
    pub page: PageId,
}

/// Channels for a page's header and body.
pub(super) type Tell = (oneshot::Sender<Head>, mpsc::Sender<Result<Bytes, PromiseBroken>>);

impl AirPages {
    /// Creates the state without pages in progress.
    pub fn new(settings: AirSettings, counters: Arc<Counters>) -> Arc<Self> {
        Arc::new(Self {
            promised: Mutex::default(),
            push_budgets: Mutex::new(PushBudgets::new(settings.waste_share)),
            settings,
            counters,
            held_bytes: AtomicU64::new(0),
            held: Semaphore::new(MAX_HELD),
            slots: SlotQuota::new(
                Share { all: MAX_PAGES, each: MAX_PAGES_EACH },
                Share { all: MAX_DOWNLOADS, each: MAX_DOWNLOADS_EACH },
            ),
            negative_cache: Mutex::default(),
            epoch: Instant::now(),
            next_page: AtomicU64::new(0),
        })
    }

    /// Returns the object promised to `passenger` at `address` if it can answer a request with
    /// these `headers`. A request without a promise is counted as a misprediction of the
    /// passenger's page that the `Referer` names.
    pub async fn object(
        &self,
        passenger: Passenger,
        address: &Address,
        headers: &HeaderMap,
    ) -> Option<(Head, ObjectBody)> {
        let Some(object) = lock(&self.promised).find(passenger, address).cloned() else {
            let referer = headers.get(REFERER).and_then(|value| value.to_str().ok());
            let page = referer.and_then(|referer| Address::parse(referer).ok());
            let site = page.as_ref().map_or(address.host(), Address::host);
            lock(&self.promised).not_predicted(passenger, site);
            return None;
        };
        if !object.page().is_same_client(headers) {
            return None;
        }
        let given = object.give(headers, self.settings.patience, max_age(headers)?).await.ok()?;
        lock(&self.promised).used(passenger, address);
        Some(given)
    }

    /// Records that the ground gateway serves no pages, so that none are requested for a while.
    pub fn not_served(&self) {
        lock(&self.negative_cache).unserved(Instant::now());
    }

    /// Records that the ground gateway refused the reader this page, and why.
    pub(super) fn refused(&self, (origin, reader): (&Origin, &Arc<str>), why: Refusal) {
        lock(&self.negative_cache).refused((origin, reader), why, Instant::now());
    }

    /// Records that the ground gateway broke off the stream of a conditional request, because it
    /// does not support them. Conditional pages are not requested for a while.
    pub fn conditions_unknown(&self) {
        if lock(&self.negative_cache).conditions_unknown(Instant::now()) {
            tracing::warn!(
                "the ground broke off a request for a page that the cache has to ask about (version \
                 {VERSION_CONDITIONAL} of Split HTTP): it is older than this gateway, probably; until it is \
                 updated such pages cross as ever, object by object"
            );
        }
    }

    /// Records that a conditional request was answered.
    pub(super) fn conditions_known(&self) {
        lock(&self.negative_cache).conditions_known();
    }

    pub(super) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    pub(super) fn table(&self) -> MutexGuard<'_, PushCache<Arc<Object>>> {
        lock(&self.promised)
    }

    /// Removes what was promised for a page, and settles its accounts.
    fn lapse(&self, page: PageId) {
        let lapsed = lock(&self.promised).expire(page);
        let outcome = lapsed.as_ref().map_or(Outcome::default(), |lapsed| lapsed.outcome);
        lock(&self.push_budgets).settle(page, outcome, self.now());
        let Some(Expired { stats, not_predicted, .. }) = lapsed else { return };
        let PushStats { used, unused, declined, cancelled } = stats;
        self.counters.objects_used.add(used.into());
        self.counters.objects_unused.add(unused.into());
        self.counters.objects_declined.add(declined.into());
        self.counters.objects_cancelled.add(cancelled.into());
        self.counters.pushed_bytes.add(outcome.pushed_bytes);
        self.counters.wasted_bytes.add(outcome.wasted_bytes);
        self.counters.not_foreseen.add(not_predicted.into());
    }
}

impl Granted {
    /// Records the final size of the page's pushes: at most `bytes`.
    pub fn came(&self, bytes: u64) {
        lock(&self.half.push_budgets).came(self.page, bytes, self.half.now());
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.half.lapse(self.page);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
