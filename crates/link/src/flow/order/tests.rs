use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_millis(950);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Symbols of one datagram each, all of one flow: the numbers as they are passed on, and their
/// times.
#[derive(Default)]
struct Bench {
    order: Order,
    passed: Vec<(Duration, u64)>,
}

impl Bench {
    fn came(&mut self, symbol: u64, flow: u64, now: Duration) {
        self.order.came(symbol, PATIENCE, now);
        let payload = Bytes::copy_from_slice(&symbol.to_be_bytes());
        let passed = self.order.offer(symbol, flow, payload);
        self.pass(passed, now);
        self.release(now);
    }

    fn release(&mut self, now: Duration) {
        let released: Vec<_> = self.order.release(now).into_iter().map(|it| it.1).collect();
        self.pass(released, now);
    }

    fn pass(&mut self, payloads: impl IntoIterator<Item = Bytes>, now: Duration) {
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().unwrap());
        self.passed.extend(payloads.into_iter().map(|payload| (now, number(&payload))));
    }

    fn numbers(&self) -> Vec<u64> {
        self.passed.iter().map(|(_, number)| *number).collect()
    }
}

#[test]
fn what_was_missing_goes_before_what_waited_for_it() {
    let mut bench = Bench::default();
    for (at, symbol) in [(0, 0), (1, 1), (2, 4), (3, 5), (4, 3)] {
        bench.came(symbol, 7, ms(at));
    }
    assert_eq!(bench.numbers(), [0, 1]);
    assert_eq!(bench.order.due(), Some(ms(2) + PATIENCE));
    bench.came(2, 7, ms(5));
    assert_eq!(bench.numbers(), [0, 1, 2, 3, 4, 5]);
    assert_eq!((bench.order.due(), bench.order.held_bytes()), (None, 0));
}

#[test]
fn what_never_comes_is_waited_for_no_longer_than_the_patience() {
    let mut bench = Bench::default();
    bench.came(1, 7, ms(0));
    bench.came(3, 7, ms(100));
    bench.release(ms(949));
    assert!(bench.passed.is_empty());
    bench.release(PATIENCE);
    assert_eq!(bench.numbers(), [1], "the second gap is younger");
    assert_eq!(bench.order.due(), Some(ms(1050)));
    bench.came(0, 7, ms(960));
    assert_eq!(bench.numbers(), [1, 0], "late, and not lost");
    bench.order.gave_up_below(3);
    bench.release(ms(970));
    assert_eq!(bench.numbers(), [1, 0, 3]);
    bench.order.gave_up_below(9);
    bench.came(9, 7, ms(980));
    assert_eq!(bench.numbers(), [1, 0, 3, 9], "what was given up is no gap");
}

#[test]
fn gaps_are_bounded_however_they_come_to_be() {
    // Each symbol a gap further on, or each in the middle of one.
    let apart = (0..3 * MOST_GAPS as u64).map(|n| 2 * n + 1).collect::<Vec<_>>();
    let within = [&[4 * MOST_GAPS as u64][..], &apart].concat();
    for symbols in [apart, within] {
        let mut bench = Bench::default();
        for symbol in &symbols {
            bench.came(*symbol, 7, ms(0));
            assert!(bench.order.gaps.len() <= MOST_GAPS);
        }
        assert_eq!(bench.order.gaps.len(), MOST_GAPS);
        // What waited for those that were forgotten has gone on.
        let waiting = symbols.iter().filter(|symbol| **symbol > bench.order.gaps[0].start).count();
        assert_eq!(bench.numbers().len(), symbols.len() - waiting);
        bench.release(PATIENCE);
        assert_eq!(bench.numbers().len(), symbols.len());
    }
}

