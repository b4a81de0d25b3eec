use super::*;
use crate::lane::sender::every_class;
use crate::redundancy::Loss;

const LIFETIME: Duration = Duration::from_millis(250);
const MOST: usize = 1 << 20;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn lossy(rate: f64) -> RepairPolicy {
    let loss = Loss { rate, correlation: 0.0 };
    RepairPolicy { loss, measured: loss, ..RepairPolicy::default() }
}

fn fresh(class: Class, expires: Duration) -> NewSymbol {
    NewSymbol { content: vec![7; 100], datagrams: 1, class, expires }
}

fn report(largest: u64, base: u64, runs: &[(u64, u64)]) -> LaneReport {
    let (lane, runs) = (Lane::Datagram, runs.to_vec());
    LaneReport { lane, largest, base, runs, truncated: false, held: Vec::new() }
}

fn report_to(lane: &mut DatagramSender, report: &LaneReport, now: Duration) -> Option<usize> {
    lane.report(report, report.largest.into(), 0, now, &mut lossy(0.06))
}

/// Symbols and repairs as they are sent, each in its own packet: spans of repairs with their times.
struct Talk {
    lane: DatagramSender,
    policy: RepairPolicy,
    packet: u64,
    repairs: Vec<(Duration, Span)>,
}

impl Talk {
    fn new(rate: f64) -> Self {
        let mut lane = DatagramSender::default();
        lane.tune(ms(380));
        Self { lane, policy: lossy(rate), packet: 0, repairs: Vec::new() }
    }

    fn push(&mut self, class: Class, lifetime: Duration, now: Duration) {
        self.wait_until(now);
        let fresh = fresh(class, now + lifetime);
        self.lane.push(fresh, self.packet.into(), MOST, now, &self.policy);
        self.packet += 1;
        self.lane.ended(now);
        self.repair(now);
    }

    fn wait_until(&mut self, end: Duration) {
        while let Some(due) = self.lane.due().filter(|due| *due <= end) {
            self.lane.handle_timeout(false, due, &mut self.policy);
            self.repair(due);
        }
    }

    fn repair(&mut self, now: Duration) {
        while let Some(Due { span, .. }) = self.lane.peek_repair(now) {
            self.lane.take_repair(span, self.packet.into(), now, &mut Vec::new());
            self.packet += 1;
            self.repairs.push((now, span));
        }
    }
}

#[test]
fn a_call_accrues_one_repair_in_four_over_its_useful_symbols() {
    let mut talk = Talk::new(0.06);
    for packet in 0..500 {
        talk.push(Class::Network, LIFETIME, ms(20 * packet));
    }
    let steady: Vec<_> = talk.repairs.iter().filter(|(at, _)| *at >= ms(2000)).collect();
    assert!((102..=105).contains(&steady.len()), "{} repairs of 400", steady.len());
    for (at, span) in steady {
        let newest = at.as_millis() as u64 / 20;
        assert_eq!((span.end(), span.count), (newest + 1, 13), "at {at:?}");
    }
    // After the source falls silent, the repairs that the last symbols need follow within their
    // lifetime.
    let before = talk.repairs.len();
    talk.wait_until(ms(20_000));
    let flush = &talk.repairs[before..];
    assert!((1..6).contains(&flush.len()), "{flush:?}");
    assert!(flush.iter().all(|(at, _)| (ms(10_020)..ms(9_980) + LIFETIME).contains(at)));
}

#[test]
fn a_lone_answer_is_protected_at_once_and_later() {
    let mut talk = Talk::new(0.06);
    talk.push(Class::BestEffort, ms(3000), ms(0));
    assert!(talk.repairs.is_empty() || talk.repairs[0].0 == ms(0));
    talk.wait_until(ms(3000));
    assert!((1..=3).contains(&talk.repairs.len()), "{:?}", talk.repairs);
    assert!(talk.repairs.iter().all(|(_, span)| *span == Span { first: 0, count: 1 }));
}

#[test]
fn a_clean_link_costs_nothing() {
    let mut talk = Talk::new(0.0);
    for packet in 0..500 {
        talk.push(Class::Network, LIFETIME, ms(20 * packet));
    }
    talk.wait_until(ms(20_000));
    assert!(talk.repairs.is_empty());
}

