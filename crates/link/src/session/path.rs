//! One radio path: packet numbers, round trip, pacing, and the peer's address on it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::arrivals::{Arrivals, MAX_LATE_BY};
use crate::lane::Lane;
use crate::pacer::Pacer;
use crate::redundancy::{Estimator, Fate};
use crate::rtt::Rtt;
use crate::settings::Settings;
use crate::wire::frame::Challenge;
use crate::wire::header::DATA_OVERHEAD_BYTES;
use crate::wire::report::Report;

/// Sent packets remembered until they are judged: 40 bytes each, 2.5 MiB a path. Of a packet that
/// was sent longer ago nothing is learned.
const MAX_SENT: usize = 1 << 16;
/// Packets that left no more than so many packet times apart may fall to one burst.
const TRAIN_PACKET_TIMES: u32 = 2;
/// A train is not torn by a timer that fires so late.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

/// A path's state in both directions.
pub struct Path {
    pub id: u8,
    pub peer: SocketAddr,
    pub rtt: Rtt,
    pub pacer: Pacer,
    mtu_bytes: usize,

    next_packet: u64,
    /// Packets `next_packet - len ..`.
    sent: VecDeque<Sent>,
    /// The next packet whose fate is to be judged.
    unjudged: u64,
    /// What the direction towards the peer loses.
    pub estimator: Estimator,
    /// The oldest packet that asked for an answer since the peer was last heard.
    pub waiting_since: Option<Duration>,
    pub last_sent: Duration,
    peer_largest: Option<u64>,
    /// Reordering the peer sees, in packets.
    pub peer_late_by: u64,

    /// Packets of the peer's that came of late.
    pub arrivals: Arrivals,

    pub ping: bool,
    pub response: Option<Challenge>,
    pub candidate: Option<Candidate>,
}

/// A packet that left.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub at: Duration,
    /// It left right behind the one before.
    pub follows: bool,
    /// The symbol it carried.
    pub symbol: Option<(Lane, u64)>,
}

/// A packet whose fate a report tells.
#[derive(Debug, Clone, Copy)]
pub struct Judged {
    pub packet: u64,
    pub lost: bool,
    pub symbol: Option<(Lane, u64)>,
}

/// An address that the peer may have moved to; nothing but challenges goes there until it echoes one.
pub struct Candidate {
    pub address: SocketAddr,
    pub challenge: Challenge,
    pub next_try: Duration,
    pub tries_left: u32,
    pub received_bytes: usize,
    pub sent_bytes: usize,
}

impl Path {
    pub fn new(id: u8, peer: SocketAddr, settings: &Settings, now: Duration) -> Self {
        let mut path = Self {
            id,
            peer,
            rtt: Rtt::guess(settings.initial_rtt),
            pacer: Pacer::new(settings.rate, settings.mtu_bytes),
            mtu_bytes: settings.mtu_bytes,
            next_packet: 0,
            sent: VecDeque::new(),
            unjudged: 0,
            estimator: Estimator::new(),
            waiting_since: None,
            last_sent: now,
            peer_largest: None,
            peer_late_by: 0,
            arrivals: Arrivals::default(),
            ping: false,
            response: None,
            candidate: None,
        };
        path.pacer.is_open(now);
        path
    }

    /// IP and UDP headers in front of every packet.
    pub fn outer_bytes(&self) -> usize {
        // On a socket for both families IPv4 peers are written as IPv6 addresses.
        if self.peer.ip().to_canonical().is_ipv4() { 28 } else { 48 }
    }

    /// The longest plaintext that fits.
    pub fn most_plaintext(&self) -> usize {
        self.mtu_bytes - self.outer_bytes() - DATA_OVERHEAD_BYTES
    }

    /// The number that the next packet will have.
    pub fn next_packet(&self) -> u64 {
        self.next_packet
    }

    /// A packet leaves, with `symbol` in it.
    pub fn sent(&mut self, symbol: Option<(Lane, u64)>, asks_for_report: bool, now: Duration) {
        self.next_packet += 1;
        if self.sent.len() == MAX_SENT {
            self.sent.pop_front();
        }
        let train = self.pacer.rate().time_for(self.mtu_bytes as u64) * TRAIN_PACKET_TIMES;
        let follows = now.saturating_sub(self.last_sent) <= train + TIMER_GRAIN;
        self.sent.push_back(Sent { at: now, follows, symbol });
        self.last_sent = now;
        if asks_for_report && self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
    }

    fn sent_packet(&self, packet: u64) -> Option<Sent> {
        let first = self.next_packet - self.sent.len() as u64;
        self.sent.get(usize::try_from(packet.checked_sub(first)?).ok()?).copied()
    }

    /// Learns from the peer's report of this path; `false` when it speaks of packets that were
    /// never sent.
    pub fn reported(&mut self, report: &Report, now: Duration) -> bool {
        if report.largest >= self.next_packet {
            return false;
        }
        self.peer_late_by = report.late_by.min(MAX_LATE_BY);
        if self.peer_largest.is_none_or(|before| report.largest > before) {
            self.peer_largest = Some(report.largest);
            if let Some(sent) = self.sent_packet(report.largest) {
                self.rtt.sample(now.saturating_sub(sent.at).saturating_sub(report.age));
            }
        }
        true
    }

    /// The fates of packets that `report` tells and none before it did, in the order of sending.
    pub fn judge(&mut self, report: &Report) -> Vec<Judged> {
        let end = (report.largest + 1).saturating_sub(self.peer_late_by);
        let oldest = report.packets.last().map_or(end, |&(start, _)| start);
        let forgotten = self.next_packet - self.sent.len() as u64;
        let from = self.unjudged.max(oldest).max(forgotten);
        if from > self.unjudged {
            self.estimator.skip();
        }
        let mut judged = Vec::new();
        let mut runs = report.packets.iter().rev().peekable();
        for packet in from..end {
            while runs.next_if(|(_, end)| *end <= packet).is_some() {}
            let lost = runs.peek().is_none_or(|(start, _)| *start > packet);
            let Some(sent) = self.sent_packet(packet) else { break };
            self.estimator.saw(Fate { lost, follows: sent.follows });
            judged.push(Judged { packet, lost, symbol: sent.symbol });
        }
        self.unjudged = self.unjudged.max(end);
        // What is judged needs no memory but the last, which the next report may name again.
        while self.next_packet - (self.sent.len() as u64) < report.largest.min(self.unjudged) {
            self.sent.pop_front();
        }
        judged
    }
}
