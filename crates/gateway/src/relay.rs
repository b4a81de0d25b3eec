//! Copies between a local TCP connection and a flow of the link.
//!
//! One task per flow polls both directions. An idle flow owns no buffer: bytes
//! pass through one scratch buffer per thread, and only what the far side would
//! not take at once is kept ([`SCRATCH_BYTES`] at most in each direction).

mod half;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_link::{Class, ResetCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::counters::Counters;
use crate::far::FarStream;
use crate::flows::Grip;
use crate::police::Police;
use crate::still::Stillness;
use crate::usage::Meter;
use half::{Broke, Half};

pub use half::SCRATCH_BYTES;

/// Time limits of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayLimits {
    /// With nothing moving in either direction, while the link is there, the flow ends after this.
    pub idle: Duration,
    /// A local TCP peer that does not take what waits for it is given up after this.
    pub stall: Duration,
    /// Until the far end has sent its first byte, the flow ends after this long
    /// with nothing moving, while the link is there; `None` where the far end need not speak.
    pub answer: Option<Duration>,
}

/// End of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Both directions finished.
    Finished,
    /// Broken off, by whichever side, with this reason.
    Reset(ResetCode),
}

/// Action for the ground's confirmation of a flow's class.
pub type Verdict = Box<dyn FnOnce(Class, &TcpStream) + Send>;

/// Local end of a relayed flow: a TCP connection, or a protocol over one.
pub trait Local: AsyncRead + AsyncWrite + Unpin {
    /// The connection.
    fn tcp(&self) -> &TcpStream;
}

impl Local for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Local for tokio_rustls::client::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// A flow being relayed; a future that is done when the flow is.
///
/// Dropping it early breaks both connections off, never pretending a clean end.
pub struct Relay<L: Local = TcpStream> {
    tcp: L,
    far: Box<dyn FarStream>,
    to_far: Half,
    to_tcp: Half,
    limits: RelayLimits,
    counters: Arc<Counters>,
    timer: Pin<Box<Sleep>>,
    still: Stillness,
    stalled_since: Option<Instant>,
    answered: bool,
    ended: bool,
    verdict: Option<Verdict>,
    meter: Option<Box<Meter>>,
    police: Option<Police>,
    activity: Option<Arc<Grip>>,
}

impl<L: Local> Relay<L> {
    /// Relays between `tcp` and `far`; `pending` was already read from `tcp`.
    pub fn new(
        tcp: L,
        far: Box<dyn FarStream>,
        pending: Vec<u8>,
        limits: RelayLimits,
        counters: Arc<Counters>,
    ) -> Self {
        counters.relayed.add(1);
        crate::net::size_buffers(tcp.tcp(), far.local_buffers());
        let (now, standing) = (Instant::now(), far.standing());
        let mut relay = Self {
            tcp,
            far,
            to_far: Half::holding(pending),
            to_tcp: Half::default(),
            limits,
            counters,
            timer: Box::pin(sleep_until(now)),
            still: Stillness::new(standing, now),
            stalled_since: None,
            answered: false,
            ended: false,
            verdict: None,
            meter: None,
            police: None,
            activity: None,
        };
        let deadline = relay.deadline();
        relay.timer.as_mut().reset(deadline);
        relay
    }

    /// The ground may confirm another class for this flow, and then `verdict` is to be done.
    pub fn with_verdict(mut self, verdict: Option<Verdict>) -> Self {
        self.verdict = verdict;
        self
    }

    /// Counts the flow's usage with `meter`; local TCP is the passenger's side.
    pub fn with_meter(mut self, meter: Option<Meter>) -> Self {
        self.meter = meter.map(Box::new);
        self
    }

    /// Bounds what the flow sends to the link in the network's class: beyond that it is of best
    /// effort, for good.
    pub fn with_police(mut self, police: Option<Police>) -> Self {
        self.police = police;
        self
    }

    /// Movement is noted, so that the idlest of a full table is known.
    pub fn with_activity(mut self, activity: Arc<Grip>) -> Self {
        self.activity = Some(activity);
        self
    }

    /// Counts what has gone to the link.
    fn sent(&mut self, bytes: u64) {
        self.counters.to_far_bytes.add(bytes);
        if let Some(meter) = &mut self.meter {
            meter.up(bytes);
        }
        if bytes > 0 && self.police.take_if(|police| !police.admit(bytes as usize)).is_some() {
            self.far.demote(Class::BestEffort);
            self.counters.streams_demoted.add(1);
            if let Some(meter) = &mut self.meter {
                meter.reclass(Class::BestEffort);
            }
        }
    }

    fn look_for_verdict(&mut self) {
        if self.verdict.is_some()
            && let Some(class) = self.far.class()
            && let Some(verdict) = self.verdict.take()
        {
            verdict(class, self.tcp.tcp());
            if let Some(meter) = &mut self.meter {
                meter.reclass(class);
            }
        }
    }

