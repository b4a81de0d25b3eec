//! Flows that are opened and closed during an outage.

use std::time::Duration;

use bentpipe_flow::ResetCode;

use super::vanish_tests::World;
use super::{Core, FlowsRefused};
use crate::Class;
use crate::session::OpenError;
use crate::settings::Settings;

/// Length of the outage.
const OUTAGE: Duration = Duration::from_secs(600);

/// Flows that the first passenger opens per second.
const OPENS_PER_SECOND: usize = 50;

/// Lets passenger 1 open flows throughout an outage and close each a second later: finished, or
/// dropped unfinished.
fn outage(is_finished: bool) {
    let settings = Settings { max_flows: 256, ..Settings::default() };
    let mut world = World::new(&settings);
    world.run(Duration::from_secs(1));
    let target = "origin.example:80".parse().unwrap();
    let open = |world: &mut World, passenger| {
        let now = world.now;
        let (_, session) = world.airs[0].current().unwrap();
        session.open(&target, Class::BestEffort, passenger, b"GET", now).map(|(flow, _)| flow)
    };
    // Flows that were open before, and end during the outage.
    let mut theirs: Vec<_> = (0..OPENS_PER_SECOND).map(|_| open(&mut world, 1).unwrap()).collect();
    world.run(Duration::from_secs(1));
    world.flows.clear();
    world.is_out = true;
    let began = world.now;
    let mut refused = 0;
    while world.now < began + OUTAGE {
        for _ in 0..OPENS_PER_SECOND {
            match open(&mut world, 1) {
                Ok(flow) => theirs.push(flow),
                Err(OpenError::TooManyFlows(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            let oldest = (theirs.len() > OPENS_PER_SECOND).then(|| theirs.remove(0));
            let (_, session) = world.airs[0].current().unwrap();
            if let Some(flow) = oldest {
                if is_finished {
                    session.finish(flow);
                }
                session.release(flow);
            }
        }
        world.run(Duration::from_millis(20));
        world.now += Duration::from_millis(980);
    }
    assert_eq!(refused, 0, "the first passenger may go on too");
    let (_, session) = world.airs[0].current().unwrap();
    let (open_flows, counts) = (session.counters().flows, session.take_flow_refusals());
    assert!(open_flows <= 256, "{open_flows}");
    assert_eq!(counts.refused > 0, is_finished, "finished flows have a share");
    // Another passenger still opens, and the session survives.
    let other = open(&mut world, 2).unwrap();
    theirs
        .into_iter()
        .for_each(|flow| world.airs[0].current().unwrap().1.reset(flow, ResetCode::Aborted));
    let sessions = world.hub.sessions_begun();
    world.is_out = false;
    world.run(Duration::from_secs(30));
    assert_eq!(world.hub.sessions_begun(), sessions, "the session goes on");
    assert!(world.flows.iter().any(|(_, flow)| *flow == other), "the flow arrives");
    let arrived = world.flows.len();
    // Those of the first seconds, which were sent, and the share of finished ones: not all 30,000.
    assert!((1..1_000).contains(&arrived), "{arrived}");
    assert_eq!(world.hub.take_refused().flows, None::<FlowsRefused>);
}

#[test]
fn flows_dropped_during_an_outage_leave_room_for_others() {
    outage(false);
}

#[test]
fn flows_finished_during_an_outage_leave_room_for_others() {
    outage(true);
}

#[test]
fn a_flow_waits_for_its_opening_until_the_peer_reports_it() {
    let mut world = World::new(&Settings::default());
    world.run(Duration::from_secs(1));
    let target = "origin.example:80".parse().unwrap();
    let open = |world: &mut World| {
        let now = world.now;
        let (_, session) = world.airs[0].current().unwrap();
        session.open(&target, Class::BestEffort, 1, b"GET", now).unwrap().0
    };
    let waits = |world: &mut World, flow| world.airs[0].current().unwrap().1.is_unopened(flow);
    let before = open(&mut world);
    assert!(waits(&mut world, before), "it has not been sent");
    world.run(Duration::from_secs(2));
    assert!(!waits(&mut world, before));
    world.is_out = true;
    let during = open(&mut world);
    world.run(Duration::from_secs(60));
    assert!(!waits(&mut world, before) && waits(&mut world, during));
    world.is_out = false;
    world.run(Duration::from_secs(30));
    assert!(!waits(&mut world, before) && !waits(&mut world, during));
}
