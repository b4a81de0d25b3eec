//! One page's stream at the cabin's end.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::judge::{self, MAX_DOCUMENT_BYTES, content_length, is_download};
use bentpipe_prefetch::plan::Promise;
use bentpipe_prefetch::promised::{PageId, Passenger, Withdrawal};
use bentpipe_prefetch::wire::{End, Frame, Frames, Head, PAGE, Unpacker, Up};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::air::{AirPages, AirSettings, Asked, Granted, Tell};
use super::object::{Object, PromiseBroken};
use super::places::Place;

/// Bytes per read.
const READ_BYTES: usize = 16 << 10;

/// A page's stream on which nothing comes for so long is given up: longer than the ground waits for a page's
/// origin, and an outage besides. A download's has as long as a flow.
const SILENCE: Duration = Duration::from_secs(90);

/// Passes on what comes by one page's stream, and cleans up after it.
pub struct Carrier {
    half: Arc<AirPages>,
    page: PageId,
    asked: Asked,
    head: Option<oneshot::Sender<Head>>,
    body: Option<mpsc::Sender<Result<Bytes, PromiseBroken>>>,
    /// By their numbers less one; `None` where one is over, or was not wanted.
    objects: Vec<Option<(Address, Arc<Object>)>>,
    /// Room reserved for the missing part of each object that has begun.
    expected: BTreeMap<u16, u64>,
    held_bytes: u64,
    pushed_bytes: u64,
    /// Until the page is not held any more.
    granted: Granted,
    /// Until the page's stream is over.
    place: Option<Place<Passenger>>,
    /// `true` if the ground gives the page, and not something that was a download from its head on.
    has_begun: bool,
    /// `true` if it is a download by now.
    is_download: bool,
    /// Bytes of it so far.
    page_bytes: u64,
}

impl Carrier {
    pub fn new(
        half: Arc<AirPages>,
        (page, granted): (PageId, Granted),
        asked: Asked,
        (head, body): Tell,
        place: Place<Passenger>,
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

    /// Asks by `first` on `stream`, and takes what comes.
    pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(mut self, stream: S, first: Bytes) {
        let carried = self.carry(stream, first).await;
        if let Err(error) = carried {
            tracing::debug!(%error, "a page's stream broke off");
        }
        self.withdraw_all();
        drop(self.place.take());
        self.end_page().await;
        self.granted.came(self.pushed_bytes);
        // Of a page that was declined nothing is here.
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
        let mut frames = Frames::default();
        let mut packed = vec![0; READ_BYTES];
        loop {
            let silence = if self.is_download { self.half.settings.idle } else { SILENCE };
            let count = tokio::select! {
                read = timeout(silence, stream.read(&mut packed)) => read??,
                // A download brings nothing else, and its next bytes may be hours away.
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
                        timeout(SILENCE, stream.write_all(&Up::cancel(id))).await??;
                    }
                }
                if rest.is_empty() && came == 0 {
                    break;
                }
            }
        }
    }

    /// Takes a frame; gives the number of an object that should be cancelled.
    async fn take(&mut self, frame: Frame) -> io::Result<Option<u16>> {
        match frame {
            Frame::Promise(promise) => return Ok(self.promise(promise)),
            Frame::Head(PAGE, head) => {
                if self.asked.is_conditional {
                    self.half.conditions_known();
                }
                self.has_begun = !is_download(head.status, &head.headers);
                if !self.has_begun {
                    // It brings nothing.
                    self.granted.came(self.pushed_bytes);
                    self.becomes_download();
                }
                // Nobody waits for it any more where the passenger has gone.
                let gone = self.head.take().is_none_or(|tell| tell.send(*head).is_err());
                if gone {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            Frame::Data(PAGE, bytes) => {
                self.page_came(bytes.len() as u64);
                if let Some(body) = &self.body {
                    // Over HTTP/2 nobody else sees that a reader takes nothing.
                    let sent = timeout(self.half.settings.idle, body.send(Ok(bytes))).await?;
                    sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
                }
            }
            Frame::End(PAGE, End::Complete) => self.body = None,
            Frame::End(PAGE, End::Refused(why)) => {
                self.half.refused(&self.asked.origin, why);
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
            // Only pages are refused.
            Frame::End(id, End::Declined | End::Aborted | End::Refused(_)) => {
                self.withdraw(id, Withdrawal::Declined);
            }
        }
        Ok(None)
    }

    /// Counts a page's bytes; those of a download are none, or pushes could be wasted for them.
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

    /// From now on it is as patient as a flow, and pages have its place.
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

    /// Keeps an object's head; where there is no room for all that it says will come, or it is for one
    /// person, it is to be cancelled. Later that would break what a passenger is being given.
    /// The ground has judged it already, and is not the one that passengers must rely on.
    fn begin(&mut self, id: u16, head: Head) -> Option<u16> {
        self.pushed_bytes += head.bytes();
        let (address, object) = self.object(id)?.clone();
        let length = content_length(&head.headers).unwrap_or(0);
        let needed = head.bytes().saturating_add(length);
        if judge::may_push(head.status, &head.headers).is_err() || !self.hold(needed) {
            self.withdraw(id, Withdrawal::Cancelled);
            self.half.table().late_bytes(self.page, head.bytes());
            return Some(id);
        }
        self.half.table().object_bytes(self.page, &address, head.bytes());
        *self.expected.entry(id).or_default() += length;
        object.begin(head);
        None
    }

    /// Keeps an object's bytes; where there is no room, it is to be cancelled.
    fn data(&mut self, id: u16, bytes: Bytes) -> Option<u16> {
        let (page, count) = (self.page, bytes.len() as u64);
        self.pushed_bytes += count;
        let Some((address, object)) = self.object(id) else {
            // It was cancelled, and this was on its way.
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

    /// Reserves room for so many bytes more; returns `true` if there is room.
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

    /// The object will not come: who waits for it asks for it across the link.
    fn withdraw(&mut self, id: u16, why: Withdrawal) {
        if let Some((address, object)) = self.over(id) {
            self.half.table().withdraw(self.page, &address, why);
            object.end(Err(PromiseBroken));
        }
    }

    async fn end_page(&mut self) {
        self.head = None;
        if let Some(body) = self.body.take() {
            // The reader is told, unless it has gone or takes nothing.
            let _ = timeout(SILENCE, body.send(Err(PromiseBroken))).await;
        }
    }

    fn withdraw_all(&mut self) {
        for number in 1..=self.objects.len() {
            self.withdraw(number as u16, Withdrawal::Declined); // at most MAX_OBJECTS
        }
    }
}

/// Until its reader has gone, where it has one.
async fn gone(body: Option<&mpsc::Sender<Result<Bytes, PromiseBroken>>>) {
    match body {
        Some(body) => body.closed().await,
        None => std::future::pending().await,
    }
}

impl Drop for Carrier {
    /// Also where the gateway stops before a page is over.
    fn drop(&mut self) {
        self.withdraw_all();
        self.half.held_bytes.fetch_sub(self.held_bytes, Relaxed);
    }
}