#[test]
fn what_waits_is_bounded_for_each_flow_and_for_all() {
    let payload = |_| Bytes::from(vec![0; 1400]);
    let each = MOST_HELD_OF_A_FLOW / Unread::cost(&payload(0));
    let mut order = Order::default();
    order.came(1, PATIENCE, ms(0));
    for index in 0..each as u64 {
        assert_eq!(order.offer(1, 1, payload(index)), None);
    }
    assert!(order.release(ms(1)).is_empty());
    order.offer(1, 1, payload(0));
    assert_eq!(order.release(ms(1)).len(), each, "all that waited goes on");
    let all = MOST_HELD_BYTES / Unread::cost(&payload(0));
    for index in 0..2 * all as u64 {
        order.offer(1, index % 20, payload(index));
        assert!(order.held_bytes() <= MOST_HELD_BYTES);
    }
    assert!(order.release(ms(2)).len() >= all);
    for gap in 0..2 * MOST_GAPS as u64 {
        order.came(3 + 2 * gap, PATIENCE, ms(3));
    }
    assert_eq!(order.gaps.len(), MOST_GAPS);
}

/// One aircraft's datagrams, as small as they can be and over as many flows as it may open, behind a
/// gap: beyond the memory for them each further one makes others go on, and no more is looked at than
/// that.
#[test]
fn a_datagram_costs_the_same_however_many_wait_and_of_however_many_flows() {
    const FLOWS: u64 = 5_000;
    let payload = || Bytes::from_static(b"x");
    let room = MOST_HELD_BYTES / Unread::cost(&payload());
    assert!((129_000..130_000).contains(&room));
    let mut order = Order::default();
    order.came(1, PATIENCE, ms(0));
    let mut went_on = 0;
    for index in 0..2 * room as u64 {
        assert_eq!(order.offer(1, index % FLOWS, payload()), None);
        went_on += order.release(ms(1)).len();
    }
    assert!(order.held_bytes() <= MOST_HELD_BYTES && went_on >= room, "{went_on}");
    assert!(order.steps <= 5 * room, "{} for {} datagrams", order.steps, 2 * room);
    // The gap is filled: each goes on for a look-up of its own.
    order.came(0, PATIENCE, ms(2));
    assert_eq!(order.release(ms(2)).len() + went_on, 2 * room);
    assert!(order.steps <= 6 * room && order.flows.is_empty() && order.sizes.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    /// Symbols of several flows leave a millisecond apart; some are late, some never come.
    #[test]
    fn flows_keep_their_order_and_nothing_is_lost_doubled_or_held_too_long(
        fates in prop::collection::vec((0u64..4, prop::option::weighted(0.95, 0u64..1200), 0u64..4), 1..300),
    ) {
        let mut arrivals: Vec<(u64, u64, u64)> = (0..)
            .zip(&fates)
            .filter_map(|(symbol, (late, delay, flow))| {
                let late = if *late == 0 { (*delay)? } else { delay.map(|_| 0)? };
                Some((symbol + late, symbol, *flow))
            })
            .collect();
        arrivals.sort();
        let mut bench = Bench::default();
        for &(at, symbol, flow) in &arrivals {
            while let Some(due) = bench.order.due().filter(|due| *due <= ms(at)) {
                bench.release(due);
            }
            bench.came(symbol, flow, ms(at));
        }
        while let Some(due) = bench.order.due() {
            bench.release(due);
        }
        prop_assert_eq!(bench.order.held_bytes(), 0);
        let mut numbers = bench.numbers();
        // Nothing is held for longer than the patience.
        for &(passed, number) in &bench.passed {
            let came = arrivals.iter().find(|it| it.1 == number).unwrap().0;
            prop_assert!(passed >= ms(came) && passed <= ms(came) + PATIENCE);
        }
        // Of one flow only what came too late for any patience comes after a later one.
        let flow_of = |number: u64| fates[number as usize].2;
        for (at, &number) in numbers.iter().enumerate() {
            let overtaken = numbers[..at].iter().any(|&it| it > number && flow_of(it) == flow_of(number));
            let came = arrivals.iter().find(|it| it.1 == number).unwrap().0;
            let noticed = arrivals.iter().find(|it| it.1 > number).map_or(u64::MAX, |it| it.0);
            prop_assert!(!overtaken || came >= noticed.saturating_add(PATIENCE.as_millis() as u64));
        }
        numbers.sort();
        let mut expected: Vec<u64> = arrivals.iter().map(|it| it.1).collect();
        expected.sort();
        prop_assert_eq!(numbers, expected);
    }
}
