//! Queries in, answers and questions for the ground out.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use crate::answer::{Ages, Answer, Kind, NotAnAnswer, seconds};
use crate::ask::{Ask, Asks, Late, Waiting};
use crate::cache::{Cache, State};
use crate::journal::Record;
use crate::key::Key;
use crate::limit::{Bucket, Clients};
use crate::pool::Pool;
use crate::query::{Query, Refusal, Room};
use crate::settings::Settings;
use crate::wire::{self, rcode, record};

/// Extended error "No Reachable Authority" (RFC 8914): the ground has not answered.
const UNREACHABLE: u16 = 22;

/// Extended error "Cached Error" (RFC 8914).
const CACHED_ERROR: u16 = 13;

/// Journal records that wait to be taken, in bytes; what does not fit is not kept over a restart.
const MOST_UNWRITTEN: usize = 4 << 20;

/// A client may use an address for so long after it has been told of it.
const TELL_MARGIN: Duration = Duration::from_secs(60);

/// Questions asked ahead at a stretch, in seconds' worth.
const PREFETCH_STRETCH_S: f64 = 2.0;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<C> {
    /// This goes to the ground, as a datagram or over a stream; what comes back is for
    /// [`Front::answered`], and a stream that breaks for [`Front::failed`].
    Ask {
        /// The question's id, which `message` begins with.
        id: u16,
        /// The question.
        message: Vec<u8>,
        /// The answer does not fit into a datagram.
        over_stream: bool,
    },
    /// A client that has waited gets its answer.
    Reply {
        /// Who.
        client: C,
        /// The answer.
        message: Vec<u8>,
    },
    /// Clients have been told that this name has these addresses.
    Told {
        /// The name.
        name: String,
        /// The addresses.
        addresses: Vec<IpAddr>,
        /// For how long.
        lifetime: Duration,
    },
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the resolver was made.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// Every count by its name, in a fixed order.
            pub fn all(&self) -> Vec<(String, u64)> {
                vec![$((stringify!($name).replace('_', "-"), self.$name),)*]
            }
        }
    };
}

counts! {
    /// Queries that could be read.
    queries,
    /// Answered on board, with what still counted.
    hits,
    /// Answered on board, with what was over and is asked for anew.
    stale,
    /// Of both, those that said that there is no such name or record.
    negative,
    /// Answered on board: it could not be found out a moment ago.
    failed,
    /// Answered on board with a private address that stands for the name.
    instant,
    /// Asked the ground for.
    missed,
    /// Waited for a question that was under way already.
    collapsed,
    /// Refused: their client sent too many, or too many questions were under way.
    refused,
    /// Messages that were no such queries as are answered.
    unusable,
    /// Questions asked ahead because many want the answer.
    prefetched,
    /// Of those, the ones whose answer was used.
    prefetch_used,
    /// And those whose answer nobody wanted.
    prefetch_wasted,
    /// Questions sent again because no answer came.
    sent_again,
    /// Questions that the ground did not answer.
    unanswered,
    /// Messages of the ground that answered no question of ours.
    unasked,
}

/// The resolver. `C` is what the caller calls a client that waits.
pub struct Front<C> {
    settings: Settings,
    cache: Cache,
    asks: Asks<C>,
    clients: Clients,
    prefetches: Bucket,
    pool: Option<Pool>,
    actions: VecDeque<Action<C>>,
    journal: Vec<u8>,
    keeps_journal: bool,
    counts: Counts,
}

impl<C> Front<C> {
    /// Knows nothing yet. With `keeps_journal`, what is to outlive it has to be taken by
    /// [`take_journal`](Self::take_journal).
    pub fn new(settings: Settings, keeps_journal: bool) -> Self {
        let (actions, journal, clients, counts) = Default::default();
        Self {
            settings,
            cache: Cache::new(),
            asks: Asks::new(),
            clients,
            prefetches: Bucket::FULL,
            pool: None,
            actions,
            journal,
            keeps_journal,
            counts,
        }
    }

    /// From now on these count; what is kept already is judged by them too.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// From now on names are answered with addresses of `pool`, where it may.
    pub fn set_pool(&mut self, pool: Option<Pool>) {
        self.pool = pool;
    }

    /// The addresses that stand for names.
    pub fn pool(&mut self) -> Option<&mut Pool> {
        self.pool.as_mut()
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        Counts { prefetch_wasted: self.cache.wasted, ..self.counts }
    }

