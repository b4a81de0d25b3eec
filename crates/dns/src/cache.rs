//! Answers within a bound of bytes, their age, and who still wants them.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

use crate::answer::{Ages, Answer, Kind, seconds};
use crate::key::Key;
use crate::settings::{MAX_FAILURE, Settings};

/// Memory of an entry in addition to its answer and twice its key: the tables' share.
const ENTRY_BYTES: usize = 256;

/// No answer takes more than this part of the memory.
const MOST_OF_MEMORY: usize = 8;

/// An answer that is asked for again when this part of its lifetime is left, but at least
/// [`MIN_LEAD`] before its end: two round trips and some.
const LEAD: u32 = 10;
const MIN_LEAD: Duration = Duration::from_secs(2);

/// Answers, the least used of which make room for new ones.
///
/// Slots are given up by a hand that goes round and passes by what has been used since it came by
/// last, once.
pub struct Cache {
    places: HashMap<Key, usize>,
    slots: Vec<Option<Entry>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
    /// Times at which popular answers are to be refreshed.
    due: BTreeSet<(Duration, usize)>,
    /// Answers that nobody wanted: those asked for ahead, and those that the ground sent unasked.
    pub wasted: [u64; 2],
}

/// Reason for which an answer is here before anybody wanted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// It was asked for ahead.
    Prefetched,
    /// The ground sent it unasked.
    Pushed,
}

/// An answer, and what became of it.
pub struct Entry {
    key: Key,
    pub answer: Answer,
    stored_at: Duration,
    lifetime: Duration,
    touched: bool,
    /// Queries answered with it within its lifetime.
    hits: u32,
    /// It is here ahead of any query, and nobody has wanted it yet.
    ahead: Option<Ahead>,
    /// Time of its refresh before its end.
    refresh_at: Option<Duration>,
    /// Failures one after another; of a stale answer, those to ask for it anew.
    failures: u32,
    /// It is not asked for anew before this.
    pub retry_at: Duration,
    /// Until when the gateway has been told of its addresses.
    pub told_until: Duration,
}

/// Validity of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Fresh,
    Stale,
    Over,
}

impl Cache {
    pub fn new() -> Self {
        let (places, slots, free, due) = Default::default();
        Self { places, slots, free, hand: 0, bytes: 0, due, wasted: [0; 2] }
    }

    /// Answers kept now.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes they cost.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Entry for `key`, valid or not.
    pub fn get(&mut self, key: &Key) -> Option<&mut Entry> {
        self.slots[*self.places.get(key)?].as_mut()
    }

    /// Places for answers, whether or not there is one.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// Entries in the `places`.
    pub fn entries(&self, places: Range<usize>) -> impl Iterator<Item = &Entry> {
        let end = places.end.min(self.slots.len());
        self.slots[places.start.min(end)..end].iter().flatten()
    }

    /// Counts a query answered with what is kept of `key`; a popular answer will be asked for again.
    /// Tells of the first use of one that was here ahead.
    pub fn hit(&mut self, key: &Key, settings: &Settings) -> Option<Ahead> {
        let place = self.places.get(key).copied()?;
        let entry = self.slots[place].as_mut()?;
        entry.touched = true;
        entry.hits = entry.hits.saturating_add(1);
        if entry.hits == settings.prefetch_hits
            && entry.answer.kind != Kind::Failure
            && entry.refresh_at.is_none()
        {
            let lead = (entry.lifetime / LEAD).max(MIN_LEAD).min(entry.lifetime / 2);
            let at = entry.stored_at + entry.lifetime - lead;
            entry.refresh_at = Some(at);
            self.due.insert((at, place));
        }
        entry.ahead.take()
    }

    /// Time at which the next popular answer is to be refreshed.
    pub fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// One whose time has come.
    pub fn take_due(&mut self, now: Duration) -> Option<Key> {
        let (_, place) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.pop_first();
        let entry = self.slots[place].as_mut()?;
        entry.refresh_at = None;
        Some(entry.key.clone())
    }

