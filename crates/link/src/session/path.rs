//! One radio path: packet numbers, round trip, pacing, and the peer's address.

use std::net::SocketAddr;
use std::time::Duration;

use super::arrivals::{Arrivals, MAX_LATE_BY};
use super::copy_queue::Copies;
use super::curve::Recorder;
use super::fragment::Outgoing;
use super::mtu::Mtu;
use super::one_way::OneWay;
use super::outage::{News, Outage};
use super::report::ReportTimer;
use super::sent::{Outcomes, Sent, SentContents, SentPackets};
use super::skips::Skips;
use super::validation::{Candidate, Validation};
use super::volume::Volume;
use crate::Class;
use crate::congestion::{BURST_PACKETS, Congestion, PERSISTENT_TIMEOUTS, ReportNews, Saved};
use crate::crypto::Rng;
use crate::lane::Lane;
use crate::lease::{ArrivalSample, Channel, Control as LeaseControl, Earlier, Observation};
use crate::memory::{Observed, REMEMBERED_LIFETIME, Remembered, Reported};
use crate::pacer::Pacer;
use crate::redundancy::{Estimator, Loss, Outcome};
use crate::rtt::Rtt;
use crate::settings::{Control, MIN_RATE, Settings};
use crate::wire::curve::Curve;
use crate::wire::frame::Challenge;
use crate::wire::header::{DATA_OVERHEAD_BYTES, PacketId};
use crate::wire::report::Report;

/// Maximum distance of packets that one burst of losses may take, in packet times.
const TRAIN_PACKET_TIMES: u32 = 2;
/// Lateness of a timer that does not interrupt a train.
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
    /// `Some` if the peer's reports can raise the rate.
    skips: Option<Skips>,
    /// IP bytes of all packets up to the newest that the peer reported.
    judged_bytes: u64,
    /// Loss of the direction towards the peer.
    pub estimator: Estimator,
    /// Congestion controller, if the path is not leased.
    pub congestion: Option<Congestion>,
    /// The channel's own loss, for the controller.
    channel: Channel,
    observed: Observed,
    /// Time of the oldest packet since the peer was last heard that requires an answer.
    pub waiting_since: Option<Duration>,
    /// Longest time lately from a packet that requires an answer to its report.
    pub news_after: Duration,
    /// Time of the last packet that requires an answer.
    pub asked_at: Duration,
    pub last_sent: Duration,
    peer_largest: Option<u64>,
    peer_marked: u64,
    /// Reordering that the peer reports, in packets.
    pub peer_late_by: u64,

    /// Recent packets from the peer.
    pub arrivals: Arrivals,
    /// Arrival times, if the peer learns its rate.
    pub recorder: Recorder,
    /// Number of received packets marked Congestion Experienced.
    pub marked: u64,
    /// IP bytes received.
    pub received_bytes: u64,
    /// Sent packets that the peer's reports are about, and the lost ones among them.
    pub judged_packets: u64,
    pub lost_packets: u64,

    pub ping: bool,
    pub response: Option<Challenge>,
    pub candidate: Option<Candidate>,

    /// Reports of what arrives on this path.
    pub reports: ReportTimer,
    /// A body too large for one packet, partly sent.
    pub fragments: Option<Outgoing>,
    pub outage: Option<Outage>,
    /// `Some` until the peer has answered a challenge on a path besides the first.
    pub validation: Option<Validation>,
    /// The symbols in flight went again elsewhere, because nothing was heard of the path.
    pub is_doubted: bool,
    /// Report of its interface or modem.
    pub news: News,
    /// The path carries data only while no other one does, because its bytes cost money.
    pub is_standby: bool,
    /// Limit of its bytes.
    pub volume: Volume,
    /// Symbols and repairs that also go on this path.
    pub copies: Copies,
    /// One-way delay to the peer, on the peer's clock.
    pub one_way: OneWay,
    /// End of the new symbols that went on this path, by lane.
    pub new_below: [u64; Lane::RELIABLE.len()],
}

/// Prior of a congestion controller from an earlier session.
fn saved(of: &Remembered) -> Saved {
    Saved { window_bytes: of.window_bytes(), rtt: of.rtt, until: of.expires() }
}

/// Rate of an earlier session, if it had one.
fn earlier(of: &Remembered, now: Duration) -> Option<Earlier> {
    (of.rate.bps() > 0).then(|| Earlier { bps: of.rate_at(now).bps() as f64, rtt: of.rtt })
}

