//! The task that moves datagrams between a socket and an end.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bentpipe_link::io::Socket;
use quinn_udp::{RecvMeta, Transmit};
use tokio::time::{Instant, Sleep};

use super::shared::Shared;

/// Buffers given to one receive call.
const RECV_BUFFERS: usize = 8;
/// Receive calls in a row before sending and timers get their turn.
const RECV_ROUNDS: usize = 8;
/// Datagrams sent in a row before receiving gets its turn.
const SEND_ROUNDS: usize = 64;
/// Largest UDP payload: room for what a receive call coalesces.
const MAX_DATAGRAM_BYTES: usize = 65_507;
/// Room for one datagram in a receive buffer where nothing is coalesced.
const PLAIN_BUFFER_BYTES: usize = 9_216;

/// Runs an end until it is closed.
pub struct Driver {
    shared: Arc<Shared>,
    socket: Box<dyn Socket>,
    timer: Pin<Box<Sleep>>,
    buffers: Vec<Vec<u8>>,
    /// Put together, but the socket would block.
    pending: Option<SocketAddr>,
    datagram: Vec<u8>,
    sessions_seen: u64,
    send_failed: bool,
}

impl Driver {
    pub fn new(shared: Arc<Shared>, socket: Box<dyn Socket>) -> Self {
        let coalesces = socket.max_gro_segments() > 1;
        let buffer = if coalesces { MAX_DATAGRAM_BYTES } else { PLAIN_BUFFER_BYTES };
        Self {
            timer: Box::pin(tokio::time::sleep_until(Instant::now())),
            buffers: vec![vec![0; buffer]; RECV_BUFFERS],
            pending: None,
            datagram: Vec::new(),
            sessions_seen: 0,
            send_failed: false,
            shared,
            socket,
        }
    }

    /// Takes what has come; `true` when there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut meta = [RecvMeta::default(); RECV_BUFFERS];
        for _ in 0..RECV_ROUNDS {
            let mut slices: Vec<_> = self.buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let count = match self.socket.poll_recv(cx, &mut slices, &mut meta) {
                Poll::Pending => return false,
                Poll::Ready(Ok(count)) => count,
                Poll::Ready(Err(error)) => {
                    // An ICMP error of an earlier packet, say.
                    tracing::debug!(%error, "receiving failed");
                    continue;
                }
            };
            let mut state = self.shared.lock();
            let now = self.shared.now();
            for (buffer, meta) in self.buffers.iter().zip(&meta[..count]) {
                for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                    state.core.handle_datagram(datagram, meta.addr, now);
                }
            }
        }
        true
    }

    /// Sends what may leave; `true` when there may be more.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..SEND_ROUNDS {
            if self.pending.is_none() {
                self.datagram.clear();
                let mut state = self.shared.lock();
                let now = self.shared.now();
                self.pending = state.core.transmit(now, &mut self.datagram);
            }
            let Some(destination) = self.pending else { return false };
            let contents = &self.datagram[..];
            let transmit =
                Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None };
            match self.socket.try_send(&transmit) {
                Ok(()) => (self.send_failed, self.pending) = (false, None),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.socket.poll_writable(cx).is_pending() {
                        return false;
                    }
                }
                Err(error) => {
                    self.pending = None;
                    if !std::mem::replace(&mut self.send_failed, true) {
                        tracing::warn!(to = %destination, %error, "sending failed; retrying quietly");
                    }
                }
            }
        }
        true
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

impl Drop for Driver {
    /// However the driver ends, nobody waits for it: a fault must not leave flows hanging.
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let more_came = this.receive(cx);
        {
            let mut state = this.shared.lock();
            let now = this.shared.now();
            state.core.handle_timeout(now);
        }
        this.tell();
        let more_leaves = this.send(cx);
        this.tell();
        if this.shared.lock().closing && this.pending.is_none() && !more_leaves {
            this.shared.abandon();
            return Poll::Ready(());
        }
        if this.set_timer(cx).is_ready() || more_came || more_leaves {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
