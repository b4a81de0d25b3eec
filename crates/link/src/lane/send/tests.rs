use super::*;
use crate::lane::Lane;
use crate::lane::sender::every_class;
use crate::redundancy::Loss;

const NOW: Duration = Duration::ZERO;

fn report(largest: u64, base: u64, runs: &[(u64, u64)]) -> LaneReport {
    let (lane, runs) = (Lane::Bulk, runs.to_vec());
    LaneReport { lane, largest, base, runs, truncated: false, held: Vec::new() }
}

fn lane_of(symbols: u64) -> SendLane {
    let mut lane = SendLane::new(1024);
    for packet in 0..symbols {
        lane.push(vec![packet as u8; 10], Class::BestEffort, (100 + packet).into(), NOW);
    }
    lane
}

fn report_to(lane: &mut SendLane, report: &LaneReport, policy: &mut RepairPolicy) -> Option<usize> {
    lane.report(report, 0, 0, NOW, policy)
}

fn lossy() -> RepairPolicy {
    RepairPolicy { loss: Loss { rate: 0.12, correlation: 0.0 }, ..RepairPolicy::default() }
}

#[test]
fn a_gap_is_retransmitted_and_so_is_a_lost_retransmission() {
    let (mut lane, policy) = (lane_of(4), &mut lossy());
    assert_eq!(report_to(&mut lane, &report(102, 1, &[(2, 3)]), policy), Some(1));
    assert_eq!(lane.take(&every_class(), 104.into(), NOW), Some((1, &[1; 10][..])));
    let on_its_way = report_to(&mut lane, &report(103, 1, &[(2, 4)]), policy);
    assert_eq!(on_its_way, Some(0));
    lane.push(vec![9], Class::BestEffort, 105.into(), NOW);
    let lost_again = report_to(&mut lane, &report(105, 1, &[(2, 5)]), policy);
    assert_eq!(lost_again, Some(1));
    assert_eq!(lane.take(&every_class(), 106.into(), NOW).unwrap().0, 1);
    assert_eq!(report_to(&mut lane, &report(106, 5, &[]), policy), Some(0));
    assert!(lane.slots.is_empty());
    assert_eq!((lane.retained_bytes(), lane.kept_bytes()), (0, 0));
}

#[test]
fn reordering_is_tolerated() {
    let (mut lane, policy) = (lane_of(6), &mut lossy());
    assert_eq!(lane.report(&report(103, 1, &[(2, 4)]), 0, 2, NOW, policy), Some(0));
    assert_eq!(lane.report(&report(104, 1, &[(2, 5)]), 0, 2, NOW, policy), Some(1));
}

/// Sends every planned repair. Returns the time at which each was sent.
fn send_repairs(lane: &mut SendLane, policy: &mut RepairPolicy, mut packet: u64) -> Vec<Duration> {
    let (mut now, mut sent) = (NOW, Vec::new());
    loop {
        while let Some(Due { span, .. }) = lane.peek_repair(NOW) {
            lane.take_repair(span, packet.into(), now, &mut Vec::new());
            packet += 1;
            sent.push(now);
        }
        let Some(due) = lane.repairs_due() else { return sent };
        now = due;
        lane.protect_again(now, policy);
    }
}

#[test]
fn a_burst_end_gets_repairs_and_half_of_them_later() {
    let (mut lane, policy) = (lane_of(8), &mut lossy());
    lane.ended(Class::BestEffort, NOW);
    lane.protect(NOW, policy);
    let repair = lane.peek_repair(NOW).map(|due| (due.span, due.len));
    assert_eq!(repair, Some((Span { first: 0, count: 8 }, 12)));
    let sent = send_repairs(&mut lane, policy, 108);
    let part = policy.delay / 3;
    assert_eq!(sent, [NOW, NOW, policy.delay, policy.delay + part]);
}

#[test]
fn symbols_that_repairs_in_flight_will_recover_are_not_retransmitted() {
    let (mut lane, policy) = (lane_of(8), &mut lossy());
    lane.ended(Class::BestEffort, NOW);
    lane.protect(NOW, policy);
    assert_eq!(send_repairs(&mut lane, policy, 108).len(), 4);
    let one_missing = report(107, 3, &[(4, 8)]);
    assert_eq!(report_to(&mut lane, &one_missing, policy), Some(1));
    assert!(!lane.has_queued(&every_class()), "four repairs are in flight for it");
    let all_lost = report(112, 3, &[(4, 8)]);
    report_to(&mut lane, &all_lost, policy);
    lane.protect_again(policy.delay, policy);
    let Due { span, .. } = lane.peek_repair(NOW).unwrap();
    assert_eq!(span, Span { first: 3, count: 1 }, "none of them arrived");
}

