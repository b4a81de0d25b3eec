use bentpipe_flow::{Claim, ResetCode};
use bentpipe_schedule::{ClassPaths, Metered, Spread};

use super::*;
use crate::flow::send::URGENT_BYTES;
use crate::flow::{FlowLimits, Write};
use crate::wire::frame::Frame;
use crate::{ClassSettings, Limits};

const NOW: Duration = Duration::from_secs(10);
const ROOM: usize = 1000;
/// Bytes sent in a round trip, in these tests.
const IN_FLIGHT: u64 = 50_000;

/// Returns a table without flows, each of which may send `credit` bytes.
pub(in crate::flow) fn empty(max_flows: usize, credit: u64) -> FlowTable {
    FlowTable::new(
        FlowLimits {
            opens: true,
            max_flows,
            reserve: 1 << 16,
            peer_reserve: credit,
            receive_memory: 1 << 24,
            flow_send_buffer: 1 << 20,
            send_memory: 1 << 24,
            flow_idle: Duration::MAX,
            flow_unread: Duration::MAX,
            classes: PerClass::default(),
            datagram_memory: 1 << 20,
            datagram_idle: Duration::from_secs(300),
            lifetimes: crate::settings::Lifetimes::default(),
        },
        NOW,
    )
}

/// Returns a table with an opened flow that may send `credit` bytes.
fn table(credit: u64) -> (FlowTable, u64) {
    limited(credit, PerClass::default())
}

fn limited(credit: u64, classes: PerClass<ClassSettings>) -> (FlowTable, u64) {
    let mut table = empty(4, credit);
    table.set_classes(classes, NOW);
    table.set_in_flight(IN_FLIGHT);
    let flow = table.open(b"target".to_vec(), Class::Assured, 1, NOW).expect("there is room");
    let ended = table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW).ended;
    assert_eq!(ended, Some(Class::Assured), "an opening ends what it fills");
    (table, flow)
}

fn unsent(table: &FlowTable) -> u64 {
    table.send_memory.unsent_bytes() as u64
}

fn write(table: &mut FlowTable, flow: u64, bytes: usize) {
    assert_eq!(table.write(flow, &vec![7; bytes], NOW), Write::Taken(bytes));
}

/// Sends symbols of `lane` while there are any. Returns the ended bursts.
fn send(table: &mut FlowTable, lane: Lane) -> Vec<Option<Class>> {
    let mut ended = Vec::new();
    while table.next_lane(NOW) == Some(lane) {
        ended.push(table.fill(lane, ROOM, &mut Vec::new(), NOW).ended);
    }
    ended
}

#[test]
fn control_frames_end_a_burst_of_their_flows_class() {
    let mut table = empty(8, 1 << 20);
    let ended = |table: &mut FlowTable| table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW).ended;
    let mut flows = Vec::new();
    for class in Class::ALL {
        flows.extend(table.open(b"target".to_vec(), class, 1, NOW));
        assert_eq!(ended(&mut table), Some(class), "its opening");
    }
    for (&flow, class) in flows[1..].iter().zip(&Class::ALL[1..]) {
        table.reset(flow, ResetCode::Aborted);
        assert_eq!(ended(&mut table), Some(*class), "its reset");
    }
    for class in [Class::LowerEffort, Class::Operator] {
        table.open(b"target".to_vec(), class, 1, NOW).expect("there is room");
    }
    assert_eq!(ended(&mut table), Some(Class::Operator), "the most favoured of several");
}

#[test]
fn the_first_bytes_of_a_passenger_share_no_packet_with_others() {
    let mut table = empty(8, 1 << 20);
    let page = table.open(b"target".to_vec(), Class::BestEffort, 1, NOW).expect("room");
    write(&mut table, page, 20 * ROOM);
    for _ in 0..5 {
        assert_eq!(table.next_lane(NOW), Some(Lane::Urgent));
        table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW);
    }
    let first = table.open(b"target".to_vec(), Class::BestEffort, 2, NOW).expect("room");
    write(&mut table, first, 200);
    let second = table.open(b"target".to_vec(), Class::BestEffort, 3, NOW).expect("room");
    write(&mut table, second, 200);
    assert!(table.next_is_new(NOW));
    let mut out = Vec::new();
    table.fill(Lane::Urgent, ROOM, &mut out, NOW);
    assert!((400..480).contains(&out.len()), "both that began, and no more: {}", out.len());
    assert!(!table.next_is_new(NOW));
    out.clear();
    table.fill(Lane::Urgent, ROOM, &mut out, NOW);
    assert_eq!(out.len(), ROOM, "the page goes on");
}

