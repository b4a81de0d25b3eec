//! Sessions over paths that carry less than provisioned, from the start or later.

use std::time::Duration;

use super::common::{HUB, Pair, bytes, read_all, write_all};
use bentpipe_link::{Core, Settings};
use bentpipe_units::BitRate;
use proptest::prelude::*;

const RTT: Duration = Duration::from_millis(761);

fn mtus(pair: &mut Pair) -> [usize; 2] {
    let air = pair.air.current().unwrap().1.mtu_bytes();
    [air, pair.hub.sessions().next().unwrap().2.mtu_bytes()]
}

/// Transfers `len` bytes both ways at once. Calls `each` at every step with the bytes received so
/// far.
fn exchange(pair: &mut Pair, len: usize, mut each: impl FnMut(&mut Pair, usize)) {
    let (flow, body) = (pair.open(b""), bytes(len));
    let far = pair.accept();
    let (mut up, mut down) = ((0, Vec::new()), (0, Vec::new()));
    pair.run_until("every byte", Duration::from_secs(600), |pair| {
        write_all(&mut pair.hub, far, pair.now, &body, &mut down.0);
        write_all(&mut pair.air, flow, pair.now, &body, &mut up.0);
        pair.flush();
        let here = read_all(&mut pair.hub, far, pair.now, &mut up.1);
        let there = read_all(&mut pair.air, flow, pair.now, &mut down.1);
        each(pair, down.1.len());
        here && there
    });
    assert!(up.1 == body && down.1 == body);
}

#[test]
fn the_provisioned_mtu_is_in_use_a_round_trip_after_the_start() {
    let mut pair = Pair::new(1, 0.0);
    pair.connect();
    assert_eq!(mtus(&mut pair), [1280, 1280]);
    pair.run_for(RTT * 3 / 2, |_| {});
    assert_eq!(mtus(&mut pair), [1500, 1500]);
}

#[test]
fn a_black_hole_delays_a_transfer_by_a_bounded_number_of_round_trips() {
    for (loss, round_trips) in [(0.0, 12), (0.06, 16), (0.2, 18)] {
        for seed in 0..5 {
            let mut pair = Pair::new(seed, loss);
            pair.connect();
            pair.run_for(RTT * 20, |_| {});
            assert_eq!(mtus(&mut pair), [1500, 1500]);
            let (mut hole_at, mut left_at) = (None, None);
            exchange(&mut pair, 2_000_000, |pair, came| {
                if came > 500_000 && hole_at.is_none() {
                    hole_at = Some(pair.now);
                    (pair.up.mtu_bytes, pair.down.mtu_bytes) = (1400, 1400);
                }
                if hole_at.is_some() && left_at.is_none() && mtus(pair).iter().all(|&it| it <= 1400)
                {
                    left_at = Some(pair.now);
                }
            });
            let took = left_at.unwrap() - hole_at.unwrap();
            assert!(took < RTT * round_trips, "{took:?} at {loss}, seed {seed}");
            let counters = pair.hub.sessions().next().unwrap().2.counters();
            assert!(counters.fragments_sent > 0 && counters.violations == 0, "{counters:?}");
            pair.run_for(RTT * 60, |_| {});
            assert!(mtus(&mut pair).iter().all(|it| (1392..=1400).contains(it)));
        }
    }
}

#[test]
fn a_smaller_path_costs_no_session_and_is_tried_again() {
    let mut pair = Pair::new(2, 0.06);
    (pair.up.mtu_bytes, pair.down.mtu_bytes) = (1400, 1400);
    pair.connect();
    exchange(&mut pair, 100_000, |_, _| {});
    pair.run_for(RTT * 60, |_| {});
    assert!(mtus(&mut pair).iter().all(|it| (1392..=1400).contains(it)));
    (pair.up.mtu_bytes, pair.down.mtu_bytes) = (1500, 1500);
    pair.run_for(Duration::from_secs(700), |_| {});
    assert!(mtus(&mut pair).iter().all(|&it| it <= 1400), "nobody asks without need");
    exchange(&mut pair, 500_000, |_, _| {});
    assert_eq!(mtus(&mut pair), [1500, 1500]);
}

