//! Datagram flows: one for each pair of a client's port, or echo identifier, and a destination. The
//! first packet opens a flow, and silence ends it, as in a NAT (RFC 4787).
//!
//! [`Back`] abstracts from the clients' side: interception, or a SOCKS5 association.

mod hold;
mod key;
mod unproven;

use std::collections::HashMap;
use std::sync::Arc;

use bentpipe_flow::ResetCode;
use bentpipe_link::{Class, Dscp};
use bentpipe_net::ip;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::client_packet::Sent;
use super::passengers::FlowPermit;
use super::recent::Recent;
use bentpipe_config::Idle;
use bentpipe_metering::usage::Meter;
use bentpipe_relay::police::PolicerHandle;
use bentpipe_transport::datagram::{Datagram, IcmpError, MAX_HEADER_BYTES};
use bentpipe_transport::quic::is_quic;
use bentpipe_transport::{DatagramError, FlowDatagrams, OpenDatagrams};
use bentpipe_uplink::Uplink;
pub use key::Key;
use unproven::Unproven;

/// Bytes of packets buffered while their flow is being opened: a QUIC client's first flight.
const MAX_WAITING_BYTES: usize = 16 * 1024;

/// Reason why a packet was not delivered.
#[derive(Debug, Clone, Copy)]
pub enum Problem {
    /// The packet exceeds the link's maximum payload.
    TooLarge {
        /// Maximum payload.
        max_payload: usize,
    },
    /// The client, or all clients together, have too many open flows.
    Limit,
    /// The peer ended the flow.
    Ended(ResetCode),
    /// A router or the destination reported an error.
    Icmp(IcmpError),
}

/// The clients' side of datagram flows.
pub trait Back: Send + Sync + 'static {
    /// Delivers a payload from the destination to the client, received on a flow of `class`.
    /// Returns `false` if the client cannot accept it now.
    fn deliver(&self, key: &Key, class: Class, payload: &[u8]) -> bool;

    /// Reports to the client why `sent` was not delivered.
    fn explain(&self, key: &Key, sent: &Sent<'_>, problem: Problem);

    /// Returns `true` if the clients' addresses are certain, because each has completed a TCP
    /// handshake.
    fn knows_clients(&self) -> bool {
        false
    }
}

/// Flows of one listener or one association. Tickets limit their number.
pub struct Table<B> {
    uplink: Arc<Uplink>,
    back: B,
    flows: Mutex<HashMap<Key, Arc<Flow>>>,
    unproven: Unproven,
    over: CancellationToken,
}

struct Flow {
    key: Key,
    class: Class,
    idle: Idle,
    police: Option<PolicerHandle>,
    is_quic: bool,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    moved_at: Instant,
    is_answered: bool,
    /// Held until the flow ends.
    permit: Option<FlowPermit>,
    meter: Option<Meter>,
    recent: Recent,
}

enum Stage {
    Opening(Vec<Bytes>),
    Open(Arc<dyn FlowDatagrams>),
    Over,
}

/// Result of sending a packet.
enum Fate {
    Gone,
    Dropped,
    /// Its passenger exceeds its ceiling in the network class.
    Policed,
    TooLarge(usize),
    /// The flow has ended, so another must be opened.
    Over,
}

impl<B: Back> Table<B> {
    /// Creates a table without flows.
    pub fn new(uplink: Arc<Uplink>, back: B) -> Arc<Self> {
        let (flows, unproven, over) = Default::default();
        Arc::new(Self { uplink, back, flows, unproven, over })
    }

    /// The clients' side.
    pub fn back(&self) -> &B {
        &self.back
    }

    /// Ends all flows.
    pub fn close(&self) {
        self.over.cancel();
    }

