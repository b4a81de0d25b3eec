//! Shares and waiting times on a link in virtual time.

use std::time::Duration;

use crate::common::{Link, Noise, PACKET, Source, kbps};
use bentpipe_schedule::{Class, PassengerActivity, Scheduler, SnapshotLimits};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const RTT: Duration = Duration::from_millis(600);

/// Transmission time of two packets: the longest allowed wait of urgent traffic.
fn two_packets(link: &Link) -> Duration {
    link.rate.time_for(2 * PACKET as u64)
}

#[track_caller]
fn assert_rate(link: &Link, class: Class, from: Duration, expected_kbps: f64) {
    let rate = link.rate_of(class, from) / 1000.0;
    let off = (rate / expected_kbps - 1.0).abs();
    assert!(off <= 0.02, "{class} had {rate:.0} kbit/s instead of {expected_kbps:.0}");
}

fn every(interval_ms: u64, bytes: usize) -> Source {
    let interval = Duration::from_millis(interval_ms);
    Source::Every { interval, bytes, next: interval / 3 }
}

#[test]
fn ceilings_and_rates_hold_over_a_minute_for_all_packet_sizes() {
    for (seed, sizes) in [(1, (PACKET, PACKET)), (2, (40, PACKET)), (3, (60, 200))] {
        let mut link = Link::new(kbps(10_000), seed);
        let limits = [
            (Class::Operator, Some(256), Some(256)),
            (Class::Network, Some(500), Some(1000)),
            (Class::Assured, Some(4000), Some(8000)),
            (Class::BestEffort, Some(1000), None),
            (Class::LowerEffort, Some(256), Some(2000)),
        ];
        for (class, rate, ceil) in limits {
            link.limit(class, rate.map(kbps), ceil.map(kbps));
            link.add(class, 1, Source::Always(sizes.0, sizes.1));
        }
        link.run(MINUTE);
        assert_rate(&link, Class::Operator, Duration::ZERO, 256.0);
        assert_rate(&link, Class::Network, Duration::ZERO, 500.0);
        assert_rate(&link, Class::LowerEffort, Duration::ZERO, 256.0);
        // 3988 kbit/s remain beyond all rates, shared 8 : 4.
        assert_rate(&link, Class::Assured, Duration::ZERO, 4000.0 + 3988.0 * 2.0 / 3.0);
        assert_rate(&link, Class::BestEffort, Duration::ZERO, 1000.0 + 3988.0 / 3.0);
        // Each class alone, up to its ceiling.
        for stopping in [3, 2, 1, 0] {
            link.stop(stopping);
            if stopping == 3 {
                // Assured is now at its ceiling. The rest is spare capacity, first for the network
                // class.
                let from = link.now;
                link.run(from + MINUTE);
                assert_rate(&link, Class::Assured, from, 8000.0);
                assert_rate(&link, Class::Network, from, 1000.0);
                assert_rate(&link, Class::LowerEffort, from, 744.0);
            }
        }
        let from = link.now;
        link.run(from + MINUTE);
        assert_rate(&link, Class::LowerEffort, from, 2000.0);
    }
}

#[test]
fn lower_effort_yields_keeps_its_floor_and_uses_an_idle_link() {
    let best = Class::BestEffort;
    for (floor, expected_kbps) in [(Some(256), 256.0), (Some(0), 0.0), (None, 250.0)] {
        let mut link = Link::new(kbps(5000), 1);
        link.limit(Class::LowerEffort, floor.map(kbps), None);
        link.add_bulk(Class::LowerEffort, 1);
        link.run(MINUTE);
        assert!(link.rate_of(Class::LowerEffort, Duration::ZERO) >= 0.95 * 5_000_000.0);
        let (from, arrived) = (link.now, link.add_bulk(best, 2));
        link.run(from + RTT);
        let first = link.sent.iter().find(|sent| sent.flow == arrived).unwrap();
        assert!(first.at - from <= two_packets(&link), "{:?}", first.at - from);
        let lower_kbps = link.rate_of(Class::LowerEffort, from) / 1000.0;
        // The burst of its floor, four packets, may leave in this time.
        assert!(lower_kbps <= expected_kbps + 48.0 / RTT.as_secs_f64() + 20.0, "{lower_kbps}");
        link.run(from + MINUTE);
        let lower_kbps = link.rate_of(Class::LowerEffort, from) / 1000.0;
        assert!((lower_kbps - expected_kbps).abs() <= 0.02 * expected_kbps + 0.1, "{lower_kbps}");
        assert_rate(&link, best, from, 5000.0 - lower_kbps);
    }
}

