//! Transfer of a response body to its readers while it arrives, and into the store at its end.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::cache::Cache;
use crate::error::OriginError;
use crate::fill::SEGMENT_BYTES;
use crate::flight::{Leader, Transfer};
use crate::head::Head;
use crate::key::Key;
use crate::origin::{Origin, OriginBody};
use crate::store::Room;

/// Maximum silence in a body, outages of the path excluded. After it the transfer has failed for all
/// its readers.
pub const STALL: Duration = Duration::from_secs(60);

/// Longest outage that a body waits for.
const MAX_OUTAGE: Duration = Duration::from_secs(3600);

/// Minimum time between two checks for an outage.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The body is silent for too long.
struct Stalled;

type NextFrame = Result<http_body::Frame<bytes::Bytes>, OriginError>;

/// Maximum transfer time of a body that is stored. After it, the body's memory is given back as its
/// readers proceed. The largest object of 16 MiB must arrive at 224 kbit/s or more.
pub const MAX_FILL_TIME: Duration = Duration::from_secs(600);

/// Largest body that is assembled on an async thread, bytes. Copying 256 KiB takes about 50 µs.
const MAX_INLINE_COPY_BYTES: u64 = 256 * 1024;

/// Transfer of one body.
pub(crate) struct Pump {
    cache: Cache,
    key: Key,
    request: HeaderMap,
    transfer: Transfer,
    /// Memory reserved for the body.
    room: Option<Room>,
    /// `true` if the body will be stored.
    storing: bool,
    /// Other clients may join while this exists.
    leader: Option<Leader>,
    started_at: Instant,
    origin: Arc<dyn Origin>,
}

impl Pump {
    pub fn new(
        cache: Cache,
        key: Key,
        request: HeaderMap,
        transfer: Transfer,
        room: Room,
        (leader, origin): (Option<Leader>, Arc<dyn Origin>),
    ) -> Self {
        let (room, started_at) = (Some(room), Instant::now());
        Self { cache, key, request, transfer, room, storing: true, leader, started_at, origin }
    }

    /// Transfers the whole body. Stops early if no reader is left, unless the body will be stored
    /// and either `to_the_end` is set or more than half of it has arrived.
    pub async fn run(&mut self, response: Response<OriginBody>, to_the_end: bool) {
        let mut body = response.into_body();
        loop {
            let worth_storing = self.storing && (to_the_end || self.is_half_done());
            if !worth_storing && self.transfer.fill.is_unread() {
                break self.fail(OriginError::Stalled);
            }
            match self.next(&mut body).await {
                Ok(None) => break self.end().await,
                Ok(Some(Ok(frame))) => {
                    // Trailers are dropped (RFC 9110 §6.5.1).
                    if let Ok(bytes) = frame.into_data() {
                        self.push(&bytes).await;
                    }
                }
                Ok(Some(Err(error))) => break self.fail(error),
                Err(Stalled) => break self.fail(OriginError::Stalled),
            }
        }
    }

    /// Waits for the next frame, at most [`STALL`] plus the outages meanwhile.
    async fn next(&self, body: &mut OriginBody) -> Result<Option<NextFrame>, Stalled> {
        let outage_before = self.origin.outage_time();
        let (began, mut patience) = (Instant::now(), STALL);
        loop {
            if let Ok(next) = timeout(patience, body.frame()).await {
                return Ok(next);
            }
            let outages = self.origin.outage_time().saturating_sub(outage_before).min(MAX_OUTAGE);
            let left = (STALL + outages).saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(Stalled);
            }
            patience = left.max(MIN_CHECK_INTERVAL);
        }
    }

    /// Appends to the body.
    async fn push(&mut self, bytes: &[u8]) {
        if self.storing && !self.has_room_for(bytes.len() as u64) {
            // The body will not be stored, but its present readers still get all of it.
            self.storing = false;
            self.leader = None;
            self.transfer.fill.forget_what_is_read();
        }
        self.transfer.fill.push(bytes).await;
        if let Some(room) = self.room.as_mut().filter(|_| !self.storing) {
            room.shrink_to(self.transfer.fill.buffered_bytes());
        }
    }

    /// Reserves memory for `bytes` more, in whole segments, if the body may still be stored.
    fn has_room_for(&mut self, bytes: u64) -> bool {
        let length = self.transfer.fill.length() + bytes;
        let segments = length.next_multiple_of(SEGMENT_BYTES as u64);
        let reserved = segments.min(self.transfer.length.unwrap_or(u64::MAX)).max(length);
        let store = &self.cache.0.store;
        length <= store.object_bytes()
            && self.started_at.elapsed() < MAX_FILL_TIME
            && self.room.as_mut().is_some_and(|room| room.grow_to(store, reserved))
    }

    /// Returns `true` if at least half of the body has arrived.
    fn is_half_done(&self) -> bool {
        let received = self.transfer.fill.length();
        self.transfer.length.is_some_and(|length| length.saturating_sub(received) <= received)
    }

    /// Ends the body, and stores it if it is complete.
    async fn end(&mut self) {
        if !self.finish() {
            return;
        }
        let fill = self.transfer.fill.clone();
        let whole = if fill.length() > MAX_INLINE_COPY_BYTES {
            tokio::task::spawn_blocking(move || fill.whole()).await.ok().flatten()
        } else {
            fill.whole()
        };
        if let Some(body) = whole {
            // Present readers share the stored copy.
            self.transfer.fill.adopt(&body);
            let head = Head::clone(&self.transfer.head);
            self.room = None;
            self.cache.0.store.put(&self.key, &self.request, head, body);
        }
        self.leader = None;
    }

    /// Reports the end to the readers. Returns `true` if the body is complete and will be stored.
    fn finish(&mut self) -> bool {
        let fill = &self.transfer.fill;
        let is_complete = self.transfer.length.is_none_or(|length| length == fill.length());
        if !is_complete {
            self.fail(OriginError::Stalled);
            return false;
        }
        fill.finish(Ok(()));
        if !self.storing
            && let Some(room) = self.room.take().filter(|_| !fill.is_unread())
        {
            // Slow readers still use the memory.
            fill.hold(room);
        }
        self.storing
    }

    /// Ends the body with an error.
    fn fail(&mut self, error: OriginError) {
        self.transfer.fill.finish(Err(error));
        self.leader = None;
    }
}
