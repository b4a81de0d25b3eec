//! Client side of the resolver: queries, and answers that need no waiting.

use std::time::Duration;

use bentpipe_units::TokenRate;
use hickory_proto::op::ResponseCode;

use super::{CACHED_ERROR, NETWORK_ERROR, Resolver, is_address};
use crate::action::{Action, Limited};
use crate::answer::{Kind, OTHER_ERROR};
use crate::asker::Asker;
use crate::cache::{Ahead, State};
use crate::designated::is_of_resolver;
use crate::key::Key;
use crate::pending::{Admission, Waiter};
use crate::query::{Query, Refusal, Room};
use crate::share::{QueryUsage, Source};

impl<C> Resolver<C> {
    /// Processes a query of a client that accepts answers of size `room`. Returns the answer if it
    /// is known at once. Otherwise the client gets an [`Action::Reply`] later, or nothing.
    pub fn query(
        &mut self,
        (client, source): (C, Source),
        message: &[u8],
        room: Room,
        now: Duration,
    ) -> Option<Vec<u8>> {
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(refusal) => {
                self.counts.unusable += 1;
                return match refusal {
                    Refusal::Reply(reply) => Some(reply),
                    Refusal::Silence => None,
                };
            }
        };
        self.counts.queries += 1;
        let rate = TokenRate::new(self.settings.client_per_second, self.settings.client_burst);
        if !self.clients.take(source.asker(), rate, now) {
            self.counts.refused += 1;
            self.limited(source.asker(), Limited::Rate);
            // The source may be spoofed, and its owner did not ask.
            let is_unproven = source.asker() == Asker::Unproven;
            return (!is_unproven).then(|| query.reply(ResponseCode::Refused, None));
        }
        if is_of_resolver(query.key.name()) {
            return Some(self.of_resolver(&query, source, room));
        }
        if let Some(answer) = self.answer_from_cache(&query, source.asker(), room, now) {
            return Some(answer);
        }
        if let Some(answer) = self.fake_ip(&query, source.asker(), now) {
            return Some(answer);
        }
        self.join(Waiter { client, source, query, room, since: now }, now)
    }

    /// Answer about this resolver itself, which no other resolver can give. A client that addressed
    /// another resolver gets no designation, because the certificate would not be that resolver's.
    fn of_resolver(&mut self, query: &Query, source: Source, room: Room) -> Vec<u8> {
        self.counts.hits += 1;
        let designated = self.designated.as_ref().filter(|_| !source.is_diverted());
        designated.and_then(|it| it.answer(query, room)).unwrap_or_else(|| {
            // RFC 9462 section 6.4.
            self.counts.negative += 1;
            query.reply(ResponseCode::NoError, None)
        })
    }

    fn answer_from_cache(
        &mut self,
        query: &Query,
        from: Asker,
        room: Room,
        now: Duration,
    ) -> Option<Vec<u8>> {
        let entry = self.cache.get(&query.key)?;
        let state = entry.state(now, &self.settings);
        if state == State::Over {
            return None;
        }
        let ages = entry.ages(now, &self.settings);
        let refresh = state == State::Stale && entry.retry_at <= now;
        let (kind, bytes) = (entry.answer.kind, entry.answer.message().len());
        let answer = match kind {
            Kind::Failure => query.reply(entry.answer.rcode(), Some(CACHED_ERROR)),
            Kind::Positive | Kind::Negative => entry.answer.write(query, room, &ages),
        };
        if kind == Kind::Positive && is_address(&query.key) {
            self.announce(&query.key, now);
        }
        match self.cache.hit(&query.key, &self.settings) {
            Some(Ahead::Prefetched) => self.counts.prefetch_used += 1,
            Some(Ahead::Pushed) => self.counts.push_used += 1,
            None => {}
        }
        match (kind, state) {
            (Kind::Failure, _) => self.counts.failed += 1,
            (_, State::Fresh) => self.counts.hits += 1,
            (_, State::Stale | State::Over) => self.counts.stale += 1,
        }
        self.counts.negative += u64::from(kind == Kind::Negative);
        self.counts.bytes_saved += (query.key.question_bytes() + bytes) as u64;
        if refresh
            && self.is_reachable
            && !self.pending.is_pending(&query.key)
            && self.clients.begin(from, self.max_pending(), now)
        {
            self.send_query(query.key.clone(), Some(from), now);
        }
        Some(answer)
    }

    fn fake_ip(&mut self, query: &Query, from: Asker, now: Duration) -> Option<Vec<u8>> {
        let pool = self.pool.as_mut()?;
        let Some((reply, assigned)) = pool.answer(query, from, now) else {
            if pool.take_refused() {
                self.limited(from, Limited::Names);
            }
            return None;
        };
        self.counts.instant += 1;
        if let Some(assigned) = assigned {
            self.journal_queue.add(assigned);
        }
        Some(reply)
    }

    /// Lets the client wait for a query, or returns an error.
    fn join(&mut self, waiter: Waiter<C>, now: Duration) -> Option<Vec<u8>> {
        let failure = |error| Some(waiter.query.reply(ResponseCode::ServFail, Some(error)));
        if !self.is_reachable {
            self.counts.cut_off += 1;
            return failure(NETWORK_ERROR);
        }
        let key = &waiter.query.key;
        match self.pending.admit(&waiter) {
            Admission::Duplicate => {
                self.counts.repeated += 1;
                return None;
            }
            Admission::Admitted if self.pending.is_pending(key) => self.counts.collapsed += 1,
            Admission::Admitted if self.begin_query(key, waiter.source.asker(), now) => {
                self.counts.missed += 1
            }
            Admission::Admitted | Admission::Full => {
                self.counts.crowded += 1;
                self.limited(waiter.source.asker(), Limited::Room);
                return failure(OTHER_ERROR);
            }
        }
        for Waiter { client, query, source, .. } in self.pending.join(waiter) {
            self.counts.crowded += 1;
            self.limited(source.asker(), Limited::Evicted);
            let message = query.reply(ResponseCode::ServFail, Some(OTHER_ERROR));
            self.actions.push_back(Action::Reply { client, message });
        }
        None
    }

    pub(super) fn limited(&mut self, client: Asker, by: Limited) {
        self.actions.push_back(Action::Limited { client, by });
    }

    /// Pending queries of `asker` compared with all.
    pub fn usage(&self, asker: Asker) -> QueryUsage {
        self.pending.query_usage(asker, self.max_pending())
    }

    /// Begins a query for `client`, evicting another one if necessary.
    fn begin_query(&mut self, key: &Key, client: Asker, now: Duration) -> bool {
        let max = self.max_pending();
        if !self.clients.begin(client, max, now) {
            return false;
        }
        if self.send_query(key.clone(), Some(client), now) {
            return true;
        }
        let Some(evicted) = self.pending.evict(client, max, now) else { return false };
        self.counts.crowded += evicted.waiters.len() as u64;
        for waiter in &evicted.waiters {
            self.limited(waiter.source.asker(), Limited::Evicted);
        }
        self.give_up(evicted, Some(OTHER_ERROR), now);
        self.send_query(key.clone(), Some(client), now)
    }
}
