//! Queries in, answers and questions for the ground out.

mod keep;
mod warm;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::answer::{Ages, Answer, Kind, NotAnAnswer, OTHER_ERROR, seconds};
use crate::ask::{Ask, Asks, Late, Place, Waiting};
use crate::cache::{self, Ahead, Cache, State};
use crate::counts::Counts;
use crate::designated::{Designated, is_of_resolver};
use crate::journal::Record;
use crate::key::Key;
use crate::limit::{Bucket, Clients};
use crate::pool::Pool;
use crate::push;
use crate::query::{Query, Refusal, Room};
use crate::settings::Settings;
use crate::share::{Holding, Source};
use crate::wire;
use keep::Unwritten;
use warm::WarmStart;

/// Extended error "No Reachable Authority" (RFC 8914): the ground has not answered.
const UNREACHABLE: u16 = 22;

/// Extended error "Cached Error" (RFC 8914).
const CACHED_ERROR: u16 = 13;

/// Extended error "Network Error" (RFC 8914): there is no way to the ground.
const NETWORK_ERROR: u16 = 23;

/// A client may use an address for so long after it has been told of it.
const TELL_MARGIN: Duration = Duration::from_secs(60);

/// Questions asked ahead at a stretch, in seconds' worth.
const PREFETCH_STRETCH_S: f64 = 2.0;

/// Action for the caller.
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
    /// This goes to the ground as a datagram, or not at all; what comes back is for
    /// [`Front::answered`].
    Say(Vec<u8>),
    /// A client that has waited gets its answer.
    Reply {
        /// Client.
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
    /// A limit took something from a client; [`Front::holding`] says how much it holds.
    Limited {
        /// The client's address.
        client: IpAddr,
        /// The limit.
        by: Limited,
    },
}

/// A limit that a client has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// It sends too many queries per second: this one was refused.
    Rate,
    /// There is no room for another question, or for another who waits: it was refused.
    Room,
    /// It waited, and gave up its place to another.
    Evicted,
}

/// The resolver. `C` is what the caller calls a client that waits.
pub struct Front<C> {
    settings: Settings,
    cache: Cache,
    asks: Asks<C>,
    clients: Clients,
    prefetches: Bucket,
    pool: Option<Pool>,
    designated: Option<Designated>,
    actions: VecDeque<Action<C>>,
    unwritten: Unwritten,
    /// `true` if the ground can be reached.
    is_up: bool,
    /// Questions under way at once, where the link carries fewer than the settings allow.
    most_asks: usize,
    warm_start: Option<WarmStart>,
    counts: Counts,
}