#[test]
fn the_operator_keeps_its_rate_and_waits_for_two_packets_at_most() {
    // With a configured rate, and without one.
    for configured in [Some(kbps(500)), None] {
        let mut link = Link::new(kbps(2000), 1);
        link.limit(Class::Operator, configured, configured);
        for class in [Class::Network, Class::Assured, Class::BestEffort, Class::LowerEffort] {
            link.limit(class, configured.map(|_| kbps(1500)), None); // oversold
            for flow in 0..8 {
                link.add_bulk(class, flow % 3);
            }
        }
        // 480 kbit/s in packets of 1200 bytes.
        let operator = link.add(Class::Operator, 0, every(20, 1200));
        link.run(MINUTE);
        assert_rate(&link, Class::Operator, Duration::ZERO, 480.0);
        let longest = *link.waits(operator).last().unwrap();
        assert!(longest <= two_packets(&link), "{longest:?}");
        link.add_bulk(Class::Operator, 0);
        let from = link.now;
        link.run(from + MINUTE);
        // By weight: 32 of 32 + 16 + 8 + 4 + 4/19 of 2 Mbit/s.
        let expected =
            if configured.is_some() { 500.0 } else { 2000.0 * 32.0 / (60.0 + 4.0 / 19.0) };
        assert_rate(&link, Class::Operator, from, expected);
    }
}

#[test]
fn urgent_and_first_packets_wait_for_two_packets_at_most() {
    // Three bulk downloads of eight connections each, a call, and passengers with sparse requests.
    let mut link = Link::new(kbps(8000), 1);
    for flow in 0..24 {
        link.add_bulk(Class::BestEffort, flow % 3);
    }
    let call = link.add(Class::Network, 3, every(20, 200));
    let sparse = [
        link.add(Class::BestEffort, 4, every(1013, 600)),
        link.add(Class::BestEffort, 0, every(1487, 400)),
        link.add(Class::Assured, 5, every(771, 1500)),
    ];
    link.run(MINUTE);
    let p95 = |flow| {
        let waits = link.waits(flow);
        waits[waits.len() * 95 / 100]
    };
    assert!(link.waits(call).len() > 2900 && p95(call) <= two_packets(&link), "{:?}", p95(call));
    assert!(p95(sparse[0]) <= two_packets(&link), "{:?}", p95(sparse[0]));
    assert!(p95(sparse[2]) <= two_packets(&link), "{:?}", p95(sparse[2]));
    // A new flow of a downloading passenger waits for the turns of the other downloaders, not for
    // its own flows.
    let turns = 3 * two_packets(&link);
    assert!(p95(sparse[1]) <= turns, "{:?}", p95(sparse[1]));
}

#[test]
fn an_object_among_downloads_gets_its_share_of_the_link() {
    // 100 KB of best effort among three passengers with eight connections each: the fair share is a
    // quarter of 8 Mbit/s.
    let mut link = Link::new(kbps(8000), 1);
    for flow in 0..24 {
        link.add_bulk(Class::BestEffort, flow % 3);
    }
    link.run(SECOND);
    let object = link.add_bulk(Class::BestEffort, 9);
    let began = link.now;
    while link.bytes(began, |sent| sent.flow == object) < 100_000 {
        link.run(link.now + Duration::from_millis(1));
    }
    let limit = kbps(2000).time_for(100_000);
    assert!(link.now - began <= limit * 3 / 2, "{:?} beside {limit:?}", link.now - began);
}

