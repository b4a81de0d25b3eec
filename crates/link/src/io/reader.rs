//! The task that receives for all shards of an end.

use std::future::Future;
use std::io::IoSliceMut;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use quinn_udp::RecvMeta;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::inbox::Inbox;
use super::receive::{Buffers, RECV_BUFFERS, RECV_ROUNDS};
use super::socket::Socket;
use crate::endpoint::{Filter, Overflow, Sender, shard_of_packet};

/// Minimum interval of warnings about full inboxes.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// State of the reader, for the handles.
#[derive(Debug)]
pub struct ReaderState {
    /// Number of turns.
    turns: AtomicU64,
    /// Datagrams that no inbox had room for, since they were taken last.
    overflow: Mutex<Overflow>,
    ended: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Notified at the reader's end.
    changed: Arc<Notify>,
}

impl ReaderState {
    pub fn new(changed: Arc<Notify>) -> Self {
        Self {
            turns: AtomicU64::new(0),
            overflow: Mutex::default(),
            ended: AtomicBool::new(false),
            waker: Mutex::new(None),
            changed,
        }
    }

    /// Number of turns. The call requests another one.
    pub fn pulse(&self) -> u64 {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
        self.turns.load(Relaxed)
    }

    /// Takes the counts of datagrams that no inbox had room for.
    pub fn take_overflow(&self) -> Overflow {
        std::mem::take(&mut self.overflow.lock())
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }
}

/// Reads until the drivers of all shards have ended.
pub struct Reader {
    state: Arc<ReaderState>,
    socket: Arc<dyn Socket>,
    routes: Routes,
    buffers: Buffers,
    drivers: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Datagrams dropped since the last warning, and its time.
    dropped: Overflow,
    warned: Option<Instant>,
}

impl Reader {
    pub fn new(
        state: Arc<ReaderState>,
        socket: Arc<dyn Socket>,
        filter: Option<Filter>,
        inboxes: Vec<Arc<Inbox>>,
        drivers: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let (buffers, drivers) = (Buffers::new(&*socket), Box::pin(drivers));
        let routes = Routes { filter, inboxes };
        Self { state, socket, routes, buffers, drivers, dropped: Overflow::default(), warned: None }
    }

    /// Receives once. Returns `false` if nothing came.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut meta = [RecvMeta::default(); RECV_BUFFERS];
        let mut slices: [IoSliceMut<'_>; RECV_BUFFERS] = self.buffers.slices();
        let count = match self.socket.poll_recv(cx, &mut slices, &mut meta) {
            Poll::Pending => return false,
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => {
                // For example an ICMP error of an earlier packet.
                tracing::debug!(%error, "receiving failed");
                return true;
            }
        };
        let filled = self.buffers.filled(&meta[..count]);
        let overflow = filled.map(|(contents, meta)| self.routes.hand_over(contents, meta));
        let overflow = overflow.fold(Overflow::default(), Overflow::and);
        if overflow != Overflow::default() {
            self.dropped(overflow);
        }
        true
    }

    /// Counts dropped datagrams, and warns of them now and then.
    fn dropped(&mut self, overflow: Overflow) {
        self.dropped = self.dropped.and(overflow);
        let mut counted = self.state.overflow.lock();
        *counted = counted.and(overflow);
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            let Overflow { aircraft, handshakes } = std::mem::take(&mut self.dropped);
            tracing::warn!(
                aircraft,
                handshakes,
                "datagrams were dropped, because a shard was too slow for them"
            );
        }
    }
}

/// The ways from the socket to the shards.
struct Routes {
    filter: Option<Filter>,
    inboxes: Vec<Arc<Inbox>>,
}