#[test]
fn symbols_that_repairs_do_not_recover_are_retransmitted() {
    let (mut lane, policy) = (lane_of(2), &mut lossy());
    lane.ended(Class::BestEffort, NOW);
    lane.protect(NOW, policy);
    let mut packet = 102;
    for round in 1..40 {
        lane.protect_again(policy.delay * round, policy);
        while let Some(Due { span, .. }) = lane.peek_repair(NOW) {
            lane.take_repair(span, packet.into(), NOW, &mut Vec::new());
            packet += 1;
        }
        report_to(&mut lane, &report(packet, 0, &[(1, 2)]), policy);
    }
    assert_eq!(lane.take(&every_class(), packet.into(), NOW).map(|(number, _)| number), Some(0));
    assert!(packet < 120, "{packet} packets");
}

#[test]
fn a_symbol_lost_repeatedly_is_sent_twice_after_all_other_lost_ones() {
    let (mut lane, policy) = (lane_of(3), &mut lossy());
    let mut packet = 103;
    for losses in 1..=u64::from(COPIED_FROM) {
        lane.push(vec![9], Class::BestEffort, packet.into(), NOW);
        report_to(&mut lane, &report(packet, 0, &[(2, 3 + losses)]), policy);
        let mut sent = Vec::new();
        while let Some((number, _)) = lane.take(&every_class(), (packet + 1).into(), NOW) {
            packet += 1;
            sent.push(number);
        }
        packet += 1;
        let twice: &[u64] = if losses < COPIED_FROM.into() { &[0, 1] } else { &[0, 1, 0, 1] };
        assert_eq!(sent, twice, "after {losses} losses");
    }
    report_to(&mut lane, &report(packet - 1, 7, &[]), policy);
    assert!(lane.slots.is_empty() && !lane.has_queued(&every_class()));
}

#[test]
fn packet_outcomes_cover_symbols_beyond_a_truncated_report() {
    let (mut lane, policy) = (lane_of(4), &mut lossy());
    let truncated = LaneReport { truncated: true, ..report(103, 0, &[]) };
    assert_eq!(report_to(&mut lane, &truncated, policy), Some(0));
    lane.on_outcome(2, 102.into(), true);
    lane.on_outcome(3, 103.into(), false);
    lane.on_outcome(1, 55.into(), true);
    assert_eq!(lane.take(&every_class(), 104.into(), NOW).map(|(number, _)| number), Some(2));
    assert_eq!(
        lane.take(&every_class(), 105.into(), NOW),
        None,
        "another packet carried 1 last, and 3 has arrived"
    );
}

#[test]
fn a_report_without_news_changes_nothing() {
    let (mut lane, policy) = (lane_of(20), &mut lossy());
    lane.ended(Class::BestEffort, NOW);
    lane.protect(NOW, policy);
    while let Some(due) = lane.repairs_due() {
        lane.protect_again(due, policy);
    }
    let told = report(110, 3, &[(5, 9)]);
    assert_eq!(report_to(&mut lane, &told, policy), Some(3), "3, 4 and 9");
    let before = format!("{:?}", lane.burst_repair);
    for runs in [&[(5, 9)][..], &[(5, 8)], &[(6, 9)], &[]] {
        for (largest, base) in [(110, 3), (110, 1), (90, 2)] {
            let again = LaneReport { held: vec![(3, 1)], ..report(largest, base, runs) };
            assert_eq!(report_to(&mut lane, &again, policy), Some(0));
            assert_eq!(format!("{:?}", lane.burst_repair), before, "{again:?}");
        }
    }
    let more = LaneReport { held: vec![(3, 1)], ..report(111, 3, &[(5, 9)]) };
    assert_eq!(report_to(&mut lane, &more, policy), Some(1), "10");
    assert_ne!(format!("{:?}", lane.burst_repair), before);
}

#[test]
fn a_probe_retransmits_the_oldest_symbol() {
    let mut lane = lane_of(5);
    report_to(&mut lane, &report(100, 1, &[]), &mut lossy());
    lane.probe_oldest(&every_class());
    assert_eq!(lane.take(&every_class(), 120.into(), NOW).unwrap().0, 1);
    assert_eq!(lane.take(&every_class(), 121.into(), NOW).unwrap().0, 2);
    assert_eq!(lane.take(&every_class(), 122.into(), NOW), None);
}

#[test]
fn a_report_of_unsent_symbols_is_refused() {
    assert_eq!(report_to(&mut lane_of(3), &report(102, 4, &[]), &mut lossy()), None);
    assert_eq!(report_to(&mut lane_of(3), &report(102, 1, &[(2, 9)]), &mut lossy()), None);
}
