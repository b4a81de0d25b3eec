use bentpipe_flow::{OpenDatagrams, ResetCode};
use bentpipe_schedule::{ClassSettings, Limits, PerClass};
use bentpipe_units::BitRate;

use super::*;
use crate::flow::fill::tests::empty;
use crate::flow::{Receive, Rooms};

const NOW: Duration = Duration::from_secs(10);
const ROOM: usize = 1000;
const MANY: usize = 4096;
/// Datagram flows that one passenger may have.
const OF_ONE: usize = MANY / 16;

fn datagrams(table: &mut FlowTable, class: Class, passenger: u32) -> u64 {
    let target = "origin.example:53".parse().expect("it is one");
    let open = OpenDatagrams { target, protocol: 17, source: 53, class, passenger };
    let opened = table.open_datagrams(&open, NOW).expect("it fits");
    let flow = opened.expect("there is room");
    table.send_datagram(flow, &[7; 60], 1200, NOW).expect("it is open");
    flow
}

/// Fills the next packet of any kind. Returns its lane and length.
fn next(table: &mut FlowTable) -> Option<(Lane, usize)> {
    let (lane, mut out) = (table.next_lane(NOW)?, Vec::new());
    match lane {
        Lane::Datagram => drop(table.fill_datagrams(ROOM, true, &mut out, NOW)),
        lane => drop(table.fill(lane, ROOM, &mut out, NOW)),
    }
    assert!(!out.is_empty(), "an empty packet of {lane:?}");
    Some((lane, out.len()))
}

#[test]
fn a_passenger_that_opens_many_flows_delays_others_by_one_turn() {
    let mut table = empty(MANY, 1 << 20);
    for _ in 0..OF_ONE {
        datagrams(&mut table, Class::BestEffort, 1);
    }
    let flow = table.open(b"target".to_vec(), Class::BestEffort, 2, NOW).expect("it fits");
    table.write(flow, b"GET", NOW);
    let packets = (0..).take_while(|_| {
        let waits = table.flows.get(flow).is_some_and(|flow| !flow.state().opened);
        waits && next(&mut table).is_some()
    });
    assert!(packets.count() <= 4, "a turn is three of these packets");
    let openings = table.flows.ids(|flow| flow.is_datagrams() && !flow.state().opened).len();
    assert!(openings > OF_ONE / 2, "only {openings} wait behind it");
    while next(&mut table).is_some() {}
    assert!(table.flows.ids(|flow| flow.is_datagrams() && !flow.state().opened).is_empty());
    assert_eq!(table.datagram_counts().sent, OF_ONE as u64);
}

#[test]
fn no_passenger_holds_all_datagram_flows() {
    let mut table = empty(64, 1 << 20);
    let max = table.max_datagram_flows() / 8;
    let mine: Vec<_> = (0..max).map(|_| datagrams(&mut table, Class::BestEffort, 1)).collect();
    while next(&mut table).is_some() {}
    // All except one continue, and that one makes room.
    let later = NOW + Duration::from_secs(1);
    for &flow in mine.iter().skip(1) {
        table.send_datagram(flow, &[7; 60], 1200, later).expect("it is open");
    }
    let another = datagrams(&mut table, Class::BestEffort, 1);
    let of = |table: &mut FlowTable, flow| table.receive_datagram(flow, later);
    assert_eq!(of(&mut table, mine[0]), Receive::Reset(ResetCode::Limit));
    assert!(mine[1..].iter().chain([&another]).all(|&it| of(&mut table, it) == Receive::Blocked));
    // Seven more passengers take the rest; the next one gets one of theirs.
    for passenger in 2..=8 {
        (0..max).for_each(|_| _ = datagrams(&mut table, Class::BestEffort, passenger));
    }
    assert_eq!(table.datagrams.quota.count(), table.max_datagram_flows());
    assert_eq!(table.take_refusals().ended, 1);
    datagrams(&mut table, Class::BestEffort, 9);
    assert_eq!(table.datagrams.quota.count(), table.max_datagram_flows());
    assert!(table.len() <= 64);
    let refusals = table.take_refusals();
    assert_eq!((refusals.refused, refusals.ended, refusals.passenger), (0, 1, 9));
    assert_eq!((refusals.held, refusals.max), (32, 32));
    assert!(table.take_refusals().is_empty());
}

#[test]
fn unread_datagrams_are_dropped_when_they_expire() {
    let mut table = empty(MANY, 1 << 20);
    let [call, other] = [1, 2].map(|who| datagrams(&mut table, Class::Network, who));
    let lifetime = table.limits.lifetimes.of(Class::Network);
    let came = |table: &mut FlowTable, flow, at| {
        table.take_datagram(flow, bytes::Bytes::from_static(&[7; 100]), at);
    };
    came(&mut table, call, NOW);
    came(&mut table, call, NOW + lifetime / 2);
    assert_eq!(table.datagrams.incoming_bytes(), 328);
    let late = NOW + lifetime;
    assert!(matches!(table.receive_datagram(call, late), Receive::Taken(_)));
    assert_eq!(table.receive_datagram(call, late), Receive::Blocked, "the first is gone");
    assert_eq!((table.datagram_counts().dropped, table.datagrams.incoming_bytes()), (1, 0));
    // A passenger that reads nothing occupies nobody's memory.
    table.limits.datagram_memory = 3 * 164;
    (0..3).for_each(|_| came(&mut table, call, late));
    came(&mut table, other, late);
    assert_eq!(table.receive_datagram(other, late), Receive::Blocked, "there is no room");
    let later = late + Duration::from_secs(1);
    came(&mut table, other, later);
    assert!(matches!(table.receive_datagram(other, later), Receive::Taken(_)));
    assert_eq!((table.datagram_counts().dropped, table.datagrams.incoming_bytes()), (5, 0));
    came(&mut table, call, later);
    table.reap(later + Duration::from_secs(1));
    assert_eq!((table.datagram_counts().dropped, table.datagrams.incoming_bytes()), (6, 0));
}

