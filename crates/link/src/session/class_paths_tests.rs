//! Choices of paths by class.

use std::time::Duration;

use bentpipe_flow::OpenDatagrams;
use bentpipe_schedule::{ClassPaths, Metered, Spread};

use super::paths_tests::{World, settings};
use crate::Class;
use crate::endpoint::Core;
use crate::flow::Receive;
use crate::lane::SendLane;
use crate::settings::Settings;

/// Interval of a call's packets.
const INTERVAL: Duration = Duration::from_millis(20);
/// Packets of a call, and those before a path dies.
const PACKETS: u8 = 200;
const BEFORE: u8 = 100;

fn with_paths(class: Class, paths: ClassPaths) -> Settings {
    let mut settings = settings([1280; 2]);
    settings.classes[class].paths = paths;
    settings
}

/// Sends a call of the operator's class, during which path `dies` dies. Returns the number of packets
/// that arrived and the longest time of one.
fn call(spread: Spread, dies: usize) -> (usize, Duration) {
    let paths = ClassPaths { spread, ..ClassPaths::default() };
    let air = with_paths(Class::Operator, paths);
    let mut world = World::with(&air, &settings([1280; 2]));
    world.run(Duration::from_secs(2));
    let (target, now) = ("origin.example:5060".parse().unwrap(), world.now);
    let class = Class::Operator;
    let open = OpenDatagrams { target, protocol: 17, source: 4000, class, passenger: 1 };
    let flow = world.air().open_datagrams(&open, now).unwrap();
    let (mut arrived, mut longest) = (0, Duration::ZERO);
    for sent in 0..PACKETS + 50 {
        world.dead[dies] = sent >= BEFORE;
        let now = world.now;
        if sent < PACKETS {
            world.air().send_datagram(flow, &[sent; 160], now).unwrap();
        }
        world.run(INTERVAL);
        let now = world.now;
        while let Receive::Taken(datagram) = world.hub().receive_datagram(flow, now) {
            arrived += 1;
            longest = longest.max(INTERVAL * u32::from(sent + 1 - datagram[0]));
        }
    }
    (arrived, longest)
}

#[test]
fn a_call_on_each_path_does_not_notice_that_one_dies() {
    for dies in [0, 1] {
        let (arrived, longest) = call(Spread::Each, dies);
        assert_eq!(arrived, usize::from(PACKETS));
        // A one-way delay of 50 ms, in steps of the interval.
        assert!(longest <= Duration::from_millis(80), "{longest:?} after path {dies} died");
    }
    let (arrived, longest) = call(Spread::All, 0);
    assert!(arrived < usize::from(PACKETS) || longest > Duration::from_millis(120));
}

#[test]
fn a_stream_on_each_path_does_not_notice_that_one_dies() {
    let took = |spread| {
        let paths = ClassPaths { spread, ..ClassPaths::default() };
        let both = with_paths(Class::BestEffort, paths);
        let mut world = World::with(&both, &settings([1280; 2]));
        world.run(Duration::from_secs(2));
        let (flow, began) = (world.open(10_000), world.now);
        world.run(Duration::from_millis(45));
        world.dead[0] = true;
        while world.read(flow) < 10_000 {
            world.run(Duration::from_millis(1));
        }
        world.now - began
    };
    // One way and ten packets of 5 ms.
    let each = took(Spread::Each);
    assert!(each <= Duration::from_millis(110), "{each:?}");
    let all = took(Spread::All);
    assert!(all > Duration::from_millis(150), "{all:?}");
}

/// Sends `bytes` while path 1 is metered. Returns the bytes that arrived in a while, and those sent on
/// each path.
fn beside_metered(metered: Metered, bytes: usize, is_free_dead: bool) -> (usize, [u64; 2]) {
    let paths = ClassPaths { metered, ..ClassPaths::default() };
    let [mut air, hub] = [(); 2].map(|()| with_paths(Class::BestEffort, paths));
    air.paths[0].metered = true;
    let mut world = World::with(&air, &hub);
    world.run(Duration::from_secs(2));
    world.dead[0] = is_free_dead;
    world.run(Duration::from_secs(4));
    let before = world.carried;
    let flow = world.open(bytes);
    let mut read = 0;
    for _ in 0..80 {
        world.run(Duration::from_millis(100));
        read = world.read(flow);
    }
    (read, [0, 1].map(|path| world.carried[path] - before[path]))
}

#[test]
fn a_class_uses_a_metered_path_as_it_is_set() {
    // As much as a flow takes at once.
    const LONG: usize = 260_000;
    for (metered, is_free_dead, arrives, pays) in [
        (Metered::Never, false, true, false),
        (Metered::Never, true, false, false),
        (Metered::Standby, false, true, false),
        (Metered::Standby, true, true, true),
        (Metered::Urgent, false, true, false),
        (Metered::Urgent, true, true, true),
        (Metered::Always, false, true, true),
        (Metered::Always, true, true, true),
    ] {
        let (read, carried) = beside_metered(metered, LONG, is_free_dead);
        let what = format!("{metered:?}, free path dead: {is_free_dead}, {read}, {carried:?}");
        assert_eq!(read == LONG, arrives, "{what}");
        assert_eq!(carried[1] > LONG as u64 / 3, pays, "{what}");
    }
}

#[test]
fn short_exchanges_use_a_metered_path_if_they_are_urgent() {
    let carried = |metered| beside_metered(metered, 8_000, false).1[1];
    let [standby, urgent] = [Metered::Standby, Metered::Urgent].map(carried);
    assert!(standby < 1_000 && urgent > 2_500, "{standby} {urgent}");
}

/// Lets the free path die in the middle of a transfer of a class that uses no metered path.
fn stranded() -> World {
    let never = ClassPaths { metered: Metered::Never, ..ClassPaths::default() };
    let [mut air, hub] = [(); 2].map(|()| with_paths(Class::BestEffort, never));
    air.paths[0].metered = true;
    let mut world = World::with(&air, &hub);
    world.run(Duration::from_secs(2));
    world.open(100_000);
    world.run(Duration::from_millis(120));
    world.dead[0] = true;
    world
}

#[test]
fn symbols_that_no_live_path_may_carry_cause_no_timer() {
    let mut world = stranded();
    let (mut queued, step) = (0, Duration::from_millis(1));
    for _ in 0..6_000 {
        world.run(step);
        let now = world.now;
        assert!(world.air.next_timeout(now) > now, "{:?}", world.air().next_timer(now));
        queued = world.air().send.reliable.iter().map(SendLane::queued_bytes).sum();
    }
    assert_eq!(world.live()[0], [false, true]);
    assert!(queued > 5_000, "{queued} bytes wait for the free path");
}

#[test]
fn a_lost_end_is_probed_although_older_symbols_wait_for_another_path() {
    let mut world = stranded();
    world.run(Duration::from_secs(5));
    let (now, target) = (world.now, "origin.example:80".parse().unwrap());
    let (flow, _) = world.air().open(&target, Class::Assured, 2, &[7; 500], now).unwrap();
    // Its only packet is lost, and nothing follows in its lane.
    world.dead[1] = true;
    world.run(Duration::from_millis(60));
    world.dead[1] = false;
    world.run(Duration::from_millis(600));
    assert_eq!(world.read(flow), 500);
}
