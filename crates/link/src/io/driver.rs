//! The task that moves datagrams between a socket and a core.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use bentpipe_flow::Reach;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit};
use tokio::time::{Instant, Sleep};

use super::arrival::ArrivalTimes;
use super::inbox::{Inbox, Mail};
use super::receive::{Buffers, MAX_DATAGRAM_BYTES, Origin, RECV_BUFFERS, RECV_ROUNDS};
use super::shared::{Shared, State};
use super::socket::{Socket, Writable};
use crate::Dscp;
use crate::endpoint::{Core, Filter};

/// Maximum batches in a row before receiving gets its turn.
const SEND_ROUNDS: usize = 16;
/// Maximum datagrams of an inbox that are handled before flows can have the lock.
const MAX_INBOX_ROUND: usize = 256;

/// Datagrams of one length (the last may be shorter) to one address on one path with the same marks.
struct Batch {
    contents: Vec<u8>,
    segment: usize,
    to: SocketAddr,
    path: u8,
    ect: bool,
    dscp: Dscp,
}

impl Batch {
    /// Splits the batch into single datagrams.
    fn split(&self) -> impl DoubleEndedIterator<Item = Batch> + '_ {
        self.contents.chunks(self.segment).map(|datagram| Batch {
            contents: datagram.to_vec(),
            segment: datagram.len(),
            to: self.to,
            path: self.path,
            ect: self.ect,
            dscp: self.dscp,
        })
    }
}

/// Result of receiving.
struct Received {
    /// At least one datagram was for this end.
    taken: bool,
    /// There may be more.
    more: bool,
}

/// Source of datagrams.
enum Source {
    /// The socket. Junk is dropped without the lock.
    Socket { buffers: Buffers, filter: Option<Filter> },
    /// The reader, which has dropped junk.
    Reader { inbox: Arc<Inbox>, mail: Mail },
}

/// Task that runs an end, or a shard of it, until it is closed.
pub struct Driver<C> {
    shared: Arc<Shared<C>>,
    /// All shards of the end, if it has several.
    shards: Arc<[Arc<Shared<C>>]>,
    socket: Arc<dyn Socket>,
    source: Source,
    arrivals: ArrivalTimes,
    /// Wait for the socket after it would block.
    writable: Option<Writable>,
    timer: Pin<Box<Sleep>>,
    /// See [`State::called`].
    called: Arc<AtomicBool>,
    /// Batches composed but not sent, because the socket would block or a batch was full.
    pending: VecDeque<Batch>,
    /// Buffers of sent batches for reuse: at most 16 × 64 KiB.
    spare: Vec<Vec<u8>>,
    sessions_seen: u64,
    reach_seen: Reach,
    /// Paths on which sending failed last, one bit for each.
    send_failed: u8,
}

impl<C: Core> Driver<C> {
    /// Creates the driver of an end that is not divided.
    pub fn new(shared: Arc<Shared<C>>, socket: Arc<dyn Socket>) -> Self {
        let filter = shared.lock().core.filter();
        let source = Source::Socket { buffers: Buffers::new(&*socket), filter };
        Self::with_source(shared, Arc::new([]), socket, source)
    }

    /// Creates the driver of one of `shards`, which takes its datagrams from `inbox`.
    pub fn of_shard(
        shards: Arc<[Arc<Shared<C>>]>,
        number: usize,
        socket: Arc<dyn Socket>,
        inbox: Arc<Inbox>,
    ) -> Self {
        let source = Source::Reader { inbox, mail: Mail::default() };
        Self::with_source(shards[number].clone(), shards, socket, source)
    }

    fn with_source(
        shared: Arc<Shared<C>>,
        shards: Arc<[Arc<Shared<C>>]>,
        socket: Arc<dyn Socket>,
        source: Source,
    ) -> Self {
        let called = shared.lock().called.clone();
        Self {
            timer: Box::pin(tokio::time::sleep_until(Instant::now())),
            called,
            pending: VecDeque::new(),
            spare: Vec::new(),
            sessions_seen: 0,
            reach_seen: Reach::Down,
            send_failed: 0,
            shared,
            shards,
            socket,
            source,
            arrivals: ArrivalTimes::default(),
            writable: None,
        }
    }

