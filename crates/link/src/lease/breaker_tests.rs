//! The breaker over a link of packets: a queue, a rate that changes, losses.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const RTT: Duration = Duration::from_millis(600);
const LEASE: BitRate = BitRate::from_bps(4_000_000);
const PACKET: usize = 1500;

/// A sender with endless data, a bottleneck, and a receiver that reports eight times an RTT.
struct Link {
    breaker: Breaker,
    now: Duration,
    rate: BitRate,
    queue_limit: Duration,
    loss: f64,
    way: Duration,
    /// Other senders keep the bottleneck's queue between a part of this and all of it.
    others: Duration,
    others_least: f64,
    /// Time at which others fill two thirds of a round trip; they release it from two and a half
    /// round trips later.
    burst: Option<Duration>,
    /// Share of its rate that the sender uses.
    used: f64,
    /// Time until which the bottleneck is busy.
    busy: Duration,
    next_send: Duration,
    /// Sending and arrival times of packets not judged yet.
    sent: VecDeque<(Duration, Option<Duration>)>,
    next_report: Duration,
    reports: VecDeque<(Duration, Duration)>,
    rng: ChaCha8Rng,
    sent_bytes: u64,
    max_queue: Duration,
    /// Time until which no report arrives.
    deaf: Duration,
}

impl Link {
    fn new(loss: f64) -> Self {
        Self {
            breaker: Breaker::new(),
            now: Duration::ZERO,
            rate: LEASE,
            queue_limit: Duration::from_millis(600) * 4,
            loss,
            way: RTT / 2,
            others: Duration::ZERO,
            others_least: 0.5,
            burst: None,
            used: 1.0,
            busy: Duration::ZERO,
            next_send: Duration::ZERO,
            sent: VecDeque::new(),
            next_report: Duration::ZERO,
            reports: VecDeque::new(),
            rng: ChaCha8Rng::seed_from_u64(7),
            sent_bytes: 0,
            max_queue: Duration::ZERO,
            deaf: Duration::ZERO,
        }
    }

    fn queue(&self) -> Duration {
        self.busy.saturating_sub(self.now)
    }

    fn step(&mut self) {
        let mut next = self.next_send.min(self.next_report);
        next = next.min(self.reports.front().map_or(next, |(at, _)| *at));
        if self.breaker.holds_data() {
            let report = self.reports.front().map_or(self.next_report, |(at, _)| *at);
            next = report.min(self.next_report).min(self.breaker.next_timeout().unwrap());
        }
        self.now = next.max(self.now);
        self.breaker.handle_timeout(self.now);
        while let Some((_, seen_at)) = self.reports.pop_front_if(|(at, _)| *at <= self.now) {
            self.report(seen_at);
        }
        if self.next_report <= self.now {
            self.reports.push_back((self.now + RTT / 2, self.now));
            self.next_report += RTT / 8;
        }
        if self.next_send <= self.now && !self.breaker.holds_data() {
            self.send();
        }
        self.max_queue = self.max_queue.max(self.queue());
    }

    fn send(&mut self) {
        let lost = self.rng.random::<f64>() < self.loss || self.queue() > self.queue_limit;
        if self.queue() <= self.queue_limit {
            self.busy = self.busy.max(self.now) + self.rate.time_for(PACKET as u64);
        }
        let arrived = self.busy + self.way + self.behind_others();
        self.sent.push_back((self.now, (!lost).then_some(arrived)));
        self.sent_bytes += PACKET as u64;
        self.breaker.sent(PACKET, LEASE, self.now);
        let rate = self.breaker.rate(LEASE, self.now);
        self.next_send = self.now + rate.time_for(PACKET as u64).div_f64(self.used);
    }

    /// Delay of a packet behind others' packets: a sawtooth, or one burst.
    fn behind_others(&self) -> Duration {
        if let Some(burst) = self.burst {
            let into = self.now.saturating_sub(burst);
            // Three quarters of a link's rate doubles: with our quarter that is 1.75 times what it carries.
            let fills = into.mul_f64(0.75).min(RTT * 2 / 3);
            return fills.saturating_sub(into.saturating_sub(RTT * 5 / 2) * 2);
        }
        let into = self.now.as_secs_f64() % SAWTOOTH.as_secs_f64() / SAWTOOTH.as_secs_f64();
        self.others.mul_f64(self.others_least + into * (1.0 - self.others_least))
    }

