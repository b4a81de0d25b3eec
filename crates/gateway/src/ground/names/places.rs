//! Who may have how many questions under way, and whose ends for a newer one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bentpipe_dns::may_hold;
use tokio::sync::oneshot;

/// Questions under way at once over all aircraft, of which one alone gets 1,024: some 2 KiB and a
/// socket or, with slow servers, three each, so 10 MiB and up to 15,360 descriptors.
const MOST_ASKED: usize = 5120;

/// Places for questions.
pub struct Places {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    all: usize,
    /// The number of the next place.
    next: u64,
    /// Of aircraft that have some: what ends each question, by number, the oldest first.
    of: HashMap<[u8; 32], BTreeMap<u64, oneshot::Sender<()>>>,
}

/// The place of one question, until it is dropped or taken by a newer one.
pub struct Place<'a> {
    places: &'a Places,
    aircraft: [u8; 32],
    number: u64,
    taken: oneshot::Receiver<()>,
}

impl Default for Places {
    fn default() -> Self {
        Self::of(MOST_ASKED)
    }
}

impl Places {
    /// So many as `most`, which are some.
    pub fn of(most: usize) -> Self {
        Self { most, held: Mutex::default() }
    }

    /// A place for a question of `aircraft`, if it may have one more.
    pub fn take_free(&self, aircraft: &[u8; 32]) -> Option<Place<'_>> {
        let mut held = self.lock();
        let has = held.of.get(aircraft).map_or(0, BTreeMap::len);
        let may = may_hold(has, 1, self.most - held.all);
        may.then(|| self.give(&mut held, *aircraft))
    }

    /// A place for a question of `aircraft`: where it may have no more, that of its own oldest, and where
    /// it has none and nothing is free, that of the oldest of whoever has most. Who asked for something
    /// long ago may not wait for it any more; who asks now does.
    pub fn take(&self, aircraft: &[u8; 32]) -> Place<'_> {
        let mut held = self.lock();
        let has = held.of.get(aircraft).map_or(0, BTreeMap::len);
        if !may_hold(has, 1, self.most - held.all) {
            let most = || held.of.iter().max_by_key(|(_, places)| places.len());
            let pays =
                if has > 0 { Some(*aircraft) } else { most().map(|(aircraft, _)| *aircraft) };
            if let Some(pays) = pays {
                held.end_oldest(&pays);
            }
        }
        self.give(&mut held, *aircraft)
    }

    fn give(&self, held: &mut Held, aircraft: [u8; 32]) -> Place<'_> {
        let (number, (end, taken)) = (held.next, oneshot::channel());
        held.next += 1;
        held.all += 1;
        held.of.entry(aircraft).or_default().insert(number, end);
        Place { places: self, aircraft, number, taken }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Nothing in there panics half-way.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn end_oldest(&mut self, aircraft: &[u8; 32]) {
        let oldest = self.of.get(aircraft).and_then(|places| places.keys().next().copied());
        if let Some(end) = oldest.and_then(|number| self.remove(aircraft, number)) {
            // Whose question it is may be over just now.
            let _ = end.send(());
        }
    }

    fn remove(&mut self, aircraft: &[u8; 32], number: u64) -> Option<oneshot::Sender<()>> {
        let places = self.of.get_mut(aircraft)?;
        let end = places.remove(&number)?;
        self.all -= 1;
        if places.is_empty() {
            self.of.remove(aircraft);
        }
        Some(end)
    }
}

impl Place<'_> {
    /// Done when a newer question has taken the place: this one is to end.
    pub async fn taken(&mut self) {
        // What would send is kept as long as the place is held.
        let _ = (&mut self.taken).await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.places.lock().remove(&self.aircraft, self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn all(places: &Places, aircraft: u8) -> Vec<Place<'_>> {
        std::iter::from_fn(|| places.take_free(&[aircraft; 32])).collect()
    }

    fn is_taken(place: &mut Place<'_>) -> bool {
        place.taken().now_or_never().is_some()
    }

    #[test]
    fn one_aircraft_leaves_places_for_others() {
        let places = Places::default();
        let (one, other) = (all(&places, 1), all(&places, 2));
        assert_eq!(one.len(), 1024);
        assert!(other.len() > 800 && places.take_free(&[3; 32]).is_some());
        drop((one, other));
        let held = places.lock();
        assert_eq!((held.all, held.of.len()), (0, 0));
    }

    #[test]
    fn the_oldest_question_of_an_aircraft_ends_for_its_newest() {
        let places = Places::of(100);
        let (mut one, mut other) = (all(&places, 1), all(&places, 2));
        let (before, newest) = (one.len(), places.take(&[1; 32]));
        assert!(is_taken(&mut one[0]) && !is_taken(&mut one[1]));
        assert!(!other.iter_mut().any(is_taken), "others have no part in it");
        assert_eq!(places.lock().of[&[1; 32]].len(), before);
        // What has ended gives nothing back a second time, and what is over gives its place.
        drop((one, newest));
        assert_eq!(places.lock().all, other.len());
        assert!(!is_taken(&mut places.take(&[1; 32])));
    }

    #[test]
    fn whoever_has_most_pays_for_one_that_has_none() {
        let places = Places::of(3);
        let mut taken: Vec<_> = [1, 2, 3].map(|aircraft| places.take(&[aircraft; 32])).into();
        taken.remove(2);
        taken.push(places.take(&[1; 32]));
        assert_eq!(places.lock().all, 2, "its share was one, which its second has taken");
        taken.push(places.take(&[4; 32]));
        taken.push(places.take(&[5; 32]));
        let held = places.lock();
        assert_eq!((held.all, held.of.len()), (3, 3));
    }
}