#[test]
fn larger_sizes_are_not_expected_while_they_are_tried_again() {
    let mut pair = Pair::new(6, 0.06);
    (pair.up.mtu_bytes, pair.down.mtu_bytes) = (1400, 1400);
    pair.connect();
    let expected = |pair: &mut Pair| {
        let session = pair.air.current().unwrap().1;
        session.provisioned_datagram_bytes(1) - session.max_datagram_bytes(1)
    };
    assert_eq!(expected(&mut pair), 220, "before anything is known");
    exchange(&mut pair, 100_000, |_, _| {});
    pair.run_for(RTT * 60, |_| {});
    assert!(mtus(&mut pair).iter().all(|it| (1392..=1400).contains(it)));
    assert_eq!(expected(&mut pair), 0);
    pair.run_for(Duration::from_secs(700), |_| {});
    // The first large packets start the search again, whose answers larger ones have to wait for.
    let mut min = usize::MAX;
    exchange(&mut pair, 300_000, |pair, _| {
        assert_eq!(expected(pair), 0);
        min = min.min(mtus(pair)[0]);
    });
    assert!(min >= 1392, "what is proven stays in use: {min}");
    (pair.up.mtu_bytes, pair.down.mtu_bytes) = (1500, 1500);
    pair.run_for(Duration::from_secs(700), |_| {});
    exchange(&mut pair, 500_000, |_, _| {});
    assert_eq!((mtus(&mut pair), expected(&mut pair)), ([1500, 1500], 0));
}

#[test]
fn an_hour_of_loss_is_not_a_smaller_path() {
    let mut pair = Pair::new(3, 0.06);
    pair.connect();
    pair.run_for(RTT * 20, |_| {});
    let (flow, far) = (pair.open(b""), pair.accept());
    let (chunk, end) = (bytes(20_000), pair.now + Duration::from_secs(3600));
    let (mut next, mut got) = (pair.now, Vec::new());
    pair.run_for(Duration::from_secs(3600), |pair| {
        // An object now and then: few packets in flight could prove the size.
        if pair.now >= next && pair.now < end {
            next = pair.now + Duration::from_secs(7);
            let now = pair.now;
            pair.hub.session(far.0).unwrap().write(far.1, &chunk, now);
        }
        read_all(&mut pair.air, flow, pair.now, &mut got);
        assert_eq!(mtus(pair), [1500, 1500]);
    });
    assert!(got.len() > 3_000_000, "{}", got.len());
}

#[test]
fn a_move_from_ipv4_to_ipv6_keeps_every_packet_within_the_mtu() {
    for loss in [0.0, 0.06] {
        let mut pair = Pair::new(4, loss);
        (pair.up.mtu_bytes, pair.down.mtu_bytes) = (1500, 1500);
        pair.connect();
        pair.run_for(RTT * 10, |_| {});
        let mut moved = false;
        exchange(&mut pair, 2_000_000, |pair, came| {
            if came > 500_000 && !moved {
                moved = true;
                pair.air_address = "[2001:db8::7]:40000".parse().unwrap();
                pair.down.longest = 0;
            }
        });
        let (_, _, session) = pair.hub.sessions().next().unwrap();
        assert_eq!(session.address(), pair.air_address);
        let counters = session.counters();
        assert!(counters.fragments_sent > 0, "what was made for IPv4 goes in two: {counters:?}");
        assert!(pair.down.longest <= 1500, "{} bytes", pair.down.longest);
        assert_eq!(session.mtu_bytes(), 1500);
    }
}

#[test]
fn a_refusal_by_the_system_takes_effect_at_once() {
    let mut pair = Pair::new(5, 0.0);
    pair.connect();
    pair.run_for(RTT * 3, |_| {});
    let (to, now) = ((HUB.parse().unwrap(), 0), pair.now);
    pair.air.too_large(("203.0.113.1:1".parse().unwrap(), 0), 1472, now);
    assert_eq!(mtus(&mut pair), [1500, 1500], "another's");
    pair.air.too_large(to, 1472, now);
    assert_eq!(mtus(&mut pair), [1280, 1500]);
    let to = (pair.air_address, 0);
    pair.hub.too_large(to, 1472, now);
    assert_eq!(mtus(&mut pair), [1280, 1280]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn no_packet_is_ever_longer_than_provisioned(
        seed: u64, max in 1280usize..3000, carries in 1280usize..3000, loss in 0.0..0.3,
    ) {
        let rate = BitRate::from_bps(1_890_000);
        let settings = Settings { rate, mtu_bytes: max, ..Settings::default() };
        let mut pair = Pair::with(seed, loss, settings);
        pair.connect();
        exchange(&mut pair, 200_000, |pair, came| {
            if came > 100_000 {
                (pair.up.mtu_bytes, pair.down.mtu_bytes) = (carries, carries);
            }
        });
        pair.run_for(RTT * 100, |_| {});
        prop_assert!(pair.up.longest <= max as u64 && pair.down.longest <= max as u64);
        for mtu in mtus(&mut pair) {
            prop_assert!((1280..=max).contains(&mtu), "{mtu} of {max}");
        }
    }
}