#[test]
fn classes_with_other_paths_share_no_symbol() {
    let fill = |paths| {
        let mut classes = PerClass::<ClassSettings>::default();
        classes[Class::Network].paths = paths;
        let mut table = empty(8, 1 << 20);
        table.set_classes(classes, NOW);
        for class in [Class::Network, Class::BestEffort] {
            let flow = table.open(b"target".to_vec(), class, 1, NOW).expect("room");
            write(&mut table, flow, 200);
        }
        assert_eq!(table.next_lane(NOW), Some(Lane::Urgent));
        let mut out = Vec::new();
        table.fill(Lane::Urgent, ROOM, &mut out, NOW);
        out.len()
    };
    let usual = ClassPaths::default();
    assert!(fill(usual) > 400, "both classes");
    for spread in [Spread::Each, Spread::Fastest] {
        assert!((200..300).contains(&fill(ClassPaths { spread, ..usual })), "{spread:?}");
    }
    assert!((200..300).contains(&fill(ClassPaths { metered: Metered::Never, ..usual })));
}

#[test]
fn a_burst_ends_with_its_last_symbol() {
    let (mut table, flow) = table(1 << 20);
    write(&mut table, flow, 3 * ROOM);
    let ended = send(&mut table, Lane::Urgent);
    let (last, others) = ended.split_last().expect("it was sent");
    assert_eq!((*last, others.len()), (Some(Class::Assured), 3));
    assert!(others.iter().all(Option::is_none), "more of it follows: {others:?}");
}

#[test]
fn a_burst_that_turns_to_bulk_continues_if_a_round_trip_of_it_follows() {
    for (follow, continues) in [(IN_FLIGHT - 1, false), (IN_FLIGHT, true)] {
        let (mut table, flow) = table(1 << 20);
        // Number of bytes that the urgent lane takes of an endless burst.
        write(&mut table, flow, 1 << 19);
        send(&mut table, Lane::Urgent);
        let urgent = (1 << 19) - unsent(&table) as usize;
        assert!(urgent as u64 >= URGENT_BYTES);

        let (mut table, flow) = self::table(1 << 20);
        write(&mut table, flow, urgent + follow as usize);
        let ended = send(&mut table, Lane::Urgent);
        assert_eq!(unsent(&table), follow);
        let (last, others) = ended.split_last().expect("it was sent");
        assert_eq!(last.is_none(), continues, "{follow} bytes follow");
        assert!(others.iter().all(Option::is_none));
    }
}

#[test]
fn a_burst_ends_only_when_less_than_a_round_trip_of_the_page_follows() {
    const OBJECTS: usize = 12;
    const BYTES: usize = 10 * ROOM;
    let mut table = empty(OBJECTS + 1, 1 << 20);
    table.set_in_flight(IN_FLIGHT);
    let mut open = |passenger| {
        let flow = table.open(b"target".to_vec(), Class::BestEffort, passenger, NOW);
        table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW);
        flow.expect("there is room")
    };
    let page: Vec<u64> = (0..OBJECTS).map(|_| open(1)).collect();
    let other = open(2);
    for flow in &page {
        write(&mut table, *flow, BYTES);
    }
    write(&mut table, other, ROOM / 2);
    let (mut ends, mut sent) = (Vec::new(), 0);
    while table.next_lane(NOW) == Some(Lane::Urgent) {
        let before = unsent(&table);
        let ended = table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW).ended;
        sent += before - unsent(&table);
        ends.extend(ended.map(|_| (sent, unsent(&table))));
    }
    assert_eq!(unsent(&table), 0);
    // The other passenger's end is protected at once; of the page, only ends with too little after
    // them.
    assert!(ends[0].0 < 4 * ROOM as u64, "{ends:?}");
    let behind: Vec<u64> = ends[1..].iter().map(|(_, behind)| *behind).collect();
    assert!(behind.iter().all(|behind| *behind < IN_FLIGHT), "{ends:?}");
    assert_eq!(behind.last(), Some(&0));
}

/// Returns a table in which a small object of a class was sent, and its burst end is deferred
/// because a large object follows.
fn deferred(large: Class) -> (FlowTable, u64, Vec<Option<Class>>) {
    let mut table = empty(2, 1 << 20);
    table.set_in_flight(IN_FLIGHT);
    let mut open = |class| {
        let flow = table.open(b"target".to_vec(), class, 1, NOW).expect("there is room");
        table.claim(flow, Claim::new("www.gov.uk", Class::Assured).expect("a short name"));
        table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW);
        flow
    };
    let (object, rest) = (open(Class::BestEffort), open(large));
    write(&mut table, object, ROOM / 2);
    write(&mut table, rest, IN_FLIGHT as usize + 8 * ROOM);
    let ended = (0..6).map(|_| table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW).ended);
    let ended = ended.collect();
    (table, rest, ended)
}

