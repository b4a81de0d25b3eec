//! The association of two gateways: all their connections under one pair of packet keys. Packets
//! in, packets out; no sockets, no clock.
//!
//! Connections take turns, one packet each, without further pacing or scheduling. Their windows
//! decide how much each may send (section V.C). The aircraft's modem and the satellite's queue see
//! all packets that the windows allow.

mod turns;
mod used;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::{ResetCode, Target};
use bentpipe_link::secure::{DataHeader, Keychain, Keys};
use bentpipe_link::{Class, FlowEvent, Flows, OpenError, Read, Write};
use bentpipe_units::BitRate;

use crate::conn::{Connection, InitialState, Pools};
use crate::pool::Pool;
use crate::segment::{Ack, Kind, MAX_CONNECTION, Opening, Segment};
use crate::settings::{Buffers, Settings};
use used::UsedNumbers;

/// Connection number of the association itself.
const ASSOCIATION: u64 = 0;
/// Time in round trips for which the old keys still open packets after a key change.
const OLD_KEYS_ROUND_TRIPS: u32 = 3;
/// Number of goodbyes sent. Nobody confirms them.
const GOODBYES: u32 = 3;
/// Maximum number of queued replies to segments of unknown or refused connections. Replies beyond
/// it are dropped, and the peer asks again.
const MAX_REPLIES: usize = 256;
/// Maximum number of remembered finished connections, which acknowledge a repeated FIN: 16 KiB.
const MAX_COMPLETED: usize = 1024;
/// Silence in round trips, and at least [`MIN_SILENCE`], after which an unanswered packet triggers
/// a new handshake.
const SILENT_ROUND_TRIPS: u32 = 4;
const MIN_SILENCE: Duration = Duration::from_secs(3);

/// Parameters of the peer from the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerParams {
    /// Sending rate of the peer.
    pub bandwidth: BitRate,
    /// Receive window of a new connection at the peer, bytes.
    pub window: u32,
    /// Maximum number of open connections at the peer.
    pub max_connections: u32,
}

/// Counters of an association.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub packets_sent: u64,
    /// Authenticated packets received.
    pub packets_received: u64,
    /// Packets that were authentic but had invalid content.
    pub violations: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Open connections.
    pub connections: usize,
    /// Buffered bytes: unacknowledged or unread.
    pub held_bytes: usize,
}

/// One end of an association.
pub struct Session {
    settings: Settings,
    peer: PeerParams,
    opens: bool,
    keys: Keychain,
    address: SocketAddr,
    round_trip: Duration,
    next_packet: u64,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    /// Connection numbers that were used. None is reused.
    used: UsedNumbers,
    live: u32,
    pools: Pools,
    /// Connections that may have something to send, in turn, without duplicates.
    ready: VecDeque<u64>,
    in_ready: BTreeSet<u64>,
    /// Deadlines of connections.
    timers: BTreeSet<(Duration, u64)>,
    timer_of: BTreeMap<u64, Duration>,
    events: VecDeque<FlowEvent>,
    replies: VecDeque<(u64, Ack, Kind<'static>)>,
    /// Connections that finished last, with their final acknowledgement.
    completed: VecDeque<(u64, u64)>,
    last_sent: Duration,
    last_heard: Duration,
    /// Time since which an answer is overdue.
    owed_since: Option<Duration>,
    goodbyes_left: u32,
    closing: bool,
    closed: bool,
    counters: Counters,
    plaintext: Vec<u8>,
}

impl Session {
    /// Creates an association under its first keys, with the peer at `address`. `opens` is `true`
    /// at the air gateway.
    pub(crate) fn new(
        settings: Settings,
        opens: bool,
        peer: PeerParams,
        keys: Keys,
        address: SocketAddr,
        now: Duration,
    ) -> Self {
        let half = usize::try_from(settings.memory.bytes() / 2).unwrap_or(usize::MAX);
        let mut session = Self {
            round_trip: settings.rtt,
            keys: Keychain::new(keys, settings.key_lifetime),
            settings,
            peer,
            opens,
            address,
            next_packet: 0,
            connections: BTreeMap::new(),
            next_connection: ASSOCIATION + 1,
            used: UsedNumbers::default(),
            live: 0,
            pools: Pools { send: Pool::new(half), receive: Pool::new(half) },
            ready: VecDeque::new(),
            in_ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            timer_of: BTreeMap::new(),
            events: VecDeque::new(),
            replies: VecDeque::new(),
            completed: VecDeque::new(),
            last_sent: now,
            last_heard: now,
            owed_since: None,
            goodbyes_left: GOODBYES,
            closing: false,
            closed: false,
            counters: Counters::default(),
            plaintext: Vec::new(),
        };
        session.ask();
        session
    }

