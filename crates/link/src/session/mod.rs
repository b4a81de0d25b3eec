//! One session between two gateways: packets in, packets out, flows in between. No sockets, no
//! clock: `now` is the time since the program or the simulation began.

mod arrivals;
mod classes;
mod datagram;
mod fragment;
mod mtu;
mod path;
mod probe;
mod receive;
mod report;
mod sent;
mod timers;
mod transmit;

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_units::BitRate;

use crate::claim::Claim;
use crate::code::ResetCode;
use crate::congestion::Congestion;
use crate::crypto::{Keychain, Keys, Rng};
use crate::flow::{FlowEvent, FlowTable, Pressure, Read, Terms, Violation, Write};
use crate::lane::{KEPT_SYMBOLS, Lane, RecvLane, Rule, Senders};
use crate::lease::{Demand, Grant, Lease, ModemRate};
use crate::memory::Remembered;
use crate::settings::Settings;
use crate::status::Counters;
use crate::target::{Target, TargetError};
use crate::{Class, Dscp};
use fragment::{Assembly, Outgoing};
use path::Path;
use report::ReportTimer;

/// Flows are looked over for idleness so many times within their idle limit.
const REAPS_PER_LIMIT: u32 = 16;
/// Flows of datagrams: by a quarter more than what is recommended nobody is harmed.
const REAPS_PER_DATAGRAM_LIMIT: u32 = 4;
/// Old keys open late packets for so many round trips after new ones.
const OLD_KEYS_ROUND_TRIPS: u32 = 3;
/// Retained bytes for the link, in bandwidth-delay products: at 6 to 40 % loss, retransmission
/// alone fills the link only with a window of eight.
pub const WINDOW_BDPS: u64 = 8;
/// A goodbye is said so often, since nobody answers it and it may be lost.
const CLOSES: u32 = 3;
/// A window on a short path still covers timers and scheduling of 10 ms at 1 Gbit/s.
const LEAST_WINDOW_BYTES: u64 = 1 << 20;

/// Terms of the peer from the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerTerms {
    pub rate: BitRate,
    pub reserve_bytes: u32,
    /// Number of flows that it accepts; `None` if it opens none.
    pub max_flows: u32,
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
    peer: PeerTerms,
    opens: bool,
    keys: Keychain,
    path: Path,
    /// Knowledge of the path from an earlier session.
    prior: Option<Remembered>,
    send: Senders,
    recv: [RecvLane; Lane::ALL.len()],
    /// Redundancy of what is sent.
    rule: Rule,
    flows: FlowTable,
    /// The first bytes of somebody new went before a repair, or before what was lost.
    repair_waits: bool,
    next_reap: Duration,
    /// Probe timeouts in a row without news, by lane.
    probes: [u32; Lane::RELIABLE.len()],
    quiet: Option<Quiet>,
    /// Total length of the outages that are over.
    unheard: Duration,
    /// Arrival of the last symbol, until we have asked for more.
    last_symbol: Option<Duration>,
    /// Time at which the peer was last heard.
    heard_at: Duration,
    /// Memory that this end shares with other sessions is short.
    pressure: Pressure,
    closing: bool,
    closes_left: u32,
    peer_closed: bool,
    reports: ReportTimer,
    /// A body too large for one packet that has begun to leave.
    fragments: Option<Outgoing>,
    assembly: Assembly,
    rng: Rng,
    counters: Counters,
    plaintext: Vec<u8>,
    /// Mark of the last packet given.
    dscp: Dscp,
}

/// Nothing is heard from the peer: data has stopped, probes go out ever more rarely.
#[derive(Debug, Clone, Copy)]
struct Quiet {
    since: Duration,
    probe_at: Duration,
    interval: Duration,
    /// The last probe carried no symbol, so as to be small.
    bare: bool,
}

