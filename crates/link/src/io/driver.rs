//! The task that moves datagrams between a socket and a core.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit};
use tokio::time::{Instant, Sleep};

use super::shared::{Shared, State};
use super::socket::Socket;
use crate::Dscp;
use crate::endpoint::{Core, Filter};

/// Buffers given to one receive call.
const RECV_BUFFERS: usize = 8;
/// Receive calls in a row before sending and timers get their turn.
const RECV_ROUNDS: usize = 8;
/// Batches put together in a row before receiving gets its turn.
const SEND_ROUNDS: usize = 16;
/// Largest UDP payload.
const MAX_DATAGRAM_BYTES: usize = 65_507;
/// Room for one datagram in a receive buffer where nothing is coalesced.
const PLAIN_BUFFER_BYTES: usize = 9_216;

/// Datagrams of one length (the last may be shorter) to one address with one mark, ECN-capable or not.
struct Batch {
    contents: Vec<u8>,
    segment: usize,
    to: SocketAddr,
    ect: bool,
    dscp: Dscp,
}

impl Batch {
    /// Its datagrams one by one.
    fn split(&self) -> impl DoubleEndedIterator<Item = Batch> + '_ {
        self.contents.chunks(self.segment).map(|datagram| Batch {
            contents: datagram.to_vec(),
            segment: datagram.len(),
            to: self.to,
            ect: self.ect,
            dscp: self.dscp,
        })
    }
}

/// Result of a look at the socket.
struct Came {
    /// Something was for this end.
    taken: bool,
    /// There may be more.
    more: bool,
}

/// Runs an end until it is closed.
pub struct Driver<C> {
    shared: Arc<Shared<C>>,
    socket: Box<dyn Socket>,
    timer: Pin<Box<Sleep>>,
    buffers: Vec<Vec<u8>>,
    filter: Option<Filter>,
    /// See [`State::called`].
    called: Arc<AtomicBool>,
    /// Put together, but the socket would block, or it ended another batch.
    pending: VecDeque<Batch>,
    sessions_seen: u64,
    send_failed: bool,
}

impl<C: Core> Driver<C> {
    pub fn new(shared: Arc<Shared<C>>, socket: Box<dyn Socket>) -> Self {
        let coalesces = socket.max_gro_segments() > 1;
        let buffer = if coalesces { MAX_DATAGRAM_BYTES } else { PLAIN_BUFFER_BYTES };
        let state = shared.lock();
        let (filter, called) = (state.core.filter(), state.called.clone());
        drop(state);
        Self {
            timer: Box::pin(tokio::time::sleep_until(Instant::now())),
            buffers: vec![vec![0; buffer]; RECV_BUFFERS],
            filter,
            called,
            pending: VecDeque::new(),
            sessions_seen: 0,
            send_failed: false,
            shared,
            socket,
        }
    }

    /// Takes what has come. Junk is dropped without the lock.
    fn receive(&mut self, cx: &mut Context<'_>) -> Came {
        let mut taken = false;
        let mut meta = [RecvMeta::default(); RECV_BUFFERS];
        for _ in 0..RECV_ROUNDS {
            let mut slices: Vec<_> = self.buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let count = match self.socket.poll_recv(cx, &mut slices, &mut meta) {
                Poll::Pending => return Came { taken, more: false },
                Poll::Ready(Ok(count)) => count,
                Poll::Ready(Err(error)) => {
                    // An ICMP error of an earlier packet, say. The peer's silence is judged elsewhere.
                    tracing::debug!(%error, "receiving failed");
                    continue;
                }
            };
            let (mut state, now) = (None, self.shared.now());
            for (buffer, meta) in self.buffers.iter().zip(&meta[..count]) {
                let ce = meta.ecn == Some(EcnCodepoint::Ce);
                let datagrams = buffer[..meta.len].chunks(meta.stride.max(1));
                let admits = |it: &&[u8]| self.filter.as_ref().is_none_or(|some| some.admits(it));
                for datagram in datagrams.filter(admits) {
                    let state = state.get_or_insert_with(|| self.shared.lock());
                    state.core.handle_datagram(datagram, meta.addr, ce, now);
                    taken = true;
                }
            }
        }
        Came { taken, more: true }
    }

