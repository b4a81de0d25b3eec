//! Sessions over two paths whose interfaces or modems report that they fail or return.

use std::time::Duration;

use super::paths_tests::{DELAY, STEP, World, path_of, reported};
use crate::endpoint::Core;

/// Path 1 becomes silent, which the air alone notices. Then its interface reports that it is down.
fn assert_silence_is_reported(world: &mut World) {
    world.dead[1] = true;
    world.open(300_000);
    while world.live()[0][1] {
        world.run(STEP);
    }
    assert!(world.live()[1][1], "the ground has sent nothing that asks for an answer");
    world.air.unsendable(1, world.now);
    world.run(DELAY + 3 * STEP);
    assert_eq!(world.live(), [[true, false]; 2]);
}

#[test]
fn a_path_stops_and_returns_at_once_with_news_of_its_modem() {
    let mut world = World::connected([1280; 2]);
    world.dead[1] = true;
    world.air.set_modem_rate(1, reported(8, true), world.now);
    assert_eq!(world.live()[0], [true, false], "nothing is waited for");
    // After so long it would be probed each few seconds.
    world.run(Duration::from_secs(60));
    world.dead[1] = false;
    world.air.set_modem_rate(1, reported(2_000, false), world.now);
    let began = world.now;
    while world.live() != [[true; 2]; 2] {
        world.run(STEP);
    }
    let took = world.now - began;
    assert!(took <= 4 * DELAY, "two round trips, not {took:?}");
}

#[test]
fn the_ground_stops_at_once_on_a_path_that_the_air_reports_as_down() {
    let mut world = World::connected([1280; 2]);
    world.dead[1] = true;
    world.air.unsendable(1, world.now);
    world.run(DELAY + 3 * STEP);
    assert_eq!(world.live(), [[true, false]; 2]);
}

#[test]
fn news_of_a_path_that_is_down_is_repeated() {
    let mut world = World::connected([1280; 2]);
    world.open(300_000);
    world.run(2 * DELAY);
    world.dead = [true; 2];
    world.air.unsendable(1, world.now);
    while path_of(world.air(), 0).news.left == 3 {
        world.run(STEP);
    }
    world.run(DELAY);
    assert!(world.live()[1][1], "the first packet is lost");
    world.dead[0] = false;
    world.run(DELAY);
    assert!(!world.live()[1][1], "the second one has told the ground");
}

#[test]
fn an_idle_session_reports_news_in_three_packets() {
    let mut world = World::connected([1280; 2]);
    world.dead = [true; 2];
    world.air.unsendable(1, world.now);
    let before = path_of(world.air(), 0).next_packet();
    while path_of(world.air(), 0).news.left > 1 {
        world.run(STEP);
    }
    world.run(DELAY);
    assert!(world.live()[1][1], "two packets are lost");
    world.dead[0] = false;
    world.run(DELAY);
    assert!(!world.live()[1][1], "the third one has told the ground");
    assert_eq!(path_of(world.air(), 0).next_packet(), before + 3, "and no other packet");
}

#[test]
fn what_was_in_flight_when_a_path_failed_does_not_make_it_live() {
    let mut world = World::connected([1280; 2]);
    world.open(300_000);
    world.run(4 * DELAY);
    world.air.unsendable(1, world.now);
    // What left before arrives, and the ground reports it.
    world.run(DELAY);
    world.dead[1] = true;
    let end = world.now + 4 * DELAY;
    while world.now < end {
        assert!(!world.live()[0][1], "the aircraft sends into nothing");
        world.run(STEP);
    }
}

#[test]
fn news_of_a_path_that_is_silent_tells_the_ground() {
    let mut world = World::connected([1280; 2]);
    assert_silence_is_reported(&mut world);
}