    /// Keeps `answer` from `stored_at` on; `ahead` of any query for it. Answers without a lifetime
    /// are not kept.
    pub fn put(
        &mut self,
        key: &Key,
        answer: Answer,
        stored_at: Duration,
        ahead: Option<Ahead>,
        settings: &Settings,
    ) {
        let failures = self.get(key).filter(|entry| entry.answer.kind == Kind::Failure);
        let failures = failures.map_or(0, |entry| entry.failures + 1);
        let lifetime = lifetime(&answer, failures, settings);
        let cost = cost(key, &answer);
        if lifetime.is_zero() || cost > settings.memory_bytes / MOST_OF_MEMORY {
            // What it says now is not what is here (RFC 8767 section 4: stale is for failures alone).
            if answer.kind != Kind::Failure {
                self.remove(key);
            }
            return;
        }
        self.remove(key);
        while self.bytes + cost > settings.memory_bytes && self.evict() {}
        let entry = Entry {
            key: key.clone(),
            answer,
            stored_at,
            lifetime,
            touched: false,
            hits: 0,
            ahead,
            refresh_at: None,
            failures,
            retry_at: Duration::ZERO,
            told_until: Duration::ZERO,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[place] = Some(entry);
        self.places.insert(key.clone(), place);
        self.bytes += cost;
    }

    /// Asking anew for what is kept has failed: not again for a while.
    pub fn failed(&mut self, key: &Key, now: Duration, settings: &Settings) {
        if let Some(entry) = self.get(key) {
            entry.retry_at = now + backoff(entry.failures, settings).max(settings.stale_ttl);
            entry.failures = entry.failures.saturating_add(1);
        }
    }

    /// Gives up what is kept of `key` where it does not count any more.
    pub fn forget_if_over(&mut self, key: &Key, now: Duration, settings: &Settings) {
        if self.get(key).is_some_and(|entry| entry.state(now, settings) == State::Over) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(place) = self.places.get(key).copied() {
            self.clear(place);
        }
    }

    fn clear(&mut self, place: usize) {
        let Some(entry) = self.slots[place].take() else { return };
        if let Some(at) = entry.refresh_at {
            self.due.remove(&(at, place));
        }
        if let Some(ahead) = entry.ahead {
            self.wasted[ahead as usize] += 1;
        }
        self.bytes -= cost(&entry.key, &entry.answer);
        self.places.remove(&entry.key);
        self.free.push(place);
    }

    /// Gives up one answer; false where there is none.
    fn evict(&mut self) -> bool {
        if self.places.is_empty() {
            return false;
        }
        // Twice round meets every answer untouched.
        for _ in 0..=2 * self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            let hand = self.hand;
            match &mut self.slots[hand] {
                Some(entry) if entry.touched => entry.touched = false,
                Some(_) => {
                    self.clear(hand);
                    return true;
                }
                None => {}
            }
        }
        false
    }
}

impl Entry {
    /// Key that it answers.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Time of its arrival.
    pub fn stored_at(&self) -> Duration {
        self.stored_at
    }

    /// Validity. If the clock was set back, its time is over.
    pub fn state(&self, now: Duration, settings: &Settings) -> State {
        let Some(age) = now.checked_sub(self.stored_at) else { return State::Over };
        if age < self.lifetime {
            State::Fresh
        } else if self.answer.kind != Kind::Failure && age < self.lifetime + settings.max_stale {
            State::Stale
        } else {
            State::Over
        }
    }

    /// TTLs to show.
    pub fn ages(&self, now: Duration, settings: &Settings) -> Ages {
        let age = now.saturating_sub(self.stored_at);
        let stale = self.state(now, settings) != State::Fresh;
        let cap = match self.answer.kind {
            _ if stale => settings.stale_ttl,
            Kind::Positive => settings.max_ttl,
            Kind::Negative | Kind::Failure => self.lifetime.saturating_sub(age),
        };
        Ages {
            age_s: seconds(age),
            least_s: seconds(settings.min_ttl),
            most_s: seconds(settings.max_ttl),
            cap_s: seconds(cap),
            stale,
            is_exact: false,
        }
    }

