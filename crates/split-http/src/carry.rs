//! One page's stream, in the air gateway.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::plan::Promise;
use bentpipe_prefetch::push_cache::{PageId, Withdrawal};
use bentpipe_prefetch::pushable::{self, MAX_DOCUMENT_BYTES, content_length, is_download};
use bentpipe_prefetch::wire::{End, Frame, FrameReader, Head, PAGE, Unpacker, UpMessage};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::air::{AirPages, AirSettings, Asked, Granted, Tell};
use super::object::{Object, PromiseBroken};
use super::quota::Slot;
use crate::flows::Activity;
use bentpipe_relay::layer::Layered;

/// Bytes per read.
const READ_BYTES: usize = 16 << 10;

/// Silence after which a page's stream is abandoned: longer than the ground gateway waits for the
/// page's origin, plus an outage. A download has the idle timeout of a flow.
const SILENCE: Duration = Duration::from_secs(90);

/// Distributes the data that arrives on one page's stream, and cleans up afterwards.
pub struct Carrier {
    half: Arc<AirPages>,
    page: PageId,
    asked: Asked,
    head: Option<oneshot::Sender<Head>>,
    body: Option<mpsc::Sender<Result<Bytes, PromiseBroken>>>,
    /// Objects by number minus one; `None` if an object has ended or was not wanted.
    objects: Vec<Option<(Address, Arc<Object>)>>,
    /// Bytes reserved for the missing part of each object that has begun.
    expected: BTreeMap<u16, u64>,
    held_bytes: u64,
    pushed_bytes: u64,
    /// Kept until the page's objects are discarded.
    granted: Granted,
    /// Kept until the page's stream ends.
    place: Option<Slot>,
    /// `true` if the ground gateway serves a page, and not a response that was a download from its
    /// header.
    has_begun: bool,
    /// `true` if the page has become a download.
    is_download: bool,
    /// Bytes of the page received so far.
    page_bytes: u64,
}

impl Carrier {
    pub fn new(
        half: Arc<AirPages>,
        (page, granted): (PageId, Granted),
        asked: Asked,
        (head, body): Tell,
        place: Slot,
    ) -> Self {
        let (head, body, place) = (Some(head), Some(body), Some(place));
        let (objects, expected, held_bytes, pushed_bytes, page_bytes) = Default::default();
        let (has_begun, is_download) = (false, false);
        Self {
            half,
            page,
            asked,
            head,
            body,
            objects,
            expected,
            held_bytes,
            pushed_bytes,
            granted,
            place,
            has_begun,
            is_download,
            page_bytes,
        }
    }

    /// Sends the request `first` on `stream`, and distributes the response.
    pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(mut self, stream: S, first: Bytes) {
        let slot = self.place.as_ref().map(|place| (place.over(), place.activity()));
        if let Some((over, activity)) = slot {
            let stream = Layered::new(stream, Activity(activity));
            match over.run_until_cancelled(self.carry(stream, first)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::debug!(%error, "a page's stream broke off"),
                None => tracing::debug!("a page ended to make room"),
            }
        }
        self.withdraw_all();
        drop(self.place.take());
        self.end_page().await;
        self.granted.came(self.pushed_bytes);
        // A declined page has no objects to keep.
        if self.has_begun
            && let Ok(_held) = self.half.held.try_acquire()
        {
            sleep(self.half.settings.keep).await;
        }
    }

