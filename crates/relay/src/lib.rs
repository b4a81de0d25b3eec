//! Relays data between a local TCP connection and a flow of the link. At the ground the local side may be
//! a flow through a proxy instead.
//!
//! One task per flow polls both directions. An idle flow owns no buffer. Data passes through one
//! scratch buffer per thread, and a flow stores only bytes that the sink did not accept at once (at
//! most [`SCRATCH_BYTES`] in each direction).
//!
//! | module | contents |
//! |---|---|
//! | this page, `half` | the relay and its time limits |
//! | `local` | the local side of a relay |
//! | `bridge` | a relay between two flows |
//! | [`handover`], [`left`], `parts` | relays that go on in the next process |
//! | [`flows`] | tasks of flows, the table of flows and eviction from it |
//! | [`police`] | the ceiling of each passenger in the network class |
//! | [`layer`] | streams and flows of datagrams with changed operations |
//! | [`bucket`] | a token bucket |

#![forbid(unsafe_code)]

mod bridge;
pub mod bucket;
pub mod flows;
mod half;
pub mod handover;
pub mod layer;
pub mod left;
mod local;
mod parts;
pub mod police;

use bentpipe_metering::{counters, experience, usage};
use bentpipe_transport::{self as transport, still};

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_link::Class;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::counters::Counters;
use crate::experience::Exchanges;
use crate::flows::Grip;
use crate::police::PolicerHandle;
use crate::still::{Opening, Stillness};
use crate::transport::FlowStream;
use crate::usage::Meter;
use half::{Broke, Half};

pub use bridge::Bridge;
pub use half::SCRATCH_BYTES;
pub use local::{Local, reset_on_close};

/// Time limits of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayLimits {
    /// Idle time in both directions after which the flow ends. Counts only while the link is up.
    pub idle: Duration,
    /// Time after which a local TCP peer that does not read pending data is disconnected.
    pub stall: Duration,
    /// Idle time after which the flow ends if the peer has not sent a byte yet. Counts only while
    /// the link is up. `None` if the peer need not send.
    pub answer: Option<Duration>,
}

/// End of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Both directions finished.
    Finished,
    /// Broken off by either side, with this code.
    Reset(ResetCode),
}

/// Callback for the class that the ground gateway confirms.
pub type OnClassChange<L = TcpStream> = Box<dyn FnOnce(Class, &L) + Send>;

/// A flow being relayed; the future completes when the flow ends.
///
/// Dropping it early breaks off both connections; it never simulates a clean end.
pub struct Relay<L: Local = TcpStream> {
    tcp: L,
    flow: Box<dyn FlowStream>,
    to_flow: Half,
    to_tcp: Half,
    limits: RelayLimits,
    counters: Arc<Counters>,
    timer: Pin<Box<Sleep>>,
    still: Stillness,
    opening: Opening,
    stalled_since: Option<Instant>,
    answered: bool,
    ended: bool,
    on_class_change: Option<OnClassChange<L>>,
    meter: Option<Box<Meter>>,
    exchanges: Option<Box<Exchanges>>,
    /// `true` if local TCP gave up, or ended before the flow's peer did.
    is_left: bool,
    police: Option<PolicerHandle>,
    activity: Option<Arc<Grip>>,
}

impl<L: Local> Relay<L> {
    /// Relays between `tcp` and `flow`. `pending` contains bytes already read from `tcp`.
    pub fn new(
        tcp: L,
        flow: Box<dyn FlowStream>,
        pending: Vec<u8>,
        limits: RelayLimits,
        counters: Arc<Counters>,
    ) -> Self {
        counters.relayed.add(1);
        tcp.size_buffers(flow.local_buffers());
        let (now, standing) = (Instant::now(), flow.standing());
        let mut relay = Self {
            tcp,
            flow,
            to_flow: Half::holding(pending),
            to_tcp: Half::default(),
            limits,
            counters,
            timer: Box::pin(sleep_until(now)),
            still: Stillness::new(standing, now),
            opening: Opening::new(standing, now),
            stalled_since: None,
            answered: false,
            ended: false,
            on_class_change: None,
            meter: None,
            exchanges: None,
            is_left: false,
            police: None,
            activity: None,
        };
        let deadline = relay.deadline();
        relay.timer.as_mut().reset(deadline);
        relay
    }

