//! The ground's end of handshakes: who may speak, and which keys are whose.
//!
//! Nothing is kept for a stranger, and nothing is answered that does not carry the mac1 of our key.
//! A handshake takes effect only when the first packet under its keys has come: until then it is
//! one of a few pending ones, and an old session goes on.
//!
//! Each session has a random instance number, which the answer to a handshake names: the one it
//! resumes, or a fresh one. So an air whose session is gone here is told, and ends its flows.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand::RngCore;

use super::SessionId;
use super::filter::Filter;
use super::gate::{Gate, READ_OPERATIONS, RESPOND_OPERATIONS, Verdict};
use super::load::Load;
use crate::crypto::{
    CookieJar, InitPayload, Keys, MIN_REJECT_AFTER, MacKey, ReceivedInit, ResponsePayload, Rng,
    mac1_of, respond,
};
use crate::key::{PublicKey, SecretKey};
use crate::wire::header::{DataHeader, INIT_BYTES};

/// Handshakes of one aircraft that wait for their first packet.
const MAX_PENDING: usize = 4;
/// For so long they refuse smaller counters than theirs: longer than any round trip, after which
/// the first packet should be here.
const COUNTER_LIFETIME: Duration = Duration::from_secs(20);
/// Answers that wait to be sent. Beyond it only a message that proves its address is answered, within
/// the curve's budget; what is dropped comes again.
const MAX_REPLIES: usize = 256;
/// Cookie replies that wait to be sent, 64 bytes each; more are dropped, their senders ask again.
const MAX_COOKIES: usize = 128;
/// Handshakes of aircraft at home that wait for the curve's budget, at 200 bytes each: a fleet that
/// comes back at once. The budget reads so many in five seconds …
const MAX_WAITING: usize = 1024;
/// … after which an aircraft has called again.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Handshakes that were answered and never confirmed are looked over for old keys so often.
const PENDING_LOOK: Duration = Duration::from_secs(60);

/// So many handshakes with used counters, since the last that took effect, are no accident of the
/// network …
const USED_COUNTERS: u32 = 3;
/// … and are told of so often.
const TOLD_EVERY: Duration = Duration::from_secs(600);

/// The handshakes of all aircraft, and whose keys are in use.
pub struct Reception {
    prologue: &'static [u8],
    secret: SecretKey,
    mac: MacKey,
    jar: CookieJar,
    load: Load,
    gate: Gate,
    aircraft: BTreeMap<PublicKey, Known>,
    /// Aircraft by the index of their keys; the filter knows the same indices.
    indices: BTreeMap<u32, PublicKey>,
    filter: Filter,
    last_session: SessionId,
    replies: VecDeque<(Vec<u8>, SocketAddr)>,
    cookies: VecDeque<(Vec<u8>, SocketAddr)>,
    /// Messages 1 that wait for the curve's budget, and when each came.
    waiting: VecDeque<(Vec<u8>, SocketAddr, Duration)>,
    /// The time of the next look at handshakes that were never confirmed, if there may be some.
    pending_look: Option<Duration>,
    curve_operations: u64,
    /// An aircraft calls with counters that were used, which is to be told.
    used_counter: Option<PublicKey>,
}

/// Terms of our answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The rate we send at, bit/s.
    pub rate_bps: u64,
    /// Bytes that each flow may send to us at first.
    pub reserve_bytes: u32,
    /// Number of flows that may be open at once.
    pub max_flows: u32,
}

/// Owner of a packet.
pub enum Packet {
    /// A session, which has yet to open it.
    Of(SessionId),
    /// The first under new keys, which have opened it and take effect.
    First(Box<Confirmed>),
}

/// A handshake that takes effect.
pub struct Confirmed {
    /// Aircraft.
    pub aircraft: PublicKey,
    /// Address to which our answer went: the only address that is known to be the aircraft's.
    pub address: SocketAddr,
    /// Payload of the aircraft.
    pub payload: InitPayload,
    /// The keys.
    pub keys: Keys,
    /// The session they are for.
    pub session: SessionId,
    /// It is a new one; else it goes on.
    pub begins: bool,
    /// The one before, which is over.
    pub ends: Option<SessionId>,
}