    /// Delivers a report of what had arrived at `seen_at`.
    fn report(&mut self, seen_at: Duration) {
        if self.now < self.deaf {
            return;
        }
        let here =
            |(_, arrived): &(Duration, Option<Duration>)| arrived.is_some_and(|at| at <= seen_at);
        let Some(newest) = self.sent.iter().rposition(here) else { return };
        let (sent_at, Some(arrived)) = self.sent[newest] else { return };
        let judged: Vec<_> = self.sent.drain(..=newest).collect();
        let lost = judged.iter().filter(|packet| packet.1.is_none()).count() as u64;
        let rtt = self.now - sent_at - (seen_at - arrived);
        // The peer has another clock.
        let arrived = arrived + Duration::from_secs(1_000_000);
        let (now, judged) = (self.now, judged.len() as u64);
        let judged_bytes = judged * PACKET as u64;
        let in_flight_bytes = (self.sent.len() * PACKET) as u64;
        self.breaker.observe(
            &Observation {
                now,
                rtt,
                sent_at,
                arrived,
                judged,
                lost,
                judged_bytes,
                in_flight_bytes,
                longest_loss: 0,
            },
            LEASE,
        );
        self.next_send = self.next_send.max(self.now);
    }

    /// Runs until `end`, or until `done`. Returns the time of the latter.
    fn run(&mut self, end: Duration, done: impl Fn(&Self) -> bool) -> Option<Duration> {
        while self.now < end {
            self.step();
            if done(self) {
                return Some(self.now);
            }
        }
        None
    }
}

const FADE: Duration = Duration::from_secs(60);
const RISE: Duration = Duration::from_secs(120);
/// The part of the lease at which one packet is reported before the next is sent, 4.3 s later.
const ALONE: f64 = 0.0007;
/// Period of others' windows.
const SAWTOOTH: Duration = Duration::from_secs(6);

#[test]
fn a_fade_is_noticed_drained_and_left_again() {
    for loss in [0.0, 0.06] {
        let mut link = Link::new(loss);
        link.run(FADE, |_| false);
        assert_eq!(link.breaker.trips(), 0);
        link.rate = BitRate::from_bps(1_000_000);
        link.run(FADE + RTT, |_| false);
        let limit = RTT / 4;
        let drained = link.run(RISE, |link| link.queue() < limit).unwrap();
        assert!(drained < FADE + RTT * 8, "{loss}: {:?} after the drop", drained - FADE);
        link.max_queue = Duration::ZERO;
        let before = link.sent_bytes;
        link.run(RISE, |_| false);
        assert!(link.max_queue < limit, "{loss}: a queue of {:?}", link.max_queue);
        assert_eq!(link.breaker.trips(), 1, "{loss}");
        let used = 8.0 * (link.sent_bytes - before) as f64 / (RISE - drained).as_secs_f64();
        assert!((0.8e6..1e6).contains(&used), "{loss}: {used} bit/s in the fade");
        link.rate = LEASE;
        let back = link.run(RISE * 2, |link| matches!(link.breaker.state, State::Closed));
        assert!(
            back.unwrap() < RISE + RTT * 10,
            "{loss}: {:?} after the rise",
            back.unwrap() - RISE
        );
        assert_eq!(link.run(RISE * 2, |link| link.breaker.trips() > 1), None);
    }
}

#[test]
fn without_a_queue_the_losses_trip_the_breaker() {
    for loss in [0.0, 0.06] {
        let mut link = Link::new(loss);
        link.queue_limit = Duration::from_millis(20);
        link.run(FADE, |_| false);
        assert_eq!(link.breaker.trips(), 0);
        link.rate = BitRate::from_bps(1_000_000);
        let tripped = link.run(RISE, |link| link.breaker.trips() > 0).unwrap();
        assert!(tripped < FADE + RTT * 8, "{loss}: after {:?}", tripped - FADE);
        link.run(tripped + RTT * 4, |_| false);
        let rate = link.breaker.rate(LEASE, link.now).bps();
        assert!((700_000..1_000_000).contains(&rate), "{loss}: {rate}");
    }
}

#[test]
fn a_longer_path_costs_one_trip() {
    let mut link = Link::new(0.0);
    link.run(FADE, |_| false);
    link.way += Duration::from_millis(300);
    link.run(RISE, |_| false);
    assert_eq!(link.breaker.trips(), 1);
    assert!(matches!(link.breaker.state, State::Closed));
}

