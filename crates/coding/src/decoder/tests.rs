//! Decoding under loss, compared with a reference model, and under attack.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{Element, encode};

fn repair(span: Span, key: u16, source: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let sources: Vec<Vec<u8>> = (span.first..span.end()).map(source).collect();
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let mut out = Vec::new();
    encode(key, &sources, &mut out);
    out
}

fn drain(decoder: &mut Decoder) -> Vec<(u64, Vec<u8>)> {
    let mut recovered: Vec<_> = std::iter::from_fn(|| decoder.next_recovered()).collect();
    recovered.sort();
    recovered
}

/// Reference model: all information as a matrix over all symbols. It finds the determined symbols
/// by computing the reduced echelon form from scratch.
#[derive(Default)]
struct Model {
    rows: Vec<Vec<Element>>,
}

impl Model {
    fn add(&mut self, row: Vec<Element>) {
        self.rows.push(row);
    }

    fn source(&mut self, symbols: usize, number: u64) {
        let mut row = vec![Element(0); symbols];
        row[number as usize] = Element(1);
        self.add(row);
    }

    fn repair(&mut self, symbols: usize, span: Span, key: u16) {
        let mut factors = vec![0; span.count.into()];
        coefficients(key, &mut factors);
        let mut row = vec![Element(0); symbols];
        for (number, factor) in (span.first..).zip(factors) {
            row[number as usize] = Element(factor);
        }
        self.add(row);
    }

    /// Reduces the matrix. Returns the rank and the determined symbols.
    fn solve(&mut self) -> (usize, BTreeSet<u64>) {
        let columns = self.rows.first().map_or(0, Vec::len);
        let mut rank = 0;
        for column in 0..columns {
            let Some(at) = (rank..self.rows.len()).find(|row| self.rows[*row][column].0 != 0)
            else {
                continue;
            };
            self.rows.swap(rank, at);
            let inverse = self.rows[rank][column].inverse().unwrap();
            let pivot: Vec<_> = self.rows[rank].iter().map(|value| *value * inverse).collect();
            for (index, row) in self.rows.iter_mut().enumerate() {
                let factor = row[column];
                if index != rank && factor.0 != 0 {
                    row.iter_mut()
                        .zip(&pivot)
                        .for_each(|(sum, value)| *sum = *sum + factor * *value);
                }
            }
            self.rows[rank] = pivot;
            rank += 1;
        }
        self.rows.truncate(rank);
        let single = |row: &Vec<Element>| {
            let mut set = row.iter().enumerate().filter(|(_, value)| value.0 != 0);
            let (first, rest) = (set.next(), set.next());
            first.filter(|_| rest.is_none()).map(|(number, _)| number as u64)
        };
        (rank, self.rows.iter().filter_map(single).collect())
    }
}

/// Input of the decoder.
#[derive(Debug, Clone)]
enum Event {
    Source(u64),
    Repair(Span, u16),
}

const BASE: u64 = 1 << 40;