    fn poll_to_far(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let polled = self.to_far.poll(cx, &mut self.tcp, &mut self.far);
        self.sent(polled.wrote);
        self.note_movement(polled.wrote > 0);
        match polled.broke {
            None => Poll::Pending,
            Some(Broke::Reading) => {
                self.far.reset(ResetCode::Aborted);
                Poll::Ready(Outcome::Reset(ResetCode::Aborted))
            }
            // The peer has stopped reading; what it still sends is for the client.
            Some(Broke::Writing(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.to_far.fail();
                Poll::Pending
            }
            Some(Broke::Writing(_)) => Poll::Ready(self.far_broke()),
        }
    }

    fn poll_to_tcp(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let polled = self.to_tcp.poll(cx, &mut self.far, &mut self.tcp);
        self.counters.to_tcp_bytes.add(polled.wrote);
        if let Some(meter) = &mut self.meter {
            meter.down(polled.wrote);
        }
        self.answered |= polled.read > 0 || self.to_tcp.read_all();
        self.look_for_verdict();
        self.note_movement(polled.wrote > 0);
        match (self.to_tcp.blocked(), self.stalled_since) {
            (false, _) => self.stalled_since = None,
            (true, None) => self.stalled_since = Some(Instant::now()),
            (true, Some(_)) if polled.wrote > 0 => self.stalled_since = Some(Instant::now()),
            (true, Some(_)) => {}
        }
        match polled.broke {
            None => Poll::Pending,
            Some(Broke::Reading) => Poll::Ready(self.far_broke()),
            // Linux says EPIPE (or ENOTCONN on shutdown) when the client closed after
            // sending all it had: that much still deserves to arrive. A reset in the
            // middle is ECONNRESET, and must not look like an end.
            Some(Broke::Writing(error))
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected
                ) =>
            {
                self.to_tcp.fail();
                self.far.stop_reading(ResetCode::Aborted);
                Poll::Pending
            }
            Some(Broke::Writing(_)) => {
                self.far.reset(ResetCode::Aborted);
                Poll::Ready(Outcome::Reset(ResetCode::Aborted))
            }
        }
    }

    fn far_broke(&mut self) -> Outcome {
        Outcome::Reset(self.far.reset_code().unwrap_or(ResetCode::Internal))
    }

    fn note_movement(&mut self, moved: bool) {
        if moved {
            self.still.moved(Instant::now());
            if let Some(activity) = &self.activity {
                activity.touch();
            }
        }
    }

    /// Longest silence allowed now.
    fn patience(&self) -> Duration {
        let unanswered = self.limits.answer.filter(|_| !self.answered);
        self.limits.idle.min(unanswered.unwrap_or(Duration::MAX))
    }

    /// Time at which the flow may have to end if nothing moves until then.
    fn deadline(&self) -> Instant {
        let quiet = self.still.look_at(self.patience());
        match self.stalled_since {
            Some(since) => quiet.min(since + self.limits.stall),
            None => quiet,
        }
    }

    /// Tells if the flow has to end now, because it is silent while the link is there.
    fn is_over(&mut self, now: Instant) -> bool {
        if self.stalled_since.is_some_and(|since| since + self.limits.stall <= now) {
            return true;
        }
        if self.still.look_at(self.patience()) <= now {
            self.still.look(self.far.standing(), now);
        }
        self.still.over_at(self.patience()) <= now
    }

    /// Looks at the clock only when the timer fires: bytes moving never re-arm it,
    /// except when a stall brings the deadline nearer.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let deadline = self.deadline();
        if deadline < self.timer.deadline() {
            self.timer.as_mut().reset(deadline);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.deadline() <= now && self.is_over(now) {
                let code = if self.answered || self.limits.answer.is_none() {
                    ResetCode::Idle
                } else {
                    ResetCode::Timeout
                };
                self.far.reset(code);
                return Poll::Ready(Outcome::Reset(code));
            }
            let deadline = self.deadline();
            self.timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        if let Poll::Ready(outcome) = self.poll_to_far(cx) {
            return Poll::Ready(outcome);
        }
        if let Poll::Ready(outcome) = self.poll_to_tcp(cx) {
            return Poll::Ready(outcome);
        }
        if self.to_far.over() && self.to_tcp.over() {
            let clean = self.to_far.done() && self.to_tcp.done();
            return Poll::Ready(if clean {
                Outcome::Finished
            } else {
                Outcome::Reset(ResetCode::Aborted)
            });
        }
        self.poll_deadline(cx)
    }
}

impl<L: Local> Future for Relay<L> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = std::task::ready!(self.poll_outcome(cx));
        match outcome {
            Outcome::Finished => self.counters.finished.add(1),
            Outcome::Reset(code) => self.counters.count_reset(code),
        }
        // Where the client already has all there was, a plain close lets the kernel
        // still deliver it; everywhere else the client must see a reset.
        self.ended = self.to_tcp.over();
        Poll::Ready(outcome)
    }
}

impl<L: Local> Drop for Relay<L> {
    fn drop(&mut self) {
        if !self.ended {
            reset_on_close(self.tcp.tcp());
        }
    }
}

/// Makes the coming close of `tcp` a reset.
pub fn reset_on_close(tcp: &TcpStream) {
    // Fails only when the connection is already gone.
    let _ = tcp.set_zero_linger();
}