impl Session {
    /// A session under its first keys, with what is remembered of its path. `opens` is true at
    /// the air.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that a handshake gives")]
    pub(crate) fn new(
        settings: Settings,
        opens: bool,
        peer: PeerTerms,
        keys: Keys,
        address: SocketAddr,
        prior: Option<Remembered>,
        now: Duration,
        rng: Rng,
    ) -> Self {
        let prior = prior.filter(|prior| prior.is_fresh(now));
        let flows = FlowTable::new(
            Terms {
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
        let kept = settings.coded_symbols();
        let kept_of = |lane| if lane == Lane::Datagram { kept.min(KEPT_SYMBOLS) } else { kept };
        let mut session = Self {
            path: Path::new(0, address, &settings, prior.as_ref(), now),
            prior,
            send: Senders::new(kept),
            recv: Lane::ALL.map(|lane| RecvLane::new(lane, kept_of(lane), settings.mtu_bytes)),
            rule: Rule { coded: settings.coding, ..Rule::default() },
            flows,
            repair_waits: false,
            next_reap: now + reap_interval(&settings),
            probes: [0; Lane::RELIABLE.len()],
            quiet: None,
            unheard: Duration::ZERO,
            last_symbol: None,
            heard_at: now,
            pressure: Pressure::default(),
            closing: false,
            closes_left: CLOSES,
            peer_closed: false,
            reports: ReportTimer::new(),
            fragments: None,
            assembly: Assembly::default(),
            plaintext: Vec::new(),
            dscp: Dscp::DF,
            counters: Counters::default(),
            keys: Keychain::new(keys, settings.key_lifetime),
            settings,
            peer,
            opens,
            rng,
        };
        session.tune();
        session
    }

    /// The peer's flows may have no class more favoured than this.
    pub(crate) fn limit_class(&mut self, highest: Class) {
        self.flows.grant(highest);
    }

    /// Nothing more is borrowed while `pressure` is on.
    pub(crate) fn heed(&mut self, pressure: Pressure) {
        self.flows.heed(&pressure);
        self.pressure = pressure;
    }

    /// Gives back memory that makes repairs work better, and that nothing else needs.
    pub(crate) fn give_back(&mut self) {
        self.recv.iter_mut().for_each(RecvLane::give_back);
    }

    /// The same two instances have made new keys: everything goes on under them.
    pub(crate) fn rekey(&mut self, keys: Keys, peer: PeerTerms, now: Duration) {
        self.keys.replace(keys, self.path.rtt.get() * OLD_KEYS_ROUND_TRIPS, now);
        self.peer = peer;
        self.heard(now);
        self.ask(); // the first packet under the new keys proves them to the hub
        self.tune();
    }

    /// Knowledge of the path that is worth storing: what this session learned, or, before it has
    /// learned anything, what it was given.
    pub fn remembered(&self) -> Option<Remembered> {
        self.path.remembered().or(self.prior)
    }

    /// Knowledge of the path from an earlier session, as given to this one.
    pub fn prior(&self) -> Option<&Remembered> {
        self.prior.as_ref()
    }

    /// Returns `true` if packets leave as ECN-capable: a congestion controller heeds the marks.
    pub fn is_ect(&self) -> bool {
        self.path.congestion.as_ref().is_some_and(Congestion::marks_ect)
    }

    /// Mark of the last packet of [`Self::transmit`]: that of the most favoured class with content
    /// in it; EF if it holds only the network's own messages.
    pub fn dscp(&self) -> Dscp {
        self.dscp
    }

    /// Bytes that may be in flight, if a congestion controller decides that.
    pub fn congestion_window_bytes(&self) -> Option<u64> {
        self.path.congestion.as_ref().map(Congestion::window_bytes)
    }

    /// Sends something that asks for an answer, soon.
    pub fn ask(&mut self) {
        self.path.ping = true;
    }

    /// The indices under which packets for this session come.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        self.keys.indices()
    }

    /// Returns `true` if new keys should be made.
    pub fn wants_new_keys(&self, now: Duration) -> bool {
        self.keys.is_worn(now)
    }

    /// Time at which [`Self::wants_new_keys`] turns true by age.
    pub fn keys_worn_at(&self) -> Duration {
        self.keys.worn_at()
    }

    /// Returns `true` if the keys should have been replaced long ago: somebody may be dropping handshakes.
    pub fn has_overdue_keys(&self, now: Duration) -> bool {
        self.keys.is_overdue(now)
    }

    /// Time at which the peer was last heard.
    pub fn heard_at(&self) -> Duration {
        self.heard_at
    }

    /// Address to which packets go.
    pub fn address(&self) -> SocketAddr {
        self.path.peer
    }

    /// Returns `true` if nothing is heard although something was asked, or nothing can be for want of keys.
    pub fn is_quiet(&self) -> bool {
        self.quiet.is_some() || self.keys.is_used_up()
    }

    /// Length of the outage that lasts at `now`, zero while the peer is heard.
    pub fn outage(&self, now: Duration) -> Duration {
        self.quiet.map_or(Duration::ZERO, |quiet| now.saturating_sub(quiet.since))
    }

    /// Total length of all outages of this session until `now`.
    pub fn unheard(&self, now: Duration) -> Duration {
        self.unheard + self.outage(now)
    }

    /// Bytes written to a flow that have not left yet.
    pub fn unsent_bytes(&self, flow: u64) -> usize {
        self.flows.unsent_bytes_of(flow)
    }

    /// The round trip, and whether it was measured.
    pub fn round_trip(&self) -> Duration {
        self.path.rtt.get()
    }

    /// A round trip seen elsewhere, as by the handshake.
    pub fn saw_round_trip(&mut self, sample: Duration) {
        self.path.rtt.sample(sample);
        self.tune();
    }

    fn tune(&mut self) {
        let rtt = self.path.rtt.get();
        // The peer may claim any rate: it is a wish, which the receive memory limits.
        let towards_us = self.peer.rate.bytes_in(rtt).saturating_mul(WINDOW_BDPS);
        self.flows.tune(towards_us.max(LEAST_WINDOW_BYTES), rtt);
        self.flows.tell_path(rtt, self.path.pacer.rate(), self.path.mtu.current());
        self.send.datagrams.tune(rtt / 2);
    }

    /// Bytes of a lane that may wait to be reported.
    fn lane_window(&self) -> usize {
        let window = self.settings.rate.bytes_in(self.path.rtt.get()).saturating_mul(WINDOW_BDPS);
        let memory = self.settings.send_memory.bytes() / 4;
        let window = if self.pressure.is_on() { 0 } else { window };
        usize::try_from(window.max(LEAST_WINDOW_BYTES).min(memory)).unwrap_or(usize::MAX)
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

    /// Bytes of memory kept for repairs alone, at both ends of our lanes.
    pub fn coded_bytes(&self) -> u64 {
        let kept = self.send.kept_bytes();
        let coded: usize = self.recv.iter().map(RecvLane::coded_bytes).sum();
        (kept + coded) as u64
    }

    // The lease.

    /// The lease that counts now, its rate as far as the breaker lets it be used.
    pub fn lease(&mut self, now: Duration) -> Lease {
        self.path.lease.lease(now)
    }

    /// The queueing delay towards the peer, as its newest report shows it.
    pub fn queue(&self) -> Duration {
        self.path.lease.queue()
    }

    /// The modem tells what it sends at, or that nothing is known of it any more.
    pub fn set_modem_rate(&mut self, told: Option<ModemRate>, now: Duration) {
        self.path.lease.set_modem(told, now);
    }

    /// Our part of a beam into which this end sends to several; `None` where there is none. Returns
    /// whether that is another than before.
    pub(crate) fn set_part(&mut self, part: Option<BitRate>) -> bool {
        self.path.lease.set_part(part)
    }

    /// The rate that could be used for what waits.
    pub(crate) fn useful_rate(&mut self, now: Duration) -> BitRate {
        let waiting = self.flows.waiting();
        self.path.lease.useful(&waiting, self.path.rtt.get(), now)
    }

    /// Demand of the aircraft since the last call.
    pub(crate) fn take_demand(&mut self) -> Option<Demand> {
        self.path.lease.take_demand()
    }

    /// Tells the aircraft what it may send.
    pub(crate) fn grant(&mut self, grant: Grant, now: Duration) {
        self.path.lease.grant(grant, now);
    }

    // The flows' owners.

    /// Opens a flow to `target`, with as many of its first bytes as there is room for: returns it,
    /// and how many those were. The rest is to be written like any other bytes.
    pub fn open(
        &mut self,
        target: &Target,
        class: Class,
        passenger: u32,
        first: &[u8],
        now: Duration,
    ) -> Result<(u64, usize), OpenError> {
        let mut encoded = Vec::new();
        target.encode(&mut encoded)?;
        let limit = self.settings.max_flows.min(self.peer.max_flows) as usize;
        let flow = self
            .flows
            .open(encoded, class, passenger, now)
            .ok_or(OpenError::TooManyFlows(limit))?;
        let taken = match self.flows.write(flow, first, now) {
            Write::Taken(bytes) => bytes,
            _ => 0,
        };
        Ok((flow, taken))
    }

    /// Hands bytes to a flow.
    pub fn write(&mut self, flow: u64, data: &[u8], now: Duration) -> Write {
        self.flows.write(flow, data, now)
    }

    /// Takes bytes of a flow that are in order.
    pub fn read(&mut self, flow: u64, out: &mut [u8], now: Duration) -> Read {
        self.flows.read(flow, out, now)
    }

    /// No more will be written to the flow.
    pub fn finish(&mut self, flow: u64) {
        self.flows.finish(flow);
    }

    /// Adds a claim of the client to the flow, which was just opened: it travels with the opening.
    pub fn claim(&mut self, flow: u64, claim: Claim) {
        self.flows.claim(flow, claim);
    }

    /// Claim of the peer about a flow that it opened.
    pub fn claim_of(&self, flow: u64) -> Option<&Claim> {
        self.flows.claim_of(flow)
    }

    /// Confirms the peer's claim: the flow is of `class` from now on, at both ends.
    pub fn confirm(&mut self, flow: u64, class: Class, now: Duration) {
        self.flows.confirm(flow, class, now);
    }

    /// Moves what this end sends by the flow to `class` from now on, if that is no better.
    pub fn demote(&mut self, flow: u64, class: Class, now: Duration) {
        self.flows.demote(flow, class, now);
    }

    /// The class that the peer gave the flow for what was claimed of it, once it has.
    pub fn confirmed(&self, flow: u64) -> Option<Class> {
        self.flows.confirmed(flow)
    }

    /// Ends both directions of the flow at once.
    pub fn reset(&mut self, flow: u64, code: ResetCode) {
        self.flows.reset(flow, code);
    }

    /// The flow's bytes are not wanted any more; the other direction goes on.
    pub fn stop_reading(&mut self, flow: u64, code: ResetCode) {
        self.flows.stop_reading(flow, code);
    }

    /// Nobody holds the flow any more: what is finished goes on to its end, the rest is reset.
    pub fn release(&mut self, flow: u64) {
        self.flows.release(flow);
    }

    /// Next event for a flow's owner.
    pub fn next_event(&mut self) -> Option<FlowEvent> {
        self.flows.next_event()
    }

    /// Ends every flow honestly; the peer is no longer the one they were opened to.
    pub fn end_all_flows(&mut self) {
        self.flows.end_all(ResetCode::Aborted);
    }

    /// Tells the peer that the session is over, with the next packet.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// The session is over: our CLOSE has left, or the peer's has come.
    pub fn is_closed(&self) -> bool {
        self.closes_left == 0 || self.peer_closed
    }

    fn break_off(&mut self, violation: Violation) {
        let peer = self.settings.called(&self.path.peer);
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
mod tests;