#[test]
fn extra_connections_gain_nothing() {
    let mut link = Link::new(kbps(8000), 1);
    for flow in 0..33 {
        link.add(Class::BestEffort, u32::from(flow == 32), Source::Always(40, PACKET));
    }
    link.run(MINUTE);
    let [heavy, other] = [0, 1]
        .map(|passenger| link.bytes(Duration::ZERO, |sent| sent.passenger == passenger) as f64);
    assert!((heavy / other - 1.0).abs() <= 0.05, "{heavy} compared with {other}");
    // Nor do flows opened one after another.
    let mut link = Link::new(kbps(8000), 1);
    link.add_bulk(Class::BestEffort, 1);
    while link.now < MINUTE {
        let flow = link.add_bulk(Class::BestEffort, 0);
        link.run(link.now + Duration::from_millis(4));
        link.stop(flow);
        let gone = link.flows[flow].handle;
        link.scheduler.remove(gone);
    }
    let short = link.bytes(Duration::ZERO, |sent| sent.passenger == 0) as f64;
    let other = link.bytes(Duration::ZERO, |sent| sent.passenger == 1) as f64;
    assert!(short <= 1.05 * other, "{short} beside {other}");
}

#[test]
fn twenty_passengers_share_equally() {
    let mut noise = Noise(7);
    for seed in 0..20 {
        let mut link = Link::new(kbps(20_000), seed);
        for passenger in 0..20 {
            let largest = noise.within(100, PACKET);
            for _ in 0..noise.within(1, 32) {
                link.add(Class::BestEffort, passenger, Source::Always(40, largest));
            }
        }
        link.run(2 * SECOND);
        let of = |passenger| link.bytes(Duration::ZERO, |sent| sent.passenger == passenger) as f64;
        let shares: Vec<f64> = (0..20).map(of).collect();
        let (sum, squares) =
            (shares.iter().sum::<f64>(), shares.iter().map(|s| s * s).sum::<f64>());
        let jain = sum * sum / (20.0 * squares);
        assert!(jain >= 0.98, "{jain} of {shares:?}, seed {seed}");
    }
}

#[test]
fn the_rural_paws_policy_is_enforced() {
    // Forward link of the paper: whitelisted services get 8 Mbit/s; the rest gets at most 2 Mbit/s,
    // at lower priority.
    let run = |with_rest| {
        let mut link = Link::new(kbps(8500), 1);
        link.limit(Class::Assured, Some(kbps(8000)), Some(kbps(8000)));
        link.limit(Class::LowerEffort, Some(kbps(0)), Some(kbps(2000)));
        if with_rest {
            for flow in 0..16 {
                link.add_bulk(Class::LowerEffort, flow % 4);
            }
        }
        link.run(SECOND);
        let page = link.add_bulk(Class::Assured, 9);
        let began = link.now;
        while link.bytes(began, |sent| sent.flow == page) < 2_000_000 {
            link.run(link.now + Duration::from_millis(1));
        }
        let took = link.now - began;
        link.stop(page);
        let from = link.now;
        link.run(from + MINUTE);
        if with_rest {
            assert_rate(&link, Class::LowerEffort, from, 2000.0);
        }
        took.as_secs_f64()
    };
    let (alone, beside) = (run(false), run(true));
    assert!((beside / alone - 1.0).abs() <= 0.05, "{beside} s instead of {alone} s");
}

#[test]
fn repair_packets_count_against_their_class() {
    let mut link = Link::new(kbps(10_000), 1);
    link.limit(Class::BestEffort, None, Some(kbps(2000)));
    link.add_bulk(Class::BestEffort, 1);
    for step in 1..6000 {
        link.run(Duration::from_millis(10 * step));
        // 0.5 Mbit/s of repair packets.
        link.scheduler.charge(Class::BestEffort, 625, link.now);
    }
    assert_rate(&link, Class::BestEffort, Duration::ZERO, 1500.0);
    assert_eq!(link.scheduler.class_counters(Class::BestEffort).charged_bytes, 5999 * 625);
}

#[test]
fn traffic_on_an_idle_link_is_not_held_against_its_class() {
    let mut link = Link::new(kbps(3000), 1);
    link.scheduler.charge(Class::BestEffort, 10_000_000, Duration::ZERO);
    let flows = [Class::Assured, Class::BestEffort].map(|class| link.add_bulk(class, 1));
    link.run(10 * SECOND);
    assert_rate(&link, Class::BestEffort, Duration::ZERO, 1000.0);
    flows.into_iter().for_each(|flow| link.stop(flow));
    link.scheduler.charge(Class::Assured, 10_000_000, link.now);
    let from = link.now;
    flows.into_iter().for_each(|flow| link.flows[flow].source = Source::Always(PACKET, PACKET));
    link.run(from + 10 * SECOND);
    assert_rate(&link, Class::BestEffort, from, 1000.0);
}