#[test]
fn a_missing_symbol_is_retransmitted_only_if_it_arrives_in_time() {
    // With a round trip of 760 ms, a lifetime of 3 s permits a retransmission and one of 1 s does
    // not.
    for (lifetime, again) in [(ms(3000), true), (ms(1140), true), (ms(1000), false)] {
        let mut lane = DatagramSender::default();
        lane.tune(ms(380));
        for packet in 0..3 {
            let fresh = fresh(Class::BestEffort, lifetime);
            lane.push(fresh, packet.into(), MOST, ms(0), &lossy(0.06));
        }
        assert_eq!(report_to(&mut lane, &report(2, 1, &[(2, 3)]), ms(760)), Some(1));
        assert_eq!(
            lane.take(&every_class(), 3.into(), ms(760)).map(|(number, _)| number),
            again.then_some(1)
        );
        assert_eq!(lane.take(&every_class(), 4.into(), ms(760)), None);
        if again {
            // Lost again: two and a half round trips are too long for the second.
            assert_eq!(report_to(&mut lane, &report(4, 1, &[(2, 3)]), ms(1520)), Some(1));
            let third = lane.take(&every_class(), 5.into(), ms(1520)).map(|(number, _)| number);
            assert_eq!(third, (lifetime == ms(3000)).then_some(1));
        }
    }
}

#[test]
fn a_retransmission_that_became_late_is_not_sent() {
    let mut lane = DatagramSender::default();
    lane.tune(ms(380));
    for packet in 0..2 {
        lane.push(fresh(Class::BestEffort, ms(3000)), packet.into(), MOST, ms(0), &lossy(0.06));
    }
    report_to(&mut lane, &report(1, 0, &[(1, 2)]), ms(800));
    let lost = Lost { number: 0, len: 100, class: Class::BestEffort };
    assert_eq!(lane.peek(&every_class(), ms(2620)), Some(lost));
    assert_eq!(lane.peek(&every_class(), ms(2621)), None);
}

#[test]
fn the_base_slides_over_expired_symbols_until_a_report_confirms_it() {
    let mut lane = DatagramSender::default();
    for packet in 0..4 {
        lane.push(fresh(Class::Network, LIFETIME), packet.into(), MOST, ms(0), &lossy(0.06));
    }
    assert_eq!(lane.slide(), None, "everything may have arrived");
    report_to(&mut lane, &report(3, 1, &[(3, 4)]), ms(760));
    assert_eq!((lane.abandoned(), lane.retained_bytes()), (2, 0));
    assert_eq!(lane.slide(), Some(Slide { lane: Lane::Datagram, base: 4 }));
    lane.slid(10.into());
    assert_eq!(lane.slide(), None);
    // This report was sent before the SLIDE arrived; the next shows that the SLIDE was lost.
    lane.report(&report(3, 1, &[(3, 4)]), 9.into(), 0, ms(800), &mut lossy(0.06));
    assert_eq!(lane.slide(), None);
    lane.report(&report(3, 1, &[(3, 4)]), 12.into(), 0, ms(1600), &mut lossy(0.06));
    assert!(lane.slide().is_some());
    lane.slid(13.into());
    lane.report(&report(3, 4, &[]), 14.into(), 0, ms(2400), &mut lossy(0.06));
    assert_eq!(lane.slide(), None);
}

#[test]
fn memory_is_bounded_without_reports() {
    let mut lane = DatagramSender::default();
    for packet in 0..1000 {
        let fresh = fresh(Class::LowerEffort, ms(10_000));
        lane.push(fresh, packet.into(), 10_000, ms(packet), &lossy(0.06));
        assert!(lane.retained_bytes() <= 10_000);
    }
    assert_eq!(lane.abandoned(), 1000 - 10_000 / (100 + SLOT_BYTES as u64));
    assert_eq!(report_to(&mut lane, &report(999, 1001, &[]), ms(1000)), None, "it was never sent");
}

#[test]
fn packet_outcomes_cover_symbols_beyond_a_truncated_report() {
    let mut lane = DatagramSender::default();
    lane.tune(ms(50));
    for packet in 0..3 {
        lane.push(fresh(Class::BestEffort, ms(3000)), packet.into(), MOST, ms(0), &lossy(0.06));
    }
    let truncated = LaneReport { truncated: true, ..report(2, 0, &[]) };
    assert_eq!(report_to(&mut lane, &truncated, ms(100)), Some(0));
    lane.on_outcome(0, 0.into(), false);
    lane.on_outcome(1, 1.into(), true);
    lane.on_outcome(2, 77.into(), true);
    report_to(&mut lane, &truncated, ms(200));
    assert_eq!(lane.take(&every_class(), 3.into(), ms(200)).map(|(number, _)| number), Some(1));
    assert_eq!(lane.take(&every_class(), 4.into(), ms(200)), None);
}

#[test]
fn unreported_symbols_are_given_up_some_round_trips_after_they_expire() {
    let mut lane = DatagramSender::default();
    lane.tune(ms(380));
    for packet in 0..100 {
        let at = ms(100 * packet);
        lane.push(fresh(Class::Network, at + LIFETIME), packet.into(), MOST, at, &lossy(0.06));
    }
    // The symbols of the last 16 × 380 ms plus their lifetime, 6,330 ms, are left at 9,900 ms.
    assert_eq!((lane.abandoned(), lane.slots.len()), (36, 64));
}
