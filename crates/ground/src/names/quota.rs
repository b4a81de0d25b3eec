//! Slots for pending queries, and the choice of the query that is evicted for a newer one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bentpipe_flow::quota::may_hold;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::upstream::MAX_SERVERS;
use bentpipe_metering::refusals::Holding;

/// Maximum number of pending queries of all aircraft; one aircraft alone gets 1,024. Each takes
/// about 2 KiB and a socket (up to three with slow servers): 10 MiB and up to 15,360 descriptors.
pub const MAX_ASKED: usize = 5120;

/// Maximum number of descriptors of one query: a socket for each name server.
pub const DESCRIPTORS_OF_QUERY: usize = MAX_SERVERS;

/// Age below which a query is not evicted, because most servers answer within that time. With 1,024
/// slots, an aircraft can query 512 unanswered names per second before a query is refused.
const YOUNG: Duration = Duration::from_secs(2);

/// Number of queries above which an aircraft's young queries may also be evicted for an aircraft
/// that has none.
const PROTECTED: usize = 64;

/// Slots for queries.
pub struct QueryQuota {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    all: usize,
    /// Number of the next slot.
    next: u64,
    /// Pending queries of each aircraft by slot number, which is in order of age.
    of: HashMap<[u8; 32], BTreeMap<u64, Question>>,
}

struct Question {
    since: Instant,
    /// Channel that evicts the query.
    end: oneshot::Sender<()>,
}

/// Slot of one query, until it is dropped or taken by a newer query.
pub struct QuerySlot<'a> {
    quota: &'a QueryQuota,
    aircraft: [u8; 32],
    number: u64,
    taken: oneshot::Receiver<()>,
}

impl Default for QueryQuota {
    fn default() -> Self {
        Self::of(MAX_ASKED)
    }
}

impl QueryQuota {
    /// Creates `most` slots, at least one.
    pub fn of(most: usize) -> Self {
        Self { most, held: Mutex::default() }
    }

    /// Takes a free slot for a query of `aircraft`, if it may have one more.
    pub fn take_free(&self, aircraft: &[u8; 32]) -> Option<QuerySlot<'_>> {
        let mut held = self.lock();
        let has = held.of.get(aircraft).map_or(0, BTreeMap::len);
        let may = may_hold(has, 1, self.most - held.all);
        may.then(|| self.give(&mut held, *aircraft))
    }

    /// Takes a slot for a query of `aircraft`, and evicts another query if necessary:
    ///
    /// - An aircraft at its limit evicts its own oldest query.
    /// - If no slot is free, an aircraft without queries evicts the oldest query of the aircraft
    ///   with most.
    ///
    /// The sender of an old query may no longer wait for the answer. Returns `None` if the query to
    /// evict is too young, because its answer may be in flight, and the next query would evict the
    /// new one in turn.
    pub fn take(&self, aircraft: &[u8; 32]) -> Option<QuerySlot<'_>> {
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

    /// Slots in use, for the log.
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

    fn give(&self, held: &mut Held, aircraft: [u8; 32]) -> QuerySlot<'_> {
        let (number, (end, taken)) = (held.next, oneshot::channel());
        held.next += 1;
        held.all += 1;
        let question = Question { since: Instant::now(), end };
        held.of.entry(aircraft).or_default().insert(number, question);
        QuerySlot { quota: self, aircraft, number, taken }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}

/// Formats an aircraft's public key as in the configuration.
fn shown(aircraft: &[u8; 32]) -> String {
    STANDARD.encode(aircraft)
}

impl Held {
    /// Aircraft with most queries, among those that have an old query or more than [`PROTECTED`].
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
            // The query may have ended at this moment.
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

impl QuerySlot<'_> {
    /// The aircraft that sent the query.
    pub fn aircraft(&self) -> &[u8; 32] {
        &self.aircraft
    }