    /// Returns whether nothing but junk came, no timer is due and nobody called: then there is nothing
    /// to do.
    fn is_idle(&mut self, taken: bool, cx: &mut Context<'_>) -> bool {
        let called = self.called.swap(false, Relaxed);
        let due = self.timer.as_mut().poll(cx).is_ready();
        !(taken || called || due) && self.pending.is_empty()
    }

    /// Sends what may leave; `true` when there may be more.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..SEND_ROUNDS {
            if self.pending.is_empty() {
                let mut state = self.shared.lock();
                let now = self.shared.now();
                collect(&mut state, now, &*self.socket, &mut self.pending);
            }
            let Some(batch) = self.pending.pop_front() else { return false };
            let transmit = Transmit {
                destination: batch.to,
                ecn: batch.ect.then_some(EcnCodepoint::Ect0),
                contents: &batch.contents,
                segment_size: (batch.contents.len() > batch.segment).then_some(batch.segment),
                src_ip: None,
            };
            match self.socket.try_send(&transmit, batch.dscp) {
                Ok(()) => self.send_failed = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pending.push_front(batch);
                    if self.socket.poll_writable(cx).is_pending() {
                        return false;
                    }
                }
                // Of several some may be small enough; which is not said.
                Err(_) if batch.contents.len() > batch.segment => {
                    for single in batch.split().rev() {
                        self.pending.push_front(single);
                    }
                }
                Err(error) if self.fits_smaller(&batch, &error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.send_failed, true) {
                        tracing::warn!(to = %batch.to, %error, "sending failed; retrying quietly");
                    }
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
            self.shared.lock().core.too_large(batch.to, batch.contents.len(), now)
        }
    }

    fn set_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.lock();
        let now = self.shared.now();
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
        let sessions = state.core.sessions_begun();
        drop(state);
        if came_in || sessions != self.sessions_seen {
            self.sessions_seen = sessions;
            self.shared.changed.notify_waiters();
        }
    }
}

impl<C> Drop for Driver<C> {
    /// However the driver ends, nobody waits for it: a fault must not leave flows hanging.
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

/// Puts datagrams of equal length and mark to the same address together, as far as one call can
/// send them.
fn collect<C: Core>(
    state: &mut State<C>,
    now: std::time::Duration,
    socket: &dyn Socket,
    pending: &mut VecDeque<Batch>,
) {
    // It may fall to one: the socket notices devices that cannot do it.
    let most_segments = socket.max_gso_segments();
    let mut datagram = Vec::new();
    while let Some(to) = state.core.transmit(now, &mut datagram) {
        let (length, ect) = (datagram.len(), state.core.is_ect());
        let dscp = if socket.marks() { state.core.dscp() } else { Dscp::DF };
        let last = pending.back_mut().filter(|batch| {
            let segments = batch.contents.len().div_ceil(batch.segment);
            (batch.to, batch.ect, batch.dscp) == (to, ect, dscp)
                && length <= batch.segment
                && batch.contents.len() % batch.segment == 0
                && segments < most_segments
                && batch.contents.len() + length <= MAX_DATAGRAM_BYTES
        });
        match last {
            Some(batch) => batch.contents.extend_from_slice(&datagram),
            None => {
                let contents = std::mem::take(&mut datagram);
                pending.push_back(Batch { segment: length, contents, to, ect, dscp });
            }
        }
        datagram.clear();
        if pending.len() >= SEND_ROUNDS {
            return;
        }
    }
}

impl<C: Core + Unpin> Future for Driver<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.shared.turned();
        let Came { taken, more: more_came } = this.receive(cx);
        if this.is_idle(taken, cx) {
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