/// Sources of many lengths, and inputs in any order: sources, some late, and repair symbols, some
/// of them twice.
fn history() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<Event>)> {
    let source = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(any::<u8>(), 40),
    ];
    prop::collection::vec(source, 1..40).prop_flat_map(|sources| {
        let count = sources.len() as u64;
        let event = prop_oneof![
            1 => (0..count).prop_map(Event::Source),
            2 => (0..count, 0..count, 0u16..50).prop_map(|(a, b, key)| {
                Event::Repair(Span::new(a.min(b), (a.abs_diff(b) + 1) as u16).unwrap(), key)
            }),
        ];
        // Sources before the first repair symbol, then the other inputs.
        let arrived = prop::collection::vec(prop::bool::weighted(0.7), sources.len());
        (Just(sources), arrived, prop::collection::vec(event, 0..60)).prop_map(
            |(sources, arrived, events)| {
                let arrived = (0..).zip(arrived).filter(|(_, arrived)| *arrived);
                let arrived = arrived.map(|(number, _)| Event::Source(number));
                (sources, arrived.chain(events).collect())
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// After every input, exactly the determined symbols are known.
    #[test]
    fn determined_symbols_are_recovered_at_once((sources, events) in history()) {
        let mut decoder = Decoder::new(Limits::default());
        let mut model = Model::default();
        let mut known = BTreeMap::new();
        for event in events {
            match event {
                Event::Source(number) => {
                    let content = &sources[number as usize];
                    model.source(sources.len(), number);
                    model.solve();
                    decoder.source(BASE + number, content);
                    known.insert(number, content.clone());
                }
                Event::Repair(span, key) => {
                    let payload = repair(span, key, |number| sources[number as usize].clone());
                    let before = model.rows.len();
                    model.repair(sources.len(), span, key);
                    let (rank, _) = model.solve();
                    let moved = Span { first: BASE + span.first, ..span };
                    let useful =
                        decoder.repair(moved, key, &payload, |n| known.contains_key(&(n - BASE)));
                    prop_assert_eq!(useful, Ok(rank > before));
                }
            }
            for (number, content) in drain(&mut decoder) {
                prop_assert_eq!(&content, &sources[(number - BASE) as usize]);
                prop_assert!(known.insert(number - BASE, content).is_none());
            }
            let (rank, determined) = model.solve();
            prop_assert_eq!(&determined, &known.keys().copied().collect());
            let equations: u32 = decoder.equations().map(|(_, equations)| equations).sum();
            prop_assert_eq!(equations as usize, rank - known.len());
        }
    }
}

#[test]
fn two_repairs_recover_two_symbols() {
    let source = |number| vec![number as u8; number as usize];
    let has = |number| ![3, 9].contains(&number);
    let mut decoder = Decoder::new(Limits::default());
    for number in (0..10).filter(|number| has(*number)) {
        decoder.source(number, &source(number));
    }
    let span = Span::new(0, 10).unwrap();
    assert_eq!(decoder.repair(span, 1, &repair(span, 1, source), has), Ok(true));
    assert_eq!(decoder.repair(span, 1, &repair(span, 1, source), has), Ok(false));
    assert_eq!(decoder.equations().collect::<Vec<_>>(), [(3, 1)]);
    assert_eq!(decoder.repair(span, 2, &repair(span, 2, source), has), Ok(true));
    assert_eq!(drain(&mut decoder), [(3, vec![3; 3]), (9, vec![9; 9])]);
    assert_eq!(decoder.equations().count(), 0);
}

/// Symbols of many lengths, distinguishable by their numbers.
fn symbol(number: u64) -> Vec<u8> {
    (0..number * 7 % 90).map(|at| (number ^ (at * at)) as u8).collect()
}

#[test]
fn a_third_of_the_widest_span_is_recovered() {
    let span = Span::new(BASE, 512).unwrap();
    let lost = |number: u64| number % 3 == 1;
    let mut decoder = Decoder::new(Limits::default());
    (span.first..span.end()).filter(|n| !lost(*n)).for_each(|n| decoder.source(n, &symbol(n)));
    let missing: Vec<u64> = (span.first..span.end()).filter(|n| lost(*n)).collect();
    for key in 0..missing.len() as u16 {
        assert_eq!(
            decoder.equations().map(|(_, equations)| equations).sum::<u32>(),
            u32::from(key)
        );
        let payload = repair(span, key, symbol);
        assert_eq!(decoder.repair(span, key, &payload, |n| !lost(n)), Ok(true));
    }
    let expected: Vec<_> = missing.iter().map(|number| (*number, symbol(*number))).collect();
    assert_eq!(drain(&mut decoder), expected);
    assert_eq!(decoder.equations().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Stream with single and burst losses. A repair symbol covers the last hundred symbols after
    /// every ten; some repair symbols are lost. Symbols that leave the window are retransmitted. In
    /// the end every symbol is known and every recovered one is correct.
    #[test]
    fn a_lossy_stream_is_complete_and_correct(
        losses in prop::collection::vec((1u64..60, 1u64..12), 60),
        reordered: bool,
    ) {
        let mut decoder = Decoder::new(Limits { cached_symbols: 256, ..Limits::default() });
        let (mut received, mut by_repair, mut retransmitted) = (BTreeSet::new(), 0, 0);
        let mut lost = BTreeSet::new();
        losses.iter().fold(0, |from, (gap, burst)| {
            lost.extend(from + gap..from + gap + burst);
            from + gap + burst
        });
        for number in 0..2000u64 {
            // Pairs may be swapped.
            let arrived = if reordered { number ^ 1 } else { number };
            if !lost.contains(&arrived) {
                decoder.source(arrived, &symbol(arrived));
                received.insert(arrived);
            }
            if number % 10 == 9 && number >= 100 && !lost.contains(&number) {
                let span = Span::new(number - 99, 100).unwrap();
                let payload = repair(span, number as u16, symbol);
                let result = decoder.repair(span, number as u16, &payload, |n| received.contains(&n));
                prop_assert!(result.is_ok());
            }
            for (number, content) in drain(&mut decoder) {
                prop_assert_eq!(content, symbol(number));
                prop_assert!(received.insert(number));
                by_repair += 1;
            }
            if let Some(leaving) = number.checked_sub(100).filter(|number| !received.contains(number)) {
                decoder.source(leaving, &symbol(leaving));
                received.insert(leaving);
                retransmitted += 1;
            }
        }
        prop_assert_eq!(by_repair + retransmitted, lost.range(..1900).count()
            + lost.range(1900..2000).filter(|n| received.contains(n)).count());
        prop_assert!(by_repair > 0);
    }
}

#[test]
fn malformed_repair_symbols_are_refused() {
    let limits = Limits { max_symbol_bytes: 100, ..Limits::default() };
    let span = Span::new(10, 2).unwrap();
    let mut decoder = Decoder::new(limits);
    let mut result = |span, payload: &[u8]| decoder.repair(span, 1, payload, |_| false);
    let bytes = |bytes| Err(Malformed::Bytes { bytes, limit: 102 });
    assert_eq!(result(span, &[0]), bytes(1));
    assert_eq!(result(span, &[0; 103]), bytes(103));
    for (first, count) in [(10, 0), (10, 513), (u64::MAX, 1)] {
        let expected = Err(Malformed::Span { first, count });
        assert_eq!(result(Span { first, count }, &[0; 9]), expected);
    }
    // A single source whose length exceeds its bytes.
    let one = Span::new(10, 1).unwrap();
    assert_eq!(result(one, &[255; 9]), Err(Malformed::Symbol { number: 10 }));
    assert_eq!(decoder.equations().count(), 0);
}

#[test]
fn contradicting_repair_symbols_are_refused() {
    let span = Span::new(0, 3).unwrap();
    let mut decoder = Decoder::new(Limits::default());
    let mut payload = repair(span, 1, symbol);
    assert_eq!(decoder.repair(span, 1, &payload, |_| false), Ok(true));
    payload[3] ^= 1;
    assert_eq!(decoder.repair(span, 1, &payload, |_| false), Err(Malformed::Contradiction));
    // A source longer than a repair symbol that combines it.
    let mut decoder = Decoder::new(Limits::default());
    decoder.source(1, &[7; 50]);
    let short = Err(Malformed::Shorter { number: 1 });
    assert_eq!(decoder.repair(span, 1, &[1; 51], |_| false), short);
    // A later source is trusted; the next repair symbol returns the error.
    let mut decoder = Decoder::new(Limits::default());
    assert_eq!(decoder.repair(span, 1, &[1; 51], |_| false), Ok(true));
    decoder.source(1, &[7; 50]);
    assert_eq!(decoder.repair(span, 2, &[1; 60], |_| false), short);
}

#[test]
fn a_repair_symbol_over_evicted_contents_is_useless() {
    let mut decoder = Decoder::new(Limits { cached_symbols: 4, ..Limits::default() });
    (0..9).filter(|n| *n != 6).for_each(|n| decoder.source(n, &symbol(n)));
    let mut result = |first, count| {
        let span = Span::new(first, count).unwrap();
        decoder.repair(span, 3, &repair(span, 3, symbol), |n| n != 6)
    };
    assert_eq!(result(4, 5), Ok(false));
    assert_eq!(result(5, 4), Ok(true));
    decoder.forget_below(6);
    let span = Span::new(5, 8).unwrap();
    assert_eq!(decoder.repair(span, 3, &[0; 9], |_| false), Ok(false));
}

#[test]
fn the_number_of_equations_is_bounded() {
    let limits = Limits { rows: 3, ..Limits::default() };
    let mut decoder = Decoder::new(limits);
    let span = Span::new(0, 8).unwrap();
    let result: Vec<bool> = (0..5)
        .map(|key| decoder.repair(span, key, &repair(span, key, symbol), |_| false).unwrap())
        .collect();
    assert_eq!(result, [true, true, true, false, false]);
    assert_eq!(decoder.equations().collect::<Vec<_>>(), [(0, 3)]);
    // Whichever equation was dropped, each stored one saves a symbol.
    (0..5).for_each(|number| decoder.source(number, &symbol(number)));
    let recovered = drain(&mut decoder);
    assert_eq!(recovered.len(), 3);
    recovered.into_iter().for_each(|(number, content)| assert_eq!(content, symbol(number)));
}

#[test]
fn disjoint_groups_are_reported_separately() {
    let mut decoder = Decoder::new(Limits::default());
    for (first, keys) in [(20, 0..3u16), (0, 3..4), (2, 4..6), (40, 6..7)] {
        let span = Span::new(first, 5).unwrap();
        for key in keys {
            assert_eq!(decoder.repair(span, key, &repair(span, key, symbol), |_| false), Ok(true));
        }
    }
    assert_eq!(decoder.equations().collect::<Vec<_>>(), [(0, 3), (20, 3), (40, 1)]);
    decoder.forget_below(21);
    assert_eq!(decoder.equations().collect::<Vec<_>>(), [(21, 2), (40, 1)]);
}