    async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        mut stream: S,
        first: Bytes,
    ) -> io::Result<()> {
        timeout(SILENCE, stream.write_all(&first)).await??;
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut unpacker = Unpacker::new().map_err(wrong)?;
        let mut frames = FrameReader::default();
        let mut packed = vec![0; READ_BYTES];
        loop {
            let silence = if self.is_download { self.half.settings.idle } else { SILENCE };
            let count = tokio::select! {
                read = timeout(silence, stream.read(&mut packed)) => read??,
                // A download carries no other objects, and its next bytes may be hours away.
                () = gone(self.body.as_ref()), if self.is_download => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            };
            if count == 0 {
                let whole = unpacker.is_over() && frames.is_over();
                if !whole {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                return stream.shutdown().await;
            }
            self.asked.facts.heard();
            let mut rest = &packed[..count];
            loop {
                let mut came = 0;
                let taken = unpacker.unpack(rest, &mut |bytes| {
                    came = bytes.len();
                    frames.push(bytes);
                });
                rest = &rest[taken.map_err(wrong)?..];
                while let Some(frame) = frames.frame().map_err(wrong)? {
                    if let Some(id) = self.take(frame).await? {
                        timeout(SILENCE, stream.write_all(&UpMessage::cancel(id))).await??;
                    }
                }
                if rest.is_empty() && came == 0 {
                    break;
                }
            }
        }
    }

    /// Processes a frame. Returns the number of an object that should be cancelled.
    async fn take(&mut self, frame: Frame) -> io::Result<Option<u16>> {
        match frame {
            Frame::Promise(promise) => return Ok(self.promise(promise)),
            Frame::Head(PAGE, head) => {
                if self.asked.is_conditional {
                    self.half.conditions_known();
                }
                self.has_begun = !is_download(head.status, &head.headers);
                if !self.has_begun {
                    // A download has no pushed objects.
                    self.granted.came(self.pushed_bytes);
                    self.becomes_download();
                }
                // If the passenger has gone, nobody waits for the header.
                let gone = self.head.take().is_none_or(|tell| tell.send(*head).is_err());
                if gone {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            Frame::Data(PAGE, bytes) => {
                self.page_came(bytes.len() as u64);
                if let Some(body) = &self.body {
                    // With HTTP/2, only this timeout detects a reader that reads nothing.
                    let sent = timeout(self.half.settings.idle, body.send(Ok(bytes))).await?;
                    sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
                }
            }
            Frame::End(PAGE, End::Complete) => self.body = None,
            Frame::End(PAGE, End::Refused(why)) => {
                self.half.refused((&self.asked.origin, &self.asked.reader), why);
                self.end_page().await;
            }
            Frame::End(PAGE, End::Declined | End::Aborted) => self.end_page().await,
            Frame::Head(id, head) => return Ok(self.begin(id, *head)),
            Frame::Data(id, bytes) => return Ok(self.data(id, bytes)),
            Frame::End(id, End::Complete) => {
                if let Some((_, object)) = self.over(id) {
                    object.end(Ok(()));
                }
            }
            // Refusals apply only to pages.
            Frame::End(id, End::Declined | End::Aborted | End::Refused(_)) => {
                self.withdraw(id, Withdrawal::Declined);
            }
        }
        Ok(None)
    }

    /// Counts a page's bytes for the push budget. A download's bytes do not count, because they
    /// would allow wasted pushes.
    fn page_came(&mut self, bytes: u64) {
        self.page_bytes = self.page_bytes.saturating_add(bytes);
        if !self.has_begun {
            return;
        }
        if self.page_bytes <= MAX_DOCUMENT_BYTES {
            self.half.table().page_bytes(self.page, bytes);
        } else {
            self.becomes_download();
        }
    }

    /// From now on the stream has the idle timeout of a flow, and releases its page slot.
    fn becomes_download(&mut self) {
        self.is_download = true;
        if let Some(place) = &mut self.place {
            place.leave_to_pages();
        }
    }

    fn promise(&mut self, promise: Promise) -> Option<u16> {
        let Promise { id, address, .. } = promise;
        let object = Arc::new(Object::new(self.asked.facts.clone()));
        let mut table = self.half.table();
        let wanted =
            table.promise(self.page, address.clone(), object.clone(), |held| held.is_spent());
        drop(table);
        self.half.counters.objects_promised.add(1);
        self.objects.push(wanted.then_some((address, object)));
        (!wanted).then_some(id)
    }

    /// Stores an object's header. Returns the object's number if it should be cancelled, because
    /// there is no room for the announced length or because it is private. Cancelling later would
    /// interrupt a response to a passenger. The ground gateway has checked the object already, but
    /// passengers' privacy must not depend on it.
    fn begin(&mut self, id: u16, head: Head) -> Option<u16> {
        self.pushed_bytes += head.bytes();
        let (address, object) = self.object(id)?.clone();
        let length = content_length(&head.headers).unwrap_or(0);
        let needed = head.bytes().saturating_add(length);
        if pushable::may_push(head.status, &head.headers).is_err() || !self.hold(needed) {
            self.withdraw(id, Withdrawal::Cancelled);
            self.half.table().late_bytes(self.page, head.bytes());
            return Some(id);
        }
        self.half.table().object_bytes(self.page, &address, head.bytes());
        *self.expected.entry(id).or_default() += length;
        object.begin(head);
        None
    }

    /// Stores an object's bytes. Returns the object's number if it should be cancelled for lack of
    /// room.
    fn data(&mut self, id: u16, bytes: Bytes) -> Option<u16> {
        let (page, count) = (self.page, bytes.len() as u64);
        self.pushed_bytes += count;
        let Some((address, object)) = self.object(id) else {
            // Bytes that were in flight when the object was cancelled.
            self.half.table().late_bytes(page, count);
            return None;
        };
        let (address, object) = (address.clone(), object.clone());
        let expected = self.expected.entry(id).or_default();
        let held_already = count.min(*expected);
        *expected -= held_already;
        if !self.hold(count - held_already) {
            self.withdraw(id, Withdrawal::Cancelled);
            self.half.table().late_bytes(page, count);
            return Some(id);
        }
        self.half.table().object_bytes(page, &address, count);
        object.push(bytes);
        None
    }

    /// Reserves room for `count` more bytes; returns `true` on success.
    fn hold(&mut self, count: u64) -> bool {
        let AirSettings { page_bytes, memory_bytes, .. } = self.half.settings;
        let held = self.half.held_bytes.load(Relaxed);
        let room = page_bytes.saturating_sub(self.held_bytes);
        if count > room.min(memory_bytes.saturating_sub(held)) {
            return false;
        }
        self.held_bytes += count;
        self.half.held_bytes.fetch_add(count, Relaxed);
        true
    }

    fn object(&self, id: u16) -> Option<&(Address, Arc<Object>)> {
        self.objects.get(usize::from(id).checked_sub(1)?)?.as_ref()
    }

    fn over(&mut self, id: u16) -> Option<(Address, Arc<Object>)> {
        let unused = self.expected.remove(&id).unwrap_or(0);
        self.held_bytes -= unused;
        self.half.held_bytes.fetch_sub(unused, Relaxed);
        self.objects.get_mut(usize::from(id).checked_sub(1)?)?.take()
    }

    /// Withdraws an object. Requests that wait for it cross the link instead.
    fn withdraw(&mut self, id: u16, why: Withdrawal) {
        if let Some((address, object)) = self.over(id) {
            self.half.table().withdraw(self.page, &address, why);
            object.end(Err(PromiseBroken));
        }
    }

    async fn end_page(&mut self) {
        self.head = None;
        if let Some(body) = self.body.take() {
            // Inform the reader, unless it has gone or reads nothing.
            let _ = timeout(SILENCE, body.send(Err(PromiseBroken))).await;
        }
    }

    fn withdraw_all(&mut self) {
        for number in 1..=self.objects.len() {
            self.withdraw(number as u16, Withdrawal::Declined); // at most MAX_OBJECTS
        }
    }
}

/// Completes when the reader of the body has gone; never completes without a reader.
async fn gone(body: Option<&mpsc::Sender<Result<Bytes, PromiseBroken>>>) {
    match body {
        Some(body) => body.closed().await,
        None => std::future::pending().await,
    }
}

impl Drop for Carrier {
    /// Also runs if the gateway stops before a page has ended.
    fn drop(&mut self) {
        self.withdraw_all();
        self.half.held_bytes.fetch_sub(self.held_bytes, Relaxed);
    }
}
