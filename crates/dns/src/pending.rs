//! Pending queries to the ground: their retransmission and their waiting clients.

mod streamed;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bentpipe_flow::quota::{Client, ClientQuota, Holdings, gives_way, part_of_network};

use crate::asker::Asker;
use crate::key::Key;
use crate::query::{Query, Room};
use crate::share::{QueryUsage, Source};

/// Retransmission timeout before any answer.
const INITIAL_TIMEOUT: Duration = Duration::from_millis(1500);

/// Bounds of the retransmission timeout.
const MIN_TIMEOUT: Duration = Duration::from_millis(300);
const MAX_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of transmissions. If one packet in ten is lost each way, one query in 800 is
/// lost. The ground ignores duplicates of a pending query.
const MAX_TRIES: u32 = 4;

/// Time after which a query is given up: the ground's ten seconds for slow name servers, and two
/// round trips.
pub const GIVE_UP: Duration = Duration::from_secs(12);

/// Minimum time left for a query repeated over a stream because its answer was truncated. The
/// transport retransmits it.
const STREAM_WAIT: Duration = Duration::from_secs(3);

/// Maximum number of clients that wait for one query; the next gets an error. A whole cabin may
/// wait when the link comes up and every device checks its portal. 768 of one IPv6 network may
/// wait.
const MAX_WAITERS: usize = 1024;

/// Maximum number of waiters of one client among them. One IPv4 address is often a whole cabin
/// behind NAT whose devices all query the same portal. A waiter costs about 600 bytes and no query.
const MAX_WAITERS_PER_CLIENT: usize = MAX_WAITERS / 2;

/// Maximum memory of all waiters: about 13,000, each with its name twice, its return path and, on a
/// stream, its task. Beyond it, the largest holder loses its oldest waiter.
const MAX_WAITER_BYTES: usize = 8 << 20;

/// Memory of one waiter in addition to its names.
const WAITER_BYTES: usize = 512;

/// Queries of one client (those of a page) that are not evicted while their answers may be in
/// flight. Queries beyond this number may be.
const PROTECTED: usize = 32;

/// Corresponding memory of waiters.
const PROTECTED_BYTES: usize = PROTECTED * WAITER_BYTES;

/// Client that waits for an answer.
pub struct Waiter<C> {
    /// Identifier of the client, chosen by the caller.
    pub client: C,
    /// Source of its query.
    pub source: Source,
    /// Its query.
    pub query: Query,
    /// Maximum size of its answer.
    pub room: Room,
    /// Start of the wait.
    pub since: Duration,
}

impl<C> Waiter<C> {
    fn bytes(&self) -> usize {
        WAITER_BYTES + self.query.spelled.len() + self.query.key.as_bytes().len()
    }

    fn asker(&self) -> Asker {
        self.source.asker()
    }

    /// Returns `true` if this is a repetition of the same datagram.
    fn repeats(&self, earlier: &Self) -> bool {
        matches!(self.source, Source::Datagram { .. })
            && (self.source, &self.query) == (earlier.source, &earlier.query)
    }
}

/// Result of a request to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The client may wait.
    Admitted,
    /// The client waits already.
    Duplicate,
    /// Too many clients wait.
    Full,
}

/// Pending query.
pub struct PendingQuery<C> {
    pub key: Key,
    /// Waiting clients.
    pub waiters: Vec<Waiter<C>>,
    /// Client that began it; `None` for a prefetch.
    asker: Option<Asker>,
    over_stream: bool,
    tries: u32,
    began: Duration,
    /// End of the time in which its answer may be in flight.
    in_flight_until: Duration,
    due: Duration,
}

impl<C> PendingQuery<C> {
    /// Returns `true` for a prefetch.
    pub fn is_ahead(&self) -> bool {
        self.asker.is_none()
    }

    /// Client that began it.
    pub fn asker(&self) -> Option<Asker> {
        self.asker
    }

    /// Client with the most waiters here, if it gives way to one with `own`.
    fn largest_holder(&self, own: usize) -> Option<Asker> {
        let waiters = Holdings::from_iter(self.waiters.iter().map(Waiter::asker));
        waiters.payer(own, 1, |_| true)
    }
}

/// All pending queries.
pub struct PendingQueries<C> {
    queries: BTreeMap<u16, PendingQuery<C>>,
    by_key: BTreeMap<Key, u16>,
    timers: BTreeSet<(Duration, u16)>,
    next_id: u16,
    round_trip: RoundTrip,
    /// Pending queries that each client began.
    begun: ClientQuota<Asker>,
    /// Bytes of each client's waiters.
    waiting: ClientQuota<Asker>,
}

