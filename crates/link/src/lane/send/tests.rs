use super::*;
use crate::lane::Lane;
use crate::redundancy::Loss;

const NOW: Duration = Duration::ZERO;

fn report(largest: u64, base: u64, runs: &[(u64, u64)]) -> LaneReport {
    let (lane, runs) = (Lane::Bulk, runs.to_vec());
    LaneReport { lane, largest, base, runs, truncated: false, held: Vec::new() }
}

fn lane_of(symbols: u64) -> SendLane {
    let mut lane = SendLane::new(1024);
    for packet in 0..symbols {
        lane.push(vec![packet as u8; 10], Class::BestEffort, 100 + packet, NOW);
    }
    lane
}

fn tell(lane: &mut SendLane, report: &LaneReport, rule: &mut Rule) -> Option<usize> {
    lane.report(report, 0, NOW, rule)
}

fn lossy() -> Rule {
    Rule { loss: Loss { rate: 0.12, correlation: 0.0 }, ..Rule::default() }
}

#[test]
fn a_gap_is_sent_again_and_a_lost_repair_is_found_again() {
    let (mut lane, rule) = (lane_of(4), &mut lossy());
    assert_eq!(tell(&mut lane, &report(102, 1, &[(2, 3)]), rule), Some(1));
    assert_eq!(lane.take(104, NOW), Some((1, &[1; 10][..])));
    let on_its_way = tell(&mut lane, &report(103, 1, &[(2, 4)]), rule);
    assert_eq!(on_its_way, Some(0));
    lane.push(vec![9], Class::BestEffort, 105, NOW);
    let lost_again = tell(&mut lane, &report(105, 1, &[(2, 5)]), rule);
    assert_eq!(lost_again, Some(1));
    assert_eq!(lane.take(106, NOW).unwrap().0, 1);
    assert_eq!(tell(&mut lane, &report(106, 5, &[]), rule), Some(0));
    assert!(lane.is_clear());
    assert_eq!((lane.retained_bytes(), lane.kept_bytes()), (0, 0));
}

#[test]
fn reordering_is_waited_for() {
    let (mut lane, rule) = (lane_of(6), &mut lossy());
    assert_eq!(lane.report(&report(103, 1, &[(2, 4)]), 2, NOW, rule), Some(0));
    assert_eq!(lane.report(&report(104, 1, &[(2, 5)]), 2, NOW, rule), Some(1));
}

/// Sends every repair that is planned; returns when each left.
fn send_repairs(lane: &mut SendLane, rule: &mut Rule, mut packet: u64) -> Vec<Duration> {
    let (mut now, mut sent) = (NOW, Vec::new());
    loop {
        while let Some(Due { span, .. }) = lane.peek_repair() {
            lane.take_repair(span, packet, now, &mut Vec::new());
            packet += 1;
            sent.push(now);
        }
        let Some(due) = lane.repairs_due() else { return sent };
        now = due;
        lane.protect_again(now, rule);
    }
}

#[test]
fn the_end_of_a_burst_gets_repairs_half_of_them_later() {
    let (mut lane, rule) = (lane_of(8), &mut lossy());
    lane.ended(Class::BestEffort, NOW);
    lane.protect(NOW, rule);
    let repair = lane.peek_repair().map(|due| (due.span, due.len));
    assert_eq!(repair, Some((Span { first: 0, count: 8 }, 12)));
    let sent = send_repairs(&mut lane, rule, 108);
    let part = rule.delay / 3;
    assert_eq!(sent, [NOW, NOW, rule.delay, rule.delay + part]);
}

#[test]
fn what_repairs_in_flight_will_mend_is_not_sent_again() {
    let (mut lane, rule) = (lane_of(8), &mut lossy());
    lane.ended(Class::BestEffort, NOW);
    lane.protect(NOW, rule);
    assert_eq!(send_repairs(&mut lane, rule, 108).len(), 4);
    let one_missing = report(107, 3, &[(4, 8)]);
    assert_eq!(tell(&mut lane, &one_missing, rule), Some(1));
    assert!(!lane.has_queued(), "four repairs are under way for it");
    let all_lost = report(112, 3, &[(4, 8)]);
    tell(&mut lane, &all_lost, rule);
    lane.protect_again(rule.delay, rule);
    let Due { span, .. } = lane.peek_repair().unwrap();
    assert_eq!(span, Span { first: 3, count: 1 }, "none of them came");
}

