//! Strangers' answers to a call, and calls during a session.

use std::net::SocketAddr;

use rand::SeedableRng;

use super::super::{AirConfig, AirCore, Core};
use super::*;
use crate::Settings;
use crate::crypto::PROLOGUE;
use crate::curve;

#[test]
fn garbage_at_the_air_costs_no_curve_arithmetic() {
    let mut rng = Rng::seed_from_u64(7);
    let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
    let own = MacKey::new(&air.public());
    let address: SocketAddr = "198.18.0.2:4500".parse().expect("it is an address");
    let elsewhere = "198.18.0.2:4501".parse().expect("it is an address");
    let settings = Settings::default();
    let config = AirConfig { secret: air, hub: hub.public(), address, settings, first_counter: 1 };
    let (mut core, mut init) = (AirCore::new(config, [1; 32]), Vec::new());
    core.transmit(Duration::ZERO, &mut init).expect("it calls");
    let costs = |core: &mut AirCore, rng: &mut Rng, (from, knows_index, knows_key)| {
        let before = curve::operations();
        let mut message = [0; RESPONSE_BYTES];
        rng.fill_bytes(&mut message);
        message[0] = RESPONSE;
        if knows_index {
            message[8..12].copy_from_slice(&init[4..8]);
        }
        if knows_key {
            own.sign(&mut message, None);
        }
        core.handle_datagram(&message, from, false, Duration::ZERO);
        curve::operations() - before
    };
    for from in [address, elsewhere] {
        for (knows_index, knows_key) in [(false, false), (false, true), (true, false)] {
            for _ in 0..100 {
                let cost = costs(&mut core, &mut rng, (from, knows_index, knows_key));
                assert_eq!(cost, 0, "{from}, index {knows_index}, key {knows_key}");
            }
        }
    }
    assert_eq!(costs(&mut core, &mut rng, (elsewhere, true, true)), 0, "nobody is called there");
    assert!(costs(&mut core, &mut rng, (address, true, true)) > 0, "this has to be looked into");
}

#[test]
fn calls_during_a_session_are_at_most_four_seconds_apart_and_spread() {
    let (mut rng, mut out) = (Rng::seed_from_u64(8), Vec::new());
    let hub = SecretKey::generate(&mut rng).public();
    let mut waits = Vec::new();
    for session_instance in [0, 5] {
        let secret = SecretKey::generate(&mut rng);
        let mut initiator = Initiator::new(PROLOGUE, secret, hub, 1, &mut rng);
        initiator.session_instance = session_instance;
        for _ in 0..12 {
            let now = initiator.next_attempt;
            initiator.call((1, 0), Duration::from_secs(1), now, &mut rng, &mut out);
            waits.push((initiator.next_attempt - now).as_secs_f64());
        }
    }
    let (without, with) = waits.split_at(12);
    assert_eq!(without[..6], [1.5, 2.25, 3.375, 5.0625, 7.59375, 10.0]);
    assert_eq!(with[..3], without[..3]);
    assert!(with[3..].iter().all(|wait| (3.0..=4.0).contains(wait)), "{with:?}");
    let mut spread = with[3..].to_vec();
    spread.sort_by(f64::total_cmp);
    spread.dedup();
    assert!(spread.len() >= 8, "{with:?}");
}

#[test]
fn frequent_calls_leave_time_for_an_answer_and_become_rarer_after_two_minutes() {
    let (mut rng, mut out) = (Rng::seed_from_u64(9), Vec::new());
    let (hub, secret) = (SecretKey::generate(&mut rng).public(), SecretKey::generate(&mut rng));
    let mut initiator = Initiator::new(PROLOGUE, secret, hub, 1, &mut rng);
    initiator.set_calls_often(true);
    let (rtt, mut waits) = (Duration::from_millis(600), Vec::new());
    while waits.iter().sum::<Duration>() < Duration::from_secs(180) {
        let now = initiator.next_attempt;
        initiator.call((1, 0), rtt, now, &mut rng, &mut out);
        waits.push(initiator.next_attempt - now);
    }
    let mut since = Duration::ZERO;
    for (number, wait) in waits.iter().enumerate() {
        assert!(*wait > rtt, "a cookie names the last call");
        assert!(*wait <= rtt * 3 / 2 || since >= Duration::from_secs(120), "{number}: {wait:?}");
        since += *wait;
    }
    assert_eq!(waits.last(), Some(&MAX_ATTEMPT_INTERVAL));
    waits.truncate(50);
    waits.sort();
    waits.dedup();
    assert!(waits.len() > 30, "they are spread: {waits:?}");
}