    /// Returns `true` if a flow with this key is open.
    pub fn knows(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// Sends a client's packet, on a new flow if necessary. Never waits. A packet of an unknown
    /// device is delayed briefly.
    pub fn send(self: &Arc<Self>, key: Key, sent: Sent<'_>) {
        let known = self.lock().get(&key).cloned();
        if known.is_some() || self.back.knows_clients() || !self.hold(&key, &sent) {
            self.pass(known, key, sent);
        }
    }

    /// Sends a packet that has been delayed.
    fn send_now(self: &Arc<Self>, key: Key, sent: Sent<'_>) {
        let known = self.lock().get(&key).cloned();
        self.pass(known, key, sent);
    }

    fn pass(self: &Arc<Self>, known: Option<Arc<Flow>>, key: Key, sent: Sent<'_>) {
        let counters = &self.uplink.counters;
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
                counters.datagrams_to_link.add(1);
                counters.datagram_bytes_to_link.add(sent.payload.len() as u64);
            }
            Fate::Dropped | Fate::Over => counters.datagrams_dropped.add(1),
            Fate::Policed => counters.datagrams_policed.add(1),
            Fate::TooLarge(max_payload) => {
                counters.datagrams_too_large.add(1);
                self.back.explain(&key, &sent, Problem::TooLarge { max_payload });
            }
        }
    }

    /// Opens a flow. Its class is decided by its `first` packet and that packet's mark.
    fn open(self: &Arc<Self>, key: Key, first: &Sent<'_>) -> Option<Arc<Flow>> {
        let uplink = &self.uplink;
        let is_connected = self.back.knows_clients();
        let permit = uplink.admit_datagrams(key.client.ip(), key.protocol, is_connected)?;
        let of = (key.protocol, key.client.port());
        let dscp = Dscp::from_traffic_class(first.traffic_class);
        let open = uplink.open_datagrams(key.target.clone(), of, dscp, &permit);
        let idle = uplink.limits.datagram_idle(key.protocol, key.target.port);
        let flow = Flow {
            police: uplink.ceiling.of(open.class, permit.number),
            is_quic: key.protocol == ip::UDP && is_quic(key.target.port, first.payload),
            ..Flow::new(key.clone(), open.class, idle)
        };
        let revoked = permit.over();
        {
            let mut state = flow.lock();
            state.meter = uplink.meter(&permit, open.class);
            state.permit = Some(permit);
        }
        let flow = Arc::new(flow);
        self.lock().insert(key, flow.clone());
        self.uplink.counters.datagram_flows.add(1);
        let (table, running, over) = (self.clone(), flow.clone(), self.over.clone());
        self.uplink.flows.spawn(async move {
            let running_on = over.run_until_cancelled(table.run(&running, open));
            revoked.run_until_cancelled(running_on).await;
            table.forget(&running);
        });
        Some(flow)
    }

    /// Removes the flow from the table, unless another has replaced it.
    fn forget(&self, flow: &Arc<Flow>) {
        let permit = {
            let mut state = flow.lock();
            state.stage = Stage::Over;
            state.permit.take()
        };
        drop(permit);
        let mut flows = self.lock();
        if flows.get(&flow.key).is_some_and(|known| Arc::ptr_eq(known, flow)) {
            flows.remove(&flow.key);
        }
    }

    /// Opens the flow and delivers what it receives, until either side ends it.
    async fn run(&self, flow: &Flow, open: OpenDatagrams) {
        let link_flow: Arc<dyn FlowDatagrams> =
            match self.uplink.connector.open_datagrams(open).await {
                Ok(link_flow) => link_flow.into(),
                Err(error) => {
                    self.uplink.log.warn("cannot open a flow of datagrams", &error);
                    self.ended(flow, error.code());
                    return;
                }
            };
        if flow.is_quic && self.uplink.quic_in_order {
            link_flow.keep_order();
        }
        self.opened(flow, &link_flow);
        loop {
            let deadline = flow.deadline();
            tokio::select! {
                received = link_flow.receive() => match received {
                    Ok(datagram) => self.received(flow, &datagram),
                    Err(code) => return self.ended(flow, code),
                },
                () = sleep_until(deadline) => {
                    if flow.deadline() <= Instant::now() {
                        link_flow.reset(ResetCode::Idle);
                        return;
                    }
                }
            }
        }
    }

    /// Sends the packets that waited for the flow.
    fn opened(&self, flow: &Flow, link_flow: &Arc<dyn FlowDatagrams>) {
        let mut state = flow.lock();
        let before = std::mem::replace(&mut state.stage, Stage::Open(link_flow.clone()));
        let Stage::Opening(waiting) = before else { return };
        for datagram in waiting {
            if let Err(DatagramError::TooLarge { max_bytes }) = link_flow.send(&datagram) {
                let max_bytes = max_bytes.max(link_flow.provisioned_max_bytes());
                if datagram.len() <= max_bytes {
                    self.uplink.counters.datagrams_dropped.add(1);
                    continue;
                }
                self.uplink.counters.datagrams_too_large.add(1);
                let problem =
                    Problem::TooLarge { max_payload: max_bytes.saturating_sub(MAX_HEADER_BYTES) };
                state.recent.last().inspect(|last| self.back.explain(&flow.key, last, problem));
            }
        }
    }

    fn received(&self, flow: &Flow, datagram: &[u8]) {
        let counters = &self.uplink.counters;
        match Datagram::parse(datagram) {
            Ok(Datagram::Payload(payload)) => {
                let delivered = self.back.deliver(&flow.key, flow.class, payload);
                flow.came(payload.len(), delivered);
                if delivered {
                    counters.datagrams_from_link.add(1);
                    counters.datagram_bytes_from_link.add(payload.len() as u64);
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
            Ok(Datagram::HopLimit(..) | Datagram::Number(_)) | Err(_) => {
                counters.datagrams_unknown.add(1)
            }
        }
    }

    fn ended(&self, flow: &Flow, code: ResetCode) {
        self.uplink.counters.count_reset(code);
        tracing::debug!(target = %flow.key.target, %code, "flow of datagrams ended");
        let state = flow.lock();
        let problem = Problem::Ended(code);
        state.recent.last().inspect(|last| self.back.explain(&flow.key, last, problem));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Flow>>> {
        self.flows.lock()
    }
}

impl Flow {
    fn new(key: Key, class: Class, idle: Idle) -> Self {
        let state = State {
            stage: Stage::Opening(Vec::new()),
            moved_at: Instant::now(),
            is_answered: false,
            permit: None,
            meter: None,
            recent: Recent::new(key.protocol),
        };
        let state = Mutex::new(state);
        Self { key, class, idle, police: None, is_quic: false, state }
    }

    fn send(&self, sent: Sent<'_>) -> Fate {
        let mut state = self.lock();
        state.recent.keep(&sent);
        let bytes = sent.payload.len();
        let admits = |police: &PolicerHandle| police.admit(bytes);
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

    /// Records a datagram from the destination.
    fn came(&self, bytes: usize, delivered: bool) {
        let mut state = self.lock();
        state.moved();
        if !std::mem::replace(&mut state.is_answered, true)
            && let Some(permit) = &state.permit
        {
            permit.answered();
        }
        if let Some(meter) = &mut state.meter {
            if delivered { meter.down(bytes as u64) } else { meter.dropped() }
        }
    }

    /// Time at which the flow ends if it stays idle.
    fn deadline(&self) -> Instant {
        let state = self.lock();
        state.moved_at + self.idle.of(state.is_answered)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn moved(&mut self) {
        self.moved_at = Instant::now();
        if let Some(permit) = &self.permit {
            permit.activity().touch();
        }
    }
}

impl Stage {
    fn send(&mut self, sent: &Sent<'_>) -> Fate {
        match self {
            Self::Over => Fate::Over,
            Self::Opening(waiting) => {
                let bytes: usize = waiting.iter().map(Bytes::len).sum();
                if bytes + MAX_HEADER_BYTES + sent.payload.len() > MAX_WAITING_BYTES {
                    return Fate::Dropped;
                }
                waiting.push(sent.encoded().freeze());
                Fate::Gone
            }
            Self::Open(link_flow) => {
                // If the link is down there is no maximum, so no packet counts as too large.
                let Some(max_payload) = link_flow.max_bytes().checked_sub(MAX_HEADER_BYTES) else {
                    return Fate::Dropped;
                };
                // A payload that fits only without its hop limit would be accepted erratically, so
                // it counts as too large.
                if sent.payload.len() > max_payload {
                    // Report the size that is expected to pass soon, because the client's system
                    // remembers the report for minutes.
                    let hoped = link_flow.provisioned_max_bytes().saturating_sub(MAX_HEADER_BYTES);
                    let soon = sent.payload.len() <= hoped;
                    return if soon {
                        Fate::Dropped
                    } else {
                        Fate::TooLarge(hoped.max(max_payload))
                    };
                }
                match link_flow.send(&sent.encoded()) {
                    Ok(()) => Fate::Gone,
                    Err(DatagramError::Ended | DatagramError::Policed) => Fate::Dropped,
                    Err(DatagramError::TooLarge { max_bytes }) => {
                        Fate::TooLarge(max_bytes.saturating_sub(MAX_HEADER_BYTES))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_flow::Target;

    use super::*;
    use crate::recent::MAX_QUOTED_BYTES;
    use std::time::Duration;

    fn sent(payload: &[u8]) -> Sent<'_> {
        Sent { hop_limit: 64, traffic_class: 0, payload, cut_bytes: 0 }
    }

    fn flow() -> Flow {
        let target: Target = "192.0.2.1:9".parse().unwrap();
        let client = "10.0.0.1:9".parse().unwrap();
        let key = Key { protocol: ip::UDP, client, target };
        let second = Duration::from_secs(1);
        let idle = Idle { answered: second, unanswered: second };
        Flow::new(key, Class::BestEffort, idle)
    }

    #[test]
    fn stored_packets_are_cut_to_the_quoted_length() {
        let flow = flow();
        assert!(matches!(flow.send(sent(&[7; 60_000])), Fate::Dropped));
        let state = flow.lock();
        let last = state.recent.last().unwrap();
        assert_eq!((last.payload.len(), last.cut_bytes), (MAX_QUOTED_BYTES, 60_000 - 1280));
    }

    #[tokio::test(start_paused = true)]
    async fn unsent_datagrams_do_not_keep_a_flow_alive() {
        let flow = flow();
        let first = flow.deadline();
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(matches!(flow.send(sent(&[0; 60_000])), Fate::Dropped));
        assert_eq!(flow.deadline(), first);
        assert!(matches!(flow.send(sent(b"small")), Fate::Gone));
        assert_eq!(flow.deadline(), first + Duration::from_millis(500));
    }
}
