//! Who may have how many questions under way.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bentpipe_dns::may_hold;

/// Questions under way at once over all aircraft, of which one alone gets 1,024: some 2 KiB and a
/// socket or, with slow servers, three each, so 10 MiB and up to 15,360 descriptors.
const MOST_ASKED: usize = 5120;

/// Places for questions.
#[derive(Default)]
pub struct Places(Mutex<Held>);

#[derive(Default)]
struct Held {
    all: usize,
    /// Of aircraft that have some.
    of: HashMap<[u8; 32], usize>,
}

/// The place of one question, until it is dropped.
pub struct Place<'a> {
    places: &'a Places,
    aircraft: [u8; 32],
}

impl Places {
    /// A place for a question of `aircraft`, if it may have one more.
    pub fn take(&self, aircraft: &[u8; 32]) -> Option<Place<'_>> {
        let mut held = self.lock();
        let of = held.of.get(aircraft).copied().unwrap_or(0);
        if !may_hold(of, 1, MOST_ASKED - held.all) {
            return None;
        }
        held.all += 1;
        held.of.insert(*aircraft, of + 1);
        Some(Place { places: self, aircraft: *aircraft })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Nothing in there panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut held = self.places.lock();
        held.all -= 1;
        if let Some(of) = held.of.get_mut(&self.aircraft) {
            *of -= 1;
            if *of == 0 {
                held.of.remove(&self.aircraft);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_aircraft_leaves_places_for_others() {
        let places = Places::default();
        let all =
            |aircraft| std::iter::from_fn(|| places.take(&[aircraft; 32])).collect::<Vec<_>>();
        let (one, other) = (all(1), all(2));
        assert_eq!(one.len(), 1024);
        assert!(other.len() > 800 && places.take(&[3; 32]).is_some());
        drop((one, other));
        let held = places.lock();
        assert_eq!((held.all, held.of.len()), (0, 0));
    }
}
