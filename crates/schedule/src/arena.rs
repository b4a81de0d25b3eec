//! Members of rings, each at a place of its own that is used again after it.

use std::ops::{Index, IndexMut};

use crate::ring::Member;

/// Current occupant of a place, distinct from earlier occupants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    index: u32,
    generation: u32,
}

/// Places for `T`s that take turns in rings. It grows to the most there were at once.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Place<T> {
    pub value: T,
    pub member: Member,
    generation: u32,
    taken: bool,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Arena<T> {
    /// Stores `value` and returns its place.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            let place = &mut self[index];
            (place.value, place.member, place.taken) = (value, Member::default(), true);
            return index;
        }
        let index = self.places.len() as u32; // 2^32 places would be 400 GB
        let member = Member::default();
        self.places.push(Place { value, member, generation: 0, taken: true });
        index
    }

    /// Gives up the place, which must be in no ring. Its handles lead nowhere from now on.
    pub fn remove(&mut self, index: u32) {
        let place = &mut self[index];
        place.generation = place.generation.wrapping_add(1);
        place.taken = false;
        self.free.push(index);
    }

    /// All who are here.
    pub fn each(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter(|place| place.taken).map(|place| &mut place.value)
    }

    /// Number of occupied places.
    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Handle of the occupant of this place, for use outside.
    pub fn handle(&self, index: u32) -> Handle {
        Handle { index, generation: self[index].generation }
    }

    /// The place, if who the handle stands for is still there.
    pub fn find(&self, handle: Handle) -> Option<u32> {
        let place = self.places.get(handle.index as usize)?;
        (place.generation == handle.generation).then_some(handle.index)
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = Place<T>;

    fn index(&self, index: u32) -> &Place<T> {
        &self.places[index as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, index: u32) -> &mut Place<T> {
        &mut self.places[index as usize]
    }
}
