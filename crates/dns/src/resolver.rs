//! Resolver: queries and the ground's answers in, answers and queries for the ground out.

mod clients;
mod persistence;

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_units::{TokenBucket, TokenRate};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::action::{Action, Limited};
use crate::answer::{Ages, Answer, AnswerError, Kind, OTHER_ERROR, seconds};
use crate::asker::Asker;
use crate::cache::{self, Ahead, Cache, State};
use crate::counts::Counts;
use crate::designated::Designated;
use crate::fake_ip::FakeIpPool;
use crate::journal::Record;
use crate::journal_queue::JournalQueue;
use crate::key::Key;
use crate::limit::Clients;
use crate::pending::{Expired, PendingQueries, PendingQuery, Waiter};
use crate::push;
use crate::settings::Settings;
use crate::warm_start::WarmStart;
use crate::wire;

/// Extended error "No Reachable Authority" (RFC 8914): the ground has not answered.
const UNREACHABLE: u16 = 22;

/// Extended error "Cached Error" (RFC 8914).
const CACHED_ERROR: u16 = 13;

/// Extended error "Network Error" (RFC 8914): there is no path to the ground.
const NETWORK_ERROR: u16 = 23;

/// Time for which a client may use an address beyond its TTL.
const USE_MARGIN: Duration = Duration::from_secs(60);

/// Burst of prefetches, in seconds' worth.
const PREFETCH_BURST_S: u64 = 2;

/// On-board resolver. `C` identifies a waiting client for the caller.
pub struct Resolver<C> {
    settings: Settings,
    cache: Cache,
    pending: PendingQueries<C>,
    clients: Clients,
    prefetches: TokenBucket,
    pool: Option<FakeIpPool>,
    designated: Option<Designated>,
    actions: VecDeque<Action<C>>,
    journal_queue: JournalQueue,
    /// `true` if the ground is reachable.
    is_reachable: bool,
    /// Maximum number of pending queries that the link carries.
    max_pending: usize,
    warm_start: Option<WarmStart>,
    counts: Counts,
}

impl<C> Resolver<C> {
    /// Creates a resolver with an empty cache. With `keeps_journal`, the caller must fetch new
    /// records by [`take_journal`](Self::take_journal). `secret` must be unpredictable to clients;
    /// it spreads them over rate limits.
    pub fn new(settings: Settings, keeps_journal: bool, secret: [u8; 16]) -> Self {
        let (actions, counts) = Default::default();
        Self {
            settings,
            cache: Cache::new(),
            pending: PendingQueries::new(),
            clients: Clients::new(secret),
            prefetches: TokenBucket::default(),
            pool: None,
            designated: None,
            actions,
            journal_queue: JournalQueue::new(keeps_journal),
            is_reachable: true,
            max_pending: usize::from(u16::MAX),
            warm_start: None,
            counts,
        }
    }

    /// Replaces the settings. They also apply to cached answers.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Replaces the pool of fake-IP addresses.
    pub fn set_pool(&mut self, pool: Option<FakeIpPool>) {
        self.pool = pool;
    }

    /// Replaces the designation of the encrypted resolver.
    pub fn set_designated(&mut self, designated: Option<Designated>) {
        self.designated = designated;
    }

    /// Pool of fake-IP addresses.
    pub fn pool(&mut self) -> Option<&mut FakeIpPool> {
        self.pool.as_mut()
    }

    /// Counters so far.
    pub fn counts(&self) -> Counts {
        let counts = self.counts;
        let on_board = counts.hits + counts.stale + counts.failed + counts.instant;
        let [prefetch_wasted, push_wasted] = self.cache.wasted;
        let push_wasted = counts.push_wasted + push_wasted;
        Counts { prefetch_wasted, push_wasted, round_trips_saved: on_board, ..counts }
    }

