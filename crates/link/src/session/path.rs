//! One radio path: packet numbers, round trip, pacing, and the peer's address on it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_units::BitRate;

use crate::congestion::{BURST_PACKETS, Congestion, News, PERSISTENT_TIMEOUTS, Saved};
use crate::memory::{Observed, Remembered, Reported};
use crate::pacer::Pacer;
use crate::rtt::Rtt;
use crate::settings::{Control, Settings};
use crate::wire::frame::Challenge;
use crate::wire::header::DATA_OVERHEAD_BYTES;
use crate::wire::report::Report;

/// Packets remembered until they are judged: 24 bytes each, 1.5 MiB a path. One that was sent
/// longer ago gives no round-trip sample, and is no more in flight.
const MAX_SENT: usize = 1 << 16;
/// By how many packets a late one may come and still be waited for.
const MAX_LATE_BY: u64 = 64;

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
    /// The congestion controller, where the path is not leased.
    pub congestion: Option<Congestion>,
    /// The rate that is never exceeded.
    cap: BitRate,
    pub observed: Observed,
    /// The oldest packet that asked for an answer since the peer was last heard.
    pub waiting_since: Option<Duration>,
    pub last_sent: Duration,
    peer_largest: Option<u64>,
    peer_received: u64,
    peer_marked: u64,
    /// Reordering the peer sees, in packets.
    pub peer_late_by: u64,

    pub largest: Option<(u64, Duration)>,
    pub received: u64,
    /// Received packets that came marked Congestion Experienced.
    pub marked: u64,
    late_by: u64,

    pub ping: bool,
    pub response: Option<Challenge>,
    pub candidate: Option<Candidate>,
}