/// Expired timer.
pub enum Expired<C> {
    /// Send the query again.
    Retransmit(u16),
    /// No answer arrived.
    GaveUp(PendingQuery<C>),
}

impl<C> PendingQueries<C> {
    pub fn new() -> Self {
        let (queries, by_key, timers, next_id) = Default::default();
        let (begun, waiting) = Default::default();
        let round_trip = RoundTrip::default();
        Self { queries, by_key, timers, next_id, round_trip, begun, waiting }
    }

    /// Returns `true` if a query for `key` is pending.
    pub fn is_pending(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    pub fn get(&self, id: u16) -> Option<&PendingQuery<C>> {
        self.queries.get(&id)
    }

    /// Any pending query.
    pub fn any(&self) -> Option<u16> {
        self.timers.first().map(|(_, id)| *id)
    }

    /// Returns `true` if `asker` may begin a query, with at most `max` in all. Prefetches leave
    /// half of the slots to clients.
    pub fn may_begin(&self, asker: Option<Asker>, max: usize) -> bool {
        let free = max.saturating_sub(self.queries.len());
        let Some(asker) = asker else { return free > max / 2 };
        free > 0 && self.begun.full_network(asker, 1, max).is_none()
    }

    /// Ends a query so that `client` may begin one, with at most `max` in all.
    ///
    /// The victim is the oldest query of the largest holder, if that holder has more than `client`.
    /// If the network of `client` has used its part, the victim may also be another query of that
    /// network, because addresses are free there. Queries whose answer may be in flight are spared,
    /// except those of a client with more than [`PROTECTED`].
    pub fn evict(&mut self, client: Asker, max: usize, now: Duration) -> Option<PendingQuery<C>> {
        let within = self.begun.full_network(client, 1, max);
        let own = self.begun.of(client);
        let may_end_any = within.is_some() && own < PROTECTED;
        let has_heavy_user =
            self.begun.clients().largest().is_some_and(|(_, usage)| usage > PROTECTED);
        // Usage of the client for which the query is a candidate.
        let rank = |query: &PendingQuery<C>| {
            let is_old = query.in_flight_until <= now;
            let asker = query.asker.filter(|_| is_old || has_heavy_user)?;
            if within.is_some() && asker.network() != within {
                return None;
            }
            let usage = self.begun.of(asker);
            let has_more = gives_way(usage, own, 1);
            match is_old || usage > PROTECTED {
                true if has_more => Some(usage),
                true if is_old && may_end_any => Some(0),
                _ => None,
            }
        };
        let ranked = self.queries.iter();
        let ranked =
            ranked.filter_map(|(id, query)| Some((rank(query)?, Reverse((query.began, *id)))));
        let (_, Reverse((_, id))) = ranked.max()?;
        self.end(id, None)
    }

    /// Begins a query for `key`, for which none is pending, and returns its id. Fewer than 65,536
    /// must be pending.
    pub fn begin(&mut self, key: Key, asker: Option<Asker>, now: Duration) -> u16 {
        while self.queries.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let due = now + self.round_trip.timeout();
        let (waiters, over_stream, tries) = (Vec::new(), false, 1);
        let (began, in_flight_until) = (now, due);
        let query = PendingQuery {
            key: key.clone(),
            waiters,
            asker,
            over_stream,
            tries,
            began,
            in_flight_until,
            due,
        };
        self.queries.insert(id, query);
        self.by_key.insert(key, id);
        self.timers.insert((due, id));
        if let Some(client) = asker {
            self.begun.add(client, 1);
        }
        id
    }

    /// Decides if `waiter` may wait, for a pending or a new query.
    pub fn admit(&self, waiter: &Waiter<C>) -> Admission {
        let id = self.by_key.get(&waiter.query.key);
        let Some(query) = id.and_then(|id| self.queries.get(id)) else {
            return Admission::Admitted;
        };
        let of_one = |earlier: &&Waiter<C>| earlier.asker() == waiter.asker();
        if query.waiters.iter().any(|earlier| waiter.repeats(earlier)) {
            return Admission::Duplicate;
        }
        let network = waiter.asker().network();
        let of_network = |earlier: &&Waiter<C>| earlier.asker().network() == network;
        let count_network = || query.waiters.iter().filter(of_network).count();
        let own = query.waiters.iter().filter(of_one).count();
        let is_full = own >= MAX_WAITERS_PER_CLIENT
            || network.is_some() && count_network() >= part_of_network(MAX_WAITERS)
            || query.waiters.len() >= MAX_WAITERS && query.largest_holder(own).is_none();
        if is_full { Admission::Full } else { Admission::Admitted }
    }

    /// Adds `waiter`, which was admitted, to the pending query for its key. Returns the waiters
    /// that were evicted: for memory, or for its slot if all are taken. `waiter` itself is among
    /// them if no memory could be freed.
    pub fn join(&mut self, waiter: Waiter<C>) -> Vec<Waiter<C>> {
        let mut evicted = Vec::from_iter(self.evict_from_full_query(&waiter));
        let asker = waiter.asker();
        while let Some(within) = self.exhausted_memory(&waiter) {
            let Some(one) = self.evict_waiter(&waiter, within) else {
                evicted.push(waiter);
                return evicted;
            };
            evicted.push(one);
        }
        let id = self.by_key.get(&waiter.query.key);
        if let Some(query) = id.and_then(|id| self.queries.get_mut(id)) {
            self.waiting.add(asker, waiter.bytes());
            query.waiters.push(waiter);
        }
        evicted
    }

    /// Evicts a waiter of the largest holder of the same query, if all slots are taken.
    fn evict_from_full_query(&mut self, waiter: &Waiter<C>) -> Option<Waiter<C>> {
        let id = self.by_key.get(&waiter.query.key)?;
        let query = self.queries.get_mut(id).filter(|query| query.waiters.len() >= MAX_WAITERS)?;
        let own = query.waiters.iter().filter(|earlier| earlier.asker() == waiter.asker());
        let largest_holder = query.largest_holder(own.count())?;
        // Waiters are in order of arrival.
        let oldest = query.waiters.iter().position(|earlier| earlier.asker() == largest_holder)?;
        let evicted = query.waiters.remove(oldest);
        self.waiting.remove(evicted.asker(), evicted.bytes());
        Some(evicted)
    }

    /// Returns `None` if there is memory for `waiter`; otherwise the network whose part is used
    /// up, or `Some(None)` if all memory is.
    fn exhausted_memory(&self, waiter: &Waiter<C>) -> Option<Option<u64>> {
        let bytes = waiter.bytes();
        match self.waiting.full_network(waiter.asker(), bytes, MAX_WAITER_BYTES) {
            None if self.waiting.total() + bytes <= MAX_WAITER_BYTES => None,
            within => Some(within),
        }
    }

    /// Evicts a waiter for `waiter`.
    ///
    /// If the network is full and `waiter` belongs to a small client, the longest waiter of that
    /// network is evicted, provided that it has waited as long as an answer takes. Otherwise the
    /// victim is the longest waiter of the largest holder that has more than the client. Younger
    /// waiters are spared, except those of a client with more than [`PROTECTED_BYTES`].
    fn evict_waiter(&mut self, waiter: &Waiter<C>, within: Option<u64>) -> Option<Waiter<C>> {
        let (asker, timeout) = (waiter.asker(), self.round_trip.timeout());
        let is_old = |it: &Waiter<C>| it.since + timeout <= waiter.since;
        let among = |asker: Asker| within.is_none() || asker.network() == within;
        let may_end_any = within.is_some() && self.waiting.of(asker) < PROTECTED_BYTES;
        let is_due = |it: &Waiter<C>| is_old(it) && among(it.asker());
        let oldest = may_end_any.then(|| self.longest_waiter(is_due)).flatten();
        let (id, position) = oldest.or_else(|| {
            let largest_holder = self.waiting.payer(asker, waiter.bytes(), within)?;
            let has_much = self.waiting.of(largest_holder) > PROTECTED_BYTES;
            self.longest_waiter(|it| it.asker() == largest_holder && (has_much || is_old(it)))
        })?;
        let evicted = self.queries.get_mut(&id)?.waiters.remove(position);
        self.waiting.remove(evicted.asker(), evicted.bytes());
        Some(evicted)
    }

    /// Longest waiter that satisfies `among`: the id of its query, and its position there.
    fn longest_waiter(&self, among: impl Fn(&Waiter<C>) -> bool) -> Option<(u16, usize)> {
        // Waiters of one query are in order of arrival.
        let of_one = |(id, query): (&u16, &PendingQuery<C>)| {
            let position = query.waiters.iter().position(&among)?;
            Some((query.waiters[position].since, *id, position))
        };
        let (_, id, position) = self.queries.iter().filter_map(of_one).min()?;
        Some((id, position))
    }

    /// Ends a query. If `answered`, its round-trip time is measured.
    pub fn end(&mut self, id: u16, answered: Option<Duration>) -> Option<PendingQuery<C>> {
        let query = self.queries.remove(&id)?;
        self.by_key.remove(&query.key);
        self.timers.remove(&(query.due, id));
        if let Some(client) = query.asker {
            self.begun.remove(client, 1);
        }
        for waiter in &query.waiters {
            self.waiting.remove(waiter.asker(), waiter.bytes());
        }
        // After a retransmission the time is ambiguous (Karn's algorithm).
        if let Some(now) = answered.filter(|_| query.tries == 1 && !query.over_stream) {
            self.round_trip.sample(now.saturating_sub(query.began));
        }
        Some(query)
    }

    /// Usage of `asker` and of the largest holder, with at most `max` queries in all.
    pub fn query_usage(&self, asker: Asker, max: usize) -> QueryUsage {
        let (own, largest) = (self.begun.of(asker), self.begun.clients().largest());
        QueryUsage { own, all: self.queries.len(), max, largest }
    }

    pub fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Handles an expired timer.
    pub fn pop_expired(&mut self, now: Duration) -> Option<Expired<C>> {
        let (at, id) = self.timers.first().copied().filter(|(at, _)| *at <= now)?;
        let timeout = self.round_trip.timeout();
        let query = self.queries.get_mut(&id)?;
        let deadline = query.began + GIVE_UP;
        if query.over_stream || query.tries >= MAX_TRIES || at >= deadline {
            return self.end(id, None).map(Expired::GaveUp);
        }
        self.timers.remove(&(at, id));
        // The timeout doubles each time; the last transmission gets all remaining time.
        let wait = (timeout * (1 << query.tries)).min(MAX_TIMEOUT);
        query.tries += 1;
        query.due = if query.tries >= MAX_TRIES { deadline } else { deadline.min(now + wait) };
        self.timers.insert((query.due, id));
        Some(Expired::Retransmit(id))
    }

    /// Number of pending queries.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.queries.len()
    }

