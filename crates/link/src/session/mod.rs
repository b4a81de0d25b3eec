//! One session between two gateways: packets in, packets out, flows in between.
//!
//! No sockets and no clock: `now` is the time since the program or the simulation began.
//!
//! | file | contents |
//! |---|---|
//! | `path`, `sent`, `skips`, `arrivals` | one radio path: packets, round trip, pacing |
//! | `paths`, `spread`, `copies`, `copy_queue`, `one_way` | several paths: which one carries what |
//! | `news`, `coincidence` | news of interfaces and modems; paths that lose at the same times |
//! | `volume`, `limited` | paths whose bytes are limited |
//! | `transmit`, `choose`, `fragment` | the next packet, composed when the pacer releases it |
//! | `receive`, `report`, `reporting`, `curve` | packets received, reports and their times, arrival times |
//! | `timers`, `probe`, `mtu` | timeouts, outages, the path's MTU |
//! | `streams`, `datagram`, `classes`, `leases` | calls of the flows' owners, about classes, about rates |

mod arrivals;
mod choose;
mod classes;
mod coincidence;
mod copies;
mod copy_queue;
mod curve;
mod datagram;
mod fragment;
mod leases;
mod limited;
mod mtu;
mod news;
mod one_way;
mod outage;
mod path;
mod paths;
mod probe;
mod receive;
mod report;
mod reporting;
mod sent;
mod skips;
mod spread;
mod streams;
mod timers;
mod transmit;
mod validation;
mod volume;

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::{ResetCode, TargetError};
use bentpipe_units::BitRate;

use crate::congestion::Congestion;
use crate::crypto::{Keychain, Keys, Rng};
use crate::flow::{FlowEvent, FlowLimits, FlowTable, Lending, Pressure, RESERVE_PARTS, Violation};
use crate::lane::{KEPT_SYMBOLS, Lane, RecvLane, RepairPolicy, Senders};
use crate::memory::Remembered;
use crate::settings::Settings;
use crate::status::Counters;
use crate::{Class, Dscp};
use coincidence::Coincidence;
use fragment::Assembly;
use path::Path;
pub use volume::HEADER_BYTES;

/// Number of searches for idle flows within the idle limit.
const REAPS_PER_LIMIT: u32 = 16;
/// The same for datagram flows. An excess of a quarter over the recommended limit harms nobody.
const REAPS_PER_DATAGRAM_LIMIT: u32 = 4;
/// Round trips for which old keys open late packets after a rekey.
const OLD_KEYS_ROUND_TRIPS: u32 = 3;
/// Retained bytes for the link in bandwidth-delay products. At 6 to 40 % loss, retransmission alone
/// fills the link only with a window of eight.
pub const WINDOW_BDPS: u64 = 8;
/// Number of CLOSE packets, because nobody acknowledges them and they may be lost.
const CLOSES: u32 = 3;
/// Minimum window, which covers timers and scheduling of 10 ms at 1 Gbit/s on a short path.
const MIN_WINDOW_BYTES: u64 = 1 << 20;
/// Path of the rate in the handshake, and of everything else that belongs to one path only: the
/// operator's rate, the modem, the beam, the measurements for the next session.
pub(crate) const CONFIGURED_PATH: u8 = 0;
/// Pause after which a flow's bytes are a new burst, while what a dead path carried is sent again: no
/// flow may overtake its own lost bytes.
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// Unreported packets that a lane may have in any case.
const MIN_LANE_PACKETS: u64 = 4;

/// Parameters of the peer from the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerParams {
    /// Send rate; zero if the peer learns it and wants to know when its packets arrive.
    pub rate: BitRate,
    pub reserve_bytes: u32,
    /// Number of flows that the peer accepts.
    pub max_flows: u32,
    /// Number of paths that the peer accepts.
    pub max_paths: u8,
}

/// Reason for which a flow could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The session's limit is reached.
    #[error("no more than {0} flows at once: close some, or raise the flow limit on both gateways")]
    TooManyFlows(usize),
    /// The name is too long for the wire.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is no session to the peer.
    #[error("the ground gateway has not been reached yet")]
    NotConnected,
}