#[test]
fn cross_traffic_costs_one_drain() {
    for others in [RTT / 2, RTT, RTT * 2] {
        let mut link = Link::new(0.0);
        link.run(FADE, |_| false);
        link.others = others;
        let before = link.sent_bytes;
        link.run(FADE + Duration::from_secs(300), |_| false);
        let used = 8.0 * (link.sent_bytes - before) as f64 / 300.0 / LEASE.bps() as f64;
        assert!(used > 0.95, "{others:?}: {used} of the lease");
        assert_eq!(link.breaker.trips(), 1, "{others:?}");
    }
}

#[test]
fn earlier_cross_traffic_costs_no_drain() {
    for others in [RTT, RTT * 2] {
        let mut link = Link::new(0.0);
        link.others = others;
        link.used = ALONE;
        link.run(FADE, |_| false);
        link.used = 1.0;
        let before = link.sent_bytes;
        link.run(FADE + Duration::from_secs(300), |_| false);
        let used = 8.0 * (link.sent_bytes - before) as f64 / 300.0 / LEASE.bps() as f64;
        assert!(used > 0.98, "{others:?}: {used} of the lease");
        assert_eq!(link.breaker.trips(), 0, "{others:?}");
    }
}

#[test]
fn after_a_pause_with_nothing_in_flight_a_lower_rate_is_noticed() {
    let mut link = Link::new(0.0);
    link.used = ALONE;
    link.run(FADE, |_| false);
    for rate in [400_000, 1_000_000, 2_000_000] {
        link.breaker = Breaker::new();
        link.rate = BitRate::from_bps(rate);
        let (began, trips) = (link.now, link.breaker.trips());
        link.used = ALONE;
        link.run(began + FADE, |_| false);
        link.used = 1.0;
        link.run(link.now + RTT * (2 + DOUBTFUL_ROUNDS), |_| false);
        assert_eq!(link.breaker.trips(), trips + 1, "{rate} bit/s");
        let drained = link.run(began + FADE * 2, |link| link.queue() < RTT / 4);
        assert!(drained.is_some(), "{rate} bit/s");
        link.run(link.now + RTT * 40, |_| false);
    }
}

#[test]
fn ones_own_queue_is_not_cross_traffic_if_the_first_reports_are_lost() {
    let mut link = Link::new(0.0);
    link.rate = BitRate::from_bps(LEASE.bps() * 85 / 100);
    link.used = ALONE;
    link.run(FADE, |_| false);
    link.used = 1.0;
    link.deaf = link.now + RTT * 6;
    link.run(FADE + RTT * (9 + PATIENT_ROUNDS), |_| false);
    assert_eq!(link.breaker.trips(), 1);
}

#[test]
fn cross_traffic_that_releases_its_queue_in_time_costs_no_drain() {
    let mut link = Link::new(0.0);
    link.run(FADE, |_| false);
    (link.others, link.others_least) = (RTT / 3, 0.0);
    link.run(FADE * 3, |_| false);
    assert_eq!(link.breaker.trips(), 0);
}

#[test]
fn new_cross_traffic_costs_no_drain_though_it_stretches_arrivals() {
    let mut link = Link::new(0.0);
    link.run(FADE, |_| false);
    link.burst = Some(FADE);
    link.run(FADE + RTT * 10, |_| false);
    assert_eq!(link.breaker.trips(), 0);
}

#[test]
fn a_lease_that_is_too_high_causes_no_queue_beyond_the_tolerated_one() {
    for percent in [45, 51, 65, 75, 79, 81, 85, 90, 95] {
        let mut link = Link::new(0.0);
        link.queue_limit = RTT * 10;
        link.rate = BitRate::from_bps(LEASE.bps() * percent / 100);
        link.run(FADE, |_| false);
        assert!(link.breaker.trips() > 0, "{percent} %");
        assert!(!link.breaker.others.are_known(link.now), "{percent} %");
        let part = percent as f64 / 100.0;
        let rounds = match percent {
            ..=50 => 1,
            51..80 => DOUBTFUL_ROUNDS,
            _ => PATIENT_ROUNDS,
        };
        let tolerated = 1.0 / f64::from(QUEUE_PART) + f64::from(rounds) * (1.0 - part);
        // A report is some eighths of a round trip late, and the drain begins one round trip after
        // what it reports.
        let max = (tolerated + 0.25 + 1.0 - part) / part;
        let found = link.max_queue.div_duration_f64(RTT);
        assert!(
            found < max,
            "{percent} %: a queue of {found} round trips where {max} are tolerated"
        );
    }
}