#[test]
fn datagrams_dropped_at_a_flows_end_are_counted() {
    let mut table = empty(MANY, 1 << 20);
    let flow = datagrams(&mut table, Class::BestEffort, 1);
    table.send_datagram(flow, &[7; 60], 1200, NOW).expect("it is open");
    table.reset(flow, ResetCode::Aborted);
    assert_eq!(table.datagram_counts().dropped, 2);
    let counters = table.class_counters(Class::BestEffort);
    assert_eq!((counters.sent.dropped_packets, counters.queued_bytes), (2, 0));
    // Too long for any packet by now.
    let flow = datagrams(&mut table, Class::BestEffort, 1);
    next(&mut table);
    table.send_datagram(flow, &[7; 1100], 1200, NOW).expect("it was not then");
    assert_eq!(table.fill_datagrams(ROOM, true, &mut Vec::new(), NOW), None);
    assert_eq!(table.class_counters(Class::BestEffort).sent.dropped_packets, 3);
}

#[test]
fn openings_stay_below_the_ceiling_of_their_class() {
    let mut table = empty(MANY, 1 << 20);
    let mut classes: PerClass<ClassSettings> = PerClass::default();
    let ceil = Some(BitRate::from_bps(64_000));
    classes[Class::LowerEffort].limits = Limits { rate: None, ceil };
    table.set_classes(classes, NOW);
    for _ in 0..OF_ONE {
        datagrams(&mut table, Class::LowerEffort, 1);
    }
    let mut bytes = 0;
    while let Some((_, len)) = next(&mut table) {
        bytes += len;
    }
    assert!((6000..=6000 + ROOM).contains(&bytes), "{bytes} bytes at once");
    assert!(table.next_ready(NOW).is_some_and(|ready| ready > NOW));
    datagrams(&mut table, Class::BestEffort, 2);
    assert_eq!(next(&mut table).map(|(lane, _)| lane), Some(Lane::Urgent), "of another class");
}

#[test]
fn control_goes_first_with_at_most_half_of_the_link() {
    let mut table = empty(MANY, 1 << 20);
    let bulk = table.open(b"target".to_vec(), Class::BestEffort, 2, NOW).expect("it fits");
    table.write(bulk, &vec![7; 1 << 20], NOW);
    let flows: Vec<_> = (0..200).map(|_| datagrams(&mut table, Class::BestEffort, 1)).collect();
    while table.next_lane(NOW) != Some(Lane::Bulk)
        || !table.flows.ids(|flow| flow.is_datagrams() && !flow.state().opened).is_empty()
    {
        next(&mut table);
    }
    let mut lanes = Vec::new();
    for flow in flows {
        table.reset(flow, ResetCode::Aborted);
        table.write(bulk, &[7; ROOM], NOW);
        lanes.push(next(&mut table).expect("there is enough").0);
    }
    assert_eq!(lanes[..4], [Lane::Urgent; 4]);
    let bulk = lanes.iter().filter(|lane| **lane == Lane::Bulk).count();
    assert_eq!(bulk, lanes.len() / 5, "one for each four short ones of control");
}

#[test]
fn a_full_lane_delays_no_other() {
    let mut table = empty(MANY, 1 << 20);
    let bulk = table.open(b"target".to_vec(), Class::BestEffort, 1, NOW).expect("it fits");
    table.write(bulk, &vec![7; 1 << 20], NOW);
    while table.next_lane(NOW) != Some(Lane::Bulk) {
        next(&mut table);
    }
    table.set_room(Rooms::of_lanes([true, false, true]), NOW);
    assert_eq!(table.next_lane(NOW), None);
    let waits = |table: &FlowTable| table.waiting()[Class::BestEffort].bytes;
    assert!(waits(&table) > 0, "it waits all the same");
    let call = datagrams(&mut table, Class::Network, 2);
    assert_eq!(next(&mut table).map(|(lane, _)| lane), Some(Lane::Urgent), "its opening");
    table.send_datagram(call, &[7; 60], 1200, NOW).expect("it is open");
    table.write(bulk, &[7; 100], NOW);
    assert_eq!(next(&mut table).map(|(lane, _)| lane), Some(Lane::Datagram));
    assert_eq!(table.next_lane(NOW), None);
    table.set_room(Rooms::of_lanes([true; 3]), NOW);
    assert_eq!(table.next_lane(NOW), Some(Lane::Bulk));
    table.set_room(Rooms::of_lanes([true, false, true]), NOW);
    table.next_lane(NOW);
    table.reset(bulk, ResetCode::Aborted);
    table.release(bulk);
    while next(&mut table).is_some() {}
    assert!(!table.turns.is_held(Class::BestEffort));
    assert!(table.flows.get(bulk).is_none());
}