/// One end of a session.
pub struct Session {
    settings: Settings,
    peer: PeerParams,
    opens: bool,
    keys: Keychain,
    /// The path in hand.
    path: Box<Path>,
    /// The other paths, at most seven.
    others: Vec<Box<Path>>,
    /// Path in hand between two calls.
    first_path: u8,
    /// End of the bulk symbols of which those of a path that may be dead are sent again on others.
    resent_below: u64,
    /// Losses over time, if there are several paths.
    coincidence: Option<Box<Coincidence>>,
    /// Number of the newest news of paths: at the aircraft its own.
    news_number: u8,
    /// Maximum number of paths that both ends permit.
    max_paths: u8,
    /// Measurements of the path from an earlier session.
    prior: Option<Remembered>,
    send: Senders,
    recv: [RecvLane; Lane::ALL.len()],
    /// Redundancy of what is sent.
    repair_policy: RepairPolicy,
    flows: FlowTable,
    /// First bytes of a new passenger went before a repair or a retransmission.
    repair_waits: bool,
    next_reap: Duration,
    /// Consecutive probe timeouts without news, by lane.
    probes: [u32; Lane::RELIABLE.len()],
    /// Total length of earlier outages.
    unheard: Duration,
    /// Arrival of the last symbol, until the next request for a report.
    last_symbol: Option<Duration>,
    /// Time of the last packet from the peer.
    heard_at: Duration,
    /// Shortage of the memory that this end shares with other sessions.
    pressure: Pressure,
    closing: bool,
    closes_left: u32,
    peer_closed: bool,
    assembly: Assembly,
    rng: Rng,
    counters: Counters,
    plaintext: Vec<u8>,
    /// DSCP of the last packet given …
    dscp: Dscp,
    /// … and its path.
    sent_on: u8,
}

impl Session {
    /// Creates a session with its first keys and earlier measurements of its path. `opens` is true
    /// at the air.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that a handshake gives")]
    pub(crate) fn new(
        settings: Settings,
        opens: bool,
        peer: PeerParams,
        keys: Keys,
        (address, path): (SocketAddr, u8),
        prior: Option<Remembered>,
        now: Duration,
        mut rng: Rng,
    ) -> Self {
        let prior = prior.filter(|prior| prior.is_fresh(now));
        let flows = FlowTable::new(
            FlowLimits {
                opens,
                max_flows: settings.max_flows.min(peer.max_flows) as usize,
                reserve: settings.flow_reserve.bytes(),
                peer_reserve: u64::from(peer.reserve_bytes),
                receive_memory: settings.receive_memory.bytes(),
                flow_send_buffer: settings.flow_send_buffer.bytes(),
                send_memory: settings.send_memory.bytes() / 2,
                flow_idle: settings.flow_idle,
                flow_unread: settings.flow_unread,
                classes: settings.classes,
                datagram_memory: settings.datagram_memory.bytes(),
                datagram_idle: settings.datagram_idle,
                lifetimes: settings.lifetimes,
            },
            now,
        );
        let first = Path::of_session(path, address, &settings, prior.as_ref(), &mut rng, now);
        let kept = settings.coded_symbols();
        let kept_of = |lane| if lane == Lane::Datagram { kept.min(KEPT_SYMBOLS) } else { kept };
        let mut session = Self {
            path: Box::new(first),
            others: Vec::new(),
            first_path: path,
            resent_below: 0,
            coincidence: None,
            news_number: 0,
            max_paths: settings.max_paths().min(peer.max_paths).max(1),
            prior,
            send: Senders::new(kept),
            recv: Lane::ALL.map(|lane| RecvLane::new(lane, kept_of(lane), settings.mtu_bytes)),
            repair_policy: RepairPolicy { coded: settings.coding, ..RepairPolicy::default() },
            flows,
            repair_waits: false,
            next_reap: now + reap_interval(&settings),
            probes: [0; Lane::RELIABLE.len()],
            unheard: Duration::ZERO,
            last_symbol: None,
            heard_at: now,
            pressure: Pressure::default(),
            closing: false,
            closes_left: CLOSES,
            peer_closed: false,
            assembly: Assembly::default(),
            plaintext: Vec::new(),
            dscp: Dscp::DF,
            sent_on: path,
            counters: Counters::default(),
            keys: Keychain::new(keys, settings.key_lifetime),
            settings,
            peer,
            opens,
            rng,
        };
        session.flows.set_pressure(&session.pressure);
        session.tune();
        session
    }

    /// Limits the classes of the peer's flows to `highest` and less favoured ones.
    pub(crate) fn limit_class(&mut self, highest: Class) {
        self.flows.limit_class(highest);
    }

    /// Sets what the session may use of the memory that it shares with others.
    pub(crate) fn set_lending(&mut self, lending: Lending) {
        self.pressure.set(lending);
    }

