use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_millis(950);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Delivery of datagrams of one flow, one per symbol: their numbers and times of delivery.
#[derive(Default)]
struct Bench {
    buffer: ReorderBuffer,
    passed: Vec<(Duration, u64)>,
}

impl Bench {
    fn arrive(&mut self, symbol: u64, flow: u64, now: Duration) {
        self.buffer.on_symbol(symbol, PATIENCE, now);
        let payload = Bytes::copy_from_slice(&symbol.to_be_bytes());
        let passed = self.buffer.offer(symbol, flow, payload);
        self.pass(passed, now);
        self.release(now);
    }

    fn release(&mut self, now: Duration) {
        let released: Vec<_> = self.buffer.release(now).into_iter().map(|it| it.1).collect();
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
fn a_missing_datagram_is_delivered_before_those_that_waited_for_it() {
    let mut bench = Bench::default();
    for (at, symbol) in [(0, 0), (1, 1), (2, 4), (3, 5), (4, 3)] {
        bench.arrive(symbol, 7, ms(at));
    }
    assert_eq!(bench.numbers(), [0, 1]);
    assert_eq!(bench.buffer.due(), Some(ms(2) + PATIENCE));
    bench.arrive(2, 7, ms(5));
    assert_eq!(bench.numbers(), [0, 1, 2, 3, 4, 5]);
    assert_eq!((bench.buffer.due(), bench.buffer.held_bytes()), (None, 0));
}

#[test]
fn a_gap_is_waited_for_no_longer_than_the_patience() {
    let mut bench = Bench::default();
    bench.arrive(1, 7, ms(0));
    bench.arrive(3, 7, ms(100));
    bench.release(ms(949));
    assert!(bench.passed.is_empty());
    bench.release(PATIENCE);
    assert_eq!(bench.numbers(), [1], "the second gap is younger");
    assert_eq!(bench.buffer.due(), Some(ms(1050)));
    bench.arrive(0, 7, ms(960));
    assert_eq!(bench.numbers(), [1, 0], "late, and not lost");
    bench.buffer.abandon_below(3);
    bench.release(ms(970));
    assert_eq!(bench.numbers(), [1, 0, 3]);
    bench.buffer.abandon_below(9);
    bench.arrive(9, 7, ms(980));
    assert_eq!(bench.numbers(), [1, 0, 3, 9], "what was given up is not a gap");
}

#[test]
fn gaps_are_bounded_however_they_arise() {
    // Each symbol a gap further on, or each in the middle of one.
    let apart = (0..3 * MAX_GAPS as u64).map(|n| 2 * n + 1).collect::<Vec<_>>();
    let within = [&[4 * MAX_GAPS as u64][..], &apart].concat();
    for symbols in [apart, within] {
        let mut bench = Bench::default();
        for symbol in &symbols {
            bench.arrive(*symbol, 7, ms(0));
            assert!(bench.buffer.gaps.len() <= MAX_GAPS);
        }
        assert_eq!(bench.buffer.gaps.len(), MAX_GAPS);
        // The datagrams that waited for dropped gaps were delivered.
        let waiting = symbols.iter().filter(|symbol| **symbol > bench.buffer.gaps[0].start).count();
        assert_eq!(bench.numbers().len(), symbols.len() - waiting);
        bench.release(PATIENCE);
        assert_eq!(bench.numbers().len(), symbols.len());
    }
}

#[test]
fn waiting_bytes_are_bounded_for_each_flow_and_in_total() {
    let payload = |_| Bytes::from(vec![0; 1400]);
    let each = MAX_FLOW_BYTES / RecvQueue::cost(&payload(0));
    let mut buffer = ReorderBuffer::default();
    buffer.on_symbol(1, PATIENCE, ms(0));
    for index in 0..each as u64 {
        assert_eq!(buffer.offer(1, 1, payload(index)), None);
    }
    assert!(buffer.release(ms(1)).is_empty());
    buffer.offer(1, 1, payload(0));
    assert_eq!(buffer.release(ms(1)).len(), each, "all that waited goes on");
    let all = MAX_BYTES / RecvQueue::cost(&payload(0));
    for index in 0..2 * all as u64 {
        buffer.offer(1, index % 20, payload(index));
        assert!(buffer.held_bytes() <= MAX_BYTES);
    }
    assert!(buffer.release(ms(2)).len() >= all);
    for gap in 0..2 * MAX_GAPS as u64 {
        buffer.on_symbol(3 + 2 * gap, PATIENCE, ms(3));
    }
    assert_eq!(buffer.gaps.len(), MAX_GAPS);
}

/// One aircraft's datagrams, as small and over as many flows as possible, behind a gap. Beyond the
/// memory for them, each further datagram makes others leave the buffer, and no more are visited
/// than that.
#[test]
fn the_cost_of_a_datagram_is_independent_of_waiting_datagrams_and_flows() {
    const FLOWS: u64 = 5_000;
    let payload = || Bytes::from_static(b"x");
    let room = MAX_BYTES / RecvQueue::cost(&payload());
    assert!((129_000..130_000).contains(&room));
    let mut buffer = ReorderBuffer::default();
    buffer.on_symbol(1, PATIENCE, ms(0));
    let mut went_on = 0;
    for index in 0..2 * room as u64 {
        assert_eq!(buffer.offer(1, index % FLOWS, payload()), None);
        went_on += buffer.release(ms(1)).len();
    }
    assert!(buffer.held_bytes() <= MAX_BYTES && went_on >= room, "{went_on}");
    assert!(buffer.steps <= 5 * room, "{} for {} datagrams", buffer.steps, 2 * room);
    // The gap is filled: each datagram is delivered with one look-up.
    buffer.on_symbol(0, PATIENCE, ms(2));
    assert_eq!(buffer.release(ms(2)).len() + went_on, 2 * room);
    assert!(buffer.steps <= 6 * room && buffer.flows.is_empty() && buffer.sizes.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    /// Symbols of several flows are sent a millisecond apart; some are late, some never arrive.
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
            while let Some(due) = bench.buffer.due().filter(|due| *due <= ms(at)) {
                bench.release(due);
            }
            bench.arrive(symbol, flow, ms(at));
        }
        while let Some(due) = bench.buffer.due() {
            bench.release(due);
        }
        prop_assert_eq!(bench.buffer.held_bytes(), 0);
        let mut numbers = bench.numbers();
        // No datagram is held for longer than the patience.
        for &(passed, number) in &bench.passed {
            let on_symbol_in = arrivals.iter().find(|it| it.1 == number).unwrap().0;
            prop_assert!(passed >= ms(on_symbol_in) && passed <= ms(on_symbol_in) + PATIENCE);
        }
        // Of one flow, only datagrams too late for any patience are delivered after later ones.
        let flow_of = |number: u64| fates[number as usize].2;
        for (at, &number) in numbers.iter().enumerate() {
            let overtaken = numbers[..at].iter().any(|&it| it > number && flow_of(it) == flow_of(number));
            let on_symbol_in = arrivals.iter().find(|it| it.1 == number).unwrap().0;
            let noticed = arrivals.iter().find(|it| it.1 > number).map_or(u64::MAX, |it| it.0);
            prop_assert!(!overtaken || on_symbol_in >= noticed.saturating_add(PATIENCE.as_millis() as u64));
        }
        numbers.sort();
        let mut expected: Vec<u64> = arrivals.iter().map(|it| it.1).collect();
        expected.sort();
        prop_assert_eq!(numbers, expected);
    }
}
