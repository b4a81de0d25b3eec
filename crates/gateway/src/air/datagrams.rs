//! Flows of datagrams: one for each client's port, or echo identifier, and destination, opened by its
//! first packet and ended by silence, as a NAT does (RFC 4787).
//!
//! What the clients' side is, interception or a SOCKS5 association, is behind [`Back`].

mod unproven;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_link::{Class, Dscp, ResetCode, Target};
use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::intake::Intake;
use super::passengers::Ticket;
use super::recent::Recent;
use super::sent::Sent;
use crate::far::datagram::{Datagram, IcmpError, MOST_HEADER_BYTES};
use crate::far::{DatagramError, FarDatagrams, OpenDatagrams};
use crate::net::ip;
use crate::police::Police;
use crate::quic::is_quic;
use crate::usage::Meter;
use unproven::Unproven;

/// Bytes of packets that wait while their flow is being opened: a QUIC client's first flight.
const MOST_WAITING_BYTES: usize = 16 * 1024;

/// Key of a packet's flow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The IP protocol's number.
    pub protocol: u8,
    /// The client, with its port; the identifier is in its place where echoes are sent, and 0 where
    /// the protocol has neither.
    pub client: SocketAddr,
    /// Destination; the port is 0 if the protocol has none.
    pub target: Target,
}

/// Reason for which a packet did not arrive.
#[derive(Debug, Clone, Copy)]
pub enum Problem {
    /// The link carries no more payload than this.
    TooLarge {
        /// The most.
        most_payload: usize,
    },
    /// The client, or all of them, have too many flows open.
    Limit,
    /// The far end ended the flow.
    Ended(ResetCode),
    /// A router or the destination said why.
    Icmp(IcmpError),
}

/// The clients' side.
pub trait Back: Send + Sync + 'static {
    /// Gives the client what came from the destination by a flow of `class`. False where it cannot
    /// take it now.
    fn deliver(&self, key: &Key, class: Class, payload: &[u8]) -> bool;

    /// Tells the client why `sent` did not arrive.
    fn explain(&self, key: &Key, sent: &Sent<'_>, problem: Problem);

    /// Returns `true` if the clients' addresses are certain: each has proved by TCP that it
    /// receives there.
    fn knows_clients(&self) -> bool {
        false
    }
}

/// The flows of one listener, or of one association. The tickets bound how many there are.
pub struct Table<B> {
    intake: Arc<Intake>,
    back: B,
    flows: Mutex<HashMap<Key, Arc<Flow>>>,
    unproven: Unproven,
    over: CancellationToken,
}

struct Flow {
    key: Key,
    class: Class,
    idle: Duration,
    /// The same until the destination has answered.
    unanswered: Duration,
    police: Option<Police>,
    is_quic: bool,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    moved_at: Instant,
    is_answered: bool,
    /// Until the flow is over.
    ticket: Option<Ticket>,
    meter: Option<Meter>,
    recent: Recent,
}

enum Stage {
    Opening(Vec<Bytes>),
    Open(Arc<dyn FarDatagrams>),
    Over,
}

/// Fate of a packet.
enum Fate {
    Gone,
    Dropped,
    /// Its passenger sends more than one may in the network's class.
    Policed,
    TooLarge(usize),
    /// The flow has ended: another one has to be opened.
    Over,
}

impl<B: Back> Table<B> {
    /// A table without flows.
    pub fn new(intake: Arc<Intake>, back: B) -> Arc<Self> {
        let (flows, unproven, over) = Default::default();
        Arc::new(Self { intake, back, flows, unproven, over })
    }

    /// The clients' side.
    pub fn back(&self) -> &B {
        &self.back
    }

    /// Ends every flow.
    pub fn close(&self) {
        self.over.cancel();
    }

