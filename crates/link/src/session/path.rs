//! One radio path: packet numbers, round trip, pacing, and the peer's address on it.

use std::net::SocketAddr;
use std::time::Duration;

use super::arrivals::{Arrivals, MAX_LATE_BY};
use super::mtu::Mtu;
use super::sent::{Cargo, Fates, Sent, SentPackets};
use crate::Class;
use crate::congestion::{BURST_PACKETS, Congestion, News, PERSISTENT_TIMEOUTS, Saved};
use crate::lease::{Control as LeaseControl, Observation};
use crate::memory::{Observed, Remembered, Reported};
use crate::pacer::Pacer;
use crate::redundancy::{Estimator, Fate, Loss};
use crate::rtt::Rtt;
use crate::settings::{Control, MIN_RATE, Settings};
use crate::wire::frame::Challenge;
use crate::wire::header::DATA_OVERHEAD_BYTES;
use crate::wire::report::Report;

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
    pub mtu: Mtu,

    pub lease: LeaseControl,
    packets: SentPackets,
    /// IP bytes of all packets up to the newest that the peer reported.
    judged_bytes: u64,
    /// Loss of the direction towards the peer.
    pub estimator: Estimator,
    /// The congestion controller, where the path is not leased.
    pub congestion: Option<Congestion>,
    observed: Observed,
    /// The oldest packet that asked for an answer since the peer was last heard.
    pub waiting_since: Option<Duration>,
    pub last_sent: Duration,
    peer_largest: Option<u64>,
    peer_marked: u64,
    /// Reordering the peer sees, in packets.
    pub peer_late_by: u64,

    /// Packets of the peer's that came of late.
    pub arrivals: Arrivals,
    /// Received packets that came marked Congestion Experienced.
    pub marked: u64,

    pub ping: bool,
    pub response: Option<Challenge>,
    pub candidate: Option<Candidate>,
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
        let loss = remembered.map(|it| Loss::in_bursts(it.loss, it.burst));
        let controlled = settings.control == Control::Congestion;
        let mut path = Self {
            id,
            peer,
            rtt: Rtt::guess(remembered.map_or(settings.initial_rtt, |it| it.rtt)),
            pacer: Pacer::new(settings.rate),
            mtu: Mtu::new(settings.mtu_bytes, now),
            lease: LeaseControl::new(settings.lease, settings.rate),
            packets: SentPackets::default(),
            judged_bytes: 0,
            estimator: loss.map_or_else(Estimator::new, Estimator::remembering),
            congestion: controlled.then(|| Congestion::new(settings.mtu_bytes, saved, now)),
            observed: Observed::default(),
            waiting_since: None,
            last_sent: now,
            peer_largest: None,
            peer_marked: 0,
            peer_late_by: 0,
            arrivals: Arrivals::default(),
            marked: 0,
            ping: false,
            response: None,
            candidate: None,
        };
        path.pacer.is_open(now);
        if controlled {
            path.pacer.allow_burst(BURST_PACKETS, settings.mtu_bytes);
        }
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
        self.plaintext_of(self.mtu.current())
    }

    /// The longest that may fit soon: see [`Mtu::hoped`].
    pub fn hoped_plaintext(&self) -> usize {
        self.plaintext_of(self.mtu.hoped())
    }

    /// The plaintext that makes a packet of `bytes`, of which there are at least
    /// [`MIN_MTU_BYTES`](crate::settings::MIN_MTU_BYTES).
    pub fn plaintext_of(&self, bytes: usize) -> usize {
        bytes - self.outer_bytes() - DATA_OVERHEAD_BYTES
    }

    /// The packet that a plaintext makes, in bytes with its IP header.
    pub fn bytes_of(&self, plaintext: usize) -> usize {
        plaintext + self.outer_bytes() + DATA_OVERHEAD_BYTES
    }

    /// The number that the next packet will have.
    pub fn next_packet(&self) -> u64 {
        self.packets.next()
    }

    /// A packet of `bytes` with its IP header leaves, which `class` pays for, or nobody.
    pub fn sent(&mut self, cargo: Cargo, bytes: usize, class: Option<Class>, now: Duration) {
        self.mtu.sent(self.next_packet());
        let train = self.pacer.rate().time_for(self.mtu.current() as u64) * TRAIN_PACKET_TIMES;
        let follows = now.saturating_sub(self.last_sent) <= train + TIMER_GRAIN;
        let total_bytes = self.packets.total_bytes() + bytes as u64;
        let bytes_sent = u32::try_from(bytes).unwrap_or(u32::MAX);
        let arrived = false;
        let sent = Sent { at: now, bytes: bytes_sent, total_bytes, follows, arrived, cargo };
        self.pacer.spend(bytes);
        self.lease.sent(bytes, class, cargo.asks, self.rtt.get(), now);
        let forgotten = self.packets.push(sent).map_or(0, |sent| sent.answered_bytes());
        if let Some(congestion) = &mut self.congestion {
            congestion.forgotten(usize::try_from(forgotten).unwrap_or(usize::MAX));
            if cargo.asks {
                congestion.sent(bytes);
            }
        }
        self.last_sent = now;
        if cargo.asks && self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
    }

    /// Returns `true` if the path accepts another symbol: neither a full window nor the breaker
    /// delays it.
    pub fn takes_more(&self) -> bool {
        self.congestion.as_ref().map_or(!self.lease.holds_data(), Congestion::is_open)
    }

    /// Paces at what the lease allows now, and within that at what the congestion controller and the
    /// breaker say: as far as the lease has it those leave [`MIN_RATE`], so that the packets which
    /// learn of something better can leave.
    pub fn follow_lease(&mut self, now: Duration) {
        let lease = self.lease.lease(now);
        let pace = self.congestion.as_ref().map(|it| it.pacing_rate(self.rtt.get()));
        let rate = pace.map_or(lease.rate, |pace| pace.min(lease.rate));
        let least = MIN_RATE.min(self.lease.most(now));
        self.pacer.set_rate(rate.max(least), lease.framing_bytes, now);
    }

    /// Knowledge of the path, for the session after this one.
    pub fn remembered(&self) -> Option<Remembered> {
        self.observed.remembered(self.estimator.loss())
    }

    /// A packet came, marked or not; `true` when it is the newest.
    pub fn came(&mut self, packet: u64, ce: bool, now: Duration) -> bool {
        self.marked += u64::from(ce);
        self.arrivals.came(packet, now)
    }

    /// Learns from the peer's report of this path. Returns the fates that it tells, or `None` when
    /// it speaks of packets that were never sent or counts what cannot be.
    pub fn reported(&mut self, report: &Report, now: Duration) -> Option<Fates> {
        if report.largest >= self.next_packet() || report.marked > report.largest + 1 {
            return None;
        }
        if self.peer_largest.is_none_or(|before| report.largest >= before) {
            self.peer_late_by = report.late_by.min(MAX_LATE_BY);
        }
        if self.peer_largest.is_some_and(|before| report.largest <= before) {
            return Some(Fates::default());
        }
        self.peer_largest = Some(report.largest);
        let newest = self.packets.get(report.largest);
        let sample = newest.map(|sent| now.saturating_sub(sent.at).saturating_sub(report.age));
        if let Some(sample) = sample {
            self.rtt.sample(sample);
        }
        let fates = self.packets.judge(report, self.peer_late_by);
        if fates.skipped_bytes.is_some() {
            self.estimator.skip();
        }
        for (packet, sent) in &fates.arrived {
            self.mtu.arrived(*packet, sent.bytes as usize, now);
        }
        // A probe that is lost may have been too large.
        for packet in fates.judged.iter().filter(|packet| !packet.sent.cargo.probe) {
            self.estimator.saw(Fate { lost: packet.lost, follows: packet.sent.follows });
        }
        let (all, data) = (fates.all(), fates.data());
        self.mtu.judged(report.largest, all.lost, all.judged);
        if let (Some(newest), Some(rtt), None) = (newest, sample, &self.congestion) {
            self.lease.observe(&Observation {
                now,
                rtt,
                sent_at: newest.at,
                arrived: report.arrived,
                judged: data.judged,
                lost: data.lost,
                judged_bytes: newest.total_bytes - self.judged_bytes,
                in_flight_bytes: self.packets.total_bytes() - newest.total_bytes,
            });
            self.judged_bytes = newest.total_bytes;
        }
        let mut news = self.news(&fates, report);
        (news.now, news.sample) = (now, sample);
        (news.largest_sent, news.largest) = (newest.map_or(now, |sent| sent.at), report.largest);
        self.learn(&news, fates.skipped_bytes.unwrap_or(0));
        Some(fates)
    }

    /// Fates of packets in the form that congestion control needs.
    fn news(&mut self, fates: &Fates, report: &Report) -> News {
        let marked = report.marked.saturating_sub(self.peer_marked);
        self.peer_marked = self.peer_marked.max(report.marked);
        let mut news = News {
            srtt: self.rtt.get(),
            next: self.next_packet(),
            persistent: self.rtt.overdue_after() * PERSISTENT_TIMEOUTS,
            delivered_bytes: fates.arrived.iter().map(|(_, sent)| sent.answered_bytes()).sum(),
            lost_bytes: fates.lost().map(|packet| packet.sent.answered_bytes()).sum(),
            ..News::default()
        };
        let mut lost_since = None;
        for packet in &fates.judged {
            if !packet.lost {
                lost_since = None;
            } else if !packet.sent.cargo.probe {
                let at = packet.sent.at;
                news.congested_sent = Some(at);
                let since = *lost_since.get_or_insert(at);
                news.starved = news.starved.max(at.saturating_sub(since));
            }
        }
        // Counts do not say which were marked: they are taken to be the oldest, so that a report
        // which straddles the begin of a recovery belongs to it.
        let newest_marked = usize::try_from(marked).unwrap_or(usize::MAX).min(fates.arrived.len());
        let marked_at = newest_marked.checked_sub(1).map(|index| fates.arrived[index].1.at);
        news.congested_sent = news.congested_sent.max(marked_at);
        news
    }

    fn learn(&mut self, news: &News, skipped_bytes: u64) {
        let News { now, sample, srtt, delivered_bytes, .. } = *news;
        self.observed.reported(&Reported { now, sample, srtt, delivered_bytes });
        if let Some(congestion) = &mut self.congestion {
            congestion.forgotten(usize::try_from(skipped_bytes).unwrap_or(usize::MAX));
            congestion.reported(news);
            self.follow_lease(now);
        }
    }
}
