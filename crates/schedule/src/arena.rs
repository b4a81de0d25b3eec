//! Slab of round-robin members. Slots are reused after removal.

use std::ops::{Index, IndexMut};

/// Reference to the current occupant of a slot. It becomes invalid when the occupant leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    index: u32,
    generation: u32,
}

/// Slab of `T`s that take turns in a round robin. It grows to the largest number present at once.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub value: T,
    pub member: Member,
    generation: u32,
    occupied: bool,
}

/// Round-robin state of a slot.
#[derive(Debug, Default)]
pub(crate) struct Member {
    pub prev: u32,
    pub next: u32,
    pub list: Option<ListKind>,
    pub active: bool,
    pub deficit: i64,
}

/// List that a member is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind {
    New,
    Old,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Arena<T> {
    /// Stores `value` and returns its slot.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            let slot = &mut self[index];
            (slot.value, slot.member, slot.occupied) = (value, Member::default(), true);
            return index;
        }
        let index = self.slots.len() as u32; // 2^32 slots would need 400 GB
        let member = Member::default();
        self.slots.push(Slot { value, member, generation: 0, occupied: true });
        index
    }

    /// Frees the slot, which must not be in a round robin. Its handles become invalid.
    pub fn remove(&mut self, index: u32) {
        let slot = &mut self[index];
        slot.generation = slot.generation.wrapping_add(1);
        slot.occupied = false;
        self.free.push(index);
    }

    /// All occupants.
    pub fn each(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter(|slot| slot.occupied).map(|slot| &mut slot.value)
    }

    /// Number of occupied slots.
    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Handle of the occupant of this slot, for callers outside the crate.
    pub fn handle(&self, index: u32) -> Handle {
        Handle { index, generation: self[index].generation }
    }

    /// Slot of the handle, if its occupant is still there.
    pub fn find(&self, handle: Handle) -> Option<u32> {
        let slot = self.slots.get(handle.index as usize)?;
        (slot.generation == handle.generation).then_some(handle.index)
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = Slot<T>;

    fn index(&self, index: u32) -> &Slot<T> {
        &self.slots[index as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.slots[index as usize]
    }
}