/// A packet that left.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Duration,
    /// IP bytes that count as in flight; 0 where nobody answers.
    bytes: u32,
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
    /// A path to `peer`, with what is remembered of it from an earlier session.
    pub fn new(
        id: u8,
        peer: SocketAddr,
        settings: &Settings,
        remembered: Option<&Remembered>,
        now: Duration,
    ) -> Self {
        let remembered = remembered.filter(|it| it.is_fresh(now));
        let saved = remembered.map(|it| Saved {
            window_bytes: it.window_bytes(),
            rtt: it.rtt,
            until: it.expires(),
        });
        let controlled = settings.control == Control::Congestion;
        let mut path = Self {
            id,
            peer,
            rtt: Rtt::guess(remembered.map_or(settings.initial_rtt, |it| it.rtt)),
            pacer: Pacer::new(settings.rate, settings.mtu_bytes),
            mtu_bytes: settings.mtu_bytes,
            next_packet: 0,
            sent: VecDeque::new(),
            congestion: controlled.then(|| Congestion::new(settings.mtu_bytes, saved, now)),
            cap: settings.rate,
            observed: Observed::default(),
            waiting_since: None,
            last_sent: now,
            peer_largest: None,
            peer_received: 0,
            peer_marked: 0,
            peer_late_by: 0,
            largest: None,
            received: 0,
            marked: 0,
            late_by: 0,
            ping: false,
            response: None,
            candidate: None,
        };
        path.pacer.is_open(now);
        if controlled {
            path.pacer.allow_burst(BURST_PACKETS, settings.mtu_bytes);
            path.repace(now);
        }
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

    /// A packet of `bytes` on the wire leaves.
    pub fn sent(&mut self, asks_for_report: bool, bytes: usize, now: Duration) {
        self.next_packet += 1;
        if self.sent.len() == MAX_SENT {
            self.forget_oldest();
        }
        let bytes = if asks_for_report { bytes } else { 0 };
        self.sent.push_back(Sent { at: now, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
        if let Some(congestion) = self.congestion.as_mut().filter(|_| asks_for_report) {
            congestion.sent(bytes);
        }
        self.last_sent = now;
        if asks_for_report && self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
    }

    /// Whether the path takes another symbol: always, where it is leased.
    pub fn takes_more(&self) -> bool {
        self.congestion.as_ref().is_none_or(Congestion::is_open)
    }

    /// Paces at what the congestion controller says, within the cap.
    fn repace(&mut self, now: Duration) {
        if let Some(congestion) = &self.congestion {
            let rate = congestion.pacing_rate(self.rtt.get());
            self.pacer.set_rate(rate.min(self.cap), now);
        }
    }

    /// The oldest packet has not been judged, and will not be.
    fn forget_oldest(&mut self) {
        let oldest = self.next_packet - 1 - self.sent.len() as u64;
        let judged = self.peer_largest.is_some_and(|largest| oldest <= largest);
        let gone = self.sent.pop_front().filter(|_| !judged);
        if let Some((congestion, gone)) = self.congestion.as_mut().zip(gone) {
            congestion.forgotten(gone.bytes as usize);
        }
    }

    fn sent_at(&self, packet: u64) -> Option<Sent> {
        let first = self.next_packet - self.sent.len() as u64;
        self.sent.get(usize::try_from(packet.checked_sub(first)?).ok()?).copied()
    }

    /// A packet came, marked or not; `true` when it is the newest.
    pub fn came(&mut self, packet: u64, ce: bool, now: Duration) -> bool {
        self.received += 1;
        self.marked += u64::from(ce);
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
    /// one, or `None` when it speaks of packets that were never sent or counts what cannot be.
    pub fn reported(&mut self, report: &Report, now: Duration) -> Option<(u64, u64)> {
        let impossible = report.received > report.largest + 1 || report.marked > report.received;
        if report.largest >= self.next_packet || impossible {
            return None;
        }
        self.peer_late_by = report.late_by.min(MAX_LATE_BY);
        let before = self.peer_largest;
        if before.is_some_and(|before| report.largest <= before) {
            return Some((0, 0));
        }
        let newest = self.sent_at(report.largest);
        let sample = newest.map(|sent| now.saturating_sub(sent.at).saturating_sub(report.age));
        if let Some(sample) = sample {
            self.rtt.sample(sample);
        }
        let first = before.map_or(0, |before| before + 1);
        let judged = report.largest + 1 - first;
        let arrived = report.received.saturating_sub(self.peer_received).min(judged);
        let marked = report.marked.saturating_sub(self.peer_marked).min(arrived);
        self.peer_largest = Some(report.largest);
        self.peer_received = report.received.max(self.peer_received);
        self.peer_marked = report.marked.max(self.peer_marked);
        let mut news = self.judge(first, report.largest, judged - arrived, marked);
        (news.now, news.sample) = (now, sample);
        self.learn(&news, judged, judged - arrived);
        Some((judged - arrived, judged))
    }

    /// What packets `first ..= largest` come to, of which `lost` did not come through and `marked`
    /// came marked. Counts do not say which: the lost are taken to be the oldest, so that a report
    /// which straddles the begin of a recovery belongs to it.
    fn judge(&self, first: u64, largest: u64, lost: u64, marked: u64) -> News {
        let kept = self.next_packet - self.sent.len() as u64;
        let range = (first.max(kept)..=largest).filter_map(|packet| self.sent_at(packet));
        let bytes: u64 = range.map(|sent| u64::from(sent.bytes)).sum();
        let judged = largest + 1 - first;
        let lost_bytes = (u128::from(bytes) * u128::from(lost) / u128::from(judged)) as u64;
        let sent_time = |packet| self.sent_at(packet).map(|sent| sent.at);
        let congested = lost.max(marked);
        let congested_sent = (congested > 0).then(|| sent_time(first + congested - 1)).flatten();
        // Only where the newest alone came is it known that those before it were lost in a row.
        let starved = if judged - lost == 1 && lost > 1 {
            sent_time(largest - 1).zip(sent_time(first)).map(|(to, from)| to.saturating_sub(from))
        } else {
            None
        };
        News {
            srtt: self.rtt.get(),
            largest,
            largest_sent: sent_time(largest).unwrap_or_default(),
            next: self.next_packet,
            delivered_bytes: bytes - lost_bytes,
            lost_bytes,
            congested_sent,
            starved: starved.unwrap_or_default(),
            persistent: self.rtt.overdue_after() * PERSISTENT_TIMEOUTS,
            ..News::default()
        }
    }

    fn learn(&mut self, news: &News, judged: u64, lost: u64) {
        let News { now, sample, srtt, delivered_bytes, .. } = *news;
        self.observed.reported(&Reported { now, sample, srtt, judged, lost, delivered_bytes });
        if let Some(congestion) = &mut self.congestion {
            congestion.reported(news);
            self.repace(now);
        }
    }
}