#[derive(Default)]
struct Known {
    /// The counter of the last handshake that took effect.
    confirmed_counter: Option<u64>,
    pending: VecDeque<Pending>,
    current: Option<Current>,
    /// All indices that name its keys, pending ones and those in use.
    indices: Vec<u32>,
    /// Handshakes not above that counter since, and when that was told last.
    used: u32,
    told: Option<Duration>,
}

/// The session that goes on, and the instances at its two ends.
#[derive(Clone, Copy)]
struct Current {
    id: SessionId,
    air: u64,
    here: u64,
}

/// A handshake that was answered.
struct Pending {
    keys: Keys,
    payload: InitPayload,
    address: SocketAddr,
    /// The instance that the answer named.
    here: u64,
    /// It is the current session's.
    resumes: bool,
}

impl Known {
    /// An index names no keys any more.
    fn forget(&mut self, index: u32, indices: &mut BTreeMap<u32, PublicKey>, filter: &Filter) {
        self.indices.retain(|known| *known != index);
        indices.remove(&index);
        filter.remove(index);
    }

    /// Returns `true` if a message 1 with `counter` is neither recorded nor overtaken: it is above
    /// that of the last handshake that took effect, and above those that were answered recently.
    ///
    /// A counter counts for good only when the first packet has come, since message 1 alone does
    /// not prove the aircraft's key: whoever has *our* private key can compute its `ss` too, and
    /// name any counter. That must not keep the aircraft out for longer than it goes on. What is
    /// recorded stays worthless once it, or a later one, took effect. Until then it is answered
    /// again once in [`COUNTER_LIFETIME`] at most, to no effect, and pushes nothing newer out.
    fn is_new(&self, counter: u64, now: Duration) -> bool {
        let passed = |pending: &Pending| {
            let counts = now < pending.keys.made_at + COUNTER_LIFETIME;
            let known = pending.payload.counter;
            counter > known || (counter < known && !counts)
        };
        self.confirmed_counter.is_none_or(|last| counter > last) && self.pending.iter().all(passed)
    }

    /// A message 1 was refused: whether it is time to tell that counters are used again.
    fn tells_of_used(&mut self, counter: u64, now: Duration) -> bool {
        if self.confirmed_counter.is_none_or(|last| counter > last) {
            return false;
        }
        self.used = self.used.saturating_add(1);
        let due = self.told.is_none_or(|told| now >= told + TOLD_EVERY);
        let tells = due && self.used >= USED_COUNTERS;
        if tells {
            self.told = Some(now);
        }
        tells
    }

    /// The instance that `payload` asks to resume, if it is here, and whether it is in use already.
    fn resumed(&self, payload: &InitPayload) -> Option<(u64, bool)> {
        let current = self.current.map(|current| (current.air, current.here, true));
        let pending = self.pending.iter().map(|it| (it.payload.instance, it.here, it.resumes));
        let asked = (payload.instance, payload.resumes);
        let mut known = current.into_iter().chain(pending);
        known.find(|(air, here, _)| (*air, *here) == asked).map(|(_, here, in_use)| (here, in_use))
    }
}

impl Reception {
    /// Waits for `aircraft` to call in the protocol that `prologue` names.
    pub fn new(
        prologue: &'static [u8],
        secret: SecretKey,
        aircraft: impl IntoIterator<Item = PublicKey>,
        rng: &mut Rng,
    ) -> Self {
        let public = secret.public();
        let mac = MacKey::new(&public);
        Self {
            prologue,
            secret,
            filter: Filter::new(mac.clone()),
            mac,
            jar: CookieJar::new(&public, Duration::ZERO, rng),
            load: Load::default(),
            gate: Gate::new(),
            aircraft: aircraft.into_iter().map(|key| (key, Known::default())).collect(),
            indices: BTreeMap::new(),
            last_session: 0,
            replies: VecDeque::new(),
            cookies: VecDeque::new(),
            waiting: VecDeque::new(),
            pending_look: None,
            curve_operations: 0,
            used_counter: None,
        }
    }