    /// Takes the number of writers that had to wait because other sessions need the memory.
    pub(crate) fn take_refused_writes(&mut self) -> u64 {
        self.pressure.take_refused()
    }

    /// Frees memory that only improves repairs.
    pub(crate) fn free_decoded(&mut self) {
        self.recv.iter_mut().for_each(RecvLane::free_decoded);
    }

    /// Continues under new keys that the same two instances have agreed on.
    pub(crate) fn rekey(&mut self, keys: Keys, peer: PeerParams, now: Duration) {
        self.keys.replace(keys, self.path.rtt.get() * OLD_KEYS_ROUND_TRIPS, now);
        self.peer = peer;
        self.heard(now);
        self.ask(); // the first packet under the new keys proves them to the hub
        self.tune();
    }

    /// Measurements of the path that are worth storing: this session's own, or the earlier ones
    /// before it has any. A peer that broke the protocol has none.
    pub fn remembered(&self) -> Option<Remembered> {
        let path = self.paths().find(|path| path.id == CONFIGURED_PATH);
        let own = path.and_then(Path::remembered).filter(|_| self.counters.violations == 0);
        own.or(self.prior)
    }

    /// Measurements of the path from an earlier session.
    pub fn prior(&self) -> Option<&Remembered> {
        self.prior.as_ref()
    }

    /// Returns `true` if packets are sent as ECN-capable, because a congestion controller reacts to
    /// marks.
    pub fn is_ect(&self) -> bool {
        self.path.congestion.as_ref().is_some_and(Congestion::marks_ect)
    }

    /// DSCP of the last packet of [`Self::transmit`]: that of the most favoured class in it, or EF
    /// if it holds only the network's own messages.
    pub fn dscp(&self) -> Dscp {
        self.dscp
    }

    /// Congestion window, if a congestion controller is in use.
    pub fn congestion_window_bytes(&self) -> Option<u64> {
        self.path.congestion.as_ref().map(Congestion::window_bytes)
    }

    /// Requests a report soon.
    pub fn ask(&mut self) {
        self.path.ping = true;
    }