impl<C> Front<C> {
    /// Knows nothing yet. With `keeps_journal`, what is to outlive it has to be taken by
    /// [`take_journal`](Self::take_journal).
    pub fn new(settings: Settings, keeps_journal: bool) -> Self {
        let (actions, clients, counts) = Default::default();
        Self {
            settings,
            cache: Cache::new(),
            asks: Asks::new(),
            clients,
            prefetches: Bucket::FULL,
            pool: None,
            designated: None,
            actions,
            unwritten: Unwritten::new(keeps_journal),
            is_up: true,
            most_asks: usize::from(u16::MAX),
            warm_start: None,
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

    /// From now on devices that ask for encrypted siblings of this resolver are told of these.
    pub fn set_designated(&mut self, designated: Option<Designated>) {
        self.designated = designated;
    }

    /// The addresses that stand for names.
    pub fn pool(&mut self) -> Option<&mut Pool> {
        self.pool.as_mut()
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        let counts = self.counts;
        let on_board = counts.hits + counts.stale + counts.failed + counts.instant;
        let [prefetch_wasted, push_wasted] = self.cache.wasted;
        let push_wasted = counts.push_wasted + push_wasted;
        Counts { prefetch_wasted, push_wasted, round_trips_saved: on_board, ..counts }
    }

    /// Answers kept, and the bytes they cost.
    pub fn kept(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.bytes())
    }

    /// There is a way to the ground, or none. While there is none, what is not known is answered with
    /// a failure at once, and so is what waits when it ends; nothing is asked.
    pub fn set_up(&mut self, is_up: bool, now: Duration) {
        if self.is_up && !is_up {
            while let Some(ask) = self.asks.any().and_then(|id| self.asks.end(id, None)) {
                self.give_up(ask, Some(NETWORK_ERROR), now);
            }
        }
        self.is_up = is_up;
    }

    /// Returns `true` if there is a path to the ground, as [`set_up`](Self::set_up) was told.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// No more questions than `most` are under way at once, whatever the settings say.
    pub fn set_most_asks(&mut self, most: usize) {
        self.most_asks = most.min(usize::from(u16::MAX));
    }

    /// A client, which takes as much as `room`, has sent `message`. The answer if there is one at
    /// once; else the client gets one later, as an [`Action::Reply`], or none.
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
        let (rate, burst) = (self.settings.client_per_second, self.settings.client_burst);
        if !self.clients.take(source.ip(), rate, burst, now) {
            self.counts.refused += 1;
            self.limited(source.ip(), Limited::Rate);
            return Some(query.reply(ResponseCode::Refused, None));
        }
        if is_of_resolver(query.key.name()) {
            return Some(self.of_resolver(&query, source, room));
        }
        if let Some(answer) = self.cached(&query, source.ip(), room, now) {
            return Some(answer);
        }
        if let Some(answer) = self.instant(&query, source.ip(), now) {
            return Some(answer);
        }
        self.wait(Waiting { client, source, query, room, since: now }, now)
    }

    /// The answer about this resolver itself, of which no other knows anything; who has asked another is
    /// told nothing, as its certificate would not be that one's.
    fn of_resolver(&mut self, query: &Query, source: Source, room: Room) -> Vec<u8> {
        self.counts.hits += 1;
        let designated = self.designated.as_ref().filter(|_| !source.is_diverted());
        designated.and_then(|it| it.answer(query, room)).unwrap_or_else(|| {
            // RFC 9462 section 6.4.
            self.counts.negative += 1;
            query.reply(ResponseCode::NoError, None)
        })
    }

