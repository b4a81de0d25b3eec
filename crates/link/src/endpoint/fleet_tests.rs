//! Changes of a fleet that is in the air.

use std::time::Duration;

use bentpipe_units::BitRate;

use super::vanish_tests::World;
use super::{Aircraft, Core, ShardFleet};
use crate::Class;
use crate::crypto::erasure_tests::{copies, only_reader, take_notes};
use crate::flow::Write;
use crate::key::PublicKey;
use crate::lease::LeaseMode;
use crate::settings::Settings;

/// Three aircraft, each with a download that is under way. Their keys are the same in every test, so
/// each test is the [`only_reader`].
fn busy() -> World {
    let mut world = World::seeded(&Settings::default(), 19);
    world.run(Duration::from_secs(1));
    let target = "origin.example:80".parse().unwrap();
    for air in &mut world.airs {
        air.open(&target, Class::BestEffort, 1, b"GET", world.now).unwrap();
    }
    world.run(Duration::from_secs(1));
    for (id, flow) in &world.flows {
        let session = world.hub.session(*id).unwrap();
        while matches!(session.write(*flow, &[0x5a; 4_096], world.now), Write::Taken(1..)) {}
    }
    world.run(Duration::from_millis(100));
    world
}

fn fleet(world: &World) -> Vec<Aircraft> {
    let one = |(key, entry): (&PublicKey, &super::aircraft::Entry)| Aircraft {
        key: *key,
        settings: entry.newest().clone(),
        highest_class: entry.highest_class,
    };
    world.hub.aircraft.iter().map(one).collect()
}

fn set(world: &mut World, aircraft: Vec<Aircraft>) {
    world.hub.set_fleet(ShardFleet { aircraft, ..ShardFleet::default() }, world.now);
}

fn rate(world: &mut World, key: &PublicKey) -> u64 {
    let now = world.now;
    world.hub.session_of(key).unwrap().lease(now).rate.bps()
}

#[test]
fn removed_aircraft_are_told_and_their_keys_are_nowhere_in_memory() {
    let _only = only_reader();
    let mut world = busy();
    let notes = take_notes();
    assert!(notes.iter().any(|note| !copies(note).is_empty()), "the test finds what is there");
    set(&mut world, Vec::new());
    assert_eq!(world.hub.sessions().count(), 0);
    world.run(Duration::from_millis(20));
    assert!(world.airs.iter_mut().all(|air| air.current().is_none()), "they were told");
    world.airs.clear();
    for note in &notes {
        assert_eq!(copies(note), [""; 0], "a key is still in memory");
    }
}

#[test]
fn a_removed_aircraft_is_not_answered_and_one_that_returns_is() {
    let _only = only_reader();
    let mut world = busy();
    let all = fleet(&world);
    let gone = all[0].key;
    set(&mut world, all[1..].to_vec());
    world.run(Duration::from_secs(60));
    assert_eq!((world.hub.sessions().count(), world.hub.session_of(&gone).is_none()), (2, true));
    set(&mut world, all);
    world.run(Duration::from_secs(60));
    assert!(world.hub.session_of(&gone).is_some());
}

#[test]
fn nobody_else_is_touched() {
    let _only = only_reader();
    let mut world = busy();
    let mut all = fleet(&world);
    while world.hub.next_event().is_some() {}
    let (ids, visits): (Vec<_>, u64) = {
        let ids = world.hub.sessions.keys().copied().collect();
        (ids, world.hub.visits())
    };
    let stays: Vec<_> = all[1..].iter().map(|it| world.hub.responder.session_of(&it.key)).collect();
    all.remove(0);
    set(&mut world, all);
    assert_eq!(world.hub.visits(), visits, "no session was asked for anything");
    assert!(stays.iter().all(|id| ids.contains(&id.unwrap())));
    world.run(Duration::from_secs(1));
    let now = world.now;
    for (id, flow) in world.flows.clone() {
        if let Some(session) = world.hub.session(id) {
            assert!(stays.contains(&Some(id)));
            let written = session.write(flow, b"more", now);
            assert!(matches!(written, Write::Taken(_) | Write::Blocked), "its flow goes on");
        }
    }
}

#[test]
fn a_rate_counts_now_and_its_origin_from_the_next_session() {
    let _only = only_reader();
    let mut world = busy();
    let mut all = fleet(&world);
    let key = all[0].key;
    assert_eq!(rate(&mut world, &key), 1_000_000);
    all[0].settings.rate = BitRate::from_bps(300_000);
    set(&mut world, all.clone());
    assert_eq!(rate(&mut world, &key), 300_000);
    let sent = |world: &mut World| world.hub.session_of(&key).unwrap().counters().bytes_sent;
    world.run(Duration::from_secs(1));
    let before = sent(&mut world);
    world.run(Duration::from_secs(4));
    let bps = (sent(&mut world) - before) * 8 / 4;
    assert!((200_000..=310_000).contains(&bps), "{bps} bit/s");
    // A learned rate needs an agreement with the peer.
    all[0].settings.lease = LeaseMode::Learned;
    all[0].settings.rate = BitRate::from_bps(500_000);
    set(&mut world, all.clone());
    assert_eq!(rate(&mut world, &key), 300_000);
    let entry = &world.hub.aircraft[&key];
    assert_eq!(entry.next.as_deref().map(|it| it.lease), Some(LeaseMode::Learned));
    world.hub.session_of(&key).unwrap().close();
    world.run(Duration::from_secs(60));
    let entry = &world.hub.aircraft[&key];
    assert!(entry.next.is_none() && entry.settings.lease == LeaseMode::Learned);
    let now = world.now;
    assert!(world.hub.session_of(&key).unwrap().learns_rate(now));
}