    /// Returns `true` if a flow of this key is open.
    pub fn knows(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// Carries a client's packet, over a new flow where there is none. Never waits; a packet of a device
    /// that nobody knows yet is held for a moment.
    pub fn send(self: &Arc<Self>, key: Key, sent: Sent<'_>) {
        let known = self.lock().get(&key).cloned();
        if known.is_some() || self.back.knows_clients() || !self.hold(&key, &sent) {
            self.pass(known, key, sent);
        }
    }

    /// The same for a packet that has been held.
    fn send_now(self: &Arc<Self>, key: Key, sent: Sent<'_>) {
        let known = self.lock().get(&key).cloned();
        self.pass(known, key, sent);
    }

    fn pass(self: &Arc<Self>, known: Option<Arc<Flow>>, key: Key, sent: Sent<'_>) {
        let counters = &self.intake.counters;
        let mut fate = known.as_ref().map_or(Fate::Over, |flow| flow.send(sent));
        if matches!(fate, Fate::Over) {
            match self.open(key.clone(), &sent) {
                Some(flow) => fate = flow.send(sent),
                None => {
                    self.back.explain(&key, &sent, Problem::Limit);
                    return;
                }
            }
        }
        match fate {
            Fate::Gone => {
                counters.datagrams_to_far.add(1);
                counters.datagram_bytes_to_far.add(sent.payload.len() as u64);
            }
            Fate::Dropped | Fate::Over => counters.datagrams_dropped.add(1),
            Fate::Policed => counters.datagrams_policed.add(1),
            Fate::TooLarge(most_payload) => {
                counters.datagrams_too_large.add(1);
                self.back.explain(&key, &sent, Problem::TooLarge { most_payload });
            }
        }
    }

    /// Opens a flow, whose class is decided by its `first` packet and its mark.
    fn open(self: &Arc<Self>, key: Key, first: &Sent<'_>) -> Option<Arc<Flow>> {
        let intake = &self.intake;
        let is_connected = self.back.knows_clients();
        let ticket = intake.admit_datagrams(key.client.ip(), key.protocol, is_connected)?;
        let of = (key.protocol, key.client.port());
        let dscp = Dscp::from_traffic_class(first.traffic_class);
        let open = intake.open_datagrams(key.target.clone(), of, dscp, &ticket);
        let idle = intake.limits.datagram_idle(key.protocol, key.target.port);
        let flow = Flow {
            police: intake.ceil.of(open.class, ticket.number),
            is_quic: key.protocol == ip::UDP && is_quic(key.target.port, first.payload),
            unanswered: intake.limits.unanswered_idle(key.protocol, idle),
            ..Flow::new(key.clone(), open.class, idle)
        };
        let revoked = ticket.over();
        {
            let mut state = flow.lock();
            state.meter = intake.meter(&ticket, open.class);
            state.ticket = Some(ticket);
        }
        let flow = Arc::new(flow);
        self.lock().insert(key, flow.clone());
        self.intake.counters.datagram_flows.add(1);
        let (table, running, over) = (self.clone(), flow.clone(), self.over.clone());
        self.intake.flows.spawn(async move {
            let running_on = over.run_until_cancelled(table.run(&running, open));
            revoked.run_until_cancelled(running_on).await;
            table.forget(&running);
        });
        Some(flow)
    }

    /// Takes the flow out of the table, unless another has its place already.
    fn forget(&self, flow: &Arc<Flow>) {
        let ticket = {
            let mut state = flow.lock();
            state.stage = Stage::Over;
            state.ticket.take()
        };
        drop(ticket);
        let mut flows = self.lock();
        if flows.get(&flow.key).is_some_and(|known| Arc::ptr_eq(known, flow)) {
            flows.remove(&flow.key);
        }
    }

    /// Opens the flow and passes on what comes by it, until either side ends it.
    async fn run(&self, flow: &Flow, open: OpenDatagrams) {
        let far: Arc<dyn FarDatagrams> = match self.intake.far.open_datagrams(open).await {
            Ok(far) => far.into(),
            Err(error) => {
                self.intake.quiet.warn("cannot open a flow of datagrams", &error);
                self.ended(flow, error.code());
                return;
            }
        };
        if flow.is_quic && self.intake.quic_in_order {
            far.keep_order();
        }
        self.opened(flow, &far);
        loop {
            let deadline = flow.deadline();
            tokio::select! {
                received = far.receive() => match received {
                    Ok(datagram) => self.received(flow, &datagram),
                    Err(code) => return self.ended(flow, code),
                },
                () = sleep_until(deadline) => {
                    if flow.deadline() <= Instant::now() {
                        far.reset(ResetCode::Idle);
                        return;
                    }
                }
            }
        }
    }

    /// Sends what waited for the flow.
    fn opened(&self, flow: &Flow, far: &Arc<dyn FarDatagrams>) {
        let mut state = flow.lock();
        let before = std::mem::replace(&mut state.stage, Stage::Open(far.clone()));
        let Stage::Opening(waiting) = before else { return };
        for datagram in waiting {
            if let Err(DatagramError::TooLarge { most_bytes }) = far.send(&datagram) {
                let most_bytes = most_bytes.max(far.hoped_bytes());
                if datagram.len() <= most_bytes {
                    self.intake.counters.datagrams_dropped.add(1);
                    continue;
                }
                self.intake.counters.datagrams_too_large.add(1);
                let problem = Problem::TooLarge {
                    most_payload: most_bytes.saturating_sub(MOST_HEADER_BYTES),
                };
                state.recent.last().inspect(|last| self.back.explain(&flow.key, last, problem));
            }
        }
    }

    fn received(&self, flow: &Flow, datagram: &[u8]) {
        let counters = &self.intake.counters;
        match Datagram::parse(datagram) {
            Ok(Datagram::Payload(payload)) => {
                let delivered = self.back.deliver(&flow.key, flow.class, payload);
                flow.came(payload.len(), delivered);
                if delivered {
                    counters.datagrams_from_far.add(1);
                    counters.datagram_bytes_from_far.add(payload.len() as u64);
                } else {
                    counters.datagrams_dropped.add(1);
                }
            }
            Ok(Datagram::Error(error)) => {
                let state = flow.lock();
                match state.recent.quoted(error.quote) {
                    Some(sent) => self.back.explain(&flow.key, &sent, Problem::Icmp(error)),
                    None => counters.datagrams_unknown.add(1),
                }
            }
            Ok(Datagram::HopLimit(..)) | Err(_) => counters.datagrams_unknown.add(1),
        }
    }

    fn ended(&self, flow: &Flow, code: ResetCode) {
        self.intake.counters.count_reset(code);
        tracing::debug!(target = %flow.key.target, %code, "flow of datagrams ended");
        let state = flow.lock();
        let problem = Problem::Ended(code);
        state.recent.last().inspect(|last| self.back.explain(&flow.key, last, problem));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Flow>>> {
        // Nothing in here panics half-way.
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flow {
    fn new(key: Key, class: Class, idle: Duration) -> Self {
        let state = State {
            stage: Stage::Opening(Vec::new()),
            moved_at: Instant::now(),
            is_answered: false,
            ticket: None,
            meter: None,
            recent: Recent::new(key.protocol),
        };
        let unanswered = idle;
        let state = Mutex::new(state);
        Self { key, class, idle, unanswered, police: None, is_quic: false, state }
    }

    fn send(&self, sent: Sent<'_>) -> Fate {
        let mut state = self.lock();
        state.recent.keep(&sent);
        let bytes = sent.payload.len();
        let admits = |police: &Police| police.admit(bytes);
        let fate = match state.stage {
            Stage::Over => return Fate::Over,
            _ if !self.police.as_ref().is_none_or(admits) => Fate::Policed,
            _ => state.stage.send(&sent),
        };
        let gone = matches!(fate, Fate::Gone);
        if gone {
            state.moved();
        }
        if let Some(meter) = &mut state.meter {
            if gone { meter.up(bytes as u64) } else { meter.dropped() }
        }
        fate
    }

    /// A datagram came from the destination.
    fn came(&self, bytes: usize, delivered: bool) {
        let mut state = self.lock();
        state.moved();
        if !std::mem::replace(&mut state.is_answered, true)
            && let Some(ticket) = &state.ticket
        {
            ticket.answered();
        }
        if let Some(meter) = &mut state.meter {
            if delivered { meter.down(bytes as u64) } else { meter.dropped() }
        }
    }

    /// Time at which the flow ends if nothing moves until then.
    fn deadline(&self) -> Instant {
        let state = self.lock();
        state.moved_at + if state.is_answered { self.idle } else { self.unanswered }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn moved(&mut self) {
        self.moved_at = Instant::now();
        if let Some(ticket) = &self.ticket {
            ticket.activity().touch();
        }
    }
}

impl Stage {
    fn send(&mut self, sent: &Sent<'_>) -> Fate {
        match self {
            Self::Over => Fate::Over,
            Self::Opening(waiting) => {
                let bytes: usize = waiting.iter().map(Bytes::len).sum();
                if bytes + MOST_HEADER_BYTES + sent.payload.len() > MOST_WAITING_BYTES {
                    return Fate::Dropped;
                }
                waiting.push(sent.encoded().freeze());
                Fate::Gone
            }
            Self::Open(far) => {
                // None at all where the link is over: no packet is too large for that.
                let Some(most_payload) = far.most_bytes().checked_sub(MOST_HEADER_BYTES) else {
                    return Fate::Dropped;
                };
                // A payload that fits only without its hop limit would come and go.
                if sent.payload.len() > most_payload {
                    // Told is what will pass soon: the client's system remembers it for minutes.
                    let hoped = far.hoped_bytes().saturating_sub(MOST_HEADER_BYTES);
                    let soon = sent.payload.len() <= hoped;
                    return if soon {
                        Fate::Dropped
                    } else {
                        Fate::TooLarge(hoped.max(most_payload))
                    };
                }
                match far.send(&sent.encoded()) {
                    Ok(()) => Fate::Gone,
                    Err(DatagramError::Ended | DatagramError::Policed) => Fate::Dropped,
                    Err(DatagramError::TooLarge { most_bytes }) => {
                        Fate::TooLarge(most_bytes.saturating_sub(MOST_HEADER_BYTES))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::air::recent::MOST_QUOTED_BYTES;

    fn sent(payload: &[u8]) -> Sent<'_> {
        Sent { hop_limit: 64, traffic_class: 0, payload, cut_bytes: 0 }
    }

    fn flow() -> Flow {
        let target: Target = "192.0.2.1:9".parse().unwrap();
        let client = "10.0.0.1:9".parse().unwrap();
        let key = Key { protocol: ip::UDP, client, target };
        Flow::new(key, Class::BestEffort, Duration::from_secs(1))
    }

    #[test]
    fn no_more_of_a_packet_is_kept_than_is_quoted() {
        let flow = flow();
        assert!(matches!(flow.send(sent(&[7; 60_000])), Fate::Dropped));
        let state = flow.lock();
        let last = state.recent.last().unwrap();
        assert_eq!((last.payload.len(), last.cut_bytes), (MOST_QUOTED_BYTES, 60_000 - 1280));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_sent_keeps_no_flow_alive() {
        let flow = flow();
        let first = flow.deadline();
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(matches!(flow.send(sent(&[0; 60_000])), Fate::Dropped));
        assert_eq!(flow.deadline(), first);
        assert!(matches!(flow.send(sent(b"small")), Fate::Gone));
        assert_eq!(flow.deadline(), first + Duration::from_millis(500));
    }
}