    /// Answers kept, and the bytes they cost.
    pub fn kept(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.bytes())
    }

    /// A client at the address `from`, which takes as much as `room`, has sent `message`. The answer
    /// if there is one at once; else the client gets one later, as an [`Action::Reply`], or none.
    pub fn query(
        &mut self,
        (client, from): (C, IpAddr),
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
        let (rate, burst) = (self.settings.client_per_second, self.settings.client_burst);
        if !self.clients.take(from, rate, burst, now) {
            self.counts.refused += 1;
            return Some(query.reply(rcode::REFUSED, None));
        }
        if let Some(answer) = self.cached(&query, room, now) {
            return Some(answer);
        }
        if let Some(answer) = self.instant(&query, now) {
            return Some(answer);
        }
        self.wait(Waiting { client, query, room }, now)
    }

    fn cached(&mut self, query: &Query, room: Room, now: Duration) -> Option<Vec<u8>> {
        let entry = self.cache.get(&query.key)?;
        let state = entry.state(now, &self.settings);
        if state == State::Over {
            return None;
        }
        let ages = entry.ages(now, &self.settings);
        let refresh = state == State::Stale && entry.retry_at <= now;
        let kind = entry.answer.kind;
        let answer = match kind {
            Kind::Failure => query.reply(entry.answer.rcode(), Some(CACHED_ERROR)),
            Kind::Positive | Kind::Negative => entry.answer.write(query, room, &ages),
        };
        if kind == Kind::Positive && is_address(&query.key) {
            self.tell(&query.key, now);
        }
        if self.cache.hit(&query.key, &self.settings) {
            self.counts.prefetch_used += 1;
        }
        match (kind, state) {
            (Kind::Failure, _) => self.counts.failed += 1,
            (_, State::Fresh) => self.counts.hits += 1,
            (_, State::Stale | State::Over) => self.counts.stale += 1,
        }
        self.counts.negative += u64::from(kind == Kind::Negative);
        if refresh && self.asks.about(&query.key).is_none() {
            self.ask(query.key.clone(), false, now);
        }
        Some(answer)
    }

    /// Says which addresses clients know for which name, again only when they are told for longer.
    fn tell(&mut self, key: &Key, now: Duration) {
        let Some(entry) = self.cache.get(key) else { return };
        let until = now + entry.told_for(now, &self.settings);
        if until <= entry.told_until {
            return;
        }
        let lifetime = until - now + TELL_MARGIN;
        entry.told_until = now + lifetime;
        let addresses = entry.answer.addresses();
        if let Some(name) = key.host_name().filter(|_| !addresses.is_empty()) {
            self.actions.push_back(Action::Told { name, addresses, lifetime });
        }
    }

    fn instant(&mut self, query: &Query, now: Duration) -> Option<Vec<u8>> {
        let (reply, assigned) = self.pool.as_mut()?.answer(query, now)?;
        self.counts.instant += 1;
        if let Some(assigned) = assigned {
            self.write_record(&assigned);
        }
        Some(reply)
    }

    /// The client waits for a question, or is told why not.
    fn wait(&mut self, waiting: Waiting<C>, now: Duration) -> Option<Vec<u8>> {
        let key = waiting.query.key.clone();
        let refusal = waiting.query.reply(rcode::SERVFAIL, Some(UNREACHABLE));
        if self.asks.about(&key).is_some() {
            self.counts.collapsed += 1;
        } else if self.ask(key.clone(), false, now) {
            self.counts.missed += 1;
        }
        let joined = self.asks.about(&key).is_some_and(|ask| ask.join(waiting));
        if joined {
            return None;
        }
        self.counts.refused += 1;
        Some(refusal)
    }

    /// Asks the ground; false where too much is under way.
    fn ask(&mut self, key: Key, ahead: bool, now: Duration) -> bool {
        if self.asks.len() >= self.settings.max_asks.min(usize::from(u16::MAX)) {
            return false;
        }
        let id = self.asks.begin(key, ahead, now);
        self.send(id, false);
        true
    }

    fn send(&mut self, id: u16, over_stream: bool) {
        let Some(ask) = self.asks.get(id) else { return };
        let message = ask.key.question(id);
        self.actions.push_back(Action::Ask { id, message, over_stream });
    }

    /// The ground has sent `message`.
    pub fn answered(&mut self, message: &[u8], now: Duration) {
        let id = wire::word(message, 0).ok();
        let asked = id.and_then(|id| Some((id, self.asks.get(id)?)));
        let Some((id, ask)) = asked else {
            self.counts.unasked += 1;
            return;
        };
        let answer = match Answer::parse(&ask.key, message) {
            Ok(answer) => answer,
            Err(NotAnAnswer::Truncated) => {
                if self.asks.over_stream(id, now) {
                    self.send(id, true);
                }
                return;
            }
            // Whatever it is, the question is still open.
            Err(NotAnAnswer::Malformed(_) | NotAnAnswer::Mismatch) => {
                self.counts.unasked += 1;
                return;
            }
        };
        let Some(ask) = self.asks.end(id, Some(now)) else { return };
        let key = ask.key;
        let has_stale = self.has_stale(&key, now);
        for Waiting { client, query, room } in ask.waiting {
            let message = answer.write(&query, room, &fresh(&self.settings));
            self.actions.push_back(Action::Reply { client, message });
        }
        if answer.kind == Kind::Failure && has_stale {
            self.cache.failed(&key, now, &self.settings);
            return;
        }
        self.store(&key, answer, now, ask.ahead);
    }

    /// Whether something is kept that may still be given although its time is over.
    fn has_stale(&mut self, key: &Key, now: Duration) -> bool {
        let settings = &self.settings;
        self.cache.get(key).is_some_and(|entry| {
            entry.answer.kind != Kind::Failure && entry.state(now, settings) != State::Over
        })
    }

    fn store(&mut self, key: &Key, answer: Answer, now: Duration, ahead: bool) {
        if self.keeps_journal && answer.kind != Kind::Failure && answer.lifetime_s > 0 {
            let record = Record::Answer {
                stored_at: now,
                key: key.clone(),
                message: answer.message().to_vec(),
            };
            self.write_record(&record);
        }
        let is_positive = answer.kind == Kind::Positive;
        self.cache.put(key, answer, now, ahead, &self.settings);
        if is_positive && is_address(key) {
            self.tell(key, now);
        }
    }

    /// The stream with the question `id` broke, or could not be opened.
    pub fn failed(&mut self, id: u16, now: Duration) {
        if let Some(ask) = self.asks.end(id, None) {
            self.give_up(ask, now);
        }
    }

    fn give_up(&mut self, ask: Ask<C>, now: Duration) {
        self.counts.unanswered += 1;
        for Waiting { client, query, .. } in ask.waiting {
            let message = query.reply(rcode::SERVFAIL, Some(UNREACHABLE));
            self.actions.push_back(Action::Reply { client, message });
        }
        // The link's silence is not the name's fault: what is unknown may be asked for at once.
        self.cache.failed(&ask.key, now, &self.settings);
    }

    /// What is to be done next; to be asked until there is nothing after every call.
    pub fn poll(&mut self) -> Option<Action<C>> {
        self.actions.pop_front()
    }

    /// When [`tick`](Self::tick) is to be called.
    pub fn next_tick(&self) -> Option<Duration> {
        [self.asks.next_timer(), self.cache.next_due()].into_iter().flatten().min()
    }

    /// Time has passed: questions are sent again or given up, and popular answers asked for.
    pub fn tick(&mut self, now: Duration) {
        while let Some(late) = self.asks.late(now) {
            match late {
                Late::Again(id) => {
                    self.counts.sent_again += 1;
                    self.send(id, false);
                }
                Late::Over(ask) => self.give_up(ask, now),
            }
        }
        while let Some(key) = self.cache.take_due(now) {
            let rate = self.settings.prefetch_per_second;
            if self.asks.about(&key).is_none()
                && self.prefetches.take(rate, rate * PREFETCH_STRETCH_S, now)
                && self.ask(key, true, now)
            {
                self.counts.prefetched += 1;
            }
        }
    }

    fn write_record(&mut self, record: &Record) {
        if self.keeps_journal && self.journal.len() < MOST_UNWRITTEN {
            record.encode(&mut self.journal);
        }
    }

    /// Records that the journal has not got yet.
    pub fn take_journal(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.journal)
    }

    /// Takes back a record of an earlier run; what cannot be understood, or is too old, is left out.
    pub fn restore(&mut self, record: Record, now: Duration) {
        match record {
            Record::Answer { stored_at, key, message } => {
                let Ok(answer) = Answer::parse(&key, &message) else { return };
                self.cache.put(&key, answer, stored_at, false, &self.settings);
                self.cache.forget_if_over(&key, now, &self.settings);
            }
            assigned @ Record::Instant { .. } => {
                if let Some(pool) = &mut self.pool {
                    pool.restore(assigned, now);
                }
            }
        }
    }

    /// All records that a new journal begins with; nothing is unwritten then.
    pub fn snapshot(&mut self, now: Duration) -> Vec<u8> {
        self.journal.clear();
        let mut out = Vec::new();
        for entry in self.cache.entries() {
            let counts = entry.state(now, &self.settings) != State::Over;
            if counts && entry.answer.kind != Kind::Failure {
                let message = entry.answer.message().to_vec();
                let (stored_at, key) = (entry.stored_at(), entry.key().clone());
                Record::Answer { stored_at, key, message }.encode(&mut out);
            }
        }
        for record in self.pool.iter().flat_map(|pool| pool.records(now)) {
            record.encode(&mut out);
        }
        out
    }
}

/// The TTLs of an answer that has just come.
fn fresh(settings: &Settings) -> Ages {
    let (least_s, most_s) = (seconds(settings.min_ttl), seconds(settings.max_ttl));
    Ages { age_s: 0, least_s, most_s, cap_s: u32::MAX, stale: false }
}

fn is_address(key: &Key) -> bool {
    matches!(key.kind(), record::A | record::AAAA)
}

#[cfg(test)]
#[path = "front_tests.rs"]
mod tests;