    /// Filter that tells packets for this end from junk.
    pub fn filter(&self) -> Filter {
        self.filter.clone()
    }

    /// The session of an aircraft that goes on.
    pub fn session_of(&self, aircraft: &PublicKey) -> Option<SessionId> {
        self.aircraft.get(aircraft)?.current.map(|current| current.id)
    }

    /// Number of sessions begun so far.
    pub fn sessions_begun(&self) -> u64 {
        self.last_session
    }

    /// Number of curve operations for handshakes so far: the highest cost of a flood of them.
    pub fn curve_operations(&self) -> u64 {
        self.curve_operations
    }

    /// An aircraft that calls with counters which were used, again and again: two gateways have one
    /// key, the state of one was restored, or somebody replays what it sent. Gives each once in ten
    /// minutes at most.
    pub fn take_used_counter(&mut self) -> Option<PublicKey> {
        self.used_counter.take()
    }

    /// The next answer to be sent, and where.
    pub fn next_reply(&mut self) -> Option<(Vec<u8>, SocketAddr)> {
        self.replies.pop_front().or_else(|| self.cookies.pop_front())
    }

    /// The address from which each aircraft's last handshake came that took effect, for the process after
    /// this one.
    pub fn homes(&self) -> impl Iterator<Item = (&PublicKey, IpAddr)> {
        self.gate.homes()
    }

    /// Takes the address that an aircraft had in the process before this one: from there it goes before
    /// strangers.
    pub fn remember_home(&mut self, aircraft: &PublicKey, home: IpAddr) {
        if self.aircraft.contains_key(aircraft) {
            self.gate.is_at(*aircraft, home);
        }
    }

    /// The time at which [`Self::handle_timeout`] is due next.
    pub fn next_timeout(&self) -> Option<Duration> {
        let waiting = self.waiting.front().map(|_| self.gate.next_admission());
        waiting.into_iter().chain(self.pending_look).min()
    }