    /// Receives datagrams.
    fn receive(&mut self, cx: &mut Context<'_>) -> Received {
        match &mut self.source {
            Source::Socket { buffers, filter } => {
                let from = (&*self.socket, filter.as_ref());
                receive(&self.shared, from, buffers, &mut self.arrivals, cx)
            }
            Source::Reader { inbox, mail } => {
                inbox.take(mail, cx);
                let mut datagrams = mail.datagrams().peekable();
                let taken = datagrams.peek().is_some();
                while datagrams.peek().is_some() {
                    let mut state = self.shared.lock();
                    self.arrivals.read_at(self.shared.now());
                    for (datagram, origin) in datagrams.by_ref().take(MAX_INBOX_ROUND) {
                        let at = self.arrivals.of(origin.timestamp);
                        state.core.handle_datagram(datagram, origin.from, origin.ce, at);
                    }
                }
                drop(datagrams);
                mail.clear();
                Received { taken, more: false }
            }
        }
    }

    /// Tells the core which paths have failed or returned. Returns `true` if any has.
    fn take_news(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Poll::Ready((path, can_send)) = self.socket.poll_news(cx) {
            any = true;
            let (mut state, now) = (self.shared.lock(), self.shared.now());
            match can_send {
                true => state.core.sendable(path, now),
                false => state.core.unsendable(path, now),
            }
        }
        any
    }

    /// Returns `true` if there is nothing to do: only junk arrived, no timer is due, and nobody
    /// woke the driver.
    fn is_idle(&mut self, taken: bool, cx: &mut Context<'_>) -> bool {
        let called = self.called.swap(false, Relaxed);
        let due = self.timer.as_mut().poll(cx).is_ready();
        !(taken || called || due) && self.pending.is_empty()
    }

    /// Sends what may be sent. Returns `true` if there may be more.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..SEND_ROUNDS {
            if self.pending.is_empty() {
                let mut state = self.shared.lock();
                let now = self.shared.now();
                collect(&mut state, now, &*self.socket, &mut self.pending, &mut self.spare);
            }
            let Some(mut batch) = self.pending.pop_front() else { return false };
            let transmit = Transmit {
                destination: batch.to,
                ecn: batch.ect.then_some(EcnCodepoint::Ect0),
                contents: &batch.contents,
                segment_size: (batch.contents.len() > batch.segment).then_some(batch.segment),
                src_ip: None,
            };
            let failed = 1_u8.checked_shl(batch.path.into()).unwrap_or(1);
            match self.socket.try_send_on(batch.path, &transmit, batch.dscp) {
                Ok(()) => {
                    self.writable = None;
                    self.send_failed &= !failed;
                    if self.spare.len() < SEND_ROUNDS {
                        batch.contents.clear();
                        self.spare.push(batch.contents);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pending.push_front(batch);
                    let socket = &self.socket;
                    let writable = self.writable.get_or_insert_with(|| socket.clone().writable());
                    if writable.as_mut().poll(cx).is_pending() {
                        return false;
                    }
                    self.writable = None;
                }
                // Some of the batch may be small enough, which the error does not say.
                Err(_) if batch.contents.len() > batch.segment => {
                    for single in batch.split().rev() {
                        self.pending.push_front(single);
                    }
                }
                Err(error) if self.fits_smaller(&batch, &error) => {}
                Err(error) => {
                    if self.send_failed & failed == 0 {
                        self.send_failed |= failed;
                        let (to, path) = (batch.to, batch.path);
                        tracing::warn!(%to, path, %error, "sending failed; retrying quietly");
                    }
                    let now = self.shared.now();
                    self.shared.lock().core.unsendable(batch.path, now);
                }
            }
        }
        true
    }

    /// Returns `true` if a datagram was refused for its size, and the end makes smaller ones from
    /// now on.
    fn fits_smaller(&self, batch: &Batch, error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::EMSGSIZE) && {
            let now = self.shared.now();
            self.shared.lock().core.too_large((batch.to, batch.path), batch.contents.len(), now)
        }
    }

    fn set_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.lock();
        let now = self.shared.now();
        self.arrivals.pass(now);
        let at = self.shared.instant(state.core.next_timeout(now));
        state.driver = Some(cx.waker().clone());
        drop(state);
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        self.timer.as_mut().poll(cx)
    }

    fn tell(&mut self) {
        let mut state = self.shared.lock();
        let came_in = state.deliver_events();
        let (sessions, reach) = (state.core.sessions_begun(), state.core.reach());
        let messages: Vec<_> = std::iter::from_fn(|| state.core.next_message()).collect();
        drop(state);
        for (shard, message) in messages {
            let Some(other) = self.shards.get(shard) else { continue };
            let mut state = other.lock();
            state.core.handle_message(message, other.now());
            state.wake_driver();
        }
        if std::mem::replace(&mut self.reach_seen, reach) != reach {
            self.shared.reach.send_replace(reach);
        }
        if came_in || sessions != self.sessions_seen {
            self.sessions_seen = sessions;
            self.shared.changed.notify_waiters();
        }
    }
}

