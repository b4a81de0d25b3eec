//! Pages under way, and whose they are: so many, and so many of one aircraft (ground) or passenger (air).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places.
pub struct Places<Whose: Ord + Clone> {
    most: usize,
    each: usize,
    /// How many each has; no entry where one has none.
    taken: Mutex<BTreeMap<Whose, usize>>,
}

/// One of them, free again when dropped.
pub struct Place<Whose: Ord + Clone> {
    places: Arc<Places<Whose>>,
    whose: Whose,
}

impl<Whose: Ord + Clone> Places<Whose> {
    /// `most` places, of which one has at most `each`.
    pub fn new(most: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { most, each, taken: Mutex::default() })
    }

    /// A place for a page of `whose`; `None` where all are taken, or all of its own.
    pub fn take(self: &Arc<Self>, whose: &Whose) -> Option<Place<Whose>> {
        let mut taken = self.taken();
        // At most `most` entries.
        let all: usize = taken.values().sum();
        let own = taken.get(whose).copied().unwrap_or_default();
        if all >= self.most || own >= self.each {
            return None;
        }
        taken.insert(whose.clone(), own + 1);
        Some(Place { places: self.clone(), whose: whose.clone() })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<Whose, usize>> {
        // Nothing panics while it is held.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Whose: Ord + Clone> Place<Whose> {
    /// Who has it.
    pub fn whose(&self) -> &Whose {
        &self.whose
    }
}

impl<Whose: Ord + Clone> Drop for Place<Whose> {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        match taken.get_mut(&self.whose) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.whose)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_places() {
        let places = Places::new(3, 2);
        let mut ours: Vec<_> = [(); 3].map(|()| places.take(&"a")).into_iter().flatten().collect();
        assert_eq!(ours.len(), 2, "a third is not for the first aircraft");
        let theirs = places.take(&"b");
        assert!(theirs.is_some() && places.take(&"c").is_none(), "all are taken");
        ours.pop();
        assert!(places.take(&"b").is_some());
        drop((ours, theirs));
        assert!(places.taken().is_empty());
    }
}