    /// Receiver indices of packets for this session.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        self.keys.indices()
    }

    /// Returns `true` if a handshake should replace the keys.
    pub fn needs_rekey(&self, now: Duration) -> bool {
        self.keys.needs_rekey(now)
    }

    /// Time at which [`Self::needs_rekey`] turns true by age.
    pub fn rekey_at(&self) -> Duration {
        self.keys.rekey_at()
    }

    /// Returns `true` if the keys should have been replaced long ago, for example because
    /// handshakes are dropped.
    pub fn has_overdue_keys(&self, now: Duration) -> bool {
        self.keys.is_overdue(now)
    }

    /// Time of the last packet from the peer.
    pub fn heard_at(&self) -> Duration {
        self.heard_at
    }

    /// Address to which packets are sent.
    pub fn address(&self) -> SocketAddr {
        self.path.peer
    }

    /// Addresses of the peer on all paths.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.paths().map(|path| path.peer)
    }

    /// Returns `true` in an outage, or if the keys are used up.
    pub fn is_quiet(&self) -> bool {
        self.is_out() || self.keys.is_used_up()
    }

    /// Length of the present outage at `now`; zero if there is none.
    pub fn outage(&self, now: Duration) -> Duration {
        let mut used = self.paths().filter(|path| path.validation.is_none());
        let since = used.try_fold(Duration::ZERO, |latest, path| {
            path.outage.map(|outage| latest.max(outage.since))
        });
        since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Returns `true` if no path may carry data.
    pub(super) fn is_out(&self) -> bool {
        self.paths().all(|path| !path.is_live())
    }

    /// Total length of all outages of this session until `now`.
    pub fn unheard(&self, now: Duration) -> Duration {
        self.unheard + self.outage(now)
    }

    /// Bytes written to a flow that have not been sent yet.
    pub fn unsent_bytes(&self, flow: u64) -> usize {
        self.flows.unsent_bytes_of(flow)
    }

    /// Smoothed round trip.
    pub fn round_trip(&self) -> Duration {
        self.path.rtt.get()
    }

    /// Adds a round trip of the handshake.
    pub fn on_rtt_sample(&mut self, sample: Duration) {
        self.path.rtt.sample(sample);
        self.path.lease.on_round_trip(sample);
        self.tune();
    }

    fn tune(&mut self) {
        let rtt = self.longest_round_trip();
        // The peer may claim any rate; the receive memory limits the effect.
        let peers_rates = self.paths().map(|path| self.peers_rate_on(path).bps());
        let peers_rate = BitRate::from_bps(peers_rates.fold(0, u64::saturating_add));
        let towards_us = peers_rate.bytes_in(rtt).saturating_mul(WINDOW_BDPS);
        // Until all of them are reported: a flow that had to wait for them has not paused.
        let resends = self.send.reliable[Lane::Bulk as usize].is_open_below(self.resent_below);
        let pause = if resends { MAX_PAUSE } else { rtt };
        self.flows.tune(towards_us.max(MIN_WINDOW_BYTES), pause);
        self.flows.set_path(rtt, self.sum_of_rates(), self.symbol_mtu());
        self.send.datagrams.tune(self.datagrams_round_trip() / 2);
    }

    /// Returns `true` if the peer learns its rate.
    fn peer_learns(&self) -> bool {
        self.peer.rate.bps() == 0
    }

    /// Maximum unreported bytes of a lane.
    fn lane_window(&self) -> usize {
        let further =
            self.settings.paths.iter().take(self.others.len()).map(|path| path.rate.bps());
        let rate = further.fold(self.settings.rate.bps(), u64::saturating_add);
        let rate = BitRate::from_bps(rate);
        let window = rate.bytes_in(self.longest_round_trip()).saturating_mul(WINDOW_BDPS);
        let memory = self.settings.send_memory.bytes() / 4;
        let window = if self.pressure.leaves_reserves() {
            let few = MIN_LANE_PACKETS * self.settings.mtu_bytes as u64;
            (self.reserved_bytes() / RESERVE_PARTS / Lane::RELIABLE.len() as u64).max(few)
        } else {
            window.max(MIN_WINDOW_BYTES)
        };
        usize::try_from(window.min(memory)).unwrap_or(usize::MAX)
    }

    /// Counters so far, and bytes held now.
    pub fn counters(&self) -> Counters {
        let (held_bytes, coded_bytes) = (self.held_bytes(), self.coded_bytes());
        let datagrams = self.flows.datagram_counts();
        Counters {
            datagrams_sent: datagrams.sent,
            datagrams_received: datagrams.received,
            datagrams_abandoned: self.send.datagrams.abandoned(),
            datagrams_expired: datagrams.expired,
            datagrams_dropped: datagrams.dropped,
            datagrams_early: datagrams.early,
            datagrams_unknown: datagrams.unknown,
            flows: self.flows.len() as u64,
            held_bytes,
            coded_bytes,
            mtu_bytes: self.mtu_bytes() as u64,
            breaker_trips: self.path.lease.trips(),
            ..self.counters
        }
    }

    /// Bytes of memory that wait for the link, the peer or a reader.
    pub fn held_bytes(&self) -> u64 {
        let retained = self.send.retained_bytes();
        self.flows.held_bytes() + (retained + self.assembly.held_bytes()) as u64
    }

    /// Reserves of the open flows.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.flows.len() as u64 * self.settings.flow_reserve.bytes()
    }

    /// Bytes of memory kept for repairs alone, in the sending and the receiving halves.
    pub fn coded_bytes(&self) -> u64 {
        let kept = self.send.kept_bytes();
        let coded: usize = self.recv.iter().map(RecvLane::coded_bytes).sum();
        (kept + coded) as u64
    }

    /// Next event for a flow's owner.
    pub fn next_event(&mut self) -> Option<FlowEvent> {
        self.flows.next_event()
    }

    /// Resets every flow, because the peer is another instance than before.
    pub fn end_all_flows(&mut self) {
        self.flows.end_all(ResetCode::Lost);
    }

    /// Closes the session; the next packet tells the peer.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Returns `true` if the session is over: our CLOSE was sent, or the peer's was received.
    pub fn is_closed(&self) -> bool {
        self.closes_left == 0 || self.peer_closed
    }

    fn close_with(&mut self, violation: Violation) {
        let peer = self.settings.peer_label(&self.path.peer);
        tracing::warn!(%peer, %violation, "closing the session");
        self.counters.violations += 1;
        self.closing = true;
    }
}

fn reap_interval(settings: &Settings) -> Duration {
    let streams = settings.flow_idle.min(settings.flow_unread) / REAPS_PER_LIMIT;
    streams.min(settings.datagram_idle / REAPS_PER_DATAGRAM_LIMIT)
}

#[cfg(test)]
mod class_paths_tests;
#[cfg(test)]
mod news_tests;
#[cfg(test)]
mod paths_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod volume_tests;
