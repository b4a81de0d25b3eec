//! The ground's end of handshakes: which packets are genuine, and which keys belong to whom.
//!
//! Nothing is stored for a stranger, and nothing is answered without a valid mac1. A handshake
//! takes effect with the first packet under its keys. Until then it is one of a few pending ones,
//! and the previous session continues.
//!
//! Each session has a random instance number, which the answer to a handshake names: the one it
//! resumes, or a new one. So an air whose session is gone at the hub learns it, and ends its flows.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand::RngCore;

use super::SessionId;
use super::filter::Filter;
use super::handshake_limiter::{Decision, READ_OPERATIONS, RESPOND_OPERATIONS};
use super::known::{Current, Known, MAX_PENDING, Owner, Pending};
use super::load::LoadMeter;
use super::shards::{Common, Gate, Shard};
use super::strangers::Refused;
use crate::crypto::{
    Aeads, CookieJar, InitPayload, Keys, MIN_REJECT_AFTER, MacKey, ReceivedInit, ResponsePayload,
    Rng, mac1_of, respond,
};
use crate::key::{PublicKey, SecretKey};
use crate::wire::header::{DataHeader, INIT_BYTES};

/// Maximum number of answers that wait to be sent. Beyond it only a message that proves its address
/// is answered, within the curve's budget; a dropped one is repeated by its sender.
const MAX_REPLIES: usize = 256;
/// Maximum number of cookie replies that wait to be sent, 64 bytes each. Beyond it they are
/// dropped, and their senders ask again.
const MAX_COOKIES: usize = 128;
/// Maximum number of handshakes from known aircraft's addresses that wait for the curve's budget,
/// 200 bytes each: a fleet that returns at once. The budget permits this many in five seconds …
const MAX_WAITING: usize = 1024;
/// … after which an aircraft has called again.
const MAX_INIT_WAIT: Duration = Duration::from_secs(5);
/// Interval of the search for old keys of handshakes that were answered and never confirmed.
const PENDING_SEARCH_INTERVAL: Duration = Duration::from_secs(60);

/// Handshakes of all aircraft, and the owners of keys in use.
pub struct Responder {
    prologue: &'static [u8],
    secret: SecretKey,
    mac: MacKey,
    jar: CookieJar,
    load: LoadMeter,
    gate: Gate,
    shard: Shard,
    aircraft: BTreeMap<PublicKey, Known>,
    /// Aircraft of other shards, with the numbers of these. Only shard 0 needs them.
    elsewhere: BTreeMap<PublicKey, usize>,
    /// Their handshakes, opened here: as many as the curve's budget permits between two turns.
    calls: VecDeque<(usize, ReceivedInit, SocketAddr)>,
    /// Owners of keys by their indices, which the filter has too. Never iterated.
    indices: HashMap<u32, Owner>,
    filter: Filter,
    sessions_begun: u64,
    replies: VecDeque<(Vec<u8>, SocketAddr)>,
    cookies: VecDeque<(Vec<u8>, SocketAddr)>,
    /// Messages 1 that wait for the curve's budget, with their times of arrival.
    waiting: VecDeque<(Vec<u8>, SocketAddr, Duration)>,
    /// Time of the next search for unconfirmed handshakes, if there may be some.
    pending_search: Option<Duration>,
    curve_operations: u64,
    /// Aircraft that calls with used counters, to be reported.
    used_counter: Option<PublicKey>,
}

/// Parameters in our answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerParams {
    /// Our send rate in bit/s.
    pub rate_bps: u64,
    /// First credit of each flow towards us, in bytes.
    pub reserve_bytes: u32,
    /// Maximum number of open flows.
    pub max_flows: u32,
    /// Maximum number of paths of the session.
    pub max_paths: u8,
}

/// Owner of a packet.
pub enum Packet {
    /// A session's packet, still encrypted.
    Of(SessionId),
    /// The first packet under new keys, decrypted; the keys take effect.
    First(Box<Confirmed>),
}

