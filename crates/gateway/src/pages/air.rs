//! The cabin's half: asks for pages, and answers from what came unasked.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_prefetch::account::Outcome;
use bentpipe_prefetch::address::{Address, Origin};
use bentpipe_prefetch::ask::{CONDITIONS, wanted_age};
use bentpipe_prefetch::digest::{CacheDigest, hash};
use bentpipe_prefetch::promised::{Fates, Lapsed, PageId, Passenger, Promised};
use bentpipe_prefetch::wire::{Head, Refusal, Request, VERSION_CONDITIONAL};
use bytes::Bytes;
use futures_util::Stream;
use http::HeaderMap;
use http::header::REFERER;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::carry::Carrier;
use super::ledger::Ledger;
use super::object::{Object, ObjectBody, PageFacts, PromiseBroken};
use super::places::{Place, Places, Share};
use super::unasked::Unasked;
use crate::counters::Counters;
use crate::refusals::Limit;
use crate::single::Known;

/// Parts of a page that may wait for its reader: at 16 KiB each, 1 MiB.
const PAGE_PARTS: usize = 64;

/// Pages whose streams are under way at once, as many as a ground gives one aircraft unless told
/// otherwise: each takes up to 3 MiB beside its objects, for what is unpacked and what its reader has
/// not read. Beyond them a page crosses the link as ever.
const MAX_PAGES: usize = 16;

/// Those of one passenger, who would else take the others' by reading slowly.
const MAX_PAGES_EACH: usize = 4;

/// Places for downloads, which may take hours, so that pages keep theirs: 3 MiB each too. If pages
/// and downloads together are as many as both may be, a page crosses the link as usual.
const MAX_DOWNLOADS: usize = 16;

/// Those of one passenger.
const MAX_DOWNLOADS_EACH: usize = 4;

/// Pages whose streams are over, and whose objects are held for a while. Each is a task and some hundred bytes
/// beside its objects, whose bytes and number have bounds of their own. One beyond these is given up at once.
pub(super) const MAX_HELD: usize = 1024;

/// Settings of the cabin's half.
#[derive(Debug, Clone)]
pub struct AirSettings {
    /// The part of pages' bytes that may be pushed in vain: 0 to 1.
    pub waste_share: f64,
    /// The most bytes that are pushed for one page.
    pub page_bytes: u64,
    /// Bytes of pushed objects that are held at once, over all passengers.
    pub memory_bytes: u64,
    /// Time for which a page's objects are held for its passenger once all have come.
    pub keep: Duration,
    /// Time for which a GET for a promised object tolerates silence on its page's stream, before it
    /// crosses the link.
    pub patience: Duration,
    /// Time for which a download tolerates silence: as long as a flow.
    pub idle: Duration,
}

/// The cabin's half of Split HTTP.
pub struct AirPages {
    pub(super) settings: AirSettings,
    pub(super) counters: Arc<Counters>,
    /// Knowledge of the ground's support for single requests.
    pub(crate) single: Known,
    pub(super) held_bytes: AtomicU64,
    promised: Mutex<Promised<Arc<Object>>>,
    ledger: Mutex<Ledger>,
    places: Arc<Places<Passenger>>,
    pub(super) held: Semaphore,
    unasked: Mutex<Unasked>,
    epoch: Instant,
    next_page: AtomicU64,
}

/// A page that the ground is being asked for.
pub struct Page {
    half: Arc<AirPages>,
    id: PageId,
    passenger: Passenger,
    asked: Asked,
    /// The request, as the stream begins with it.
    first: Bytes,
    head: oneshot::Receiver<Head>,
    body: mpsc::Receiver<Result<Bytes, PromiseBroken>>,
    tell: Option<(Tell, Place<Passenger>, Granted)>,
}

/// Content that a page's stream is to bring.
#[derive(Clone)]
pub(super) struct Asked {
    pub origin: Origin,
    pub is_conditional: bool,
    pub facts: Arc<PageFacts>,
}

/// Possible waste of a page, until it is over; settled when it is dropped.
pub(super) struct Granted {
    half: Arc<AirPages>,
    page: PageId,
}

/// Channels for a page's head and bytes.
pub(super) type Tell = (oneshot::Sender<Head>, mpsc::Sender<Result<Bytes, PromiseBroken>>);

/// A page's bytes as they come.
pub struct PageBody(mpsc::Receiver<Result<Bytes, PromiseBroken>>);

impl AirPages {
    /// A half without any page under way.
    pub fn new(settings: AirSettings, counters: Arc<Counters>) -> Arc<Self> {
        Arc::new(Self {
            promised: Mutex::default(),
            ledger: Mutex::new(Ledger::new(settings.waste_share)),
            settings,
            counters,
            single: Known::default(),
            held_bytes: AtomicU64::new(0),
            held: Semaphore::new(MAX_HELD),
            places: Places::new(
                Share { all: MAX_PAGES, each: MAX_PAGES_EACH },
                Share { all: MAX_DOWNLOADS, each: MAX_DOWNLOADS_EACH },
            ),
            unasked: Mutex::default(),
            epoch: Instant::now(),
            next_page: AtomicU64::new(0),
        })
    }

