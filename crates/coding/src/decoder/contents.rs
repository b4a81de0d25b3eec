//! The contents of the newest source symbols.

/// A ring of contents, by number.
pub(super) struct Contents {
    slots: Vec<Slot>,
    capacity: usize,
    /// Nothing below is kept.
    floor: u64,
    bytes: usize,
}

#[derive(Clone, Default)]
struct Slot {
    number: Option<u64>,
    content: Vec<u8>,
}

impl Contents {
    pub fn new(capacity: usize) -> Self {
        Self { slots: Vec::new(), capacity, floor: 0, bytes: 0 }
    }

    /// Keeps a content, unless one of a higher number has its place.
    pub fn keep(&mut self, number: u64, content: &[u8]) {
        if self.capacity == 0 || number < self.floor {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(self.capacity, Slot::default);
        }
        let index = self.index(number);
        let slot = &mut self.slots[index];
        if slot.number.is_some_and(|kept| kept >= number) {
            return;
        }
        let before = slot.content.capacity();
        slot.number = Some(number);
        slot.content.clear();
        // Exactly, so that no buffer is ever larger than the longest symbol.
        slot.content.reserve_exact(content.len());
        slot.content.extend_from_slice(content);
        self.bytes += slot.content.capacity() - before;
    }

    pub fn get(&self, number: u64) -> Option<&[u8]> {
        let slot = self.slots.get(self.index(number))?;
        (slot.number == Some(number)).then_some(&slot.content)
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
            if slot.number.is_some_and(|kept| kept < number) {
                self.bytes -= slot.content.capacity();
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
        (number % self.capacity.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let mut contents = Contents::new(4);
        for number in 0..10u64 {
            contents.keep(number, &[number as u8; 3]);
        }
        for number in 0..10 {
            let kept = (number >= 6).then_some([number as u8; 3]);
            assert_eq!(contents.get(number), kept.as_ref().map(|content| &content[..]));
        }
        contents.keep(2, b"old");
        assert_eq!(contents.get(2), None);
    }

    #[test]
    fn what_is_forgotten_is_freed() {
        let mut contents = Contents::new(8);
        assert_eq!(contents.bytes(), 0);
        for number in 0..8 {
            contents.keep(number, &[1; 100]);
        }
        let table = 8 * size_of::<Slot>();
        assert_eq!(contents.bytes(), table + 800);
        contents.forget_below(3);
        assert_eq!(contents.bytes(), table + 500);
        assert!(contents.get(2).is_none() && contents.get(3).is_some());
        contents.keep(2, b"below");
        assert_eq!(contents.get(2), None);
        contents.forget_below(u64::MAX);
        assert_eq!(contents.bytes(), table);
    }

    #[test]
    fn nothing_is_kept_in_no_room() {
        let mut contents = Contents::new(0);
        contents.keep(1, b"a");
        contents.forget_below(5);
        assert_eq!((contents.get(1), contents.bytes()), (None, 0));
    }
}
