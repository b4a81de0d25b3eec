//! Cache of answers with a memory bound, their age and their popularity.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

use crate::answer::{Ages, Answer, Kind, seconds};
use crate::key::Key;
use crate::settings::{MAX_FAILURE, Settings};

/// Memory of an entry in addition to its answer and twice its key: its share of the tables.
const ENTRY_BYTES: usize = 256;

/// Divisor of the memory that gives the maximum cost of one answer.
const MAX_ENTRY_DIVISOR: usize = 8;

/// An answer is refreshed when this fraction of its lifetime is left, but at least [`MIN_LEAD`]
/// before its end, which exceeds two round trips.
const LEAD: u32 = 10;
const MIN_LEAD: Duration = Duration::from_secs(2);

/// Cache of answers with CLOCK eviction.
///
/// A hand goes round the slots. It evicts the first entry that was not used since its last visit.
pub struct Cache {
    index: HashMap<Key, usize>,
    slots: Vec<Option<Entry>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
    /// Refresh times of popular answers.
    due: BTreeSet<(Duration, usize)>,
    /// Number of unused answers: prefetched, and pushed.
    pub wasted: [u64; 2],
}

/// Origin of an answer that arrived before any query for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Prefetched.
    Prefetched,
    /// Pushed by the ground.
    Pushed,
}

/// Cached answer with its state.
pub struct Entry {
    key: Key,
    pub answer: Answer,
    stored_at: Duration,
    lifetime: Duration,
    touched: bool,
    /// Queries answered with it within its lifetime.
    hits: u32,
    /// Origin, if it arrived before any query and nobody has used it yet.
    ahead: Option<Ahead>,
    /// Time of its refresh.
    refresh_at: Option<Duration>,
    /// Consecutive failures; for a stale answer, consecutive failed refreshes.
    failures: u32,
    /// Earliest time of the next refresh.
    pub retry_at: Duration,
    /// End of the time for which the gateway knows its addresses.
    pub announced_until: Duration,
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
        let (index, slots, free, due) = Default::default();
        Self { index, slots, free, hand: 0, bytes: 0, due, wasted: [0; 2] }
    }

    /// Number of answers.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Memory cost in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Entry for `key`, valid or not.
    pub fn get(&mut self, key: &Key) -> Option<&mut Entry> {
        self.slots[*self.index.get(key)?].as_mut()
    }

    /// Number of slots, empty ones included.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Entries in a range of slots.
    pub fn entries(&self, slots: Range<usize>) -> impl Iterator<Item = &Entry> {
        let end = slots.end.min(self.slots.len());
        self.slots[slots.start.min(end)..end].iter().flatten()
    }

    /// Counts a query answered with the entry of `key`; a popular entry will be refreshed. On the
    /// first use of an answer that arrived before any query, returns its origin.
    pub fn hit(&mut self, key: &Key, settings: &Settings) -> Option<Ahead> {
        let slot = self.index.get(key).copied()?;
        let entry = self.slots[slot].as_mut()?;
        entry.touched = true;
        entry.hits = entry.hits.saturating_add(1);
        if entry.hits == settings.prefetch_hits
            && entry.answer.kind != Kind::Failure
            && entry.refresh_at.is_none()
        {
            let lead = (entry.lifetime / LEAD).max(MIN_LEAD).min(entry.lifetime / 2);
            let at = entry.stored_at + entry.lifetime - lead;
            entry.refresh_at = Some(at);
            self.due.insert((at, slot));
        }
        entry.ahead.take()
    }

    /// Time at which the next popular answer must be refreshed.
    pub fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the key of an answer that must be refreshed now.
    pub fn take_due(&mut self, now: Duration) -> Option<Key> {
        let (_, slot) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.pop_first();
        let entry = self.slots[slot].as_mut()?;
        entry.refresh_at = None;
        Some(entry.key.clone())
    }

    /// Stores `answer`, which arrived at `stored_at`; `ahead` is its origin if no query requested
    /// it. Answers without a lifetime are not stored.
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
        if lifetime.is_zero() || cost > settings.memory_bytes / MAX_ENTRY_DIVISOR {
            // The new content differs from the stored one, which must go (RFC 8767 section 4: stale
            // answers are only for failures).
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
            announced_until: Duration::ZERO,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(entry);
        self.index.insert(key.clone(), slot);
        self.bytes += cost;
    }

    /// Records that a refresh failed and delays the next one.
    pub fn failed(&mut self, key: &Key, now: Duration, settings: &Settings) {
        if let Some(entry) = self.get(key) {
            entry.retry_at = now + backoff(entry.failures, settings).max(settings.stale_ttl);
            entry.failures = entry.failures.saturating_add(1);
        }
    }

    /// Removes the entry of `key` if it is no longer valid.
    pub fn forget_if_over(&mut self, key: &Key, now: Duration, settings: &Settings) {
        if self.get(key).is_some_and(|entry| entry.state(now, settings) == State::Over) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(slot) = self.index.get(key).copied() {
            self.clear(slot);
        }
    }

    fn clear(&mut self, slot: usize) {
        let Some(entry) = self.slots[slot].take() else { return };
        if let Some(at) = entry.refresh_at {
            self.due.remove(&(at, slot));
        }
        if let Some(ahead) = entry.ahead {
            self.wasted[ahead as usize] += 1;
        }
        self.bytes -= cost(&entry.key, &entry.answer);
        self.index.remove(&entry.key);
        self.free.push(slot);
    }

    /// Evicts one answer. Returns `false` if there is none.
    fn evict(&mut self) -> bool {
        if self.index.is_empty() {
            return false;
        }
        // After two rounds every answer has been found untouched.
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
    /// Key of the answer.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Arrival time.
    pub fn stored_at(&self) -> Duration {
        self.stored_at
    }

    /// Validity at `now`. An entry from the future is invalid, because the clock was set back.
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

    /// TTL rules for an answer sent at `now`.
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
            min_s: seconds(settings.min_ttl),
            max_s: seconds(settings.max_ttl),
            cap_s: seconds(cap),
            stale,
            is_exact: false,
        }
    }

    /// Time for which a client may use the answer that it gets now.
    pub fn remaining(&self, now: Duration, settings: &Settings) -> Duration {
        match self.state(now, settings) {
            State::Fresh => self.lifetime.saturating_sub(now.saturating_sub(self.stored_at)),
            State::Stale | State::Over => settings.stale_ttl,
        }
    }
}