    /// Completes when a newer query has taken the slot; this query must then end.
    pub async fn taken(&mut self) {
        // The sender exists as long as the slot is held.
        let _ = (&mut self.taken).await;
    }
}

impl Drop for QuerySlot<'_> {
    fn drop(&mut self) {
        self.quota.lock().remove(&self.aircraft, self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::advance;

    use super::*;

    fn all(quota: &QueryQuota, aircraft: u8) -> Vec<QuerySlot<'_>> {
        std::iter::from_fn(|| quota.take_free(&[aircraft; 32])).collect()
    }

    fn is_taken(slot: &mut QuerySlot<'_>) -> bool {
        slot.taken().now_or_never().is_some()
    }

    #[test]
    fn one_aircraft_leaves_places_for_others() {
        let quota = QueryQuota::default();
        let (one, other) = (all(&quota, 1), all(&quota, 2));
        assert_eq!(one.len(), 1024);
        assert!(other.len() > 800 && quota.take_free(&[3; 32]).is_some());
        drop((one, other));
        let held = quota.lock();
        assert_eq!((held.all, held.of.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_aircrafts_newest_query_evicts_its_oldest() {
        let quota = QueryQuota::of(100);
        let (mut one, mut other) = (all(&quota, 1), all(&quota, 2));
        advance(YOUNG).await;
        let (before, newest) = (one.len(), quota.take(&[1; 32]));
        assert!(newest.is_some() && is_taken(&mut one[0]) && !is_taken(&mut one[1]));
        assert!(!other.iter_mut().any(is_taken), "others have no part in it");
        assert_eq!(quota.lock().of[&[1; 32]].len(), before);
        // An evicted query does not release its slot twice, and a completed one releases its slot.
        drop((one, newest));
        assert_eq!(quota.lock().all, other.len());
        assert!(!is_taken(&mut quota.take(&[1; 32]).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_whose_answer_may_be_on_its_way_ends_for_none_of_the_same_aircraft() {
        let quota = QueryQuota::of(100);
        let mut one = all(&quota, 1);
        advance(YOUNG - Duration::from_millis(1)).await;
        assert!((0..1000).all(|_| quota.take(&[1; 32]).is_none()));
        assert!(!one.iter_mut().any(is_taken));
        advance(Duration::from_millis(1)).await;
        // All old queries are evicted; their successors are young and cannot be.
        let newer: Vec<_> = std::iter::from_fn(|| quota.take(&[1; 32])).collect();
        assert_eq!(newer.len(), one.len());
        assert!(one.iter_mut().all(is_taken));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_most_pays_for_one_that_has_none() {
        let quota = QueryQuota::of(3);
        let take = |aircraft| quota.take(&[aircraft; 32]);
        let mut taken: Vec<_> = [1, 2, 3].map(|aircraft| take(aircraft).unwrap()).into();
        taken.remove(2);
        assert!(take(1).is_none());
        advance(YOUNG).await;
        taken.push(take(1).unwrap());
        assert_eq!(quota.lock().all, 2, "its share was one, which its second has taken");
        taken.extend([take(4).unwrap(), take(5).unwrap()]);
        let held = quota.lock();
        assert_eq!((held.all, held.of.len()), (3, 3));
    }

    #[test]
    fn one_that_has_none_does_not_wait_for_those_that_have_many() {
        let quota = QueryQuota::of(500);
        let mut taken: Vec<_> = (0..200).flat_map(|aircraft| all(&quota, aircraft)).collect();
        let has = |aircraft: u8| quota.lock().of[&[aircraft; 32]].len();
        assert_eq!((taken.len(), has(0), has(1), has(2)), (500, 100, 80, 64));
        let later: Vec<_> = (200..=255).filter_map(|it| quota.take(&[it; 32])).collect();
        // Slots that the first two held above the protected number.
        assert_eq!((later.len(), has(0), has(1)), (36 + 16, 64, 64));
        assert_eq!(taken.iter_mut().filter_map(|it| is_taken(it).then_some(())).count(), 52);
    }
}