#[test]
fn ones_own_full_queue_is_drained_in_time() {
    for limit in [4, 6, 8] {
        for (part, rounds) in [(75, 8), (50, 5), (25, 4)] {
            let mut link = Link::new(0.0);
            link.run(FADE, |_| false);
            link.queue_limit = RTT * limit / 10;
            link.rate = BitRate::from_bps(LEASE.bps() * part / 100);
            let tripped = link.run(FADE * 2, |link| link.breaker.trips() > 0).unwrap();
            assert!(tripped < FADE + RTT * rounds, "{part} %, {limit}: {:?}", tripped - FADE);
        }
    }
}

#[test]
fn after_a_pause_ones_own_queue_is_not_cross_traffic() {
    // The link carries a part of the lease, and data comes in bursts of 2 s every 5 s.
    for (part, limit) in [(50, RTT), (80, RTT), (85, RTT), (95, RTT)] {
        let mut link = Link::new(0.0);
        link.rate = BitRate::from_bps(LEASE.bps() * part / 100);
        let mut max_queue = Duration::ZERO;
        for burst in 0..40u32 {
            link.used = 1.0;
            let began = link.now;
            link.max_queue = Duration::ZERO;
            link.run(began + Duration::from_secs(2), |_| false);
            link.used = 0.01;
            link.run(began + Duration::from_secs(5), |_| false);
            if burst > 4 {
                max_queue = max_queue.max(link.max_queue);
            }
            assert!(!link.breaker.others.are_known(link.now), "{part} %");
        }
        assert!(max_queue < limit, "{part} %: a queue of {max_queue:?}");
    }
}

#[test]
fn a_fade_is_noticed_next_to_cross_traffic() {
    let mut link = Link::new(0.0);
    link.run(FADE, |_| false);
    link.others = RTT;
    link.run(FADE + Duration::from_secs(20), |_| false);
    let (trips, faded) = (link.breaker.trips(), link.now);
    link.rate = BitRate::from_bps(1_000_000);
    let limit = RTT / 4;
    link.run(faded + RTT, |_| false);
    let drained = link.run(RISE, |link| link.queue() < limit).unwrap();
    assert!(drained < faded + RTT * 8, "{:?} after the drop", drained - faded);
    assert_eq!(link.breaker.trips(), trips + 1);
    let before = link.sent_bytes;
    link.run(drained + Duration::from_secs(30), |_| false);
    let used = 8.0 * (link.sent_bytes - before) as f64 / 30.0;
    assert!((0.6e6..1.1e6).contains(&used), "{used} bit/s in the fade");
}

#[test]
fn a_better_lease_is_tried_at_once() {
    let mut link = Link::new(0.0);
    link.rate = BitRate::from_bps(1_000_000);
    link.run(FADE, |link| matches!(link.breaker.state, State::Limited(_))).unwrap();
    let double = BitRate::from_bps(8_000_000);
    assert!(link.breaker.rate(LEASE, link.now) < LEASE);
    assert_eq!(link.breaker.rate(double, link.now), double);
}

#[test]
fn the_rate_stays_within_the_lease_whatever_a_peer_reports() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut breaker = Breaker::new();
    let mut now = Duration::ZERO;
    for _ in 0..20_000 {
        now += Duration::from_millis(rng.random_range(0..100));
        let any = |rng: &mut ChaCha8Rng| match rng.random_range(0..4) {
            0 => 0,
            1 => u64::MAX,
            _ => rng.random_range(0..10_000_000),
        };
        let judged = rng.random_range(1..1000);
        breaker.observe(
            &Observation {
                now,
                rtt: Duration::from_micros(any(&mut rng)),
                sent_at: now.saturating_sub(Duration::from_micros(any(&mut rng))),
                arrived: Duration::from_micros(any(&mut rng)),
                judged,
                lost: any(&mut rng).min(judged),
                judged_bytes: judged * 1500,
                in_flight_bytes: rng.random_range(0..1 << 30),
                longest_loss: 0,
            },
            LEASE,
        );
        breaker.sent(1500, LEASE, now);
        assert!(breaker.rate(LEASE, now) <= LEASE);
        if let Some(until) = breaker.next_timeout() {
            assert!(until <= now + MAX_DRAIN);
            breaker.handle_timeout(until);
        }
    }
}