impl Routes {
    /// Hands over the datagrams of a buffer. Junk is dropped without a lock.
    fn hand_over(&self, contents: &[u8], meta: &RecvMeta) -> Overflow {
        let stride = meta.stride.max(1);
        let owner = |datagram: &[u8]| {
            let anybody = Some(Sender::Known(0));
            let sender =
                self.filter.as_ref().map_or(anybody, |it| it.sender(datagram, meta.addr))?;
            Some((shard_of_packet(datagram, self.inboxes.len()), sender))
        };
        let mut overflow = Overflow::default();
        let mut put = |owner: Option<(usize, Sender)>, run: &[u8]| {
            let Some((shard, sender)) = owner.filter(|_| !run.is_empty()) else { return };
            let Some(inbox) = self.inboxes.get(shard) else { return };
            let refused = inbox.put(run, stride, sender, meta.into()) as u64;
            match sender {
                Sender::Known(_) => overflow.aircraft += refused,
                Sender::Stranger => overflow.handshakes += refused,
            }
        };
        let (mut run, mut last) = (0, None);
        // The datagrams of a buffer have one sender, so that there is rarely more than one run.
        for (at, datagram) in (0..).step_by(stride).zip(contents.chunks(stride)) {
            let next = owner(datagram);
            if next != last {
                put(last, &contents[run..at]);
                (run, last) = (at, next);
            }
        }
        put(last, &contents[run..]);
        overflow
    }
}

impl Future for Reader {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.state.turns.fetch_add(1, Relaxed);
        {
            let mut waker = this.state.waker.lock();
            if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        if this.drivers.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        for _ in 0..RECV_ROUNDS {
            if !this.receive(cx) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Reader {
    /// Wakes everybody who waits for the hub, however the reader ends.
    fn drop(&mut self) {
        self.state.ended.store(true, SeqCst);
        self.state.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::MacKey;
    use crate::io::inbox::Mail;
    use crate::key::PublicKey;
    use crate::wire::header::{DATA_OVERHEAD_BYTES, DataHeader, INIT, INIT_BYTES};

    const LEN: usize = 1_200;

    fn packets(receiver: u32, count: usize) -> Vec<u8> {
        let mut packet = Vec::new();
        DataHeader { path: 0, receiver, number: 9 }.put(&mut packet);
        packet.resize(LEN.max(DATA_OVERHEAD_BYTES), 7);
        packet.repeat(count)
    }

    #[test]
    fn a_flood_in_one_shard_is_counted_by_its_cause_and_leaves_others_room() {
        let mac = MacKey::new(&PublicKey::from_bytes([1; 32]));
        let filter = Filter::of_hub(mac.clone());
        // Two aircraft of shard 0, and one of shard 1.
        [(2, 0), (4, 1), (3, 0)].into_iter().for_each(|(index, number)| filter.add(index, number));
        let inboxes = [(); 2].map(|()| Arc::<Inbox>::default());
        let routes = Routes { filter: Some(filter.clone()), inboxes: inboxes.to_vec() };
        let meta = |stride, len| {
            let mut meta = RecvMeta::default();
            (meta.stride, meta.len) = (stride, len);
            meta
        };
        let send =
            |contents: &[u8], stride| routes.hand_over(contents, &meta(stride, contents.len()));
        let flood: Vec<_> = (0..60).map(|_| send(&packets(2, 45), LEN)).collect();
        assert!(
            flood.iter().any(|it| it.aircraft > 0) && flood.iter().all(|it| it.handshakes == 0)
        );
        let mut init = vec![7; INIT_BYTES];
        init[0] = INIT;
        mac.sign(&mut init, None);
        let inits: Vec<_> = (0..1_000).map(|_| send(&init, INIT_BYTES)).collect();
        assert!(
            inits.iter().any(|it| it.handshakes > 0) && inits.iter().all(|it| it.aircraft == 0)
        );
        // The rest of a buffer, with two other aircraft and a stranger's packet.
        let mixed = [packets(4, 20), packets(5, 1), packets(3, 20)].concat();
        assert_eq!(send(&mixed, LEN), Overflow::default());
        assert_eq!(filter.take_dropped(), 1);
        let mut mail = Mail::default();
        inboxes[0].take(&mut mail, &Context::from_waker(Waker::noop()));
        let others = mail.datagrams().filter(|(it, ..)| it.len() == LEN && it[..] == packets(4, 1));
        assert_eq!(others.count(), 20);
    }
}
