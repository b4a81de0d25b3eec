//! Classes that go on each path.

use std::time::Duration;

use bentpipe_flow::OpenDatagrams;

use super::paths_tests::{World, settings};
use crate::Class;
use crate::flow::Receive;

/// Interval of a call's packets.
const INTERVAL: Duration = Duration::from_millis(20);

/// Sends a call of the operator's class, during which a path dies. Returns the packets that arrived and
/// the longest way of one.
fn call(on_each_path: bool) -> (usize, Duration) {
    let mut air = settings([1280; 2]);
    air.classes[Class::Operator].on_each_path = on_each_path;
    let mut world = World::with(&air, &settings([1280; 2]));
    world.run(Duration::from_secs(2));
    let (target, now) = ("origin.example:5060".parse().unwrap(), world.now);
    let class = Class::Operator;
    let open = OpenDatagrams { target, protocol: 17, source: 4000, class, passenger: 1 };
    let flow = world.air().open_datagrams(&open, now).unwrap();
    let (mut arrived, mut longest) = (0, Duration::ZERO);
    for sent in 0..250_u8 {
        world.dead[0] = sent >= 100;
        let now = world.now;
        if sent < 200 {
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
    let (arrived, longest) = call(true);
    assert_eq!(arrived, 200);
    // One way of 50 ms, and the interval of the look.
    assert!(longest <= Duration::from_millis(80), "{longest:?}");
    let (arrived, longest) = call(false);
    assert!(arrived < 200 || longest > Duration::from_millis(120), "{arrived}, {longest:?}");
}