/// Receives datagrams from the socket.
fn receive<C: Core>(
    shared: &Shared<C>,
    (socket, filter): (&dyn Socket, Option<&Filter>),
    buffers: &mut Buffers,
    arrivals: &mut ArrivalTimes,
    cx: &mut Context<'_>,
) -> Received {
    let mut taken = false;
    let mut meta = [RecvMeta::default(); RECV_BUFFERS];
    for _ in 0..RECV_ROUNDS {
        let count = match socket.poll_recv(cx, &mut buffers.slices(), &mut meta) {
            Poll::Pending => return Received { taken, more: false },
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => {
                // For example an ICMP error of an earlier packet. The session judges the peer's
                // silence.
                tracing::debug!(%error, "receiving failed");
                continue;
            }
        };
        let mut state = None;
        arrivals.read_at(shared.now());
        for (contents, meta) in buffers.filled(&meta[..count]) {
            let Origin { from, ce, timestamp } = meta.into();
            let at = arrivals.of(timestamp);
            let datagrams = contents.chunks(meta.stride.max(1));
            let admits = |it: &&[u8]| filter.is_none_or(|some| some.admits(it, from));
            for datagram in datagrams.filter(admits) {
                let state = state.get_or_insert_with(|| shared.lock());
                state.core.handle_datagram(datagram, from, ce, at);
                taken = true;
            }
        }
    }
    Received { taken, more: true }
}

impl<C> Drop for Driver<C> {
    /// Wakes everybody who waits for the driver, however it ends.
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

/// Composes a batch of datagrams of equal length and marks to the same address, as far as one call
/// can send them. `spare` has buffers for the batch.
fn collect<C: Core>(
    state: &mut State<C>,
    now: std::time::Duration,
    socket: &dyn Socket,
    pending: &mut VecDeque<Batch>,
    spare: &mut Vec<Vec<u8>>,
) {
    // The socket sets this to one if the device cannot segment.
    let max_segments = socket.max_gso_segments();
    let mut next = spare.pop().unwrap_or_default();
    loop {
        // Most datagrams join the previous batch: each is composed at its place there.
        let joins = pending.back().is_some_and(|batch| {
            batch.contents.len() % batch.segment == 0
                && batch.contents.len() / batch.segment < max_segments
                && batch.contents.len() + batch.segment <= MAX_DATAGRAM_BYTES
        });
        let last = pending.back_mut().filter(|_| joins);
        let out = last.map_or(&mut next, |batch| &mut batch.contents);
        let start = out.len();
        let Some(to) = state.core.transmit(now, out) else { break };
        let (length, ect) = (out.len() - start, state.core.is_ect());
        let path = state.core.path();
        let dscp = if socket.marks() { state.core.dscp() } else { Dscp::DF };
        if let Some(batch) = pending.back_mut().filter(|_| joins) {
            let (like, this) = ((batch.to, batch.path), (to, path));
            let is_like = like == this && (batch.ect, batch.dscp) == (ect, dscp);
            if is_like && length <= batch.segment {
                continue;
            }
            next.extend_from_slice(&batch.contents[start..]);
            batch.contents.truncate(start);
        }
        let contents = std::mem::replace(&mut next, spare.pop().unwrap_or_default());
        pending.push_back(Batch { segment: length, contents, to, path, ect, dscp });
        if pending.len() >= SEND_ROUNDS {
            break;
        }
    }
    if next.capacity() > 0 {
        spare.push(next);
    }
}

impl<C: Core + Unpin> Future for Driver<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.shared.turned();
        let Received { taken, more: more_came } = this.receive(cx);
        let has_news = this.take_news(cx);
        if this.is_idle(taken || has_news, cx) {
            if more_came {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        {
            let mut state = this.shared.lock();
            let now = this.shared.now();
            state.core.handle_timeout(now);
        }
        this.tell();
        let more_leaves = this.send(cx);
        this.tell();
        if this.shared.lock().closing && this.pending.is_empty() && !more_leaves {
            this.shared.abandon();
            return Poll::Ready(());
        }
        if this.set_timer(cx).is_ready() || more_came || more_leaves {
            if more_leaves {
                this.called.store(true, Relaxed);
            }
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