#[test]
fn a_deferred_end_is_due_when_nothing_more_follows() {
    let (mut table, rest, ended) = deferred(Class::BestEffort);
    assert!(ended.iter().all(Option::is_none), "{ended:?}");
    assert_eq!(table.take_due_burst_end(Lane::Urgent), None);
    table.reset(rest, ResetCode::Aborted);
    assert_eq!(table.take_due_burst_end(Lane::Urgent), Some(Class::BestEffort));
    assert_eq!(table.take_due_burst_end(Lane::Urgent), None, "once");
}

#[test]
fn a_deferred_end_is_due_when_the_rest_changes_class() {
    let (mut table, rest, _) = deferred(Class::BestEffort);
    let confirmed = Frame::Class { flow: rest, class: Class::Assured };
    assert_eq!(table.take_frame(confirmed, NOW), Ok(()));
    assert_eq!(table.take_due_burst_end(Lane::Urgent), Some(Class::BestEffort));
}

#[test]
fn bytes_of_another_class_defer_no_end() {
    let (_, _, ended) = deferred(Class::LowerEffort);
    assert!(ended.contains(&Some(Class::BestEffort)), "{ended:?}");
}

#[test]
fn bytes_after_a_pause_follow_in_the_urgent_lane() {
    let (mut table, flow) = table(1 << 20);
    write(&mut table, flow, 3 * URGENT_BYTES as usize);
    send(&mut table, Lane::Urgent);
    send(&mut table, Lane::Bulk);
    let later = NOW + Duration::from_secs(60);
    let bytes = IN_FLIGHT as usize;
    assert_eq!(table.write(flow, &vec![7; bytes], later), Write::Taken(bytes));
    let owner = (1, Class::Assured);
    assert_eq!(table.bursts.end(owner, Lane::Bulk), Some(Class::Assured));
    assert_eq!(table.bursts.end(owner, Lane::Urgent), None);
}

#[test]
fn a_wait_for_credit_ends_an_urgent_burst_and_not_bulk() {
    let (mut table, flow) = table(2 * ROOM as u64);
    write(&mut table, flow, 4 * ROOM);
    let ended = send(&mut table, Lane::Urgent);
    assert_eq!(ended.last(), Some(&Some(Class::Assured)), "nobody knows what credit brings");

    let (mut table, flow) = self::table(2 * URGENT_BYTES);
    write(&mut table, flow, 3 * URGENT_BYTES as usize);
    send(&mut table, Lane::Urgent);
    let ended = send(&mut table, Lane::Bulk);
    assert_eq!(unsent(&table), URGENT_BYTES, "the rest has no credit");
    assert!(!ended.is_empty() && ended.iter().all(Option::is_none), "{ended:?}");

    let (mut table, flow) = self::table(1 << 20);
    write(&mut table, flow, 3 * URGENT_BYTES as usize);
    send(&mut table, Lane::Urgent);
    let ended = send(&mut table, Lane::Bulk);
    assert_eq!(ended.last(), Some(&Some(Class::Assured)), "all of it has left");
}

#[test]
fn a_class_waits_at_its_ceiling_and_a_confirmed_claim_leaves_it() {
    let ceil = Some(bentpipe_units::BitRate::from_bps(80_000));
    let low = Limits { rate: None, ceil };
    let mut classes = PerClass::<ClassSettings>::default();
    classes[Class::LowerEffort].limits = low;
    let (mut table, _) = limited(1 << 20, classes);
    let claiming = table.open(b"target".to_vec(), Class::LowerEffort, 1, NOW).expect("room");
    table.claim(claiming, Claim::new("www.gov.uk", Class::Assured).expect("a short name"));
    let mut first = Vec::new();
    table.fill(Lane::Urgent, ROOM, &mut first, NOW);
    write(&mut table, claiming, 1 << 19);
    let sent = send(&mut table, Lane::Urgent).len() * ROOM;
    // The credit of its token bucket, to the packet.
    assert!((5_000..=7_000).contains(&sent), "{sent}");
    let ready = table.next_ready(NOW).expect("it waits for its ceiling alone");
    assert!(ready > NOW && ready <= NOW + Duration::from_millis(110), "{ready:?}");
    assert_eq!(table.next_lane(NOW), None);
    // No more than was claimed, and nothing without a claim.
    let confirmed = Frame::Class { flow: claiming, class: Class::Operator };
    assert_eq!(table.take_frame(confirmed, NOW), Ok(()));
    assert_eq!(table.confirmed(claiming), Some(Class::Assured));
    let more = send(&mut table, Lane::Urgent).len() * ROOM;
    assert!(more as u64 >= URGENT_BYTES / 2, "{more}");
    let other = Frame::Class { flow: 0, class: Class::Assured };
    assert!(table.take_frame(other, NOW).is_err());
}
