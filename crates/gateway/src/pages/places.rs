//! Pages under way at the ground, and whose they are: so many, and so many of one aircraft.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The places.
pub struct Places {
    most: usize,
    per_aircraft: usize,
    /// How many each aircraft has; no entry where it has none.
    taken: Mutex<BTreeMap<String, usize>>,
}

/// One of them, free again when dropped.
pub struct Place<'a> {
    places: &'a Places,
    aircraft: String,
}

impl Places {
    /// `most` places, of which one aircraft has at most `per_aircraft`.
    pub fn new(most: usize, per_aircraft: usize) -> Self {
        Self { most, per_aircraft, taken: Mutex::default() }
    }

    /// A place for a page of `aircraft`'s; `None` where all are taken, or all of its own.
    pub fn take(&self, aircraft: &str) -> Option<Place<'_>> {
        let mut taken = self.taken();
        // At most `most` entries.
        let all: usize = taken.values().sum();
        let own = taken.get(aircraft).copied().unwrap_or_default();
        if all >= self.most || own >= self.per_aircraft {
            return None;
        }
        taken.insert(aircraft.to_owned(), own + 1);
        Some(Place { places: self, aircraft: aircraft.to_owned() })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        // Nothing panics while it is held.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        match taken.get_mut(&self.aircraft) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.aircraft)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_places() {
        let places = Places::new(3, 2);
        let mut ours: Vec<_> = [(); 3].map(|()| places.take("a")).into_iter().flatten().collect();
        assert_eq!(ours.len(), 2, "a third is not for the first aircraft");
        let theirs = places.take("b");
        assert!(theirs.is_some() && places.take("c").is_none(), "all are taken");
        ours.pop();
        assert!(places.take("b").is_some());
        drop((ours, theirs));
        assert!(places.taken().is_empty());
    }
}