#[test]
fn a_path_that_works_again_is_not_reported_as_down() {
    let mut world = World::connected([1280; 2]);
    // One refused packet; nothing else is sent that could carry the news again.
    world.air.unsendable(1, world.now);
    world.run(4 * DELAY);
    assert_eq!(world.live(), [[true; 2]; 2], "a probe got through");
    let flow = world.open(20_000);
    world.run(DELAY + 20 * STEP);
    assert_eq!(world.live(), [[true; 2]; 2], "its return is not taken back");
    world.run(Duration::from_secs(1));
    assert_eq!(world.read(flow), 20_000);
    // The path that was refused for a moment reports the death of the other one.
    world.dead[0] = true;
    world.air.unsendable(0, world.now);
    world.run(DELAY + 3 * STEP);
    assert_eq!(world.live(), [[false, true]; 2]);
}

#[test]
fn a_path_that_returns_for_one_end_is_probed_by_the_other_at_once() {
    let mut world = World::connected([1280; 2]);
    world.dead[1] = true;
    world.air.unsendable(1, world.now);
    world.run(Duration::from_secs(60));
    assert_eq!(world.live(), [[true, false]; 2]);
    let before = path_of(world.hub(), 1).next_packet();
    while path_of(world.hub(), 1).next_packet() == before {
        world.run(STEP);
    }
    // The next regular probe is seconds away.
    world.dead[1] = false;
    world.air.sendable(1, world.now);
    world.run(DELAY + 3 * STEP);
    assert_eq!(path_of(world.hub(), 1).next_packet(), before + 2, "the ground has sent a probe");
}

#[test]
fn frequent_news_of_a_path_does_not_make_the_ground_probe_more_often() {
    let mut world = World::connected([1280; 2]);
    world.dead[1] = true;
    world.air.unsendable(1, world.now);
    world.run(Duration::from_secs(60));
    let before = path_of(world.hub(), 1).next_packet();
    const ROUND_TRIPS: u32 = 20;
    for _ in 0..ROUND_TRIPS * 10 {
        world.air.sendable(1, world.now);
        world.run(DELAY / 10);
        world.air.unsendable(1, world.now);
        world.run(DELAY / 10);
    }
    let probes = path_of(world.hub(), 1).next_packet() - before;
    let most = u64::from(ROUND_TRIPS) + 1;
    assert!((most / 2..=most).contains(&probes), "{probes} probes in {ROUND_TRIPS} round trips");
}

#[test]
fn alternating_news_of_a_path_that_works_does_not_make_the_ground_probe_more_often() {
    let mut world = World::connected([1280; 2]);
    world.run(Duration::from_secs(5));
    let before = path_of(world.hub(), 1).next_packet();
    const ROUND_TRIPS: u32 = 20;
    for _ in 0..ROUND_TRIPS * 10 {
        world.air.unsendable(1, world.now);
        world.run(DELAY / 10);
        world.air.sendable(1, world.now);
        world.run(DELAY / 10);
    }
    // Besides its probes the ground answers those of the air.
    let packets = path_of(world.hub(), 1).next_packet() - before;
    let most = u64::from(ROUND_TRIPS) * 3;
    assert!(packets <= most, "{packets} packets in {ROUND_TRIPS} round trips");
}

#[test]
fn a_path_that_a_probe_has_revived_is_reported_as_down_again() {
    let mut world = World::connected([1280; 2]);
    world.air.unsendable(1, world.now);
    world.run(4 * DELAY);
    assert_eq!(world.live(), [[true; 2]; 2], "a probe got through");
    assert_silence_is_reported(&mut world);
}

#[test]
fn a_lost_probe_of_a_path_that_returns_is_repeated_after_a_round_trip() {
    let mut world = World::connected([1280; 2]);
    world.dead[1] = true;
    world.air.unsendable(1, world.now);
    world.run(Duration::from_secs(60));
    world.air.sendable(1, world.now);
    // The first probes of both ends are lost.
    world.run(DELAY * 2);
    world.dead[1] = false;
    let began = world.now;
    while world.live() != [[true; 2]; 2] {
        world.run(STEP);
    }
    let took = world.now - began;
    assert!(took <= 8 * DELAY, "four round trips, not {took:?}");
}