/// A handshake that takes effect.
pub struct Confirmed {
    /// Aircraft.
    pub aircraft: PublicKey,
    /// Address to which our answer was sent: the only one that is proved to be the aircraft's.
    pub address: SocketAddr,
    /// Payload of the aircraft.
    pub payload: InitPayload,
    /// The keys.
    pub keys: Keys,
    /// The session of the keys.
    pub session: SessionId,
    /// `true` if the session is new; otherwise it continues.
    pub begins: bool,
    /// The previous session, which is over.
    pub ends: Option<SessionId>,
}

impl Responder {
    /// Creates a reception for calls of `aircraft` in the protocol that `prologue` names.
    pub fn new(
        prologue: &'static [u8],
        secret: SecretKey,
        aircraft: impl IntoIterator<Item = PublicKey>,
        rng: &mut Rng,
    ) -> Self {
        let common = Common::of(&secret.public());
        let aircraft = aircraft.into_iter().map(|key| (key, 0));
        Self::sharded(prologue, secret, aircraft, (Shard::ONLY, &common), rng)
    }

    /// Creates the reception of one shard of a hub. `aircraft` are those of all shards, with the
    /// numbers of their shards.
    pub(super) fn sharded(
        prologue: &'static [u8],
        secret: SecretKey,
        aircraft: impl IntoIterator<Item = (PublicKey, usize)>,
        (shard, common): (Shard, &Common),
        rng: &mut Rng,
    ) -> Self {
        let public = secret.public();
        let (own, others): (Vec<_>, Vec<_>) =
            aircraft.into_iter().partition(|(_, number)| *number == shard.number);
        let known = |(number, (key, _))| (key, Known::new(number));
        Self {
            prologue,
            secret,
            mac: MacKey::new(&public),
            jar: CookieJar::new(&public, Duration::ZERO, rng),
            load: LoadMeter::default(),
            gate: common.gate.clone(),
            shard,
            aircraft: own.into_iter().enumerate().map(known).collect(),
            elsewhere: others.into_iter().collect(),
            calls: VecDeque::new(),
            filter: common.filter.clone(),
            indices: HashMap::new(),
            sessions_begun: 0,
            replies: VecDeque::new(),
            cookies: VecDeque::new(),
            waiting: VecDeque::new(),
            pending_search: None,
            curve_operations: 0,
            used_counter: None,
        }
    }

    /// Sets the aircraft of other shards, with the numbers of these.
    pub(super) fn set_elsewhere(&mut self, elsewhere: BTreeMap<PublicKey, usize>) {
        self.elsewhere = elsewhere;
    }

    /// Lets an aircraft call, with the smallest number that no other aircraft of the shard has.
    pub(super) fn add(&mut self, aircraft: PublicKey) {
        let taken: BTreeSet<usize> = self.aircraft.values().map(|it| it.number).collect();
        let number = (0..).zip(&taken).find(|(at, number)| at != *number);
        let number = number.map_or(taken.len(), |(at, _)| at);
        self.aircraft.entry(aircraft).or_insert_with(|| Known::new(number));
    }

    /// Forgets an aircraft with all its keys. Its calls are refused.
    pub(super) fn remove(&mut self, aircraft: &PublicKey) {
        let Some(known) = self.aircraft.remove(aircraft) else { return };
        for index in known.indices {
            self.indices.remove(&index);
            self.filter.remove(index);
        }
        self.gate.lock().limiter.forget(aircraft);
    }

    /// Erases the keys of an aircraft's handshakes that have not taken effect.
    pub(super) fn forget_pending(&mut self, aircraft: &PublicKey) {
        let Some(known) = self.aircraft.get_mut(aircraft) else { return };
        for pending in std::mem::take(&mut known.pending) {
            known.forget(pending.keys.local, &mut self.indices, &self.filter);
        }
    }

    /// Filter of packets for this end.
    pub fn filter(&self) -> Filter {
        self.filter.clone()
    }

    /// The aircraft's present session.
    pub fn session_of(&self, aircraft: &PublicKey) -> Option<SessionId> {
        self.aircraft.get(aircraft)?.current.map(|current| current.id)
    }

