//! Decoding under loss, against a plain model, and under attack.

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
    let mut found: Vec<_> = std::iter::from_fn(|| decoder.next_recovered()).collect();
    found.sort();
    found
}

/// Everything that was told, as a matrix over all symbols; what follows from it is found by bringing
/// it into reduced echelon form from scratch.
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

    /// Reduces, and gives the rank and the symbols that follow.
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

/// What reaches the decoder.
#[derive(Debug, Clone)]
enum Event {
    Source(u64),
    Repair(Span, u16),
}

const BASE: u64 = 1 << 40;

/// Sources of many lengths, and events in any order: sources that come, some late, and repairs, some
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
        // What came before the first repair, and how it went on.
        let came = prop::collection::vec(prop::bool::weighted(0.7), sources.len());
        (Just(sources), came, prop::collection::vec(event, 0..60)).prop_map(
            |(sources, came, events)| {
                let came = (0..).zip(came).filter(|(_, came)| *came);
                let came = came.map(|(number, _)| Event::Source(number));
                (sources, came.chain(events).collect())
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// After everything that comes, exactly what follows from it is known, no less and no more.
    #[test]
    fn whatever_follows_is_recovered_at_once((sources, events) in history()) {
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
            let (rank, follows) = model.solve();
            prop_assert_eq!(&follows, &known.keys().copied().collect());
            let held: u32 = decoder.held().map(|(_, equations)| equations).sum();
            prop_assert_eq!(held as usize, rank - known.len());
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
    assert_eq!(decoder.held().collect::<Vec<_>>(), [(3, 1)]);
    assert_eq!(decoder.repair(span, 2, &repair(span, 2, source), has), Ok(true));
    assert_eq!(drain(&mut decoder), [(3, vec![3; 3]), (9, vec![9; 9])]);
    assert_eq!(decoder.held().count(), 0);
}