    /// Sets the callback for a class that the ground gateway confirms for this flow.
    pub fn with_class_change(mut self, on_class_change: Option<OnClassChange<L>>) -> Self {
        self.on_class_change = on_class_change;
        self
    }

    /// Counts the flow's usage with `meter`; local TCP is the passenger's side.
    pub fn with_meter(mut self, meter: Option<Meter>) -> Self {
        self.meter = meter.map(Box::new);
        self
    }

    /// Measures the waits of the passenger, which is local TCP's side.
    pub fn with_exchanges(mut self, exchanges: Exchanges) -> Self {
        self.exchanges = Some(Box::new(exchanges.from_outages(self.flow.standing().unheard)));
        self
    }

    /// Limits the flow's rate to the link in the network class. When it exceeds the limit, the flow
    /// becomes best effort permanently.
    pub fn with_police(mut self, police: Option<PolicerHandle>) -> Self {
        self.police = police;
        self
    }

    /// Records activity in `activity`, so that a full table can find its idlest flow.
    pub fn with_activity(mut self, activity: Arc<Grip>) -> Self {
        self.activity = Some(activity);
        self
    }

    /// Counts bytes sent to the link.
    fn sent(&mut self, bytes: u64) {
        self.counters.to_link_bytes.add(bytes);
        if let Some(meter) = &mut self.meter {
            meter.up(bytes);
        }
        if bytes > 0 && self.police.take_if(|police| !police.admit(bytes as usize)).is_some() {
            self.flow.demote(Class::BestEffort);
            self.counters.streams_demoted.add(1);
            if let Some(meter) = &mut self.meter {
                meter.reclass(Class::BestEffort);
            }
            if let Some(exchanges) = &mut self.exchanges {
                exchanges.reclass(Class::BestEffort);
            }
        }
    }

    fn look_for_verdict(&mut self) {
        if self.on_class_change.is_some()
            && let Some(class) = self.flow.class()
            && let Some(on_class_change) = self.on_class_change.take()
        {
            on_class_change(class, &self.tcp);
            if let Some(meter) = &mut self.meter {
                meter.reclass(class);
            }
            if let Some(exchanges) = &mut self.exchanges {
                exchanges.confirm(class);
            }
        }
    }

    fn poll_to_flow(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let polled = self.to_flow.poll(cx, &mut self.tcp, &mut self.flow);
        self.sent(polled.wrote);
        if let Some(now) = self.note_movement(polled.wrote > 0)
            && let Some(exchanges) = &mut self.exchanges
        {
            let flow = &self.flow;
            exchanges.ask(now, || flow.standing().unheard, &self.counters.experience);
        }
        self.is_left |= self.to_flow.read_all() && !self.to_tcp.read_all();
        match polled.broke {
            None => Poll::Pending,
            Some(Broke::Reading) => {
                self.is_left = true;
                let code = self.tcp.fault();
                self.flow.reset(code);
                Poll::Ready(Outcome::Reset(code))
            }
            // The peer has stopped reading, but may still send to the client.
            Some(Broke::Writing(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.to_flow.fail();
                Poll::Pending
            }
            Some(Broke::Writing(_)) => Poll::Ready(self.flow_broke()),
        }
    }

    fn poll_to_tcp(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let polled = self.to_tcp.poll(cx, &mut self.flow, &mut self.tcp);
        self.counters.to_tcp_bytes.add(polled.wrote);
        if let Some(meter) = &mut self.meter {
            meter.down(polled.wrote);
        }
        self.answered |= polled.read > 0 || self.to_tcp.read_all();
        self.look_for_verdict();
        if let Some(now) = self.note_movement(polled.wrote > 0)
            && let Some(exchanges) = &mut self.exchanges
        {
            let flow = &self.flow;
            exchanges.answer(now, || flow.standing().unheard);
        }
        match (self.to_tcp.blocked(), self.stalled_since) {
            (false, _) => self.stalled_since = None,
            (true, None) => self.stalled_since = Some(Instant::now()),
            (true, Some(_)) if polled.wrote > 0 => self.stalled_since = Some(Instant::now()),
            (true, Some(_)) => {}
        }
        match polled.broke {
            None => Poll::Pending,
            Some(Broke::Reading) => Poll::Ready(self.flow_broke()),
            // Linux reports EPIPE (or ENOTCONN on shutdown) if the client closed after sending
            // everything. The sent bytes must still arrive. A reset is reported as ECONNRESET and
            // must not look like a clean end.
            Some(Broke::Writing(error))
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected
                ) =>
            {
                self.to_tcp.fail();
                self.is_left = true;
                self.flow.stop_reading(ResetCode::Aborted);
                Poll::Pending
            }
            Some(Broke::Writing(_)) => {
                self.is_left = true;
                let code = self.tcp.fault();
                self.flow.reset(code);
                Poll::Ready(Outcome::Reset(code))
            }
        }
    }