    /// Continues under new keys of the same two instances.
    pub(crate) fn rekey(
        &mut self,
        keys: Keys,
        peer: PeerParams,
        address: SocketAddr,
        now: Duration,
    ) {
        self.keys.replace(keys, self.round_trip * OLD_KEYS_ROUND_TRIPS, now);
        (self.peer, self.address) = (peer, address);
        (self.last_heard, self.owed_since) = (now, None);
        self.ask();
    }

    /// Sends a packet under new keys, which proves them to the ground gateway.
    fn ask(&mut self) {
        if self.opens {
            self.reply(ASSOCIATION, Kind::Plain { ask: true });
        }
    }

    /// Key indices of packets for this association.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        self.keys.indices()
    }

    /// The measured round trip, or the configured one before a measurement.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Counters of the association.
    pub fn counters(&self) -> Counters {
        let open = self.connections.values().map(Connection::timeouts).sum::<u64>();
        Counters {
            timeouts: self.counters.timeouts + open,
            connections: self.connections.len(),
            held_bytes: self.pools.send.in_use() + self.pools.receive.in_use(),
            ..self.counters
        }
    }

    /// Buffers of a new connection.
    pub fn buffers(&self) -> Buffers {
        self.settings.buffers(self.peer.bandwidth)
    }

    /// Returns `true` at the air gateway.
    pub fn is_air(&self) -> bool {
        self.opens
    }

    /// Returns `true` if the keys should be replaced, or the peer is silent.
    pub(crate) fn wants_handshake(&self, now: Duration) -> bool {
        self.keys.needs_rekey(now) || self.silent_at().is_some_and(|at| at <= now)
    }

    fn silent_at(&self) -> Option<Duration> {
        let patience = (self.round_trip * SILENT_ROUND_TRIPS).max(MIN_SILENCE);
        self.owed_since.map(|since| since + patience)
    }

    /// Returns `true` if either side has sent a goodbye.
    pub fn is_closed(&self) -> bool {
        self.closed || (self.closing && self.goodbyes_left == 0)
    }

    /// Sends goodbyes with the next packets.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Ends all connections with the association.
    pub(crate) fn end_all(&mut self) {
        let Self { connections, pools, events, .. } = self;
        for (id, connection) in connections {
            connection.lose(pools);
            events.push_back(FlowEvent::Wake(*id));
        }
    }

    /// Next event for the owner of a connection.
    pub fn next_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    /// Opens a connection to `target`. The SYN carries as much of `first` as fits. Returns the
    /// connection's number, and the number of bytes accepted.
    pub fn open(
        &mut self,
        target: &Target,
        class: Class,
        passenger: u32,
        first: &[u8],
        now: Duration,
    ) -> Result<(u64, usize), OpenError> {
        let most = self.settings.max_connections.min(self.peer.max_connections);
        if self.connections.len() >= most as usize || self.next_connection == MAX_CONNECTION {
            return Err(OpenError::TooManyFlows(most as usize));
        }
        let opening = Opening { target: target.clone(), class, passenger };
        opening.target.encode(&mut Vec::new())?;
        let id = self.next_connection;
        self.next_connection += 1;
        let made = self.made(now);
        let connection = Connection::open(id, opening, self.peer.window.into(), made);
        self.connections.insert(id, connection);
        self.settle(id, false);
        let taken = match self.write(id, first, now) {
            Write::Taken(taken) => taken,
            _ => 0,
        };
        self.touch(id, now);
        Ok((id, taken))
    }