    /// Remaining time for which a client may use the answer that it gets now.
    pub fn told_for(&self, now: Duration, settings: &Settings) -> Duration {
        match self.state(now, settings) {
            State::Fresh => self.lifetime.saturating_sub(now.saturating_sub(self.stored_at)),
            State::Stale | State::Over => settings.stale_ttl,
        }
    }
}

/// Lifetime of `answer` after so many `failures`.
pub fn lifetime(answer: &Answer, failures: u32, settings: &Settings) -> Duration {
    let said = Duration::from_secs(answer.lifetime_s.into());
    match answer.kind {
        Kind::Positive => said.max(settings.min_ttl).min(settings.max_ttl),
        // A denial that does not say for how long is not kept (RFC 2308 section 5).
        Kind::Negative if said.is_zero() => said,
        Kind::Negative => said.max(settings.min_ttl).min(settings.max_negative_ttl),
        Kind::Failure => backoff(failures, settings),
    }
}

fn backoff(failures: u32, settings: &Settings) -> Duration {
    (settings.failure_ttl * (1 << failures.min(6))).min(MAX_FAILURE)
}

fn cost(key: &Key, answer: &Answer) -> usize {
    ENTRY_BYTES + 2 * key.as_bytes().len() + answer.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{address, key, query};
    use hickory_proto::rr::RecordType;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn put(cache: &mut Cache, n: usize, settings: &Settings) -> Key {
        let query = query(&format!("n{n}.test."), RecordType::A);
        let key = key(&query);
        let answer = Answer::parse(&key, &address(&query, 300, 1)).unwrap();
        cache.put(&key, answer, s(0), None, settings);
        key
    }

    #[test]
    fn an_answer_that_holds_for_no_time_ends_the_one_before() {
        let (mut cache, settings) = (Cache::new(), Settings::default());
        let known = put(&mut cache, 0, &settings);
        let query = query("n0.test.", RecordType::A);
        let answer = Answer::parse(&known, &address(&query, 0, 2)).unwrap();
        cache.put(&known, answer, s(400), None, &settings);
        assert!(cache.get(&known).is_none());
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let settings = Settings { memory_bytes: 64 << 10, ..Settings::default() };
        let mut cache = Cache::new();
        let wanted = put(&mut cache, 0, &settings);
        for n in 1..5000 {
            put(&mut cache, n, &settings);
            cache.hit(&wanted, &settings);
            assert!(cache.bytes() <= settings.memory_bytes);
        }
        assert!(cache.get(&wanted).is_some());
        assert!((150..250).contains(&cache.len()), "{}", cache.len());
        let counted: usize =
            cache.entries(0..cache.places()).map(|it| cost(&it.key, &it.answer)).sum();
        assert_eq!(
            (counted, cache.entries(0..cache.places()).count()),
            (cache.bytes(), cache.len())
        );
        assert_eq!(cache.due.len(), 1, "evicted answers are not asked for again");
    }

    #[test]
    fn a_clock_that_was_set_back_ends_answers() {
        let settings = Settings::default();
        let mut cache = Cache::new();
        let query = query("a.test.", RecordType::A);
        let key = key(&query);
        let answer = Answer::parse(&key, &address(&query, 300, 1)).unwrap();
        cache.put(&key, answer, s(1000), None, &settings);
        let entry = cache.get(&key).unwrap();
        let states = [999, 1000, 1299, 1300, 1299 + 86_400, 1300 + 86_400];
        let states = states.map(|at| entry.state(s(at), &settings));
        let (fresh, stale) = (State::Fresh, State::Stale);
        assert_eq!(states, [State::Over, fresh, fresh, stale, stale, State::Over]);
    }
}
