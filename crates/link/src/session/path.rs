//! One radio path: packet numbers, round trip, pacing, and the peer's address on it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use crate::lease::{Control, Observation};
use crate::pacer::Pacer;
use crate::rtt::Rtt;
use crate::settings::Settings;
use crate::wire::frame::Challenge;
use crate::wire::header::DATA_OVERHEAD_BYTES;
use crate::wire::report::Report;

/// Packets whose sending is remembered for round-trip samples: 24 bytes each, 1.5 MiB a path. A
/// packet that was sent longer ago gives no sample.
const MAX_SEND_TIMES: usize = 1 << 16;
/// By how many packets a late one may come and still be waited for.
const MAX_LATE_BY: u64 = 64;

/// A path's state in both directions.
pub struct Path {
    pub id: u8,
    pub peer: SocketAddr,
    pub rtt: Rtt,
    pub pacer: Pacer,
    pub lease: Control,
    mtu_bytes: usize,

    next_packet: u64,
    /// The sending of packets `next_packet - len ..`.
    sent: VecDeque<Sent>,
    sent_bytes: u64,
    /// IP bytes of all packets up to the newest that the peer reported.
    judged_bytes: u64,
    /// The oldest packet that asked for an answer since the peer was last heard.
    pub waiting_since: Option<Duration>,
    pub last_sent: Duration,
    peer_largest: Option<u64>,
    peer_received: u64,
    /// Reordering the peer sees, in packets.
    pub peer_late_by: u64,

    pub largest: Option<(u64, Duration)>,
    pub received: u64,
    late_by: u64,

    pub ping: bool,
    pub response: Option<Challenge>,
    pub candidate: Option<Candidate>,
}

/// When a packet left, and how many bytes had left with it in all.
#[derive(Clone, Copy)]
struct Sent {
    at: Duration,
    total_bytes: u64,
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
            lease: Control::new(settings.lease, settings.rate),
            mtu_bytes: settings.mtu_bytes,
            next_packet: 0,
            sent: VecDeque::new(),
            sent_bytes: 0,
            judged_bytes: 0,
            waiting_since: None,
            last_sent: now,
            peer_largest: None,
            peer_received: 0,
            peer_late_by: 0,
            largest: None,
            received: 0,
            late_by: 0,
            ping: false,
            response: None,
            candidate: None,
        };
        path.pacer.is_open(now);
        path.follow_lease(now);
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

    /// Paces at what the lease allows now.
    pub fn follow_lease(&mut self, now: Duration) {
        let lease = self.lease.lease(now);
        self.pacer.set_rate(lease.rate, lease.framing_bytes, now);
    }

    /// A packet of `bytes` leaves.
    pub fn sent(&mut self, asks_for_report: bool, bytes: usize, now: Duration) {
        self.next_packet += 1;
        if self.sent.len() == MAX_SEND_TIMES {
            self.sent.pop_front();
        }
        self.sent_bytes += bytes as u64;
        self.sent.push_back(Sent { at: now, total_bytes: self.sent_bytes });
        self.pacer.spend(bytes);
        self.lease.sent(bytes, asks_for_report, self.rtt.get(), now);
        self.last_sent = now;
        if asks_for_report && self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
    }

    fn sending_of(&self, packet: u64) -> Option<Sent> {
        let first = self.next_packet - self.sent.len() as u64;
        self.sent.get(usize::try_from(packet.checked_sub(first)?).ok()?).copied()
    }

    /// A packet came; `true` when it is the newest.
    pub fn came(&mut self, packet: u64, now: Duration) -> bool {
        self.received += 1;
        match self.largest {
            Some((largest, _)) if packet < largest => {
                self.late_by = self.late_by.max((largest - packet).min(MAX_LATE_BY));
                false
            }
            _ => {
                self.largest = Some((packet, now));
                true
            }
        }
    }

    /// Reordering seen, for the report.
    pub fn late_by(&self) -> u64 {
        self.late_by
    }

    /// Learns from the peer's report of this path. Returns (lost, judged) packets since the last
    /// one, or `None` when it speaks of packets that were never sent or is older than the last.
    pub fn reported(&mut self, report: &Report, now: Duration) -> Option<(u64, u64)> {
        if report.largest >= self.next_packet || report.received > report.largest + 1 {
            return None;
        }
        self.peer_late_by = report.late_by.min(MAX_LATE_BY);
        let before = self.peer_largest;
        if before.is_some_and(|before| report.largest <= before) {
            return Some((0, 0));
        }
        let judged = report.largest + 1 - before.map_or(0, |before| before + 1);
        let arrived = report.received.saturating_sub(self.peer_received).min(judged);
        self.peer_largest = Some(report.largest);
        self.peer_received = report.received.max(self.peer_received);
        if let Some(sent) = self.sending_of(report.largest) {
            let rtt = now.saturating_sub(sent.at).saturating_sub(report.age);
            self.rtt.sample(rtt);
            self.lease.observe(&Observation {
                now,
                rtt,
                sent_at: sent.at,
                arrived: report.arrived,
                judged,
                lost: judged - arrived,
                judged_bytes: sent.total_bytes - self.judged_bytes,
                in_flight_bytes: self.sent_bytes - sent.total_bytes,
            });
            self.judged_bytes = sent.total_bytes;
        }
        Some((judged - arrived, judged))
    }
}