#[test]
fn traffic_sent_without_a_pick_does_not_delay_its_class() {
    let mut scheduler = Scheduler::new();
    let assured = scheduler.add(0, Class::Assured, 1);
    let best = scheduler.add(1, Class::BestEffort, 2);
    scheduler.spent(best, 1_000_000, SECOND);
    scheduler.spent_datagram(best, 1_000_000, Duration::ZERO, SECOND);
    scheduler.activate(assured, SECOND);
    scheduler.activate(best, SECOND);
    let turns: Vec<_> = (0..6)
        .map(|_| {
            let id = scheduler.pick(SECOND).unwrap();
            scheduler.spent(if id == 0 { assured } else { best }, 1000, SECOND);
            id
        })
        .collect();
    assert_eq!(turns, [0, 1, 0, 0, 1, 0], "two to one from the start");
}

#[test]
fn a_passenger_is_new_for_one_quantum_and_not_again_after_a_pause() {
    let mut scheduler = Scheduler::new();
    let [bulk, page] = [1, 2].map(|id| scheduler.add(id, Class::BestEffort, id as u32));
    assert!(!scheduler.picks_new(SECOND), "no flow is active");
    scheduler.activate(bulk, SECOND);
    scheduler.spent(bulk, 3000, SECOND);
    assert_eq!((scheduler.pick(SECOND), scheduler.picks_new(SECOND)), (Some(1), false));
    scheduler.activate(page, SECOND);
    for _ in 0..3 {
        assert_eq!((scheduler.pick(SECOND), scheduler.picks_new(SECOND)), (Some(2), true));
        scheduler.spent(page, 1000, SECOND);
    }
    assert_eq!((scheduler.pick(SECOND), scheduler.picks_new(SECOND)), (Some(1), false));
    scheduler.deactivate(page);
    scheduler.activate(page, SECOND);
    assert_eq!((scheduler.pick(SECOND), scheduler.picks_new(SECOND)), (Some(1), false));
}

#[test]
fn counters_match_the_traffic() {
    let mut link = Link::new(kbps(1200), 1); // 10 ms a packet
    let flows = [(1, Class::Assured), (1, Class::BestEffort), (2, Class::BestEffort)];
    for (passenger, class) in flows {
        link.add_bulk(class, passenger);
    }
    link.run(MINUTE);
    let max = SnapshotLimits { passengers: 9, flows: 9 };
    let snapshot = link.scheduler.snapshot(max);
    let scheduler = &link.scheduler;
    for (flow, (passenger, class)) in flows.into_iter().enumerate() {
        let bytes = link.bytes(Duration::ZERO, |sent| sent.flow == flow) as u64;
        let counters = scheduler.flow_counters(link.flows[flow].handle).unwrap();
        assert_eq!((counters.bytes, counters.packets), (bytes, bytes / PACKET as u64));
        assert!(
            counters.delay.count == counters.packets && counters.delay.max >= counters.delay.mean()
        );
        let of_class = link.bytes(Duration::ZERO, |sent| sent.class == class) as u64;
        assert_eq!(scheduler.class_counters(class).sent.bytes, of_class);
        // Each passenger has one flow per class.
        let is_it = |subscriber: &&PassengerActivity| {
            (subscriber.passenger, subscriber.class) == (passenger, class)
        };
        assert_eq!(snapshot.passengers.iter().find(is_it).unwrap().activity.total, counters);
    }
    assert_eq!(scheduler.class_counters(Class::BestEffort).flows, 2);
    assert_eq!((snapshot.all_passengers, snapshot.all_flows), (3, 3));
    // Assured gets two thirds: every second and third packet.
    let assured = scheduler.class_counters(Class::Assured).sent.delay;
    assert!((assured.mean().as_secs_f64() - 0.015).abs() < 0.001, "{:?}", assured.mean());
    assert_eq!(assured.max, Duration::from_millis(20));
    let gone = link.flows[0].handle;
    link.scheduler.remove(gone);
    assert_eq!(link.scheduler.flow_counters(gone), None);
    let snapshot = link.scheduler.snapshot(max);
    assert_eq!(
        (snapshot.all_passengers, snapshot.all_flows),
        (3, 2),
        "idle subscribers are remembered"
    );
}