impl Path {
    /// Creates a path to `peer`, with measurements from an earlier session.
    pub fn new(
        id: u8,
        peer: SocketAddr,
        settings: &Settings,
        remembered: Option<&Remembered>,
        rng: &mut Rng,
        now: Duration,
    ) -> Self {
        let remembered = remembered.filter(|it| it.is_fresh(now));
        let saved = remembered.map(saved);
        let earlier = remembered.and_then(|it| earlier(it, now));
        let loss = remembered.map(|it| Loss::in_bursts(it.loss, it.burst));
        let controlled = settings.control == Control::Congestion;
        let rtt = Rtt::guess(remembered.map_or(settings.initial_rtt, |it| it.rtt));
        let mut path = Self {
            id,
            peer,
            lease: LeaseControl::new(
                settings.lease,
                settings.rate,
                settings.learn_bytes.bytes(),
                earlier,
                rtt.get(),
                now,
            ),
            rtt,
            pacer: Pacer::new(settings.rate),
            mtu: Mtu::new(settings.mtu_bytes, now),
            packets: SentPackets::default(),
            skips: settings.is_rate_reported().then(|| Skips::new(rng)),
            judged_bytes: 0,
            estimator: loss.map_or_else(Estimator::new, Estimator::remembering),
            congestion: controlled.then(|| Congestion::new(settings.mtu_bytes, saved, now)),
            channel: Channel::new(),
            observed: Observed::default(),
            waiting_since: None,
            news_after: Duration::ZERO,
            asked_at: now,
            last_sent: now,
            peer_largest: None,
            peer_marked: 0,
            peer_late_by: 0,
            arrivals: Arrivals::default(),
            recorder: Recorder::default(),
            marked: 0,
            received_bytes: 0,
            judged_packets: 0,
            lost_packets: 0,
            ping: false,
            response: None,
            candidate: None,
            reports: ReportTimer::new(),
            fragments: None,
            outage: None,
            validation: None,
            is_doubted: false,
            news: News::default(),
            is_standby: settings.metered,
            volume: Volume::new(settings.quota.clone(), now),
            copies: Copies::default(),
            one_way: OneWay::default(),
            new_below: [0; Lane::RELIABLE.len()],
        };
        path.pacer.is_open(now);
        if controlled {
            path.pacer.allow_burst(BURST_PACKETS, settings.mtu_bytes);
        }
        path.follow_lease(now);
        path
    }

    /// Length of the IP and UDP headers of every packet.
    pub fn outer_bytes(&self) -> usize {
        // On a dual-stack socket, IPv4 peers have IPv4-mapped IPv6 addresses.
        if self.peer.ip().to_canonical().is_ipv4() { 28 } else { 48 }
    }

    /// Maximum length of a plaintext.
    pub fn max_plaintext(&self) -> usize {
        self.plaintext_of(self.mtu.current())
    }

    /// Maximum length of a plaintext after the first MTU search, see [`Mtu::provisioned`].
    pub fn provisioned_plaintext(&self) -> usize {
        self.plaintext_of(self.mtu.provisioned())
    }

    /// Length of the plaintext that makes a packet of `bytes`, at least
    /// [`MIN_MTU_BYTES`](crate::settings::MIN_MTU_BYTES).
    pub fn plaintext_of(&self, bytes: usize) -> usize {
        bytes - self.outer_bytes() - DATA_OVERHEAD_BYTES - self.volume.frame_bytes()
    }

    /// Length of the packet that a plaintext makes, with its IP header.
    pub fn bytes_of(&self, plaintext: usize) -> usize {
        plaintext + self.outer_bytes() + DATA_OVERHEAD_BYTES + self.volume.frame_bytes()
    }

    /// IP bytes sent.
    pub fn sent_bytes(&self) -> u64 {
        self.packets.total_bytes()
    }

    /// Number of the next packet.
    pub fn next_packet(&self) -> u64 {
        self.packets.next()
    }

    /// The next packet.
    pub fn next_id(&self) -> PacketId {
        PacketId { path: self.id, number: self.packets.next() }
    }

    /// Records a packet of `bytes`, with its IP header, paid by `class` or by nobody.
    pub fn sent(
        &mut self,
        contents: SentContents,
        bytes: usize,
        class: Option<Class>,
        now: Duration,
    ) {
        self.mtu.sent(self.next_packet());
        let train = self.pacer.rate().time_for(self.mtu.current() as u64) * TRAIN_PACKET_TIMES;
        let follows = now.saturating_sub(self.last_sent) <= train + TIMER_GRAIN;
        let total_bytes = self.packets.total_bytes() + bytes as u64;
        let bytes_sent = u32::try_from(bytes).unwrap_or(u32::MAX);
        let sent = Sent {
            at: now,
            bytes: bytes_sent,
            total_bytes,
            follows,
            arrived: false,
            skipped: false,
            contents,
        };
        self.pacer.spend(bytes);
        let rtt = self.rtt.get();
        self.lease.sent(bytes, class, (contents.asks, contents.probe), rtt, now);
        let forgotten = self.packets.push(sent);
        self.forget(forgotten);
        if let Some(congestion) = self.congestion.as_mut().filter(|_| contents.asks) {
            congestion.sent(bytes);
        }
        if self.skips.as_mut().is_some_and(Skips::sent) {
            let forgotten = self.packets.skip();
            self.forget(forgotten);
        }
        self.last_sent = now;
        if contents.asks {
            self.asked_at = now;
        }
        if contents.asks && self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
    }