    fn cached(
        &mut self,
        query: &Query,
        from: IpAddr,
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
            self.tell(&query.key, now);
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
            && self.is_up
            && !self.asks.is_about(&query.key)
            && self.clients.begin(from, self.most_asks(), now)
        {
            self.ask(query.key.clone(), Some(from), now);
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

    fn instant(&mut self, query: &Query, from: IpAddr, now: Duration) -> Option<Vec<u8>> {
        let (reply, assigned) = self.pool.as_mut()?.answer(query, from, now)?;
        self.counts.instant += 1;
        if let Some(assigned) = assigned {
            self.unwritten.add(assigned);
        }
        Some(reply)
    }

    /// The client waits for a question, or is told why not.
    fn wait(&mut self, waiting: Waiting<C>, now: Duration) -> Option<Vec<u8>> {
        let failure = |error| Some(waiting.query.reply(ResponseCode::ServFail, Some(error)));
        if !self.is_up {
            self.counts.cut_off += 1;
            return failure(NETWORK_ERROR);
        }
        let key = &waiting.query.key;
        match self.asks.place(&waiting) {
            Place::Taken => {
                self.counts.repeated += 1;
                return None;
            }
            Place::Free if self.asks.is_about(key) => self.counts.collapsed += 1,
            Place::Free if self.miss(key, waiting.source.ip(), now) => self.counts.missed += 1,
            Place::Free | Place::None => {
                self.counts.crowded += 1;
                self.limited(waiting.source.ip(), Limited::Room);
                return failure(OTHER_ERROR);
            }
        }
        for Waiting { client, query, source, .. } in self.asks.join(waiting) {
            self.counts.crowded += 1;
            self.limited(source.ip(), Limited::Evicted);
            let message = query.reply(ResponseCode::ServFail, Some(OTHER_ERROR));
            self.actions.push_back(Action::Reply { client, message });
        }
        None
    }

    fn limited(&mut self, client: IpAddr, by: Limited) {
        self.actions.push_back(limited(client, by));
    }

    /// Questions under way that the client at `ip` has begun, and who has most of them.
    pub fn holding(&self, ip: IpAddr) -> Holding {
        self.asks.holding(ip, self.most_asks())
    }

    /// Asks for what `client` waits for, in the place of another's question if need be.
    fn miss(&mut self, key: &Key, client: IpAddr, now: Duration) -> bool {
        let most = self.most_asks();
        if !self.clients.begin(client, most, now) {
            return false;
        }
        if self.ask(key.clone(), Some(client), now) {
            return true;
        }
        let Some(ousted) = self.asks.oust(client, most, now) else { return false };
        self.counts.crowded += ousted.waiting.len() as u64;
        for waiting in &ousted.waiting {
            self.actions.push_back(limited(waiting.source.ip(), Limited::Evicted));
        }
        self.give_up(ousted, Some(OTHER_ERROR), now);
        self.ask(key.clone(), Some(client), now)
    }

    /// Asks the ground, for `asker` or ahead of any query; false where too much is under way.
    fn ask(&mut self, key: Key, asker: Option<IpAddr>, now: Duration) -> bool {
        if !self.asks.may_begin(asker, self.most_asks()) {
            return false;
        }
        let id = self.asks.begin(key, asker, now);
        self.send(id, false);
        true
    }

    fn most_asks(&self) -> usize {
        self.settings.max_asks.min(self.most_asks)
    }

    fn send(&mut self, id: u16, over_stream: bool) {
        let Some(ask) = self.asks.get(id) else { return };
        let message = ask.key.question(id);
        self.counts.bytes_to_ground += message.len() as u64;
        self.actions.push_back(Action::Ask { id, message, over_stream });
    }

    /// The ground has sent `message`.
    pub fn answered(&mut self, message: &[u8], now: Duration) {
        if let Some(pushed) = push::read_pushed(message) {
            return self.pushed(pushed, now);
        }
        let id = wire::header(message).ok().map(|(header, _)| header.id);
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
        self.counts.bytes_from_ground += message.len() as u64;
        // Who joins another's question makes no other known by it: addresses cost nothing.
        if let Some(asker) = ask.asker().filter(|_| answer.kind != Kind::Failure) {
            self.clients.answered(asker);
        }
        let (ahead, key) = (ask.is_ahead().then_some(Ahead::Prefetched), ask.key);
        let ages = fresh(&answer, &self.settings);
        for Waiting { client, query, room, .. } in ask.waiting {
            let message = answer.write(&query, room, &ages);
            self.actions.push_back(Action::Reply { client, message });
        }
        // The ground had no room: that says nothing about the name.
        if answer.kind != Kind::Failure || answer.extended_error() != Some(OTHER_ERROR) {
            self.learn(&key, answer, now, ahead);
        }
    }

    /// Keeps `answer`, but no failure in the place of what may still be given.
    fn learn(&mut self, key: &Key, answer: Answer, now: Duration, ahead: Option<Ahead>) {
        if answer.kind == Kind::Failure && self.has_stale(key, now) {
            self.cache.failed(key, now, &self.settings);
            return;
        }
        self.store(key, answer, now, ahead);
    }

    /// Returns `true` if an answer is stored that may still be given although its time is over.
    fn has_stale(&mut self, key: &Key, now: Duration) -> bool {
        let settings = &self.settings;
        self.cache.get(key).is_some_and(|entry| {
            entry.answer.kind != Kind::Failure && entry.state(now, settings) != State::Over
        })
    }

    fn store(&mut self, key: &Key, answer: Answer, now: Duration, ahead: Option<Ahead>) {
        if answer.kind != Kind::Failure && answer.lifetime_s > 0 {
            let (key, message) = (key.clone(), answer.message().clone());
            self.unwritten.add(Record::Answer { stored_at: now, key, message });
        }
        let is_positive = answer.kind == Kind::Positive;
        self.cache.put(key, answer, now, ahead, &self.settings);
        if is_positive && is_address(key) {
            self.tell(key, now);
        }
    }

    /// Returns `true` if the question `id` is in progress: not answered, not given up, and not
    /// ended for another's.
    pub fn is_asking(&self, id: u16) -> bool {
        self.asks.get(id).is_some()
    }

    /// The question `id` crosses over a stream, whose transport sees to what is lost: it is not sent
    /// again.
    pub fn over_stream(&mut self, id: u16, now: Duration) {
        self.asks.over_stream(id, now);
    }

    /// The stream with the question `id` broke off.
    pub fn failed(&mut self, id: u16, now: Duration) {
        if let Some(ask) = self.asks.end(id, None) {
            self.give_up(ask, None, now);
        }
    }

    /// The question `id` could not be sent, for a reason of our own.
    pub fn not_sent(&mut self, id: u16, now: Duration) {
        if let Some(ask) = self.asks.end(id, None) {
            self.give_up(ask, Some(OTHER_ERROR), now);
        }
    }

    /// Nothing came, for the `reason` that is not the name's own, or none.
    fn give_up(&mut self, ask: Ask<C>, reason: Option<u16>, now: Duration) {
        self.counts.unanswered += 1;
        let error = Some(reason.unwrap_or(UNREACHABLE));
        for Waiting { client, query, .. } in ask.waiting {
            let message = query.reply(ResponseCode::ServFail, error);
            self.actions.push_back(Action::Reply { client, message });
        }
        // RFC 9520 section 3.2: what nobody answers is not asked for again at once either.
        if reason.is_none() {
            let answer = Answer::none(&ask.key);
            self.learn(&ask.key, answer, now, None);
        }
    }

    /// Next action; call it after every other call until it returns `None`.
    pub fn poll(&mut self) -> Option<Action<C>> {
        self.actions.pop_front()
    }

    /// Time at which [`tick`](Self::tick) is to be called.
    pub fn next_tick(&self) -> Option<Duration> {
        let timers = [self.asks.next_timer(), self.cache.next_due(), self.warm_start_due()];
        timers.into_iter().flatten().min()
    }

    /// Time has passed: questions are sent again or given up, and popular answers asked for.
    pub fn tick(&mut self, now: Duration) {
        while let Some(late) = self.asks.late(now) {
            match late {
                Late::Again(id) => {
                    self.counts.sent_again += 1;
                    self.send(id, false);
                }
                Late::Over(ask) => self.give_up(ask, None, now),
            }
        }
        self.say_that_it_begins(now);
        while let Some(key) = self.cache.take_due(now) {
            let rate = self.settings.prefetch_per_second;
            if self.is_up
                && !self.asks.is_about(&key)
                && self.prefetches.take(rate, rate * PREFETCH_STRETCH_S, now)
                && self.ask(key, None, now)
            {
                self.counts.prefetched += 1;
            }
        }
    }
}

/// The TTLs of an answer that has just come. Those of a denial say no more than how long it holds,
/// which whoever caches it goes by (RFC 8484 section 5.1).
fn fresh(answer: &Answer, settings: &Settings) -> Ages {
    let (least_s, most_s) = (seconds(settings.min_ttl), seconds(settings.max_ttl));
    let cap_s = match answer.kind {
        Kind::Negative => seconds(cache::lifetime(answer, 0, settings)),
        Kind::Positive | Kind::Failure => u32::MAX,
    };
    Ages { age_s: 0, least_s, most_s, cap_s, stale: false, is_exact: false }
}

fn limited<C>(client: IpAddr, by: Limited) -> Action<C> {
    Action::Limited { client, by }
}

fn is_address(key: &Key) -> bool {
    matches!(key.kind(), RecordType::A | RecordType::AAAA)
}

#[cfg(test)]
mod tests;