    fn flow_broke(&mut self) -> Outcome {
        Outcome::Reset(self.flow.reset_code().unwrap_or(ResetCode::Internal))
    }

    /// Notes that data moved, and returns when.
    fn note_movement(&mut self, moved: bool) -> Option<Instant> {
        let now = moved.then(Instant::now)?;
        self.still.moved(now);
        if let Some(activity) = &self.activity {
            activity.touch();
        }
        Some(now)
    }

    /// Maximum idle time at present.
    fn patience(&self) -> Duration {
        let unanswered = self.limits.answer.filter(|_| !self.answered);
        self.limits.idle.min(unanswered.unwrap_or(Duration::MAX))
    }

    /// Earliest time at which the flow may have to end if it stays idle.
    fn deadline(&self) -> Instant {
        let quiet = self.still.look_at(self.patience());
        let stalled = self.stalled_since.map(|since| since + self.limits.stall);
        [stalled, self.opening.look_at()].into_iter().flatten().fold(quiet, Instant::min)
    }

    /// Returns `true` if the flow must end now, because the link has been silent since before the
    /// peer could learn of the flow.
    fn is_refused(&mut self, now: Instant) -> bool {
        self.opening.look_at().is_some_and(|at| at <= now)
            && self.opening.look(self.flow.standing(), now)
    }

    /// Returns `true` if the flow must end now, because it was idle while the link was up.
    fn is_over(&mut self, now: Instant) -> bool {
        if self.stalled_since.is_some_and(|since| since + self.limits.stall <= now) {
            return true;
        }
        if self.still.look_at(self.patience()) <= now {
            self.still.look(self.flow.standing(), now);
        }
        self.still.over_at(self.patience()) <= now
    }

    /// Checks the clock only when the timer fires. Data does not re-arm the timer, unless a stall
    /// moves the deadline earlier.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let deadline = self.deadline();
        if deadline < self.timer.deadline() {
            self.timer.as_mut().reset(deadline);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.deadline() <= now && (self.is_refused(now) || self.is_over(now)) {
                let code = if self.answered || self.limits.answer.is_none() {
                    ResetCode::Idle
                } else {
                    ResetCode::Timeout
                };
                self.flow.reset(code);
                return Poll::Ready(Outcome::Reset(code));
            }
            let deadline = self.deadline();
            self.timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        if let Poll::Ready(outcome) = self.poll_to_flow(cx) {
            return Poll::Ready(outcome);
        }
        if let Poll::Ready(outcome) = self.poll_to_tcp(cx) {
            return Poll::Ready(outcome);
        }
        if self.to_flow.over() && self.to_tcp.over() {
            let clean = self.to_flow.done() && self.to_tcp.done();
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
        if let Some(mut exchanges) = self.exchanges.take() {
            exchanges.end(!self.is_left, &self.counters.experience);
        }
        // If the client already has all data, a normal close lets the kernel deliver the rest. In
        // all other cases the client must see a reset.
        self.ended = self.to_tcp.over();
        Poll::Ready(outcome)
    }
}

impl<L: Local> Drop for Relay<L> {
    fn drop(&mut self) {
        if !self.ended {
            self.tcp.abort();
        }
    }
}