#[test]
fn symbols_that_repairs_do_not_bring_back_are_sent_themselves() {
    let (mut lane, rule) = (lane_of(2), &mut lossy());
    lane.ended(Class::BestEffort, NOW);
    lane.protect(NOW, rule);
    let mut packet = 102;
    for round in 1..40 {
        lane.protect_again(rule.delay * round, rule);
        while let Some(Due { span, .. }) = lane.peek_repair() {
            lane.take_repair(span, packet, NOW, &mut Vec::new());
            packet += 1;
        }
        tell(&mut lane, &report(packet, 0, &[(1, 2)]), rule);
    }
    assert_eq!(lane.take(packet, NOW).map(|(number, _)| number), Some(0));
    assert!(packet < 120, "{packet} packets");
}

#[test]
fn what_is_lost_again_and_again_is_sent_twice_behind_what_else_is_lost() {
    let (mut lane, rule) = (lane_of(3), &mut lossy());
    let mut packet = 103;
    for losses in 1..=u64::from(COPIED_FROM) {
        lane.push(vec![9], Class::BestEffort, packet, NOW);
        tell(&mut lane, &report(packet, 0, &[(2, 3 + losses)]), rule);
        let mut sent = Vec::new();
        while let Some((number, _)) = lane.take(packet + 1, NOW) {
            packet += 1;
            sent.push(number);
        }
        packet += 1;
        let twice: &[u64] = if losses < COPIED_FROM.into() { &[0, 1] } else { &[0, 1, 0, 1] };
        assert_eq!(sent, twice, "after {losses} losses");
    }
    tell(&mut lane, &report(packet - 1, 7, &[]), rule);
    assert!(lane.is_clear() && !lane.has_queued());
}

#[test]
fn packets_tell_of_symbols_that_a_truncated_report_does_not_reach() {
    let (mut lane, rule) = (lane_of(4), &mut lossy());
    let truncated = LaneReport { truncated: true, ..report(103, 0, &[]) };
    assert_eq!(tell(&mut lane, &truncated, rule), Some(0));
    lane.fate(2, 102, true);
    lane.fate(3, 103, false);
    lane.fate(1, 55, true);
    assert_eq!(lane.take(104, NOW).map(|(number, _)| number), Some(2));
    assert_eq!(lane.take(105, NOW), None, "another packet carried 1 last, and 3 has come");
}

#[test]
fn a_report_that_says_nothing_new_changes_nothing() {
    let (mut lane, rule) = (lane_of(20), &mut lossy());
    lane.ended(Class::BestEffort, NOW);
    lane.protect(NOW, rule);
    while let Some(due) = lane.repairs_due() {
        lane.protect_again(due, rule);
    }
    let told = report(110, 3, &[(5, 9)]);
    assert_eq!(tell(&mut lane, &told, rule), Some(3), "3, 4 and 9");
    let before = format!("{:?}", lane.guard);
    for runs in [&[(5, 9)][..], &[(5, 8)], &[(6, 9)], &[]] {
        for (largest, base) in [(110, 3), (110, 1), (90, 2)] {
            let again = LaneReport { held: vec![(3, 1)], ..report(largest, base, runs) };
            assert_eq!(tell(&mut lane, &again, rule), Some(0));
            assert_eq!(format!("{:?}", lane.guard), before, "{again:?}");
        }
    }
    let more = LaneReport { held: vec![(3, 1)], ..report(111, 3, &[(5, 9)]) };
    assert_eq!(tell(&mut lane, &more, rule), Some(1), "10");
    assert_ne!(format!("{:?}", lane.guard), before);
}

#[test]
fn a_probe_sends_the_oldest_again() {
    let mut lane = lane_of(5);
    tell(&mut lane, &report(100, 1, &[]), &mut lossy());
    lane.probe_oldest();
    assert_eq!(lane.take(120, NOW).unwrap().0, 1);
    assert_eq!(lane.take(121, NOW).unwrap().0, 2);
    assert_eq!(lane.take(122, NOW), None);
}

#[test]
fn a_report_of_the_unsent_is_refused() {
    assert_eq!(tell(&mut lane_of(3), &report(102, 4, &[]), &mut lossy()), None);
    assert_eq!(tell(&mut lane_of(3), &report(102, 1, &[(2, 9)]), &mut lossy()), None);
}
