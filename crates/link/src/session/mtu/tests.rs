//! The state machine by itself, over paths with all kinds of losses.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const RTT: Duration = Duration::from_millis(761);
/// Interval of data packets: 2 Mbit/s.
const GAP: Duration = Duration::from_millis(6);

/// A path that carries up to `carries` bytes, loses `loss` in bursts of time, and reports arrivals.
struct Bench {
    mtu: Mtu,
    rtt: Rtt,
    now: Duration,
    carries: usize,
    loss: f64,
    burst: Duration,
    bad_until: Duration,
    good_until: Duration,
    next_packet: u64,
    /// Number and size of packets that the peer will report, by the time of the report.
    reported: BTreeMap<(Duration, u64), usize>,
    min: usize,
    largest_sent: usize,
    probes: u64,
    rng: ChaCha8Rng,
}

impl Bench {
    fn new(max: usize, carries: usize, loss: f64, burst_packets: u32, seed: u64) -> Self {
        let mut rtt = Rtt::guess(RTT);
        (0..20).for_each(|_| rtt.sample(RTT));
        Self {
            mtu: Mtu::new(max, Duration::ZERO),
            rtt,
            now: Duration::ZERO,
            carries,
            loss,
            burst: GAP * burst_packets,
            bad_until: Duration::ZERO,
            good_until: Duration::ZERO,
            next_packet: 0,
            reported: BTreeMap::new(),
            min: usize::MAX,
            largest_sent: 0,
            probes: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    fn is_lost(&mut self) -> bool {
        if self.loss == 0.0 {
            return false;
        }
        while self.now >= self.good_until {
            let mean_bad = self.burst.as_secs_f64();
            let mean_good = mean_bad * (1.0 - self.loss) / self.loss;
            let mut draw = |mean: f64| -mean * (1.0 - self.rng.random::<f64>()).ln();
            self.bad_until = self.good_until + Duration::from_secs_f64(draw(mean_bad));
            self.good_until = self.bad_until + Duration::from_secs_f64(draw(mean_good));
        }
        self.now < self.bad_until
    }

    fn send(&mut self, bytes: usize) -> u64 {
        let packet = self.next_packet;
        self.next_packet += 1;
        self.largest_sent = self.largest_sent.max(bytes);
        self.mtu.sent(packet);
        if !self.is_lost() && bytes <= self.carries {
            // Half of the packets are never named by any report.
            let report_interval = RTT / 8;
            if !packet.is_multiple_of(2) || self.mtu.due(self.now).is_some() {
                self.reported.insert((self.now + RTT + report_interval, packet), bytes);
            }
        }
        packet
    }

    /// Sends full packets of data, or nothing, for `span`.
    fn run(&mut self, span: Duration, data: bool) {
        self.run_with(span, if data { usize::MAX } else { 0 });
    }

    /// Sends packets of `bytes`, if the size in use permits them, for `span`.
    fn run_with(&mut self, span: Duration, bytes: usize) {
        let end = self.now + span;
        while self.now < end {
            while let Some((&(at, packet), &bytes)) = self.reported.first_key_value()
                && at <= self.now
            {
                self.reported.pop_first();
                self.mtu.arrived(packet, bytes, self.now);
            }
            self.mtu.handle_timeout(&self.rtt, self.now);
            if let Some((bytes, _)) = self.mtu.due(self.now) {
                let packet = self.send(bytes);
                self.mtu.probed(packet, &self.rtt, self.now);
                self.probes += 1;
            } else if bytes > 0 {
                let bytes = bytes.min(self.mtu.current());
                self.mtu.used(bytes, self.now);
                self.send(bytes);
            }
            self.min = self.min.min(self.mtu.current());
            self.now += GAP;
        }
    }
}

#[test]
fn the_provisioned_maximum_is_in_use_after_one_round_trip() {
    let mut bench = Bench::new(1500, 1500, 0.0, 1, 1);
    assert_eq!(bench.mtu.current(), MIN_MTU_BYTES);
    bench.run(RTT * 3 / 2, false);
    assert_eq!((bench.mtu.current(), bench.probes), (1500, 2));
    bench.run(Duration::from_secs(3600), true);
    assert_eq!(bench.probes, 2, "data that arrives is proof enough");
}

#[test]
fn packets_below_the_size_in_use_prove_their_own_size() {
    let mut bench = Bench::new(1500, 1500, 0.033, 1, 5);
    bench.run(RTT * 20, false);
    let probes = bench.probes;
    assert_eq!(bench.mtu.current(), 1500);
    bench.run_with(Duration::from_secs(600), 1450);
    assert_eq!((bench.mtu.current(), bench.probes), (1500, probes));
    // On a path that no longer carries even these, they prove nothing.
    bench.carries = 1400;
    bench.run_with(RTT * 40, 1450);
    assert!((1400 - GRAIN_BYTES..=1400).contains(&bench.mtu.current()));
}

#[test]
fn the_minimum_size_is_not_a_proof_of_a_larger_one() {
    let mut bench = Bench::new(1500, 1500, 0.0, 1, 5);
    bench.run(RTT * 20, false);
    bench.carries = MIN_MTU_BYTES;
    bench.run_with(RTT * 40, MIN_MTU_BYTES + 5);
    assert_eq!(bench.mtu.current(), MIN_MTU_BYTES);
}

#[test]
fn after_an_outage_smaller_packets_are_not_a_proof() {
    let mut mtu = Mtu::new(1500, Duration::ZERO);
    mtu.arrived(1, 1500, RTT);
    mtu.on_outage(RTT * 2);
    assert!(mtu.is_in_doubt());
    mtu.sent(2);
    mtu.used(1300, RTT * 3);
    mtu.arrived(2, 1300, RTT * 4);
    assert!(mtu.is_in_doubt(), "1500 bytes are in question");
    mtu.sent(3);
    mtu.arrived(3, 1500, RTT * 4);
    assert!(!mtu.is_in_doubt());
}

#[test]
fn a_smaller_path_is_found_within_a_few_bytes_and_tried_again_later() {
    let mut bench = Bench::new(1500, 1400, 0.06, 1, 2);
    bench.run(RTT * 40, true);
    let found = bench.mtu.current();
    assert!((1400 - GRAIN_BYTES..=1400).contains(&found), "{found}");
    let probes = bench.probes;
    bench.run(Duration::from_secs(500), true);
    assert_eq!(bench.probes, probes);
    bench.carries = 1500;
    bench.run(Duration::from_secs(200), true);
    assert_eq!(bench.mtu.current(), 1500);
}

#[test]
fn a_black_hole_is_left_in_a_bounded_number_of_round_trips() {
    // In bursts, a pair is a sign only at the beginning or the end, so that the time is as without
    // bursts.
    for (loss, burst, round_trips) in [(0.0, 1, 7), (0.06, 1, 8), (0.2, 4, 9), (0.4, 10, 14)] {
        for seed in 0..20 {
            let mut bench = Bench::new(1500, 1500, loss, burst, seed);
            bench.run(RTT * 30, true);
            assert_eq!(bench.mtu.current(), 1500, "at {loss}, seed {seed}");
            bench.carries = 1400;
            bench.run(RTT * round_trips, true);
            assert!(bench.mtu.current() <= 1400, "at {loss} in bursts of {burst}, seed {seed}");
        }
    }
}

#[test]
fn loss_causes_no_wrong_decision_for_an_hour() {
    for (loss, burst) in [(0.06, 1), (0.4, 1), (0.4, 10), (0.06, 4)] {
        for seed in 0..5 {
            let mut bench = Bench::new(1500, 1500, loss, burst, seed);
            bench.run(RTT * 60, true);
            assert_eq!(bench.mtu.current(), 1500, "at {loss} in bursts of {burst}");
            bench.min = usize::MAX;
            bench.run(Duration::from_secs(3600), true);
            assert_eq!(bench.min, 1500, "at {loss} in bursts of {burst}, seed {seed}");
        }
    }
}

#[test]
fn repeated_tests_of_a_good_size_succeed() {
    let (mut trials, mut wrong) = (0, 0);
    let mut bench = Bench::new(1500, 1500, 0.4, 10, 9);
    bench.run(RTT * 60, true);
    while trials < 2000 {
        trials += 1;
        bench.mtu.doubt(bench.now);
        bench.run(RTT * 8, false);
        wrong += u32::from(bench.mtu.current() < 1500);
    }
    assert_eq!(wrong, 0);
}

#[test]
fn an_outage_is_not_the_sizes_fault() {
    let mut bench = Bench::new(1500, 1500, 0.0, 1, 3);
    bench.run(RTT * 3, true);
    // In an outage, nobody asks the machine for probes or judgements.
    bench.mtu.on_outage(bench.now);
    assert!(bench.mtu.is_in_doubt());
    bench.now += Duration::from_secs(1000);
    bench.run(RTT * 4, true);
    assert_eq!((bench.mtu.current(), bench.mtu.is_in_doubt()), (1500, false));
}

#[test]
fn a_refusal_by_the_system_is_believed_at_once() {
    let mut bench = Bench::new(1500, 1500, 0.0, 1, 4);
    bench.run(RTT * 3, true);
    (bench.carries, bench.largest_sent) = (1420, 0);
    bench.mtu.refused(1500, bench.now);
    bench.mtu.refused(1450, bench.now);
    assert_eq!(bench.mtu.current(), MIN_MTU_BYTES);
    bench.run(RTT * 40, true);
    let (found, asked) = (bench.mtu.current(), bench.largest_sent);
    assert!((1420 - GRAIN_BYTES..=1420).contains(&found) && asked < 1450, "{found}, {asked}");
    bench.mtu.refused(1000, bench.now);
    assert_eq!(bench.mtu.current(), found, "less than every path carries is not news of this one");
}

#[test]
fn a_move_restarts_the_search() {
    let mut bench = Bench::new(1500, 1500, 0.0, 1, 5);
    bench.run(RTT * 3, true);
    bench.mtu.moved(bench.now);
    assert_eq!(bench.mtu.current(), MIN_MTU_BYTES);
    bench.run(RTT * 2, true);
    assert_eq!(bench.mtu.current(), 1500);
}

proptest! {
    #[test]
    fn never_more_than_provisioned_and_never_less_than_every_path_carries(
        max in MIN_MTU_BYTES..9001, carries in MIN_MTU_BYTES..9001, loss in 0.0..0.5, burst in 1u32..20,
        seed: u64, refused in prop::option::of(0usize..10_000), data: bool,
    ) {
        let mut bench = Bench::new(max, carries, loss, burst, seed);
        bench.run(RTT * 10, data);
        if let Some(bytes) = refused {
            bench.mtu.refused(bytes, bench.now);
        }
        bench.mtu.on_outage(bench.now);
        bench.run(RTT * 30, data);
        prop_assert!(bench.largest_sent <= max);
        prop_assert!(bench.min >= MIN_MTU_BYTES);
        prop_assert!(bench.mtu.current() <= carries);
    }
}

#[test]
fn the_provisioned_size_is_expected_until_the_first_answer() {
    let mut mtu = Mtu::new(1500, Duration::ZERO);
    assert_eq!((mtu.current(), mtu.provisioned()), (MIN_MTU_BYTES, 1500));
    mtu.refused(1500, Duration::ZERO);
    assert_eq!(mtu.provisioned(), mtu.current());
    let small = Mtu::new(MIN_MTU_BYTES, Duration::ZERO);
    assert_eq!(small.provisioned(), small.current());
}
