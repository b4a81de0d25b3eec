//! Places for questions in progress, and the choice of the one that ends for a newer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bentpipe_dns::may_hold;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::refusals::Holding;

/// Questions under way at once over all aircraft, of which one alone gets 1,024: some 2 KiB and a
/// socket or, with slow servers, three each, so 10 MiB and up to 15,360 descriptors.
const MOST_ASKED: usize = 5120;

/// A question that is younger does not end for another: most servers answer within that time. With its
/// 1,024 places an aircraft asks 512 names that nobody answers per second before its next is refused.
const YOUNG: Duration = Duration::from_secs(2);

/// Number of questions beyond which an aircraft's younger ones end too for another that has none.
const PROTECTED: usize = 64;

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
    /// Questions of aircraft that have some, by number, the oldest first.
    of: HashMap<[u8; 32], BTreeMap<u64, Question>>,
}

struct Question {
    since: Instant,
    /// Channel that ends it.
    end: oneshot::Sender<()>,
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
    /// long ago may not wait for it any more; who asks now does. None where that one was asked just now:
    /// its answer may be on its way, and whoever asks next would end it as well.
    pub fn take(&self, aircraft: &[u8; 32]) -> Option<Place<'_>> {
        let mut held = self.lock();
        let has = held.of.get(aircraft).map_or(0, BTreeMap::len);
        if !may_hold(has, 1, self.most - held.all) {
            let pays = if has > 0 {
                let is_old = held.of[aircraft].values().next().is_some_and(Question::is_old);
                is_old.then_some(*aircraft)
            } else {
                held.richest()
            };
            held.end_oldest(&pays?);
        }
        Some(self.give(&mut held, *aircraft))
    }

    /// Places held, for the log.
    pub fn holding(&self, aircraft: &[u8; 32]) -> Holding {
        let held = self.lock();
        let count = |aircraft: &[u8; 32]| held.of.get(aircraft).map_or(0, BTreeMap::len);
        let largest = held.of.iter().max_by_key(|(aircraft, has)| (has.len(), **aircraft));
        Holding {
            newcomer: shown(aircraft),
            holds: count(aircraft),
            held: held.all,
            most: self.most,
            largest: largest.map(|(aircraft, has)| (shown(aircraft), has.len())),
        }
    }

    fn give(&self, held: &mut Held, aircraft: [u8; 32]) -> Place<'_> {
        let (number, (end, taken)) = (held.next, oneshot::channel());
        held.next += 1;
        held.all += 1;
        let question = Question { since: Instant::now(), end };
        held.of.entry(aircraft).or_default().insert(number, question);
        Place { places: self, aircraft, number, taken }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Nothing in there panics half-way.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An aircraft by its public key, as the configuration has it.
fn shown(aircraft: &[u8; 32]) -> String {
    STANDARD.encode(aircraft)
}

impl Held {
    /// Aircraft with most questions among those that have an old one, or more than [`PROTECTED`].
    fn richest(&self) -> Option<[u8; 32]> {
        let ranked = self.of.iter().filter_map(|(aircraft, questions)| {
            let (number, oldest) = questions.first_key_value()?;
            let pays = oldest.is_old() || questions.len() > PROTECTED;
            pays.then_some((questions.len(), Reverse(*number), *aircraft))
        });
        ranked.max().map(|(_, _, aircraft)| aircraft)
    }

    fn end_oldest(&mut self, aircraft: &[u8; 32]) {
        let oldest = self.of.get(aircraft).and_then(|questions| questions.keys().next().copied());
        if let Some(question) = oldest.and_then(|number| self.remove(aircraft, number)) {
            // Whose question it is may be over just now.
            let _ = question.end.send(());
        }
    }

    fn remove(&mut self, aircraft: &[u8; 32], number: u64) -> Option<Question> {
        let questions = self.of.get_mut(aircraft)?;
        let question = questions.remove(&number)?;
        self.all -= 1;
        if questions.is_empty() {
            self.of.remove(aircraft);
        }
        Some(question)
    }
}

impl Question {
    fn is_old(&self) -> bool {
        self.since.elapsed() >= YOUNG
    }
}

impl Place<'_> {
    /// The aircraft that asks.
    pub fn aircraft(&self) -> &[u8; 32] {
        &self.aircraft
    }

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
    use tokio::time::advance;

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

    #[tokio::test(start_paused = true)]
    async fn the_oldest_question_of_an_aircraft_ends_for_its_newest() {
        let places = Places::of(100);
        let (mut one, mut other) = (all(&places, 1), all(&places, 2));
        advance(YOUNG).await;
        let (before, newest) = (one.len(), places.take(&[1; 32]));
        assert!(newest.is_some() && is_taken(&mut one[0]) && !is_taken(&mut one[1]));
        assert!(!other.iter_mut().any(is_taken), "others have no part in it");
        assert_eq!(places.lock().of[&[1; 32]].len(), before);
        // What has ended gives nothing back a second time, and what is over gives its place.
        drop((one, newest));
        assert_eq!(places.lock().all, other.len());
        assert!(!is_taken(&mut places.take(&[1; 32]).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_whose_answer_may_be_on_its_way_ends_for_none_of_the_same_aircraft() {
        let places = Places::of(100);
        let mut one = all(&places, 1);
        advance(YOUNG - Duration::from_millis(1)).await;
        assert!((0..1000).all(|_| places.take(&[1; 32]).is_none()));
        assert!(!one.iter_mut().any(is_taken));
        advance(Duration::from_millis(1)).await;
        // As many as there are, and then those that have taken their places are young.
        let newer: Vec<_> = std::iter::from_fn(|| places.take(&[1; 32])).collect();
        assert_eq!(newer.len(), one.len());
        assert!(one.iter_mut().all(is_taken));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_most_pays_for_one_that_has_none() {
        let places = Places::of(3);
        let take = |aircraft| places.take(&[aircraft; 32]);
        let mut taken: Vec<_> = [1, 2, 3].map(|aircraft| take(aircraft).unwrap()).into();
        taken.remove(2);
        assert!(take(1).is_none());
        advance(YOUNG).await;
        taken.push(take(1).unwrap());
        assert_eq!(places.lock().all, 2, "its share was one, which its second has taken");
        taken.extend([take(4).unwrap(), take(5).unwrap()]);
        let held = places.lock();
        assert_eq!((held.all, held.of.len()), (3, 3));
    }

    #[test]
    fn one_that_has_none_does_not_wait_for_those_that_have_many() {
        let places = Places::of(500);
        let mut taken: Vec<_> = (0..200).flat_map(|aircraft| all(&places, aircraft)).collect();
        let has = |aircraft: u8| places.lock().of[&[aircraft; 32]].len();
        assert_eq!((taken.len(), has(0), has(1), has(2)), (500, 100, 80, 64));
        let later: Vec<_> = (200..=255).filter_map(|it| places.take(&[it; 32])).collect();
        // What the first two had beyond what is protected.
        assert_eq!((later.len(), has(0), has(1)), (36 + 16, 64, 64));
        assert_eq!(taken.iter_mut().filter_map(|it| is_taken(it).then_some(())).count(), 52);
    }
}
