//! A page in progress: requested, received, and delivered to its reader.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::digest::{CacheDigest, hash};
use bentpipe_prefetch::eligible::CONDITIONS;
use bentpipe_prefetch::passenger::Passenger;
use bentpipe_prefetch::push_cache::PageId;
use bentpipe_prefetch::wire::{Head, Request};
use bytes::Bytes;
use futures_util::Stream;
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::air::{AirPages, Asked, Granted, Reader, Tell, lock};
use super::carry::Carrier;
use super::object::{PageFacts, PromiseBroken};
use super::quota::Slot;

/// Parts of a page that may wait for its reader: 64 × 16 KiB = 1 MiB.
const PAGE_PARTS: usize = 64;

/// A page being requested from the ground gateway.
pub struct Page {
    half: Arc<AirPages>,
    id: PageId,
    passenger: Passenger,
    asked: Asked,
    /// Encoded request, which opens the stream.
    first: Bytes,
    head: oneshot::Receiver<Head>,
    body: mpsc::Receiver<Result<Bytes, PromiseBroken>>,
    tell: Option<(Tell, Slot, Granted)>,
}

/// Bytes of a page as they arrive.
pub struct PageBody(mpsc::Receiver<Result<Bytes, PromiseBroken>>);

impl AirPages {
    /// Prepares the request of a page for `reader`, whose own request had these `headers`.
    /// `cached` are the hashes of the page's site in our HTTP cache. Returns `None` in these cases:
    ///
    /// - the request does not fit the protocol;
    /// - the passenger has too many pages in progress;
    /// - the ground gateway is known to refuse it.
    pub fn ask_for(
        self: &Arc<Self>,
        reader: impl Into<Reader>,
        address: Address,
        headers: &HeaderMap,
        cached: impl IntoIterator<Item = u64>,
    ) -> Option<Page> {
        let Reader { address: passenger, label } = reader.into();
        let origin = address.origin();
        let is_conditional = CONDITIONS.iter().any(|name| headers.contains_key(name));
        let asked = (&origin, &label);
        if !lock(&self.negative_cache).may_ask(asked, is_conditional, Instant::now()) {
            return None;
        }
        let place = self.slots.take(&label, &self.counters.refusals)?;
        let now = self.now();
        let room = self.settings.memory_bytes.saturating_sub(self.held_bytes.load(Relaxed));
        let most = self.settings.page_bytes.min(room);
        let id = self.next_page.fetch_add(1, Relaxed);
        let used = lock(&self.promised).take_used();
        let allowance = {
            let mut push_budgets = lock(&self.push_budgets);
            used.into_iter().for_each(|(page, bytes)| push_budgets.used(page, bytes, now));
            push_budgets.grant(id, (passenger, &origin.host), most, now)
        };
        let granted = Granted { half: self.clone(), page: id };
        let digest = {
            let promised = lock(&self.promised);
            let useful = promised.received_by(passenger).filter(|(_, object)| !object.is_spent());
            CacheDigest::of(useful.map(|(address, _)| hash(address)).chain(cached))
        };
        let facts = Arc::new(PageFacts::new(headers));
        let asked = Asked { origin, reader: label, is_conditional, facts };
        let first = Request::new(address, headers, allowance, digest).encode()?.into();
        let ((tell_head, head), (tell_body, body)) =
            (oneshot::channel(), mpsc::channel(PAGE_PARTS));
        let tell = Some(((tell_head, tell_body), place, granted));
        Some(Page { half: self.clone(), id, passenger, asked, first, head, body, tell })
    }
}

impl Page {
    /// Returns a task that sends the request on the stream and processes the response. The task
    /// must run concurrently, until some time after the page has ended. Dropping it aborts the rest
    /// of the transfer.
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

    /// Returns `true` if the request has a condition of the cache, which older ground gateways do
    /// not support.
    pub fn is_conditional(&self) -> bool {
        self.asked.is_conditional
    }

    /// Returns the page, or `None` if it must be fetched without Split HTTP.
    pub async fn answer(self) -> Option<(Head, PageBody)> {
        let Self { head, body, tell, .. } = self;
        // Without a carrier, dropping the senders ends the wait.
        drop(tell);
        Some((head.await.ok()?, PageBody(body)))
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