    /// Counter of the aircraft's last effective handshake.
    pub fn counter_of(&self, aircraft: &PublicKey) -> Option<u64> {
        self.aircraft.get(aircraft)?.confirmed_counter
    }

    /// Number of sessions begun so far.
    pub fn sessions_begun(&self) -> u64 {
        self.sessions_begun
    }

    /// Number of curve operations for handshakes so far: the largest cost of a flood.
    pub fn curve_operations(&self) -> u64 {
        self.curve_operations
    }

    /// Takes the counts of packets and handshakes that were refused since the last call, by any
    /// shard.
    pub fn take_refused(&mut self) -> Refused {
        let datagrams = self.filter.take_dropped();
        self.gate.lock().refused.take(datagrams)
    }

    /// Takes an aircraft that repeatedly calls with used counters: two gateways have one key, the
    /// state of one was restored, or an attacker replays its messages. Each is returned at most
    /// once in ten minutes.
    pub fn take_used_counter(&mut self) -> Option<PublicKey> {
        self.used_counter.take()
    }

    /// The next answer, and its destination.
    pub fn next_reply(&mut self) -> Option<(Vec<u8>, SocketAddr)> {
        self.replies.pop_front().or_else(|| self.cookies.pop_front())
    }

    /// Next handshake of an aircraft of another shard, and the shard's number.
    pub(super) fn next_call(&mut self) -> Option<(usize, ReceivedInit, SocketAddr)> {
        self.calls.pop_front()
    }

    /// Address of each aircraft's last effective handshake, for the next process, from all shards.
    pub fn homes(&self) -> Vec<(PublicKey, IpAddr)> {
        self.gate.lock().limiter.homes().map(|(aircraft, home)| (*aircraft, home)).collect()
    }

