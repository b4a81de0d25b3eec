//! The contents of the newest source symbols, as they are coded: behind their lengths.

use crate::Span;
use crate::symbol::PREFIX_BYTES;

/// A ring of contents, by number. It grows with the contents that it holds at once.
pub(super) struct Contents {
    /// Number of the symbol in each slot, or [`NOBODY`]. The numbers are apart from the contents,
    /// so that a search for missing symbols touches few cache lines.
    numbers: Vec<u64>,
    coded: Vec<Vec<u8>>,
    capacity: usize,
    /// Nothing below is kept.
    floor: u64,
    bytes: usize,
}

/// Table memory per slot.
pub(super) const SLOT_BYTES: usize = size_of::<u64>() + size_of::<Vec<u8>>();

/// Slots at first: 512 bytes of table.
const MIN_SLOTS: usize = 16;

/// Behind the end of every span, so never asked for.
const NOBODY: u64 = u64::MAX;

impl Contents {
    /// Room for so many, at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { numbers: Vec::new(), coded: Vec::new(), capacity, floor: 0, bytes: 0 }
    }

    /// Makes the tables, if they are not there yet.
    pub fn prepare(&mut self) {
        if self.numbers.is_empty() {
            let slots = MIN_SLOTS.min(self.capacity);
            self.numbers = vec![NOBODY; slots];
            self.coded = vec![Vec::new(); slots];
        }
    }

    /// Keeps a content, unless one of a higher number has its place.
    pub fn keep(&mut self, number: u64, content: &[u8]) {
        if number < self.floor || number == NOBODY {
            return;
        }
        self.prepare();
        self.make_room(number);
        let index = self.index(number);
        let (place, coded) = (&mut self.numbers[index], &mut self.coded[index]);
        if *place != NOBODY && *place >= number {
            return;
        }
        let before = coded.capacity();
        *place = number;
        coded.clear();
        // Exactly, so that no buffer is ever larger than the longest symbol.
        coded.reserve_exact(PREFIX_BYTES + content.len());
        coded.extend_from_slice(&(content.len() as u16).to_be_bytes());
        coded.extend_from_slice(content);
        self.bytes += coded.capacity() - before;
    }

    /// Grows until the symbol's place is free, as far as the capacity allows. A ring that has its full
    /// size from the beginning loses the same symbols, or more.
    fn make_room(&mut self, number: u64) {
        let taken = self.numbers[self.index(number)];
        if taken == NOBODY || taken == number || self.numbers.len() == self.capacity {
            return;
        }
        let mut slots = self.numbers.len();
        while slots < self.capacity {
            slots = (slots * 2).min(self.capacity);
            if self.fits(slots, number) {
                break;
            }
        }
        let numbers = std::mem::replace(&mut self.numbers, vec![NOBODY; slots]);
        let coded = std::mem::replace(&mut self.coded, vec![Vec::new(); slots]);
        for (number, coded) in numbers.into_iter().zip(coded) {
            let index = self.index(number);
            let (place, kept) = (&mut self.numbers[index], &mut self.coded[index]);
            let goes = if number == NOBODY || (*place != NOBODY && *place > number) {
                coded
            } else {
                *place = number;
                std::mem::replace(kept, coded)
            };
            self.bytes -= goes.capacity();
        }
    }

    /// Returns whether all that is kept, and `number`, have places of their own among so many.
    fn fits(&self, slots: usize, number: u64) -> bool {
        let mut taken = vec![false; slots];
        let kept = self.numbers.iter().filter(|kept| **kept != NOBODY);
        kept.chain([&number]).all(|number| {
            let index = (number % slots as u64) as usize;
            !std::mem::replace(&mut taken[index], true)
        })
    }

    /// Returns `true` if the content of a symbol is stored.
    pub fn has(&self, number: u64) -> bool {
        number != NOBODY && self.numbers.get(self.index(number)) == Some(&number)
    }

    /// The places where the symbols of a span would be, in runs as they lie in memory: the first
    /// number of each, whose places they are, and what is there.
    pub fn runs(&self, span: Span) -> impl Iterator<Item = (u64, &[u64], &[Vec<u8>])> {
        let mut number = span.first;
        std::iter::from_fn(move || {
            let (first, index) = (number, self.index(number));
            let left = usize::try_from(span.end() - first).ok().filter(|left| *left > 0)?;
            let run = index..self.numbers.len().min(index + left);
            number += run.len() as u64;
            Some((first, self.numbers.get(run.clone())?, self.coded.get(run)?))
        })
    }

    /// Frees what is below `number`.
    pub fn forget_below(&mut self, number: u64) {
        let from = self.floor;
        self.floor = from.max(number);
        if self.numbers.is_empty() || number <= from {
            return;
        }
        let all = number - from >= self.numbers.len() as u64;
        let indices = if all { 0..self.numbers.len() } else { 0..(number - from) as usize };
        for step in indices {
            let index = if all { step } else { self.index(from + step as u64) };
            if self.numbers[index] < number {
                self.numbers[index] = NOBODY;
                self.bytes -= std::mem::take(&mut self.coded[index]).capacity();
            }
        }
    }

    /// First number that `forget_below` has not dropped.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The memory of all.
    pub fn bytes(&self) -> usize {
        self.bytes + self.numbers.capacity() * SLOT_BYTES
    }

    fn index(&self, number: u64) -> usize {
        (number % self.numbers.len().max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept<'a>(contents: &'a Contents, first: u64, count: u16) -> Vec<Option<&'a [u8]>> {
        let runs = contents.runs(Span { first, count });
        let places = runs.flat_map(|(_, places, coded)| places.iter().zip(coded));
        let here = |(at, (place, coded)): (u64, (&u64, &'a Vec<u8>))| {
            (*place == first + at).then_some(&coded[..])
        };
        (0..).zip(places).map(here).collect()
    }

    #[test]
    fn the_newest_are_kept() {
        let mut contents = Contents::new(4);
        for number in 0..10u64 {
            contents.keep(number, &[number as u8; 3]);
        }
        contents.keep(2, b"old");
        for number in 0..10 {
            assert_eq!(contents.has(number), number >= 6);
        }
        let coded = [6, 7, 8, 9].map(|n| [0, 3, n, n, n]);
        let coded = coded.each_ref().map(|coded| Some(&coded[..]));
        assert_eq!(kept(&contents, 4, 8), [&[None; 2][..], &coded, &[None; 2]].concat());
        assert_eq!(kept(&contents, u64::MAX - 2, 2), [None; 2]);
    }

    proptest! {
        /// Keeps at least what a ring that has all of its places from the beginning keeps.
        #[test]
        fn growing_keeps_what_a_full_ring_keeps(
            capacity in 1usize..100,
            steps in prop::collection::vec((0u64..400, prop::bool::weighted(0.05)), 0..300),
        ) {
            let mut contents = Contents::new(capacity);
            let (mut full, mut floor) = (vec![None::<u64>; capacity], 0);
            for (number, forgets) in steps {
                if forgets {
                    contents.forget_below(number);
                    floor = floor.max(number);
                    full.iter_mut().for_each(|it| *it = it.filter(|it| *it >= floor));
                } else {
                    contents.keep(number, &number.to_be_bytes());
                    let place = &mut full[number as usize % capacity];
                    *place = (*place).max(Some(number).filter(|it| *it >= floor));
                }
                for number in 0..400 {
                    let has = full[number as usize % capacity] == Some(number);
                    prop_assert!(contents.has(number) || !has, "{number}");
                }
            }
            let held = (0..400).filter(|number| contents.has(*number)).count();
            let bytes = held * (PREFIX_BYTES + 8);
            prop_assert_eq!(contents.bytes(), bytes + contents.numbers.len() * SLOT_BYTES);
            prop_assert!(contents.numbers.len() <= capacity.max(MIN_SLOTS.min(capacity)));
        }
    }

    #[test]
    fn what_is_forgotten_is_freed() {
        let mut contents = Contents::new(8);
        assert_eq!(contents.bytes(), 0);
        for number in 0..8 {
            contents.keep(number, &[1; 98]);
        }
        let table = 8 * SLOT_BYTES;
        assert_eq!(contents.bytes(), table + 800);
        contents.forget_below(3);
        assert_eq!(contents.bytes(), table + 500);
        assert!(!contents.has(2) && contents.has(3));
        contents.keep(2, b"below");
        assert!(!contents.has(2));
        contents.forget_below(u64::MAX);
        assert_eq!(contents.bytes(), table);
    }

    #[test]
    fn there_is_always_room_for_one() {
        let mut contents = Contents::new(0);
        contents.forget_below(5);
        contents.keep(6, b"a");
        contents.keep(u64::MAX, b"never asked for");
        assert!(contents.has(6) && !contents.has(7) && !contents.has(u64::MAX));
        assert_eq!(kept(&contents, 5, 3), [None, Some(&[0, 1, b'a'][..]), None]);
    }
}
