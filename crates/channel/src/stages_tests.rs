//! Policer, shaper and managed queues of whole directions, and scheduled changes.

use super::*;
use proptest::prelude::*;

fn direction(text: &str) -> Direction {
    Direction::new(&toml::from_str(text).unwrap_or_else(|error| panic!("{error}")), 1)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Packet of 1000 bytes of a flow.
fn packet(flow: u64) -> Packet {
    Packet { bytes: 1000, flow, is_ect: false }
}

/// Arrival times in milliseconds of packets of 1000 bytes, all offered at zero.
fn arrivals(direction: &mut Direction, packets: usize) -> Vec<Option<u128>> {
    let arrival = |fate| match fate {
        Fate::Delivered { at } => Some(at.as_millis()),
        _ => None,
    };
    (0..packets).map(|_| arrival(direction.offer(ms(0), 1000))).collect()
}

/// All decisions until nothing waits, each at its time.
fn decisions(direction: &mut Direction) -> Vec<(Duration, Decision)> {
    let mut all = Vec::new();
    while let Some(at) = direction.next_decision() {
        let one = direction.decide(at);
        all.extend(one.map(|one| (at, one)));
    }
    all
}

#[test]
fn a_policer_drops_before_the_queue() {
    let mut link = direction(
        "rate = '8 Mbit/s'\nqueue = '3 kB'\npolicer = { rate = '4 Mbit/s', bucket = '5 kB' }",
    );
    let arrived = arrivals(&mut link, 6);
    assert_eq!(arrived, [Some(1), Some(2), Some(3), None, None, None]);
    // Three are queued, the queue drops two that took tokens, and the policer drops one.
    let counters = link.counters();
    assert_eq!((counters.queue_dropped.packets, counters.policed.packets), (2, 1));
    assert_eq!(link.offer(ms(1), 1000), Fate::Policed);
    assert_eq!(link.offer(ms(2), 1000), Fate::Delivered { at: ms(4) });
    assert_eq!(link.backlog(ms(2)), ms(2));
}

#[test]
fn a_shaper_delays_in_its_own_queue() {
    let mut link = direction(
        "rate = '8 Mbit/s'\ndelay = '100 ms'\n\
         shaper = { rate = '4 Mbit/s', bucket = '2 kB', queue = '3 kB' }",
    );
    // The bucket passes at the link's rate, the rest leaves the shaper every 2 ms.
    let expected = [Some(101), Some(102), Some(103), Some(105), Some(107), None];
    assert_eq!(arrivals(&mut link, 6), expected);
    assert_eq!(
        [0, 1, 2, 3, 5, 7].map(|at| link.queued_bytes(ms(at))),
        [5000, 4000, 3000, 2000, 1000, 0]
    );
    assert_eq!(link.counters().queue_dropped.packets, 1);
}

#[test]
fn delay_and_rate_change_when_they_are_scheduled() {
    let mut link = direction(
        "rate = { series = { steps = [['0 s', '8 Mbit/s'], ['10 s', '4 Mbit/s']] } }\n\
         queue = '100 kB'\n\
         delay = { series = { steps = [['0 s', '300 ms'], ['10 s', '340 ms'], ['20 s', '260 ms']] } }",
    );
    let mut arrival = |at| match link.offer(ms(at), 1000) {
        Fate::Delivered { at } => at,
        other => panic!("{other:?}"),
    };
    assert_eq!(arrival(9_998), ms(10_299));
    assert_eq!(arrival(10_000), ms(10_342));
    assert_eq!(arrival(20_000), ms(20_262));
}

#[test]
fn codel_drops_while_a_queue_stands() {
    let text = "rate = '8 Mbit/s'\ndelay = '10 ms'\nqueue = '1 MB'\naqm = { kind = 'codel' }";
    let mut link = direction(text);
    for number in 0..300 {
        assert_eq!(link.offer_packet(ms(0), packet(0)), (Fate::Waiting(number), false));
    }
    assert_eq!(link.next_decision(), Some(ms(0)));
    let all = decisions(&mut link);
    let sent = |(at, one): &(Duration, Decision)| match one.fate {
        Fate::Delivered { at: arrival } => {
            assert_eq!(arrival, *at + ms(11));
            true
        }
        _ => false,
    };
    let dropped: Vec<_> =
        all.iter().filter(|one| !sent(one)).map(|(at, _)| at.as_millis()).collect();
    // As in the test of the algorithm: an interval after the target, then by the control law.
    assert_eq!(dropped, [105, 205, 276]);
    assert_eq!(all.len(), 300);
    assert_eq!(link.counters().queue_dropped.packets, 3);
    assert_eq!(link.counters().delivered.packets, 297);
    assert_eq!(link.next_decision(), None);
}

#[test]
fn a_fair_queue_serves_a_sparse_flow_before_a_bulk_flow() {
    let fate = |aqm: &str| {
        let mut link = direction(&format!("rate = '8 Mbit/s'\nqueue = '1 MB'\n{aqm}"));
        (0..100).for_each(|_| {
            assert!(matches!(link.offer_packet(ms(0), packet(1)).0, Fate::Waiting(_)))
        });
        let (Fate::Waiting(call), _) = link.offer_packet(ms(5), packet(2)) else {
            panic!("decided")
        };
        let all = decisions(&mut link);
        all.into_iter().find(|(_, one)| one.number == call).unwrap().1.fate
    };
    // After the packet that is being sent and the next one, whose turn it still is.
    let soon = fate("aqm = { kind = 'fq-codel' }");
    assert!(matches!(soon, Fate::Delivered { at } if at <= ms(8)), "{soon:?}");
    assert_eq!(fate("aqm = { kind = 'codel' }"), Fate::Delivered { at: ms(101) });
}

#[test]
fn an_aqm_marks_ecn_capable_packets_if_configured() {
    let marked = |ecn: bool| {
        let text = "rate = '8 Mbit/s'\nqueue = '1 MB'\naqm = { kind = 'codel', ecn = ";
        let mut link = direction(&format!("{text}{ecn} }}"));
        for _ in 0..300 {
            assert!(matches!(link.offer_ect(ms(0), 1000).0, Fate::Waiting(_)));
        }
        let marked = decisions(&mut link).iter().filter(|(_, one)| one.marked).count();
        assert_eq!(link.counters().marked.packets, marked as u64);
        (marked, link.counters().queue_dropped.packets)
    };
    assert_eq!(marked(true), (3, 0));
    assert_eq!(marked(false), (0, 3));
}

#[test]
fn a_pause_of_the_sender_holds_a_managed_queue() {
    let mut link = direction(
        "rate = '8 Mbit/s'\nqueue = '1 MB'\naqm = { kind = 'codel' }\n\
         outages = { packets = 'held', scheduled = [['500 us', '10 ms']] }",
    );
    assert_eq!(link.offer(ms(0), 1000), Fate::Waiting(0));
    assert_eq!(link.offer(ms(0), 1000), Fate::Waiting(1));
    let arrivals: Vec<_> = decisions(&mut link).iter().map(|(at, one)| (*at, one.fate)).collect();
    let expected =
        [(ms(0), ms(11)), (ms(11), ms(12))].map(|(at, due)| (at, Fate::Delivered { at: due }));
    assert_eq!(arrivals, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_gets_one_fate_and_fates_do_not_depend_on_when_they_are_read(
        fair: bool,
        packets in prop::collection::vec((0u64..3_000, 40usize..1500, 0u64..4), 1..300),
        limit in 2_000u64..100_000,
    ) {
        let kind = if fair { "fq-codel" } else { "codel" };
        let text = format!(
            "rate = '4 Mbit/s'\ndelay = '5 ms'\nloss = '10 %'\nqueue = '{limit} B'\n\
             aqm = {{ kind = '{kind}', target = '1 ms', interval = '10 ms' }}"
        );
        let (mut early, mut late) = (direction(&text), direction(&text));
        let (mut now, mut at_once, mut offered) = (Duration::ZERO, Vec::new(), 0);
        for (gap_us, bytes, flow) in packets {
            now += Duration::from_micros(gap_us);
            while let Some(at) = early.next_decision().filter(|at| *at <= now) {
                at_once.extend(early.decide(at));
            }
            let packet = Packet { bytes, flow, is_ect: false };
            early.offer_packet(now, packet);
            late.offer_packet(now, packet);
            offered += 1;
            prop_assert!(late.queued_bytes(now) <= limit.max(1500) + 1500);
        }
        at_once.extend(decisions(&mut early).into_iter().map(|(_, one)| one));
        let afterwards: Vec<_> = decisions(&mut late).into_iter().map(|(_, one)| one).collect();
        prop_assert_eq!(&at_once, &afterwards);
        let mut numbers: Vec<u64> = at_once.iter().map(|one| one.number).collect();
        numbers.sort_unstable();
        prop_assert_eq!(numbers, (0..offered).collect::<Vec<_>>());
    }
}
