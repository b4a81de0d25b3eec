//! Writers that wait for memory: who is woken, and when.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::flow::fill::tests::empty;
use crate::flow::{FlowLimits, Lending};

const NOW: Duration = Duration::from_secs(10);
const ROOM: usize = 1_200;
const FLOWS: usize = 64;

/// Many flows, and a pool that lends 128 KiB.
fn crowded() -> FlowTable {
    let limits = empty(FLOWS, 1 << 30).limits;
    let limits = FlowLimits { send_memory: 1 << 18, flow_send_buffer: 1 << 16, ..limits };
    FlowTable::new(limits, NOW)
}

fn open(table: &mut FlowTable, passenger: u32) -> u64 {
    table.open(b"target".to_vec(), Class::BestEffort, passenger, NOW).expect("there is room")
}

/// Writes until the writer is blocked.
fn fill_up(table: &mut FlowTable, flow: u64) {
    while let Write::Taken(_) = table.write(flow, &[7; 4_000], NOW) {}
}

/// Sends one symbol. Returns `false` if nothing waits.
fn send(table: &mut FlowTable) -> bool {
    let lane = table.next_lane(NOW);
    lane.is_some_and(|lane| {
        table.fill(lane, ROOM, &mut Vec::new(), NOW);
        true
    })
}

fn woken(table: &mut FlowTable) -> Vec<u64> {
    let event = || table.next_event();
    std::iter::from_fn(event)
        .map(|event| match event {
            FlowEvent::Wake(flow) => flow,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_packet_wakes_no_more_writers_than_it_makes_room_for() {
    let mut table = crowded();
    let flows: Vec<_> = (0..FLOWS as u32).map(|at| open(&mut table, at % 16)).collect();
    flows.iter().for_each(|&flow| fill_up(&mut table, flow));
    assert_eq!(woken(&mut table), [0_u64; 0]);
    for _ in 0..50 {
        assert!(send(&mut table));
        let woken = woken(&mut table);
        assert!(woken.len() <= 2, "{woken:?}: who sent it, and one who waits for memory");
        woken.into_iter().for_each(|flow| fill_up(&mut table, flow));
    }
}

#[test]
fn a_passenger_with_many_flows_is_woken_as_often_as_others() {
    let mut table = crowded();
    // The first passenger has 48 flows, and 16 others have one each.
    let passenger = |at: u32| at.saturating_sub(47);
    let flows: Vec<_> = (0..FLOWS as u32).map(|at| open(&mut table, passenger(at))).collect();
    flows.iter().rev().for_each(|&flow| fill_up(&mut table, flow));
    table.reset(flows[FLOWS - 1], ResetCode::Aborted);
    let (mut order, mut next) = (Vec::new(), woken(&mut table));
    while let Some(flow) = next.pop() {
        if flow != flows[FLOWS - 1] {
            order.extend(table.flows.stream(flow).map(|it| it.state.passenger));
            table.write(flow, &[7; 100], NOW);
        }
        next.append(&mut woken(&mut table));
    }
    let first = &order[..12];
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), first.len(), "{order:?}");
}

#[test]
fn a_writer_that_was_refused_for_shared_memory_is_woken_afterwards() {
    let (mut table, pressure) = (crowded(), Pressure::default());
    table.set_pressure(&pressure);
    let flow = open(&mut table, 1);
    pressure.set(Lending::NoLoans);
    fill_up(&mut table, flow);
    table.reap(NOW);
    assert_eq!(woken(&mut table), [0_u64; 0]);
    pressure.set(Lending::Free);
    table.reap(NOW);
    assert_eq!(woken(&mut table), [flow]);
}

/// An action of a flow's owner, or of the link.
#[derive(Debug, Clone)]
enum Act {
    Fill(usize),
    /// The owner does nothing when it is woken next.
    Ignore(usize),
    Reset(usize),
    Send(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let flow = 0..FLOWS;
    let act = prop_oneof![
        16 => flow.clone().prop_map(Act::Fill),
        1 => flow.clone().prop_map(Act::Ignore),
        1 => flow.prop_map(Act::Reset),
        8 => (1usize..20).prop_map(Act::Send),
    ];
    proptest::collection::vec(act, 1..300)
}

proptest! {
    #[test]
    fn no_writer_waits_while_there_is_memory_for_it(acts in acts(), passengers in 1u32..20) {
        let mut table = crowded();
        let flows: Vec<_> = (0..FLOWS as u32).map(|at| open(&mut table, at % passengers)).collect();
        let (mut blocked, mut ignoring) = (BTreeSet::new(), BTreeSet::new());
        for act in acts {
            match act {
                Act::Fill(flow) => {
                    fill_up(&mut table, flows[flow]);
                    if table.write(flows[flow], &[7], NOW) == Write::Blocked {
                        blocked.insert(flows[flow]);
                    }
                }
                Act::Ignore(flow) => _ = ignoring.insert(flows[flow]),
                Act::Reset(flow) => table.reset(flows[flow], ResetCode::Aborted),
                Act::Send(packets) => (0..packets).for_each(|_| _ = send(&mut table)),
            }
            let mut ignored = 0;
            loop {
                let woken = woken(&mut table);
                if woken.is_empty() && ignored == 0 {
                    break;
                }
                if woken.is_empty() {
                    // Others go on when it is noticed that one did not.
                    table.reap(NOW);
                    ignored -= 1;
                }
                for flow in woken {
                    if !blocked.remove(&flow) {
                        continue;
                    }
                    if ignoring.remove(&flow) {
                        ignored += 1;
                    } else if table.write(flow, &[7; 300], NOW) == Write::Blocked {
                        blocked.insert(flow);
                    }
                }
            }
            let memory = &table.send_memory;
            let waits = |flow: &&u64| table.flows.stream(**flow).is_some_and(|it| memory.has_room(it));
            prop_assert_eq!(blocked.iter().find(waits), None);
        }
    }
}
