//! A hub whose sessions are divided over shards, in virtual time.

use std::collections::BTreeSet;
use std::time::Duration;

use bentpipe_link::secure::{Initiator, Rng};
use bentpipe_link::{BeamError, Class, Core, FlowEvent, Read, SecretKey, Settings, Write};
use bentpipe_units::BitRate;
use rand::SeedableRng;

use super::hub::{Fleet, settings};

const AIRCRAFT: usize = 9;
/// Port of none of the aircraft.
const NOBODY: u16 = 60_000;
/// Time for which a message that was read is not read again.
const REPEATS_FOR: Duration = Duration::from_secs(20);

/// Writes `text` to each of the hub's flows, and returns what each aircraft receives of it in two
/// seconds.
fn talk(fleet: &mut Fleet, text: &[u8]) -> Vec<Vec<u8>> {
    for (id, flow, _) in fleet.flows.clone() {
        let session = fleet.hub.session(id).expect("it goes on");
        assert_eq!(session.write(flow, text, fleet.now), Write::Taken(text.len()));
    }
    fleet.run(AIRCRAFT, Duration::from_secs(2));
    let now = fleet.now;
    let read = |(_, flow, craft): &(_, u64, usize)| {
        let (air, mut buffer) = (&mut fleet.airs[*craft], [0; 64]);
        let (id, _) = air.current().expect("it has a session");
        match air.session(id).map(|session| session.read(*flow, &mut buffer, now)) {
            Some(Read::Taken(bytes)) => buffer[..bytes].to_vec(),
            other => panic!("{other:?}"),
        }
    };
    fleet.flows.iter().map(read).collect()
}

fn fleet(shards: usize, settings: &Settings) -> Fleet {
    let mut fleet = Fleet::new(AIRCRAFT, settings, shards);
    fleet.grain = Duration::from_millis(1);
    fleet.connect(AIRCRAFT);
    fleet
}

#[test]
fn every_shard_serves_its_aircraft() {
    for shards in [2, 4] {
        let mut fleet = fleet(shards, &settings());
        let by_shard = fleet.hub.sessions_by_shard();
        let (few, many) = (AIRCRAFT / shards, AIRCRAFT.div_ceil(shards));
        assert!(by_shard.iter().all(|count| (few..=many).contains(count)), "{by_shard:?}");
        let ids: BTreeSet<_> = fleet.hub.sessions().map(|(id, ..)| id).collect();
        assert_eq!(ids.len(), AIRCRAFT, "no identifier is used twice");
        assert_eq!(fleet.hub.handed, (AIRCRAFT - by_shard[0]) as u64, "one call each");
        assert!(talk(&mut fleet, b"hello").iter().all(|heard| heard == b"hello"));
        while let Some((_, event)) = fleet.hub.next_event() {
            assert!(matches!(event, FlowEvent::Wake(_)), "{event:?}");
        }
    }
}

#[test]
fn new_keys_and_new_addresses_leave_a_session_at_its_shard() {
    let key_lifetime = Duration::from_secs(60);
    let mut fleet = fleet(4, &Settings { key_lifetime, ..Settings::default() });
    let (calls, begun) = (fleet.calls.len(), fleet.hub.sessions_begun());
    let by_shard = fleet.hub.sessions_by_shard();
    for round in 0..4u8 {
        fleet.network = round;
        fleet.run(AIRCRAFT, Duration::from_secs(100));
        assert!(talk(&mut fleet, &[round; 5]).iter().all(|heard| *heard == [round; 5]));
        for (_, _, session) in fleet.hub.sessions() {
            assert_eq!(session.address().ip().to_string(), format!("198.18.{round}.2"));
        }
    }
    assert!(fleet.calls.len() >= calls + 2 * AIRCRAFT, "each had new keys repeatedly");
    assert_eq!((fleet.hub.sessions_begun(), fleet.hub.sessions_by_shard()), (begun, by_shard));
}

/// Curve operations for calls of strangers and for recorded calls of each aircraft, and the number
/// of sessions afterwards.
fn cost_of_attacks(shards: usize) -> (u64, usize) {
    let mut fleet = fleet(shards, &settings());
    let calls = fleet.calls.clone();
    assert_eq!(calls.len(), AIRCRAFT);
    fleet.run(AIRCRAFT, REPEATS_FOR);
    let before = fleet.hub.curve_operations();
    for (craft, message) in &calls {
        let from = ([203, 0, 113, *craft as u8], NOBODY).into();
        fleet.hub.handle_datagram(message, from, false, fleet.now);
    }
    assert_eq!(fleet.hub.curve_operations() - before, 2 * AIRCRAFT as u64, "read, not answered");
    let mut rng = Rng::seed_from_u64(5);
    for number in 0..2_000u32 {
        let (own, hub) = (SecretKey::generate(&mut rng), fleet.secret.public());
        let mut stranger = Initiator::new(b"bentpipe link v1", own, hub, 1, &mut rng);
        let mut message = Vec::new();
        let now = fleet.now + Duration::from_millis(number.into());
        stranger.call((1, 0), Duration::ZERO, now, &mut rng, &mut message);
        let from = ([203, 0, (number >> 8) as u8, number as u8], NOBODY).into();
        fleet.hub.handle_datagram(&message, from, false, now);
    }
    fleet.run(AIRCRAFT, Duration::from_secs(5));
    (fleet.hub.curve_operations() - before, fleet.hub.sessions().count())
}

#[test]
fn attacks_cost_a_sharded_hub_no_more_than_another() {
    let costs = [1, 2, 4].map(cost_of_attacks);
    assert_eq!(costs, [costs[0]; 3]);
    assert_eq!(costs[0].1, AIRCRAFT);
}

#[test]
fn a_beam_needs_one_shard() {
    let rate = Some(BitRate::from_bps(100_000_000));
    let mut fleet = Fleet::new(AIRCRAFT, &settings(), 2);
    assert_eq!(fleet.hub.set_beam(rate, None, fleet.now), Err(BeamError::Shards(2)));
    assert_eq!(fleet.hub.set_beam(None, None, fleet.now), Ok(()));
    let mut fleet = Fleet::new(AIRCRAFT, &settings(), 1);
    assert_eq!(fleet.hub.set_beam(rate, None, fleet.now), Ok(()));
}

#[test]
fn an_aircraft_that_leaves_and_returns_gets_its_shard_again() {
    let mut fleet = fleet(4, &settings());
    let by_shard = fleet.hub.sessions_by_shard();
    fleet.hub.close();
    fleet.run(AIRCRAFT, Duration::from_secs(30));
    let target = "origin.example:80".parse().unwrap();
    for air in &mut fleet.airs {
        // It may still have to call.
        let _ = air.open(&target, Class::BestEffort, 1, b"GET", fleet.now);
    }
    fleet.run(AIRCRAFT, Duration::from_secs(30));
    assert_eq!(fleet.hub.sessions_begun(), 2 * AIRCRAFT as u64);
    assert_eq!(fleet.hub.sessions_by_shard(), by_shard);
}
