//! Cache of the newest source symbols in coded form, length prefix included.

use crate::Span;
use crate::symbol::PREFIX_BYTES;

/// Ring of contents, indexed by symbol number. It grows with the number of contents.
pub(super) struct Contents {
    /// Number of the symbol in each slot, or [`EMPTY`]. Numbers are stored apart from the contents,
    /// so that a search for missing symbols touches few cache lines.
    numbers: Vec<u64>,
    coded: Vec<Vec<u8>>,
    capacity: usize,
    /// Contents below this number are dropped.
    floor: u64,
    bytes: usize,
}

/// Table memory per slot.
pub(super) const SLOT_BYTES: usize = size_of::<u64>() + size_of::<Vec<u8>>();

/// Initial slots: 512 bytes of table.
const MIN_SLOTS: usize = 16;

/// Number of an empty slot. It lies past the end of every span, so no lookup finds it.
const EMPTY: u64 = u64::MAX;

impl Contents {
    /// Creates a ring of at most `capacity` contents, at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { numbers: Vec::new(), coded: Vec::new(), capacity, floor: 0, bytes: 0 }
    }

    /// Allocates the tables if they are not allocated yet.
    pub fn prepare(&mut self) {
        if self.numbers.is_empty() {
            let slots = MIN_SLOTS.min(self.capacity);
            self.numbers = vec![EMPTY; slots];
            self.coded = vec![Vec::new(); slots];
        }
    }

    /// Stores a content, unless its slot holds one with a higher number.
    pub fn insert(&mut self, number: u64, content: &[u8]) {
        if number < self.floor || number == EMPTY {
            return;
        }
        self.prepare();
        self.make_room(number);
        let index = self.index(number);
        let (slot, coded) = (&mut self.numbers[index], &mut self.coded[index]);
        if *slot != EMPTY && *slot >= number {
            return;
        }
        let before = coded.capacity();
        *slot = number;
        coded.clear();
        // Exact, so that no buffer is larger than the longest symbol.
        coded.reserve_exact(PREFIX_BYTES + content.len());
        coded.extend_from_slice(&(content.len() as u16).to_be_bytes());
        coded.extend_from_slice(content);
        self.bytes += coded.capacity() - before;
    }

    /// Grows until the symbol's slot is free, up to the capacity. A ring with full size from the
    /// start would lose the same symbols or more.
    fn make_room(&mut self, number: u64) {
        let used = self.numbers[self.index(number)];
        if used == EMPTY || used == number || self.numbers.len() == self.capacity {
            return;
        }
        let mut slots = self.numbers.len();
        while slots < self.capacity {
            slots = (slots * 2).min(self.capacity);
            if self.fits(slots, number) {
                break;
            }
        }
        let numbers = std::mem::replace(&mut self.numbers, vec![EMPTY; slots]);
        let coded = std::mem::replace(&mut self.coded, vec![Vec::new(); slots]);
        for (number, coded) in numbers.into_iter().zip(coded) {
            let index = self.index(number);
            let (slot, stored) = (&mut self.numbers[index], &mut self.coded[index]);
            let dropped = if number == EMPTY || (*slot != EMPTY && *slot > number) {
                coded
            } else {
                *slot = number;
                std::mem::replace(stored, coded)
            };
            self.bytes -= dropped.capacity();
        }
    }

    /// Returns `true` if all stored symbols and `number` get distinct slots in a ring of `slots`.
    fn fits(&self, slots: usize, number: u64) -> bool {
        let mut used = vec![false; slots];
        let stored = self.numbers.iter().filter(|stored| **stored != EMPTY);
        stored.chain([&number]).all(|number| {
            let index = (number % slots as u64) as usize;
            !std::mem::replace(&mut used[index], true)
        })
    }

    /// Returns `true` if the content of a symbol is stored.
    pub fn contains(&self, number: u64) -> bool {
        number != EMPTY && self.numbers.get(self.index(number)) == Some(&number)
    }

    /// Slots of the symbols of a span, in runs that are contiguous in memory. Yields the first
    /// number of each run, the numbers stored in its slots, and their contents.
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

    /// Frees contents below `number`.
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
                self.numbers[index] = EMPTY;
                self.bytes -= std::mem::take(&mut self.coded[index]).capacity();
            }
        }
    }

    /// First number that `forget_below` has not dropped.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Memory use.
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

    fn stored<'a>(contents: &'a Contents, first: u64, count: u16) -> Vec<Option<&'a [u8]>> {
        let runs = contents.runs(Span { first, count });
        let slots = runs.flat_map(|(_, slots, coded)| slots.iter().zip(coded));
        let here = |(at, (slot, coded)): (u64, (&u64, &'a Vec<u8>))| {
            (*slot == first + at).then_some(&coded[..])
        };
        (0..).zip(slots).map(here).collect()
    }

    #[test]
    fn the_newest_contents_are_stored() {
        let mut contents = Contents::new(4);
        for number in 0..10u64 {
            contents.insert(number, &[number as u8; 3]);
        }
        contents.insert(2, b"old");
        for number in 0..10 {
            assert_eq!(contents.contains(number), number >= 6);
        }
        let coded = [6, 7, 8, 9].map(|n| [0, 3, n, n, n]);
        let coded = coded.each_ref().map(|coded| Some(&coded[..]));
        assert_eq!(stored(&contents, 4, 8), [&[None; 2][..], &coded, &[None; 2]].concat());
        assert_eq!(stored(&contents, u64::MAX - 2, 2), [None; 2]);
    }

    proptest! {
        /// The ring stores at least what a ring of full size would store.
        #[test]
        fn growing_stores_at_least_what_a_full_ring_stores(
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
                    contents.insert(number, &number.to_be_bytes());
                    let slot = &mut full[number as usize % capacity];
                    *slot = (*slot).max(Some(number).filter(|it| *it >= floor));
                }
                for number in 0..400 {
                    let contains = full[number as usize % capacity] == Some(number);
                    prop_assert!(contents.contains(number) || !contains, "{number}");
                }
            }
            let count = (0..400).filter(|number| contents.contains(*number)).count();
            let bytes = count * (PREFIX_BYTES + 8);
            prop_assert_eq!(contents.bytes(), bytes + contents.numbers.len() * SLOT_BYTES);
            prop_assert!(contents.numbers.len() <= capacity.max(MIN_SLOTS.min(capacity)));
        }
    }

    #[test]
    fn forgotten_contents_are_freed() {
        let mut contents = Contents::new(8);
        assert_eq!(contents.bytes(), 0);
        for number in 0..8 {
            contents.insert(number, &[1; 98]);
        }
        let table = 8 * SLOT_BYTES;
        assert_eq!(contents.bytes(), table + 800);
        contents.forget_below(3);
        assert_eq!(contents.bytes(), table + 500);
        assert!(!contents.contains(2) && contents.contains(3));
        contents.insert(2, b"below");
        assert!(!contents.contains(2));
        contents.forget_below(u64::MAX);
        assert_eq!(contents.bytes(), table);
    }

    #[test]
    fn there_is_room_for_at_least_one_content() {
        let mut contents = Contents::new(0);
        contents.forget_below(5);
        contents.insert(6, b"a");
        contents.insert(u64::MAX, b"never looked up");
        assert!(contents.contains(6) && !contents.contains(7) && !contents.contains(u64::MAX));
        assert_eq!(stored(&contents, 5, 3), [None, Some(&[0, 1, b'a'][..]), None]);
    }
}
