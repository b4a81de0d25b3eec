//! Transfer of a body to its readers as it arrives and, at its end, into the store.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::cache::Cache;
use crate::fill::SEGMENT_BYTES;
use crate::flight::{Flowing, Lead};
use crate::head::Head;
use crate::key::Key;
use crate::origin::{Failure, Origin, OriginBody, STALLED};
use crate::store::Room;

/// A body of which nothing comes for so long has failed, with all who read it, unless the origin could not be heard.
pub const STALL: Duration = Duration::from_secs(60);

/// Longest outage that a body waits for.
const MAX_OUTAGE: Duration = Duration::from_secs(3600);

/// Shortest time between two looks at whether there is an outage.
const MIN_LOOK_GAP: Duration = Duration::from_secs(1);

/// Nothing more comes.
struct Stalled;

type Next = Result<http_body::Frame<bytes::Bytes>, Failure>;

/// A body that has not come whole for so long is not stored any more: what it holds of the room for bodies
/// on their way is given back as it is read. The largest object of 16 MiB has to come at 224 kbit/s.
pub const MOST_FILLING: Duration = Duration::from_secs(600);

/// A body of more bytes is put together on a thread that may block: copying 256 KiB takes some 50 µs.
const MOST_COPIED_AT_ONCE: u64 = 256 * 1024;

/// A body on its way.
pub(crate) struct Pump {
    cache: Cache,
    key: Key,
    request: HeaderMap,
    flowing: Flowing,
    /// Memory reserved for the body.
    room: Option<Room>,
    /// `true` if it is to be stored.
    kept: bool,
    /// While it is here others may join.
    lead: Option<Lead>,
    began: Instant,
    origin: Arc<dyn Origin>,
}

impl Pump {
    pub fn new(
        cache: Cache,
        key: Key,
        request: HeaderMap,
        flowing: Flowing,
        room: Room,
        (lead, origin): (Option<Lead>, Arc<dyn Origin>),
    ) -> Self {
        let (room, began) = (Some(room), Instant::now());
        Self { cache, key, request, flowing, room, kept: true, lead, began, origin }
    }

    /// Takes all of the body, unless nobody wants it any more; `wanted`, as long as it is to be stored.
    pub async fn take(&mut self, response: Response<OriginBody>, wanted: bool) {
        let mut body = response.into_body();
        loop {
            let worth = self.kept && (wanted || self.is_nearly_done());
            if !worth && self.flowing.fill.is_unread() {
                break self.fail(Failure { offline: false, code: STALLED });
            }
            match self.next(&mut body).await {
                Ok(None) => break self.end().await,
                Ok(Some(Ok(frame))) => {
                    // Trailers are not kept (RFC 9110 §6.5.1).
                    if let Ok(bytes) = frame.into_data() {
                        self.push(&bytes).await;
                    }
                }
                Ok(Some(Err(failure))) => break self.fail(failure),
                Err(Stalled) => break self.fail(Failure { offline: false, code: STALLED }),
            }
        }
    }

    /// The next frame, waited for no longer than [`STALL`] beyond the outages meanwhile.
    async fn next(&self, body: &mut OriginBody) -> Result<Option<Next>, Stalled> {
        let before = self.origin.unheard();
        let (began, mut patience) = (Instant::now(), STALL);
        loop {
            if let Ok(next) = timeout(patience, body.frame()).await {
                return Ok(next);
            }
            let outages = self.origin.unheard().saturating_sub(before).min(MAX_OUTAGE);
            let left = (STALL + outages).saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(Stalled);
            }
            patience = left.max(MIN_LOOK_GAP);
        }
    }

    /// Adds to the body.
    pub async fn push(&mut self, bytes: &[u8]) {
        if self.kept && !self.has_room_for(bytes.len() as u64) {
            // It will not be stored; whoever reads it now still gets all of it.
            self.kept = false;
            self.lead = None;
            self.flowing.fill.forget_what_is_read();
        }
        self.flowing.fill.push(bytes).await;
        if let Some(room) = self.room.as_mut().filter(|_| !self.kept) {
            room.shrink_to(self.flowing.fill.held_bytes());
        }
    }

    /// Takes memory for `bytes` more, by segments, where the body may still be stored.
    fn has_room_for(&mut self, bytes: u64) -> bool {
        let length = self.flowing.fill.length() + bytes;
        let segments = length.next_multiple_of(SEGMENT_BYTES as u64);
        let taken = segments.min(self.flowing.length.unwrap_or(u64::MAX)).max(length);
        let store = &self.cache.0.store;
        length <= store.object_bytes()
            && self.began.elapsed() < MOST_FILLING
            && self.room.as_mut().is_some_and(|room| room.grow_to(store, taken))
    }

    /// Returns `true` if more has arrived than is still to come.
    fn is_nearly_done(&self) -> bool {
        let here = self.flowing.fill.length();
        self.flowing.length.is_some_and(|length| length.saturating_sub(here) <= here)
    }

    /// All has come: it is stored.
    pub async fn end(&mut self) {
        if !self.finish() {
            return;
        }
        let fill = self.flowing.fill.clone();
        let whole = if self.is_large() {
            tokio::task::spawn_blocking(move || fill.whole()).await.ok().flatten()
        } else {
            fill.whole()
        };
        if let Some(body) = whole {
            // Those who are still reading read what is stored.
            self.flowing.fill.adopt(&body);
            let head = Head::clone(&self.flowing.head);
            self.room = None;
            self.cache.0.store.put(&self.key, &self.request, head, body);
        }
        self.lead = None;
    }

    /// Returns `true` if joining its pieces takes a while.
    pub fn is_large(&self) -> bool {
        self.flowing.fill.length() > MOST_COPIED_AT_ONCE
    }

    /// Tells the readers that this was all; `false` where it was not, or is not to be stored.
    fn finish(&mut self) -> bool {
        let fill = &self.flowing.fill;
        let is_whole = self.flowing.length.is_none_or(|length| length == fill.length());
        if !is_whole {
            self.fail(Failure { offline: false, code: STALLED });
            return false;
        }
        fill.finish(Ok(()));
        if !self.kept
            && let Some(room) = self.room.take().filter(|_| !fill.is_unread())
        {
            // Slow readers still need it.
            fill.hold(room);
        }
        self.kept
    }

    /// No more comes.
    pub fn fail(&mut self, failure: Failure) {
        self.flowing.fill.finish(Err(failure));
        self.lead = None;
    }
}