    /// Number of cached answers, and their memory in bytes.
    pub fn cached(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.bytes())
    }

    /// Sets if the ground is reachable. While it is not, uncached names fail at once, pending
    /// queries end, and nothing is sent.
    pub fn set_reachable(&mut self, is_reachable: bool, now: Duration) {
        if self.is_reachable && !is_reachable {
            while let Some(query) = self.pending.any().and_then(|id| self.pending.end(id, None)) {
                self.give_up(query, Some(NETWORK_ERROR), now);
            }
        }
        self.is_reachable = is_reachable;
    }

    /// Returns `true` if the ground is reachable, as set by [`set_reachable`](Self::set_reachable).
    pub fn is_reachable(&self) -> bool {
        self.is_reachable
    }

    /// Limits the number of pending queries, in addition to the settings.
    pub fn set_max_pending(&mut self, max: usize) {
        self.max_pending = max.min(usize::from(u16::MAX));
    }

    /// Sends a query to the ground, for `asker` or as a prefetch. Returns `false` if too many are
    /// pending.
    fn send_query(&mut self, key: Key, asker: Option<Asker>, now: Duration) -> bool {
        if !self.pending.may_begin(asker, self.max_pending()) {
            return false;
        }
        let id = self.pending.begin(key, asker, now);
        self.send(id, false);
        true
    }

    fn max_pending(&self) -> usize {
        self.settings.max_asks.min(self.max_pending)
    }

    fn send(&mut self, id: u16, over_stream: bool) {
        let Some(query) = self.pending.get(id) else { return };
        let message = query.key.question(id);
        self.counts.bytes_to_ground += message.len() as u64;
        self.actions.push_back(Action::Query { id, message, over_stream });
    }

    /// Processes a message from the ground.
    pub fn on_answer(&mut self, message: &[u8], now: Duration) {
        if let Some(pushed) = push::read_pushed(message) {
            return self.on_pushed(pushed.as_deref(), now);
        }
        let id = wire::header(message).ok().map(|(header, _)| header.id);
        let pending = id.and_then(|id| Some((id, self.pending.get(id)?)));
        let Some((id, query)) = pending else {
            self.counts.unasked += 1;
            return;
        };
        let answer = match Answer::parse(&query.key, message) {
            Ok(answer) => answer,
            Err(AnswerError::Truncated) => {
                if self.pending.over_stream(id, now) {
                    self.send(id, true);
                }
                return;
            }
            // The message is ignored and the query stays pending.
            Err(AnswerError::Malformed(_) | AnswerError::Mismatch) => {
                self.counts.unasked += 1;
                return;
            }
        };
        let Some(query) = self.pending.end(id, Some(now)) else { return };
        self.counts.bytes_from_ground += message.len() as u64;
        // Only the client that began the query becomes known. Joining another's query proves
        // nothing, because addresses are free.
        if let Some(asker) = query.asker().filter(|_| answer.kind != Kind::Failure) {
            self.clients.mark_known(asker);
        }
        let (ahead, key) = (query.is_ahead().then_some(Ahead::Prefetched), query.key);
        let ages = fresh(&answer, &self.settings);
        for Waiter { client, query, room, .. } in query.waiters {
            let message = answer.write(&query, room, &ages);
            self.actions.push_back(Action::Reply { client, message });
        }
        // An error for lack of room on the ground says nothing about the name.
        if answer.kind != Kind::Failure || answer.extended_error() != Some(OTHER_ERROR) {
            self.update_cache(&key, answer, now, ahead);
        }
    }

    /// Stores `answer`, except a failure in place of an answer that may still be served.
    fn update_cache(&mut self, key: &Key, answer: Answer, now: Duration, ahead: Option<Ahead>) {
        if answer.kind == Kind::Failure && self.has_stale(key, now) {
            self.cache.failed(key, now, &self.settings);
            return;
        }
        self.store(key, answer, now, ahead);
    }

    /// Returns `true` if an answer is cached that may still be served, fresh or stale.
    fn has_stale(&mut self, key: &Key, now: Duration) -> bool {
        let settings = &self.settings;
        self.cache.get(key).is_some_and(|entry| {
            entry.answer.kind != Kind::Failure && entry.state(now, settings) != State::Over
        })
    }

    fn store(&mut self, key: &Key, answer: Answer, now: Duration, ahead: Option<Ahead>) {
        if answer.kind != Kind::Failure && answer.lifetime_s > 0 {
            let (key, message) = (key.clone(), answer.message().clone());
            self.journal_queue.add(Record::Answer { stored_at: now, key, message });
        }
        let is_positive = answer.kind == Kind::Positive;
        self.cache.put(key, answer, now, ahead, &self.settings);
        if is_positive && is_address(key) {
            self.announce(key, now);
        }
    }

    /// Announces the addresses that clients have received for a name, if they may now be used for
    /// longer.
    fn announce(&mut self, key: &Key, now: Duration) {
        let Some(entry) = self.cache.get(key) else { return };
        let until = now + entry.remaining(now, &self.settings);
        if until <= entry.announced_until {
            return;
        }
        let lifetime = until - now + USE_MARGIN;
        entry.announced_until = now + lifetime;
        let addresses = entry.answer.addresses();
        if let Some(name) = key.host_name().filter(|_| !addresses.is_empty()) {
            self.actions.push_back(Action::Resolved { name, addresses, lifetime });
        }
    }

    /// Returns `true` if the query `id` is pending: not answered, given up or evicted.
    pub fn is_pending(&self, id: u16) -> bool {
        self.pending.get(id).is_some()
    }

    /// Marks the query `id` as sent over a stream, whose transport retransmits it.
    pub fn over_stream(&mut self, id: u16, now: Duration) {
        self.pending.over_stream(id, now);
    }

    /// Reports that the stream of the query `id` broke.
    pub fn on_stream_failed(&mut self, id: u16, now: Duration) {
        if let Some(query) = self.pending.end(id, None) {
            self.give_up(query, None, now);
        }
    }

    /// Reports that there are too many streams for one more, for the query `id`. A query that has a
    /// stream ends for it, or it ends itself.
    pub fn on_streams_full(&mut self, id: u16, now: Duration) {
        let Some(ended) = self.pending.evict_stream(id) else { return };
        let by = if self.is_pending(id) { Limited::Evicted } else { Limited::Room };
        self.counts.crowded += ended.waiters.len() as u64;
        for waiter in &ended.waiters {
            self.limited(waiter.source.asker(), by);
        }
        self.give_up(ended, Some(OTHER_ERROR), now);
    }

    /// Ends an unanswered query. `reason` is an extended error that is not the name's fault, if
    /// there is one.
    fn give_up(&mut self, query: PendingQuery<C>, reason: Option<u16>, now: Duration) {
        self.counts.unanswered += 1;
        let error = Some(reason.unwrap_or(UNREACHABLE));
        for Waiter { client, query, .. } in query.waiters {
            let message = query.reply(ResponseCode::ServFail, error);
            self.actions.push_back(Action::Reply { client, message });
        }
        // RFC 9520 section 3.2: an unanswered query is not repeated at once.
        if reason.is_none() {
            let answer = Answer::none(&query.key);
            self.update_cache(&query.key, answer, now, None);
        }
    }

    /// Starts with the records that were restored. If there are none, announces this to the ground,
    /// which may push frequent answers.
    pub fn begin(&mut self, now: Duration) {
        let bytes = self.settings.warm_start_bytes;
        if bytes > 0 && self.cache.len() == 0 {
            self.warm_start = Some(WarmStart::new(bytes, now));
        }
    }

    fn announce_start(&mut self, now: Duration) {
        let bytes = self.settings.warm_start_bytes;
        let Some(warm) = &mut self.warm_start else { return };
        if let Some(message) = warm.poll(bytes, self.is_reachable, now) {
            self.counts.bytes_to_ground += message.len() as u64;
            self.actions.push_back(Action::Notify(message));
        }
    }

    /// Processes a pushed answer, or the acknowledgement of the announcement (`None`). Accepts only
    /// announced bytes, and never replaces a fresh answer.
    fn on_pushed(&mut self, message: Option<&[u8]>, now: Duration) {
        let Some(warm) = &mut self.warm_start else {
            self.counts.unasked += 1;
            return;
        };
        warm.acknowledge();
        let Some(message) = message else { return };
        let Some((key, answer)) = warm.accept(message) else {
            self.counts.unasked += 1;
            return;
        };
        self.counts.pushed += 1;
        self.counts.push_bytes += message.len() as u64;
        self.counts.bytes_from_ground += message.len() as u64;
        let entry = self.cache.get(&key);
        let is_fresh = entry.is_some_and(|entry| entry.state(now, &self.settings) == State::Fresh);
        if is_fresh || answer.kind == Kind::Failure || answer.lifetime_s == 0 {
            self.counts.push_wasted += 1;
        } else {
            self.store(&key, answer, now, Some(Ahead::Pushed));
        }
    }

    /// Returns the next action. Call it after every other call until it returns `None`.
    pub fn poll(&mut self) -> Option<Action<C>> {
        self.actions.pop_front()
    }

    /// Time at which [`tick`](Self::tick) must be called.
    pub fn next_tick(&self) -> Option<Duration> {
        let timers = [
            self.pending.next_timer(),
            self.cache.next_due(),
            self.warm_start.as_ref().and_then(WarmStart::due),
        ];
        timers.into_iter().flatten().min()
    }

    /// Handles timers: retransmits or gives up queries, and refreshes popular answers.
    pub fn tick(&mut self, now: Duration) {
        while let Some(expired) = self.pending.pop_expired(now) {
            match expired {
                Expired::Retransmit(id) => {
                    self.counts.sent_again += 1;
                    self.send(id, false);
                }
                Expired::GaveUp(query) => self.give_up(query, None, now),
            }
        }
        self.announce_start(now);
        while let Some(key) = self.cache.take_due(now) {
            let per_second = self.settings.prefetch_per_second;
            let rate = TokenRate::new(per_second, per_second * PREFETCH_BURST_S);
            if self.is_reachable
                && !self.pending.is_pending(&key)
                && self.prefetches.take(rate, 1, now)
                && self.send_query(key, None, now)
            {
                self.counts.prefetched += 1;
            }
        }
    }
}

/// TTL rules of an answer that has just arrived. The TTL of a denial is its lifetime, which caches
/// use (RFC 8484 section 5.1).
fn fresh(answer: &Answer, settings: &Settings) -> Ages {
    let (min_s, max_s) = (seconds(settings.min_ttl), seconds(settings.max_ttl));
    let cap_s = match answer.kind {
        Kind::Negative => seconds(cache::lifetime(answer, 0, settings)),
        Kind::Positive | Kind::Failure => u32::MAX,
    };
    Ages { age_s: 0, min_s, max_s, cap_s, stale: false, is_exact: false }
}

fn is_address(key: &Key) -> bool {
    matches!(key.kind(), RecordType::A | RecordType::AAAA)
}

#[cfg(test)]
mod tests;