/// Lifetime of `answer` after a number of consecutive `failures`.
pub fn lifetime(answer: &Answer, failures: u32, settings: &Settings) -> Duration {
    let ttl = Duration::from_secs(answer.lifetime_s.into());
    match answer.kind {
        Kind::Positive => ttl.max(settings.min_ttl).min(settings.max_ttl),
        // A denial without a lifetime is not stored (RFC 2308 section 5).
        Kind::Negative if ttl.is_zero() => ttl,
        Kind::Negative => ttl.max(settings.min_ttl).min(settings.max_negative_ttl),
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
    fn an_answer_without_lifetime_removes_the_stored_one() {
        let (mut cache, settings) = (Cache::new(), Settings::default());
        let stored = put(&mut cache, 0, &settings);
        let query = query("n0.test.", RecordType::A);
        let answer = Answer::parse(&stored, &address(&query, 0, 2)).unwrap();
        cache.put(&stored, answer, s(400), None, &settings);
        assert!(cache.get(&stored).is_none());
    }

    #[test]
    fn memory_is_bounded_and_used_answers_stay() {
        let settings = Settings { memory_bytes: 64 << 10, ..Settings::default() };
        let mut cache = Cache::new();
        let used = put(&mut cache, 0, &settings);
        for n in 1..5000 {
            put(&mut cache, n, &settings);
            cache.hit(&used, &settings);
            assert!(cache.bytes() <= settings.memory_bytes);
        }
        assert!(cache.get(&used).is_some());
        assert!((150..250).contains(&cache.len()), "{}", cache.len());
        let counted: usize =
            cache.entries(0..cache.slot_count()).map(|it| cost(&it.key, &it.answer)).sum();
        assert_eq!(
            (counted, cache.entries(0..cache.slot_count()).count()),
            (cache.bytes(), cache.len())
        );
        assert_eq!(cache.due.len(), 1, "evicted answers are not refreshed");
    }

    #[test]
    fn a_clock_set_back_invalidates_answers() {
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