    /// Sets an aircraft's address in the previous process: handshakes from there go before
    /// strangers'.
    pub fn remember_home(&mut self, aircraft: &PublicKey, home: IpAddr) {
        if self.aircraft.contains_key(aircraft) {
            self.gate.lock().limiter.is_at(*aircraft, home);
        }
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn next_timeout(&self) -> Option<Duration> {
        let waiting = self.waiting.front().map(|_| self.gate.lock().limiter.next_admission());
        waiting.into_iter().chain(self.pending_search).min()
    }

    /// Reads waiting messages as far as the budget permits, and erases old unconfirmed keys.
    /// `terms` is that of [`Self::take_init`].
    pub fn handle_timeout(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        terms: impl Fn(&PublicKey, &InitPayload) -> Option<AnswerParams>,
    ) {
        while self.waiting.front().is_some_and(|(.., since)| now >= *since + MAX_INIT_WAIT) {
            self.waiting.pop_front();
        }
        while !self.waiting.is_empty() && self.gate.lock().limiter.admits_waiting(now) {
            if let Some((message, from, _)) = self.waiting.pop_front() {
                self.read_init(&message, from, now, rng, &terms);
            }
        }
        if self.pending_search.is_some_and(|at| at <= now) {
            self.erase_old_pending(now);
        }
    }

    fn erase_old_pending(&mut self, now: Duration) {
        let mut some_left = false;
        for known in self.aircraft.values_mut() {
            let is_old = |it: &Pending| now >= it.keys.made_at + MIN_REJECT_AFTER;
            while known.pending.front().is_some_and(is_old) {
                if let Some(old) = known.pending.pop_front() {
                    known.forget(old.keys.local, &mut self.indices, &self.filter);
                }
            }
            some_left |= !known.pending.is_empty();
        }
        self.pending_search = some_left.then_some(now + PENDING_SEARCH_INTERVAL);
    }

    /// Handles message 1. `terms` returns the parameters of the answer.
    pub fn take_init(
        &mut self,
        message: &[u8],
        from: SocketAddr,
        now: Duration,
        rng: &mut Rng,
        terms: impl FnOnce(&PublicKey, &InitPayload) -> Option<AnswerParams>,
    ) {
        let is_one = message.len() == INIT_BYTES && self.mac.accepts(message);
        let mac1 = mac1_of(message).filter(|_| is_one);
        let Some(mac1) = mac1.filter(|mac1| !self.gate.lock().limiter.is_repeated(mac1, now))
        else {
            return;
        };
        let is_high = self.load.is_high(now);
        let proved = is_high && self.jar.accepts(message, from, now);
        if is_high && !proved {
            self.gate.lock().refused.refused(from.ip());
            let sender = ReceivedInit::sender(message);
            if let Some(sender) = sender.filter(|_| self.cookies.len() < MAX_COOKIES) {
                let reply = self.jar.reply(message, sender, from, now, rng);
                self.cookies.push_back((reply, from));
            }
            return;
        }
        if !proved && self.replies.len() >= MAX_REPLIES {
            self.gate.lock().refused.refused(from.ip());
            return;
        }
        let decision = self.gate.lock().limiter.judge(mac1, from.ip(), proved, now);
        match decision {
            Decision::Read => self.read_init(message, from, now, rng, terms),
            Decision::Wait if self.waiting.len() < MAX_WAITING => {
                self.waiting.push_back((message.to_vec(), from, now));
            }
            Decision::Wait | Decision::Drop => self.gate.lock().refused.refused(from.ip()),
        }
    }

    /// Reads message 1, whose cost and its answer's are paid. The shard of its aircraft answers it.
    fn read_init(
        &mut self,
        message: &[u8],
        from: SocketAddr,
        now: Duration,
        rng: &mut Rng,
        terms: impl FnOnce(&PublicKey, &InitPayload) -> Option<AnswerParams>,
    ) {
        self.curve_operations += READ_OPERATIONS;
        let read = ReceivedInit::read(self.prologue, &self.secret, message, rng);
        let Some(received) = read else { return self.refuse(from) };
        match self.elsewhere.get(&received.from) {
            Some(shard) => self.calls.push_back((*shard, received, from)),
            None => self.take_call(received, from, now, rng, terms),
        }
    }

    /// Answers message 1 if it should be; otherwise the cost of an answer is refunded.
    pub(super) fn take_call(
        &mut self,
        received: ReceivedInit,
        from: SocketAddr,
        now: Duration,
        rng: &mut Rng,
        terms: impl FnOnce(&PublicKey, &InitPayload) -> Option<AnswerParams>,
    ) {
        match self.answer(received, from, now, rng, terms) {
            Some(reply) => self.replies.push_back((reply, from)),
            None => self.refuse(from),
        }
    }

    fn refuse(&self, from: SocketAddr) {
        let mut reception = self.gate.lock();
        reception.refused.refused(from.ip());
        reception.limiter.unanswered();
    }

    fn answer(
        &mut self,
        received: ReceivedInit,
        from: SocketAddr,
        now: Duration,
        rng: &mut Rng,
        terms: impl FnOnce(&PublicKey, &InitPayload) -> Option<AnswerParams>,
    ) -> Option<Vec<u8>> {
        let (key, payload) = (received.from, received.payload);
        let known = self.aircraft.get_mut(&key)?;
        if !known.is_new(payload.counter, now) {
            if known.reports_used(payload.counter, now) {
                self.used_counter = Some(key);
            }
            return None;
        }
        let index = loop {
            let index = rng.next_u32();
            if self.shard.has_index(index) && !self.indices.contains_key(&index) {
                break index;
            }
        };
        let resumed = known.resumed(&payload);
        let (here, resumes) = resumed.unwrap_or_else(|| (rng.next_u64().max(1), false));
        let AnswerParams { rate_bps, reserve_bytes, max_flows, max_paths } = terms(&key, &payload)?;
        let max_paths = max_paths.min(payload.max_paths);
        let aead = payload.aeads.best_with(Aeads::of_this_machine());
        let instance = here;
        let answer =
            ResponsePayload { instance, rate_bps, reserve_bytes, max_flows, aead, max_paths };
        let (keys, mut reply) = respond(received, &answer, index, now)?;
        self.curve_operations += RESPOND_OPERATIONS;
        MacKey::new(&key).sign(&mut reply, None);
        if known.pending.len() == MAX_PENDING
            && let Some(oldest) = known.pending.pop_front()
        {
            known.forget(oldest.keys.local, &mut self.indices, &self.filter);
        }
        known.pending.push_back(Pending { keys, payload, address: from, here, resumes });
        self.pending_search.get_or_insert(now + PENDING_SEARCH_INTERVAL);
        self.indices.insert(index, Owner { aircraft: key, session: None });
        self.filter.add(index, known.number);
        known.indices.push(index);
        Some(reply)
    }

    /// Handles a packet. One under pending keys is decrypted into `plaintext`, and the keys take
    /// effect.
    pub fn take_packet(
        &mut self,
        header: &DataHeader,
        sealed: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> Option<Packet> {
        let Owner { aircraft: key, session } = *self.indices.get(&header.receiver)?;
        if let Some(session) = session {
            return Some(Packet::Of(session));
        }
        let known = self.aircraft.get_mut(&key)?;
        let at = known.pending.iter().position(|it| it.keys.local == header.receiver)?;
        if !known.pending[at].keys.open(header, sealed, plaintext) {
            return None;
        }
        let pending = known.pending.remove(at)?;
        self.confirm(key, pending).map(|confirmed| Packet::First(Box::new(confirmed)))
    }

    /// Puts the keys of the first packet into effect. Returns `None` if their session has ended
    /// meanwhile: the air receives nothing, and asks again.
    fn confirm(&mut self, aircraft: PublicKey, pending: Pending) -> Option<Confirmed> {
        let known = self.aircraft.get_mut(&aircraft)?;
        let Pending { keys, payload, address, here, resumes } = pending;
        known.confirmed_counter = known.confirmed_counter.max(Some(payload.counter));
        known.used = 0;
        let asked = (payload.instance, here);
        let goes_on = known.current.filter(|current| (current.air, current.here) == asked);
        if resumes && goes_on.is_none() {
            known.forget(keys.local, &mut self.indices, &self.filter);
            return None;
        }
        for older in std::mem::take(&mut known.pending) {
            known.forget(older.keys.local, &mut self.indices, &self.filter);
        }
        self.gate.lock().limiter.is_at(aircraft, address.ip());
        let (begins, mut ends) = (goes_on.is_none(), None);
        let session = goes_on.map_or_else(
            || {
                self.sessions_begun += 1;
                let id = self.shard.session(self.sessions_begun);
                let current = Current { id, air: payload.instance, here };
                ends = known.current.replace(current).map(|before| before.id);
                id
            },
            |current| current.id,
        );
        self.indices.insert(keys.local, Owner { aircraft, session: Some(session) });
        Some(Confirmed { aircraft, address, payload, keys, session, begins, ends })
    }

    /// Removes all effective keys of an aircraft except those with these indices.
    pub fn keep_indices(&mut self, aircraft: &PublicKey, live: impl IntoIterator<Item = u32>) {
        let Some(known) = self.aircraft.get_mut(aircraft) else { return };
        let pending = known.pending.iter().map(|pending| pending.keys.local);
        let live: Vec<u32> = live.into_iter().chain(pending).collect();
        let gone: Vec<u32> =
            known.indices.iter().copied().filter(|index| !live.contains(index)).collect();
        for index in gone {
            known.forget(index, &mut self.indices, &self.filter);
        }
    }

    /// Removes a session that is over, with its keys.
    pub fn forget_session(&mut self, aircraft: &PublicKey, session: SessionId) {
        let Some(known) = self.aircraft.get_mut(aircraft) else { return };
        if known.current.is_some_and(|current| current.id == session) {
            known.current = None;
            self.keep_indices(aircraft, []);
        }
    }
}

#[cfg(test)]
#[path = "responder_tests.rs"]
mod tests;