    /// Reads what waited for budget, as far as there is some, and erases old keys that were never
    /// confirmed. `terms` is that of [`Self::take_init`].
    pub fn handle_timeout(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        terms: impl Fn(&PublicKey, &InitPayload) -> Option<Terms>,
    ) {
        while self.waiting.front().is_some_and(|(.., since)| now >= *since + MAX_WAIT) {
            self.waiting.pop_front();
        }
        while !self.waiting.is_empty() && self.gate.admits_waiting(now) {
            if let Some((message, from, _)) = self.waiting.pop_front() {
                self.read_init(&message, from, now, rng, &terms);
            }
        }
        if self.pending_look.is_some_and(|at| at <= now) {
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
        self.pending_look = some_left.then_some(now + PENDING_LOOK);
    }

    /// Message 1 came. `terms` says what to answer to an aircraft that says this.
    pub fn take_init(
        &mut self,
        message: &[u8],
        from: SocketAddr,
        now: Duration,
        rng: &mut Rng,
        terms: impl FnOnce(&PublicKey, &InitPayload) -> Option<Terms>,
    ) {
        let is_one = message.len() == INIT_BYTES && self.mac.accepts(message);
        let mac1 = mac1_of(message).filter(|_| is_one);
        let Some(mac1) = mac1.filter(|mac1| !self.gate.is_repeated(mac1, now)) else { return };
        let is_high = self.load.is_high(now);
        let proved = is_high && self.jar.accepts(message, from, now);
        if is_high && !proved {
            let sender = ReceivedInit::sender(message);
            if let Some(sender) = sender.filter(|_| self.cookies.len() < MAX_COOKIES) {
                let reply = self.jar.reply(message, sender, from, now, rng);
                self.cookies.push_back((reply, from));
            }
            return;
        }
        if !proved && self.replies.len() >= MAX_REPLIES {
            return;
        }
        match self.gate.judge(mac1, from.ip(), proved, now) {
            Verdict::Read => self.read_init(message, from, now, rng, terms),
            Verdict::Wait if self.waiting.len() < MAX_WAITING => {
                self.waiting.push_back((message.to_vec(), from, now));
            }
            Verdict::Wait | Verdict::Drop => {}
        }
    }

    /// Reads message 1, which is paid for, and answers it if it should be.
    fn read_init(
        &mut self,
        message: &[u8],
        from: SocketAddr,
        now: Duration,
        rng: &mut Rng,
        terms: impl FnOnce(&PublicKey, &InitPayload) -> Option<Terms>,
    ) {
        self.curve_operations += READ_OPERATIONS;
        let read = ReceivedInit::read(self.prologue, &self.secret, message, rng);
        match read.and_then(|received| self.answer(received, from, now, rng, terms)) {
            Some(reply) => self.replies.push_back((reply, from)),
            None => self.gate.unanswered(),
        }
    }

    fn answer(
        &mut self,
        received: ReceivedInit,
        from: SocketAddr,
        now: Duration,
        rng: &mut Rng,
        terms: impl FnOnce(&PublicKey, &InitPayload) -> Option<Terms>,
    ) -> Option<Vec<u8>> {
        let (key, payload) = (received.from, received.payload);
        let known = self.aircraft.get_mut(&key)?;
        if !known.is_new(payload.counter, now) {
            if known.tells_of_used(payload.counter, now) {
                self.used_counter = Some(key);
            }
            return None;
        }
        let index = loop {
            let index = rng.next_u32();
            if !self.indices.contains_key(&index) {
                break index;
            }
        };
        let resumed = known.resumed(&payload);
        let (here, resumes) = resumed.unwrap_or_else(|| (rng.next_u64().max(1), false));
        let Terms { rate_bps, reserve_bytes, max_flows } = terms(&key, &payload)?;
        let answer = ResponsePayload { instance: here, rate_bps, reserve_bytes, max_flows };
        let (keys, mut reply) = respond(received, &answer, index, now)?;
        self.curve_operations += RESPOND_OPERATIONS;
        MacKey::new(&key).sign(&mut reply, None);
        if known.pending.len() == MAX_PENDING
            && let Some(oldest) = known.pending.pop_front()
        {
            known.forget(oldest.keys.local, &mut self.indices, &self.filter);
        }
        known.pending.push_back(Pending { keys, payload, address: from, here, resumes });
        self.pending_look.get_or_insert(now + PENDING_LOOK);
        self.indices.insert(index, key);
        self.filter.add(index);
        known.indices.push(index);
        Some(reply)
    }

    /// A packet came. One that opens pending keys is opened into `plaintext`, and they take effect.
    pub fn take_packet(
        &mut self,
        header: &DataHeader,
        sealed: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> Option<Packet> {
        let key = *self.indices.get(&header.receiver)?;
        let known = self.aircraft.get_mut(&key)?;
        let mut pending = known.pending.iter();
        let Some(at) = pending.position(|it| it.keys.local == header.receiver) else {
            return known.current.map(|current| Packet::Of(current.id));
        };
        if !known.pending[at].keys.open(header, sealed, plaintext) {
            return None;
        }
        let pending = known.pending.remove(at)?;
        self.confirm(key, pending).map(|confirmed| Packet::First(Box::new(confirmed)))
    }

    /// The first packet under new keys has come: they take effect. `None` when they were for a
    /// session that is gone meanwhile: the air hears nothing, and asks again.
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
        self.gate.is_at(aircraft, address.ip());
        let (begins, mut ends) = (goes_on.is_none(), None);
        let session = goes_on.map_or_else(
            || {
                self.last_session += 1;
                let id = self.last_session;
                let current = Current { id, air: payload.instance, here };
                ends = known.current.replace(current).map(|before| before.id);
                id
            },
            |current| current.id,
        );
        Some(Confirmed { aircraft, address, payload, keys, session, begins, ends })
    }

    /// Forgets all keys that have taken effect for an aircraft except those with these indices.
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

    /// A session is over, and with it its keys.
    pub fn forget_session(&mut self, aircraft: &PublicKey, session: SessionId) {
        let Some(known) = self.aircraft.get_mut(aircraft) else { return };
        if known.current.is_some_and(|current| current.id == session) {
            known.current = None;
            self.keep_indices(aircraft, []);
        }
    }
}

#[cfg(test)]
#[path = "reception_tests.rs"]
mod tests;