    /// Notes that a report with news arrived, and waits for that of the oldest packet after it.
    pub fn on_news(&mut self, now: Duration) {
        // The length of an outage says nothing about the usual time.
        if let Some(since) = self.waiting_since.filter(|_| self.outage.is_none()) {
            let waited = now.saturating_sub(since);
            self.news_after = waited.max((self.news_after * 7 + waited) / 8);
        }
        let unreported = self.peer_largest.map_or(0, |largest| largest + 1)..self.next_packet();
        let mut sent = unreported.filter_map(|packet| self.packets.get(packet));
        self.waiting_since = sent.find(|sent| sent.contents.asks).map(|sent| sent.at);
    }

    /// Returns `true` if all packets that arrived left before the aircraft's interface or modem reported
    /// that the path is down: they say nothing about the time after that.
    pub fn precede_its_failure(&self, outcomes: &Outcomes) -> bool {
        let Some(outage) = self.outage.filter(|_| self.news.is_down) else { return false };
        outcomes.arrived.iter().all(|(_, sent)| sent.at < outage.since)
    }

    fn forget(&mut self, sent: Option<Sent>) {
        if let (Some(sent), Some(congestion)) = (sent, &mut self.congestion) {
            let bytes = sent.answered_bytes();
            congestion.forgotten(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    /// Returns `true` if no window, breaker or limit delays the next symbol.
    pub fn takes_more(&self, now: Duration) -> bool {
        let is_open = Congestion::is_open;
        self.affords_full()
            && self.congestion.as_ref().map_or_else(|| !self.lease.holds_data(now), is_open)
    }

    /// Sets the pacing rate from the lease, and within it from the congestion controller and the
    /// breaker. Those leave [`MIN_RATE`] as far as the lease permits, so that packets can still
    /// find out whether the path has improved.
    pub fn follow_lease(&mut self, now: Duration) {
        let lease = self.lease.lease(now);
        let pace = self.congestion.as_ref().map(|it| it.pacing_rate(self.rtt.get()));
        let rate = pace.map_or(lease.rate, |pace| pace.min(lease.rate));
        let min = MIN_RATE.min(self.lease.max_rate(now));
        self.pacer.set_rate(rate.max(min), lease.per_packet_overhead, now);
    }

    /// Measurements of the path for the next session.
    pub fn remembered(&self) -> Option<Remembered> {
        let mut remembered = self.observed.remembered(self.estimator.loss())?;
        if let Some((rate, at)) = self.lease.confirmed()
            && remembered.at.saturating_sub(at) <= REMEMBERED_LIFETIME
        {
            remembered.rate = rate;
        }
        Some(remembered)
    }

    /// Notes a received packet, marked or not. Returns `true` if it is the newest.
    pub fn on_packet(&mut self, packet: u64, ce: bool, now: Duration) -> bool {
        self.marked += u64::from(ce);
        self.arrivals.on_packet(packet, now)
    }

    /// Handles the peer's report of this path; `is_own` says that it came on this path, so that it
    /// shows a round trip. Returns the outcomes in it, or `None` if it names
    /// packets that were never sent or has impossible counts.
    pub fn reported(
        &mut self,
        report: &Report,
        curve: Option<&Curve>,
        is_own: bool,
        now: Duration,
    ) -> Option<Outcomes> {
        if report.largest >= self.next_packet() || report.marked > report.largest + 1 {
            return None;
        }
        if self.peer_largest.is_none_or(|before| report.largest >= before) {
            self.peer_late_by = report.late_by.min(MAX_LATE_BY);
        }
        if self.peer_largest.is_some_and(|before| report.largest <= before) {
            return Some(Outcomes::default());
        }
        self.peer_largest = Some(report.largest);
        let newest = self.packets.get(report.largest);
        let sample = newest.map(|sent| now.saturating_sub(sent.at).saturating_sub(report.age));
        let sample = sample.map(|sample| if is_own { sample } else { self.rtt.get() });
        if let Some(sample) = sample.filter(|_| is_own) {
            self.rtt.sample(sample);
        }
        if let Some(sent) = newest {
            let sending = self.pacer.rate().time_for(sent.bytes.into());
            self.one_way.sample(sent.at + sending, report.arrived, self.rtt.get(), now);
        }
        let samples = curve.map(|curve| self.arrivals(report, curve)).unwrap_or_default();
        let outcomes = self.packets.judge(report, self.peer_late_by)?;
        if outcomes.skipped_bytes.is_some() {
            self.estimator.skip();
        }
        for (packet, sent) in &outcomes.arrived {
            self.mtu.arrived(*packet, sent.bytes as usize, now);
        }
        // A lost probe may have been too large.
        let counts = self.lease.are_losses_the_channels();
        for packet in outcomes.judged.iter().filter(|it| counts && it.sent.contents.teaches_loss())
        {
            self.estimator.add(Outcome { lost: packet.lost, follows: packet.sent.follows });
        }
        let (all, data) = (outcomes.all(), outcomes.data());
        self.mtu.judged(report.largest, all.lost, all.judged);
        if let (Some(newest), Some(rtt)) = (newest, sample) {
            let seen = Observation {
                now,
                rtt,
                sent_at: newest.at,
                arrived: report.arrived,
                judged: data.judged,
                lost: data.lost,
                judged_bytes: newest.total_bytes - self.judged_bytes,
                in_flight_bytes: self.packets.total_bytes() - newest.total_bytes,
                longest_loss: outcomes.longest_loss(),
            };
            self.observe(&seen, newest.total_bytes, &samples);
            self.judged_bytes = newest.total_bytes;
        }
        let mut news = self.news(&outcomes, report);
        (news.now, news.sample) = (now, sample);
        (news.largest_sent, news.largest) = (newest.map_or(now, |sent| sent.at), report.largest);
        self.learn(&news, outcomes.skipped_bytes.unwrap_or(0));
        Some(outcomes)
    }

    /// Passes an observation to what decides the rate. `total_bytes` are those up to its newest
    /// packet.
    fn observe(&mut self, seen: &Observation, total_bytes: u64, samples: &[ArrivalSample]) {
        if self.congestion.is_none() {
            return self.lease.observe(seen, samples);
        }
        let newest = ArrivalSample { sent: seen.sent_at, arrived: seen.arrived, total_bytes };
        self.channel.observe(seen, newest);
    }

    /// Arrivals in a report with a curve, oldest first, as far as the packets are still recorded.
    fn arrivals(&self, report: &Report, curve: &Curve) -> Vec<ArrivalSample> {
        let points = curve.points(report.largest, report.arrived);
        let sample = |(packet, arrived)| {
            let known = self.packets.get(packet).filter(|sent| !sent.skipped)?;
            let Sent { at: sent, total_bytes, .. } = known;
            Some(ArrivalSample { sent, arrived, total_bytes })
        };
        points.into_iter().filter_map(sample).collect()
    }

    /// Converts outcomes into the form that congestion control uses.
    fn news(&mut self, outcomes: &Outcomes, report: &Report) -> ReportNews {
        let marked = report.marked.saturating_sub(self.peer_marked);
        self.peer_marked = self.peer_marked.max(report.marked);
        let data = outcomes.data();
        let mut news = ReportNews {
            judged: data.judged,
            lost: data.lost,
            channel_loss: self.channel.loss(),
            is_clear: self.channel.is_clear(),
            is_full: self.channel.is_full(),
            srtt: self.rtt.get(),
            next: self.next_packet(),
            persistent: self.rtt.overdue_after() * PERSISTENT_TIMEOUTS,
            delivered_bytes: outcomes.arrived.iter().map(|(_, sent)| sent.answered_bytes()).sum(),
            lost_bytes: outcomes.lost().map(|packet| packet.sent.answered_bytes()).sum(),
            ..ReportNews::default()
        };
        let mut lost_since = None;
        for packet in &outcomes.judged {
            if !packet.lost {
                lost_since = None;
            } else if !packet.sent.contents.probe {
                let at = packet.sent.at;
                news.lost_sent = Some(at);
                let since = *lost_since.get_or_insert(at);
                news.starved = news.starved.max(at.saturating_sub(since));
            }
        }
        // The report only counts marked packets. The oldest are taken to be the marked ones, so
        // that a report across the beginning of a recovery belongs to it.
        let newest_marked =
            usize::try_from(marked).unwrap_or(usize::MAX).min(outcomes.arrived.len());
        let marked = newest_marked.checked_sub(1);
        news.marked_sent = marked.map(|index| outcomes.arrived[index].1.at);
        news
    }

    fn learn(&mut self, news: &ReportNews, skipped_bytes: u64) {
        let ReportNews { now, sample, srtt, delivered_bytes, .. } = *news;
        self.observed.reported(&Reported { now, sample, srtt, delivered_bytes });
        if let Some(congestion) = &mut self.congestion {
            congestion.forgotten(usize::try_from(skipped_bytes).unwrap_or(usize::MAX));
            congestion.reported(news);
            self.follow_lease(now);
        }
    }
}