    fn act(&mut self, id: u64, now: Duration, act: impl FnOnce(&mut Connection, &mut Pools)) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let was_live = connection.is_live();
            act(connection, &mut self.pools);
            self.settle(id, was_live);
            self.touch(id, now);
        }
    }

    fn made(&self, now: Duration) -> InitialState {
        let (buffers, rtt) = (self.buffers(), self.round_trip);
        InitialState { buffers, rtt, found_live: self.live + 1, now }
    }

    /// Opens a packet for this association into `plaintext`.
    pub(crate) fn unseal(
        &mut self,
        header: &DataHeader,
        sealed: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> bool {
        self.keys.open(header, sealed, plaintext)
    }

    /// Handles the content of an authenticated packet.
    pub(crate) fn receive(&mut self, plaintext: &[u8], now: Duration) {
        self.last_heard = now;
        self.owed_since = None;
        self.counters.packets_received += 1;
        let Ok(segment) = Segment::parse(plaintext) else {
            self.counters.violations += 1;
            return;
        };
        if segment.connection == ASSOCIATION {
            match segment.kind {
                Kind::Plain { ask: true } => self.reply(ASSOCIATION, Kind::Plain { ask: false }),
                Kind::Reset { .. } => self.closed = true,
                Kind::Plain { ask: false } | Kind::Data(_) => {}
            }
            return;
        }
        let id = segment.connection;
        if !self.connections.contains_key(&id) && !self.take_new(&segment, now) {
            return;
        }
        let window = self.window_of(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (was_live, opened_before) = (connection.is_live(), connection.opening().is_some());
        if connection.receive(&segment, window, &mut self.pools, now).is_err() {
            self.counters.violations += 1;
            connection.reset(ResetCode::Internal, &mut self.pools, now);
        }
        let opening = connection.opening().filter(|_| !opened_before).cloned();
        if let Some(Opening { target, class, passenger }) = opening {
            self.events.push_back(FlowEvent::Opened { flow: id, target, class, passenger });
        }
        self.events.push_back(FlowEvent::Wake(id));
        self.settle(id, was_live);
        self.touch(id, now);
    }

    /// Creates a connection for a segment with a new number: its SYN, or data after a lost SYN.
    /// Returns `false` if the segment was answered or dropped instead.
    fn take_new(&mut self, segment: &Segment<'_>, now: Duration) -> bool {
        let id = segment.connection;
        if let Kind::Reset { ask, code } = segment.kind {
            if ask {
                self.reply(id, Kind::Reset { code, ask: false });
                self.used.insert(id);
            }
            return false;
        }
        if let Some((_, number)) = self.completed.iter().find(|(finished, _)| *finished == id) {
            let ack = Ack { number: *number, ..Ack::default() };
            if matches!(segment.kind, Kind::Data(_)) && self.replies.len() < MAX_REPLIES {
                self.replies.push_back((id, ack, Kind::Plain { ask: false }));
            }
            return false;
        }
        if self.opens || self.used.contains(id) {
            // The connection is gone here. A mere acknowledgement needs no reply.
            if !matches!(segment.kind, Kind::Plain { ask: false }) {
                self.reply(id, Kind::Reset { code: GONE, ask: true });
            }
            return false;
        }
        if !matches!(segment.kind, Kind::Data(_)) {
            return false;
        }
        if self.connections.len() >= self.settings.max_connections as usize {
            self.reply(id, Kind::Reset { code: ResetCode::Limit, ask: true });
            return false;
        }
        let made = self.made(now);
        self.connections.insert(id, Connection::accept(id, made));
        true
    }

    fn reply(&mut self, id: u64, kind: Kind<'static>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((id, Ack::default(), kind));
        }
    }

    /// Congestion window of a connection in packets.
    fn window_of(&self, id: u64) -> u32 {
        let found = self.connections.get(&id).map_or(1, Connection::found_live);
        match self.settings.window {
            crate::Window::Table(_) => self.settings.window_packets(found),
            crate::Window::Static { .. } | crate::Window::Adaptive => {
                self.settings.window_packets(self.live)
            }
        }
    }

    /// Updates the number of open connections after a change. If windows widen by it, all
    /// connections may send.
    fn settle(&mut self, id: u64, was_live: bool) {
        let is_live = self.connections.get(&id).is_some_and(Connection::is_live);
        self.live = self.live + u32::from(is_live) - u32::from(was_live);
        if was_live && !is_live && self.settings.window == crate::Window::Adaptive {
            let all: Vec<u64> = self.connections.keys().copied().collect();
            all.into_iter().for_each(|id| self.make_ready(id));
        }
    }
}

impl Flows for Session {
    fn write(&mut self, id: u64, data: &[u8], now: Duration) -> Write {
        let Some(connection) = self.connections.get_mut(&id) else { return Write::Reset(GONE) };
        let written = connection.write(data, &mut self.pools.send);
        self.touch(id, now);
        written
    }

    fn read(&mut self, id: u64, buffer: &mut [u8], now: Duration) -> Read {
        let Some(connection) = self.connections.get_mut(&id) else { return Read::Reset(GONE) };
        let read = connection.read(buffer, &mut self.pools.receive);
        if matches!(read, Read::Taken(_)) {
            self.touch(id, now);
        }
        read
    }

    fn finish(&mut self, id: u64, now: Duration) {
        self.act(id, now, |connection, _| connection.finish());
    }

    fn reset(&mut self, id: u64, code: ResetCode, now: Duration) {
        self.act(id, now, |connection, pools| connection.reset(code, pools, now));
    }

    fn stop_reading(&mut self, id: u64, code: ResetCode, now: Duration) {
        self.act(id, now, |connection, pools| connection.stop_reading(code, pools));
    }

    fn release(&mut self, id: u64, now: Duration) {
        self.act(id, now, |connection, pools| connection.release(pools, now));
    }

    /// Any change to a connection gives it a turn.
    fn has_news(&mut self, _: Duration) -> bool {
        !self.ready.is_empty()
    }
}

/// Reset code for a connection that does not exist here.
const GONE: ResetCode = ResetCode::Aborted;

#[cfg(test)]
mod tests;