    /// Number of waiters, and their memory.
    #[cfg(test)]
    pub fn waiters(&self) -> (usize, usize) {
        (self.queries.values().map(|query| query.waiters.len()).sum(), self.waiting.total())
    }
}

/// Round-trip estimator (RFC 6298), with other bounds.
#[derive(Default)]
struct RoundTrip {
    /// Smoothed round-trip time and its deviation.
    smoothed: Option<(Duration, Duration)>,
}

impl RoundTrip {
    fn sample(&mut self, time: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (time, time / 2),
            Some((mean, deviation)) => {
                ((mean * 7 + time) / 8, (deviation * 3 + mean.abs_diff(time)) / 4)
            }
        });
    }

    fn timeout(&self) -> Duration {
        let wait = self.smoothed.map_or(INITIAL_TIMEOUT, |(mean, deviation)| mean + 4 * deviation);
        wait.clamp(MIN_TIMEOUT, MAX_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{key, query};
    use hickory_proto::rr::RecordType;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_timeout_follows_the_link() {
        let mut queries = PendingQueries::<()>::new();
        for n in 0..50 {
            let key = key(&query(&format!("n{n}.test."), RecordType::A));
            let id = queries.begin(key, None, ms(n * 1000));
            queries.end(id, Some(ms(n * 1000 + 760)));
        }
        let timeout = queries.round_trip.timeout();
        assert!((ms(760)..ms(800)).contains(&timeout), "{timeout:?}");
        assert_eq!((queries.len(), queries.timers.len(), queries.by_key.len()), (0, 0, 0));
    }

    #[test]
    fn lost_queries_are_retransmitted_and_given_up() {
        let mut queries = PendingQueries::<()>::new();
        let id = queries.begin(key(&query("a.test.", RecordType::A)), None, ms(0));
        let mut sent_at = vec![];
        let deadline = loop {
            let now = queries.next_timer().unwrap();
            match queries.pop_expired(now) {
                Some(Expired::Retransmit(again)) => {
                    assert_eq!(again, id);
                    sent_at.push(now);
                }
                Some(Expired::GaveUp(_)) => break now,
                None => panic!("a timer that is not due"),
            }
        };
        assert_eq!((sent_at, deadline), (vec![ms(1500), ms(4500), ms(7500)], ms(12_000)));
    }
}
