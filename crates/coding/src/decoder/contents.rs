//! The contents of the newest source symbols, as they are coded: behind their lengths.

use crate::Span;
use crate::symbol::PREFIX_BYTES;

/// A ring of contents, by number.
pub(super) struct Contents {
    slots: Vec<Slot>,
    capacity: usize,
    /// Nothing below is kept.
    floor: u64,
    bytes: usize,
}

/// A symbol's place.
#[derive(Clone)]
pub(super) struct Slot {
    /// [`NOBODY`] where there is nothing.
    number: u64,
    coded: Vec<u8>,
}

/// Behind the end of every span, so never asked for.
const NOBODY: u64 = u64::MAX;

impl Default for Slot {
    fn default() -> Self {
        Self { number: NOBODY, coded: Vec::new() }
    }
}

impl Slot {
    /// Symbol `number` as it is coded, if it is here.
    #[inline]
    pub fn coded(&self, number: u64) -> Option<&[u8]> {
        (self.number == number).then_some(&self.coded)
    }
}

impl Contents {
    /// Room for so many, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { slots: Vec::new(), capacity: capacity.max(1), floor: 0, bytes: 0 }
    }

    /// Makes the table, if it is not there yet.
    pub fn prepare(&mut self) {
        if self.slots.is_empty() {
            self.slots.resize_with(self.capacity, Slot::default);
        }
    }

    /// Keeps a content, unless one of a higher number has its place.
    pub fn keep(&mut self, number: u64, content: &[u8]) {
        if number < self.floor || number == NOBODY {
            return;
        }
        self.prepare();
        let index = self.index(number);
        let slot = &mut self.slots[index];
        if slot.number != NOBODY && slot.number >= number {
            return;
        }
        let before = slot.coded.capacity();
        slot.number = number;
        slot.coded.clear();
        // Exactly, so that no buffer is ever larger than the longest symbol.
        slot.coded.reserve_exact(PREFIX_BYTES + content.len());
        slot.coded.extend_from_slice(&(content.len() as u16).to_be_bytes());
        slot.coded.extend_from_slice(content);
        self.bytes += slot.coded.capacity() - before;
    }

    /// Whether the content of a symbol is kept.
    pub fn has(&self, number: u64) -> bool {
        number != NOBODY
            && self.slots.get(self.index(number)).is_some_and(|slot| slot.number == number)
    }

    /// The slots where the symbols of a span would be, in runs as they lie in memory.
    pub fn runs(&self, span: Span) -> impl Iterator<Item = &[Slot]> {
        let mut number = span.first;
        std::iter::from_fn(move || {
            let index = self.index(number);
            let left = usize::try_from(span.end() - number).ok().filter(|left| *left > 0)?;
            let run = self.slots.get(index..)?;
            let run = &run[..run.len().min(left)];
            number += run.len() as u64;
            Some(run)
        })
    }

    /// Frees what is below `number`.
    pub fn forget_below(&mut self, number: u64) {
        let from = self.floor;
        self.floor = from.max(number);
        if self.slots.is_empty() || number <= from {
            return;
        }
        let all = number - from >= self.capacity as u64;
        let indices = if all { 0..self.capacity } else { 0..(number - from) as usize };
        for step in indices {
            let index = if all { step } else { self.index(from + step as u64) };
            let slot = &mut self.slots[index];
            if slot.number < number {
                self.bytes -= slot.coded.capacity();
                *slot = Slot::default();
            }
        }
    }

    /// Where `forget_below` has come to.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The memory of all.
    pub fn bytes(&self) -> usize {
        self.bytes + self.slots.capacity() * size_of::<Slot>()
    }

    fn index(&self, number: u64) -> usize {
        (number % self.capacity as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(contents: &Contents, first: u64, count: u16) -> Vec<Option<&[u8]>> {
        let slots = contents.runs(Span { first, count }).flatten();
        slots.zip(first..).map(|(slot, number)| slot.coded(number)).collect()
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

    #[test]
    fn what_is_forgotten_is_freed() {
        let mut contents = Contents::new(8);
        assert_eq!(contents.bytes(), 0);
        for number in 0..8 {
            contents.keep(number, &[1; 98]);
        }
        let table = 8 * size_of::<Slot>();
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