    /// Prepares to ask for a page for `passenger`, whose request had these `headers`; `cached` are the
    /// hashes of what a cache of ours has of the page's site. `None` where the request does not fit the
    /// protocol, the passenger has too many pages under way, or the ground will not serve it.
    pub fn ask_for(
        self: &Arc<Self>,
        passenger: Passenger,
        address: Address,
        headers: &HeaderMap,
        cached: impl IntoIterator<Item = u64>,
    ) -> Option<Page> {
        let origin = address.origin();
        let is_conditional = CONDITIONS.iter().any(|name| headers.contains_key(name));
        if !lock(&self.unasked).may_ask(&origin, is_conditional, Instant::now()) {
            return None;
        }
        let Some(place) = self.places.take(&passenger) else {
            self.counters.refusals.refused(Limit::Pages, || self.places.holding(&passenger));
            return None;
        };
        let now = self.now();
        let room = self.settings.memory_bytes.saturating_sub(self.held_bytes.load(Relaxed));
        let most = self.settings.page_bytes.min(room);
        let id = self.next_page.fetch_add(1, Relaxed);
        let used = lock(&self.promised).take_used();
        let allowance = {
            let mut ledger = lock(&self.ledger);
            used.into_iter().for_each(|(page, bytes)| ledger.used(page, bytes, now));
            ledger.grant(id, (passenger, &origin.host), most, now)
        };
        let granted = Granted { half: self.clone(), page: id };
        let digest = {
            let promised = lock(&self.promised);
            let useful = promised.held_by(passenger).filter(|(_, object)| !object.is_spent());
            CacheDigest::of(useful.map(|(address, _)| hash(address)).chain(cached))
        };
        let asked = Asked { origin, is_conditional, facts: Arc::new(PageFacts::new(headers)) };
        let first = Request::new(address, headers, allowance, digest).encode()?.into();
        let ((tell_head, head), (tell_body, body)) =
            (oneshot::channel(), mpsc::channel(PAGE_PARTS));
        let tell = Some(((tell_head, tell_body), place, granted));
        Some(Page { half: self.clone(), id, passenger, asked, first, head, body, tell })
    }

    /// Object promised for `passenger` at `address`, for a request with these `headers` that may be
    /// answered so. A request without a promise is noted for the passenger's page that the headers
    /// name.
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
            lock(&self.promised).not_foreseen(passenger, site);
            return None;
        };
        if !object.page().is_same_client(headers) {
            return None;
        }
        let given =
            object.give(headers, self.settings.patience, wanted_age(headers)?).await.ok()?;
        lock(&self.promised).used(passenger, address);
        Some(given)
    }

    /// The ground has said that it serves no pages: none is asked for a while.
    pub fn not_served(&self) {
        let now = Instant::now();
        lock(&self.unasked).unserved(now);
        // It is the same half that takes packed heads.
        self.single.unserved(now);
    }

    /// The ground has said that it does not give this page, and why.
    pub(super) fn refused(&self, origin: &Origin, why: Refusal) {
        lock(&self.unasked).refused(origin, why, Instant::now());
    }

    /// A ground that knows no requests with a condition breaks their streams off: such pages are not asked for a
    /// while.
    pub fn conditions_unknown(&self) {
        if lock(&self.unasked).conditions_unknown(Instant::now()) {
            tracing::warn!(
                "the ground broke off a request for a page that the cache has to ask about (version \
                 {VERSION_CONDITIONAL} of Split HTTP): it is older than this gateway, probably; until it is \
                 updated such pages cross as ever, object by object"
            );
        }
    }

    /// Something has come for a request with a condition.
    pub(super) fn conditions_known(&self) {
        lock(&self.unasked).conditions_known();
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Promised<Arc<Object>>> {
        lock(&self.promised)
    }

    /// Forgets what was promised for a page, and settles its accounts.
    fn lapse(&self, page: PageId) {
        let lapsed = lock(&self.promised).lapse(page);
        let outcome = lapsed.as_ref().map_or(Outcome::default(), |lapsed| lapsed.outcome);
        lock(&self.ledger).settle(page, outcome, self.now());
        let Some(Lapsed { fates, not_foreseen, .. }) = lapsed else { return };
        let Fates { used, unused, declined, cancelled } = fates;
        self.counters.objects_used.add(used.into());
        self.counters.objects_unused.add(unused.into());
        self.counters.objects_declined.add(declined.into());
        self.counters.objects_cancelled.add(cancelled.into());
        self.counters.pushed_bytes.add(outcome.pushed_bytes);
        self.counters.wasted_bytes.add(outcome.wasted_bytes);
        self.counters.not_foreseen.add(not_foreseen.into());
    }
}

impl Page {
    /// Task that makes the requests on the stream and carries what comes by it; to be run
    /// concurrently, until some time after the page is over. Dropping it breaks off what has not
    /// come.
    pub fn carry<S>(&mut self, stream: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let carrier = self.tell.take().map(|(tell, place, granted)| {
            let site = &self.asked.origin.host;
            lock(&self.half.promised).begin(self.id, self.passenger, site);
            Carrier::new(self.half.clone(), (self.id, granted), self.asked.clone(), tell, place)
        });
        let first = self.first.clone();
        async move {
            if let Some(carrier) = carrier {
                carrier.run(stream, first).await;
            }
        }
    }

    /// Returns `true` if it carries a condition of the cache's, which older grounds do not know.
    pub fn is_conditional(&self) -> bool {
        self.asked.is_conditional
    }

    /// The page, or `None` where it is to be asked for as ever.
    pub async fn answer(self) -> Option<(Head, PageBody)> {
        let Self { head, body, tell, .. } = self;
        // Without a carrier nothing will ever come.
        drop(tell);
        Some((head.await.ok()?, PageBody(body)))
    }
}

impl Granted {
    /// No more than `bytes` have been pushed, nor will be.
    pub fn came(&self, bytes: u64) {
        lock(&self.half.ledger).came(self.page, bytes, self.half.now());
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.half.lapse(self.page);
    }
}

impl Stream for PageBody {
    type Item = Result<Bytes, PromiseBroken>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here panics half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
