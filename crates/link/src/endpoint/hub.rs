//! The ground's end: many aircraft on one port, each known by its key.
//!
//! Nothing is kept for a stranger, and nothing is answered that does not carry the mac1 of our key.
//! A handshake takes effect only when the first packet under its keys has come: until then it is
//! one of a few pending ones, and an old session goes on.
//!
//! Each session has a random instance number, which the answer to a handshake names: the one it
//! resumes, or a fresh one. So an air whose session is gone here is told, and ends its flows.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_units::BitRate;
use rand::{RngCore, SeedableRng};

use super::load::Load;
use super::sharing::Sharing;
use super::{Core, SessionId};
use crate::crypto::{
    CookieJar, InitPayload, Keys, MacKey, ReceivedInit, ResponsePayload, Rng, respond,
};
use crate::flow::FlowEvent;
use crate::key::{PublicKey, SecretKey};
use crate::lease::{BeamError, ModemRate};
use crate::memory::Remembered;
use crate::session::{PeerTerms, Session};
use crate::settings::Settings;
use crate::wire::header::{DATA, DataHeader, INIT, INIT_BYTES};
use crate::{Class, Dscp};

/// Handshakes of one aircraft that wait for their first packet.
const MAX_PENDING: usize = 4;
/// For so long they refuse smaller counters than theirs: longer than any round trip, after which
/// the first packet should be here.
const COUNTER_LIFETIME: Duration = Duration::from_secs(20);
/// Handshake messages that wait to be sent; more are dropped, their senders ask again.
const MAX_REPLIES: usize = 256;

/// Curve operations to read message 1 (es, ss) …
const READ_OPERATIONS: u64 = 2;
/// … and to answer it (an ephemeral key, ee, se).
const RESPOND_OPERATIONS: u64 = 3;

/// Who we are, and whom we serve.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// Our key.
    pub secret: SecretKey,
    /// The aircraft we serve.
    pub aircraft: Vec<Aircraft>,
}

/// One aircraft.
#[derive(Debug, Clone)]
pub struct Aircraft {
    /// Its key.
    pub key: PublicKey,
    /// Bounds and timers of its session; the rate is what we may send to it.
    pub settings: Settings,
    /// The most favoured class that its flows may have; those that ask for more get this one.
    pub highest_class: Class,
}

pub(super) struct Entry {
    pub(super) settings: Settings,
    highest_class: Class,
    /// The counter of the last handshake that took effect.
    confirmed_counter: Option<u64>,
    pending: VecDeque<Pending>,
    pub(super) current: Option<Current>,
    /// What was learned of the path to it by the session before.
    remembered: Option<Remembered>,
    /// What the modem towards the aircraft last told, and when.
    modem: Option<(ModemRate, Duration)>,
}

/// The session that goes on, and the instances at its two ends.
#[derive(Clone, Copy)]
pub(super) struct Current {
    pub(super) id: SessionId,
    air: u64,
    here: u64,
}

/// A handshake that was answered.
struct Pending {
    keys: Keys,
    payload: InitPayload,
    /// Where our answer went: the only address that is known to be the aircraft's.
    address: SocketAddr,
    /// The instance that the answer named.
    here: u64,
    /// It is the current session's.
    resumes: bool,
}

impl Entry {
    /// Whether a message 1 with `counter` is neither recorded nor overtaken: it is above that of the
    /// last handshake that took effect, and above those that were answered of late.
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

    /// The instance that `payload` asks to resume, if it is here, and whether it is in use already.
    fn resumed(&self, payload: &InitPayload) -> Option<(u64, bool)> {
        let current = self.current.map(|current| (current.air, current.here, true));
        let pending = self.pending.iter().map(|it| (it.payload.instance, it.here, it.resumes));
        let asked = (payload.instance, payload.resumes);
        let mut known = current.into_iter().chain(pending);
        known.find(|(air, here, _)| (*air, *here) == asked).map(|(_, here, in_use)| (here, in_use))
    }
}

/// The ground's end of the link.
pub struct HubCore {
    secret: SecretKey,
    mac: MacKey,
    jar: CookieJar,
    load: Load,
    pub(super) aircraft: BTreeMap<PublicKey, Entry>,
    /// Whose keys an index names.
    indices: BTreeMap<u32, PublicKey>,
    pub(super) sessions: BTreeMap<SessionId, (PublicKey, Session)>,
    last_session: SessionId,
    /// The session after which the next packet is looked for, so that all take turns.
    turn: SessionId,
    replies: VecDeque<(Vec<u8>, SocketAddr)>,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    /// The datagram given last leaves as ECT(0) …
    ect: bool,
    /// … and is marked so.
    dscp: Dscp,
    curve_operations: u64,
    sharing: Sharing,
    rng: Rng,
}

impl HubCore {
    /// An end that waits. `seed` must be unpredictable outside simulations.
    pub fn new(config: HubConfig, seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        let public = config.secret.public();
        let entry = |aircraft: Aircraft| {
            let Aircraft { key, settings, highest_class } = aircraft;
            let entry = Entry {
                settings,
                highest_class,
                confirmed_counter: None,
                pending: VecDeque::new(),
                current: None,
                remembered: None,
                modem: None,
            };
            (key, entry)
        };
        Self {
            mac: MacKey::new(&public),
            jar: CookieJar::new(&public, Duration::ZERO, &mut rng),
            load: Load::default(),
            aircraft: config.aircraft.into_iter().map(entry).collect(),
            indices: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_session: 0,
            turn: 0,
            replies: VecDeque::new(),
            events: VecDeque::new(),
            plaintext: Vec::new(),
            ect: false,
            dscp: Dscp::EF,
            curve_operations: 0,
            sharing: Sharing::default(),
            rng,
            secret: config.secret,
        }
    }

    /// Every session, with the key of its aircraft.
    pub fn sessions(&mut self) -> impl Iterator<Item = (SessionId, PublicKey, &mut Session)> {
        self.sessions.iter_mut().map(|(id, (key, session))| (*id, *key, session))
    }

    /// How many curve operations handshakes have cost so far: what a flood of them costs most.
    pub fn curve_operations(&self) -> u64 {
        self.curve_operations
    }

    /// The aircraft share a beam of these rates, towards them and from them, from `now` on; `None`
    /// where a direction is not shared. Call it again when the beam's rates change.
    ///
    /// Fails where a direction begins to be shared and the aircraft's floors do not fit into it. If
    /// it shrinks below them later, all are cut in proportion.
    pub fn set_beam(
        &mut self,
        forward: Option<BitRate>,
        back: Option<BitRate>,
        now: Duration,
    ) -> Result<(), BeamError> {
        let shares = self.aircraft.iter().map(|(key, entry)| (*key, entry.settings.share));
        self.sharing.set_rates(forward, back, shares, now)?;
        self.share_out(now);
        Ok(())
    }

    /// The modem towards an aircraft tells what it sends at, or that nothing is known of it any
    /// more. Counts for [`crate::MODEM_LEASE`]; tell it again before that.
    pub fn set_modem_rate(&mut self, aircraft: &PublicKey, told: Option<ModemRate>, now: Duration) {
        let Some(entry) = self.aircraft.get_mut(aircraft) else { return };
        entry.modem = told.map(|told| (told, now));
        let session = entry.current.and_then(|current| self.sessions.get_mut(&current.id));
        if let Some((_, session)) = session {
            session.set_modem_rate(told, now);
        }
    }

    /// Divides the beam as the aircraft want it now.
    fn share_out(&mut self, now: Duration) {
        let sessions = self.sessions.values_mut().map(|(key, session)| (*key, session));
        self.sharing.divide(sessions, now);
    }

    /// Whose session it is.
    pub fn aircraft_of(&self, id: SessionId) -> Option<PublicKey> {
        self.sessions.get(&id).map(|(key, _)| *key)
    }

    fn take_init(&mut self, message: &[u8], from: SocketAddr, now: Duration) {
        if !self.mac.accepts(message) || self.replies.len() >= MAX_REPLIES {
            return;
        }
        if self.load.is_high(now) && !self.jar.accepts(message, from, now) {
            if let Some(sender) = ReceivedInit::sender(message) {
                let reply = self.jar.reply(message, sender, from, now, &mut self.rng);
                self.replies.push_back((reply, from));
            }
            return;
        }
        self.curve_operations += READ_OPERATIONS;
        let Some(received) = ReceivedInit::read(&self.secret, message, &mut self.rng) else {
            return;
        };
        let (key, payload) = (received.from, received.payload);
        let Some(entry) = self.aircraft.get_mut(&key) else { return };
        if !entry.is_new(payload.counter, now) {
            return;
        }
        let index = loop {
            let index = self.rng.next_u32();
            if !self.indices.contains_key(&index) {
                break index;
            }
        };
        let (here, resumes) =
            entry.resumed(&payload).unwrap_or_else(|| (self.rng.next_u64().max(1), false));
        let answer = ResponsePayload {
            instance: here,
            rate_bps: entry.settings.rate.bps(),
            reserve_bytes: entry.settings.flow_reserve.bytes() as u32,
            max_flows: entry.settings.max_flows,
        };
        self.curve_operations += RESPOND_OPERATIONS;
        let Some((keys, mut reply)) = respond(received, &answer, index, now) else { return };
        MacKey::new(&key).sign(&mut reply, None);
        if entry.pending.len() == MAX_PENDING
            && let Some(oldest) = entry.pending.pop_front()
        {
            self.indices.remove(&oldest.keys.local);
        }
        entry.pending.push_back(Pending { keys, payload, address: from, here, resumes });
        self.indices.insert(index, key);
        self.replies.push_back((reply, from));
    }

    fn take_data(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration) {
        let Ok((header, sealed)) = DataHeader::parse(datagram) else { return };
        let Some(&key) = self.indices.get(&header.receiver) else { return };
        let Some(entry) = self.aircraft.get_mut(&key) else { return };
        let mut plaintext = std::mem::take(&mut self.plaintext);
        let waiting =
            entry.pending.iter().position(|pending| pending.keys.local == header.receiver);
        let opened = if let Some(at) = waiting {
            let opened = entry.pending[at].keys.open(&header, sealed, &mut plaintext);
            let pending = if opened { entry.pending.remove(at) } else { None };
            pending.is_some_and(|pending| self.confirm(key, pending, now))
        } else {
            let session = entry.current.and_then(|current| self.sessions.get_mut(&current.id));
            session.is_some_and(|(_, session)| session.unseal(&header, sealed, &mut plaintext))
        };
        let id = self.aircraft.get(&key).and_then(|entry| entry.current).map(|current| current.id);
        if opened
            && let Some(id) = id
            && let Some((_, session)) = self.sessions.get_mut(&id)
        {
            session.receive(&header, &plaintext, from, (datagram.len(), ce), now);
            if let Some(demand) = session.take_demand() {
                self.sharing.asked(key, &demand, now);
            }
            if session.is_closed() {
                self.drop_session(id);
            }
        }
        self.plaintext = plaintext;
    }

    /// The first packet under new keys has come: they take effect. `false` when they were for a
    /// session that is gone meanwhile: the air hears nothing, and asks again.
    fn confirm(&mut self, key: PublicKey, pending: Pending, now: Duration) -> bool {
        let Some(entry) = self.aircraft.get_mut(&key) else { return false };
        let Pending { keys, payload, address, here, resumes } = pending;
        entry.confirmed_counter = entry.confirmed_counter.max(Some(payload.counter));
        let current =
            entry.current.filter(|current| (current.air, current.here) == (payload.instance, here));
        if resumes && current.is_none() {
            self.indices.remove(&keys.local);
            return false;
        }
        let terms = PeerTerms {
            rate: BitRate::from_bps(payload.rate_bps),
            reserve_bytes: payload.reserve_bytes,
            max_flows: entry.settings.max_flows,
        };
        for older in std::mem::take(&mut entry.pending) {
            self.indices.remove(&older.keys.local);
        }
        if let Some((_, session)) = current.and_then(|current| self.sessions.get_mut(&current.id)) {
            session.rekey(keys, terms, now);
        } else {
            let before = entry.current.take();
            let settings = entry.settings.clone();
            let mut seed = [0; 32];
            self.rng.fill_bytes(&mut seed);
            self.last_session += 1;
            let id = self.last_session;
            entry.current = Some(Current { id, air: payload.instance, here });
            let (rng, highest_class) = (Rng::from_seed(seed), entry.highest_class);
            let modem = entry.modem;
            if let Some(old) = before {
                self.end_session(old.id);
            }
            let prior = self.aircraft.get(&key).and_then(|entry| entry.remembered);
            let mut session = Session::new(settings, false, terms, keys, address, prior, now, rng);
            session.limit_class(highest_class);
            if let Some((told, at)) = modem {
                session.set_modem_rate(Some(told), at);
            }
            self.sharing.joined(key);
            self.sessions.insert(id, (key, session));
            // It has its part of the beam before its first packet leaves.
            self.share_out(now);
            tracing::info!(aircraft = %key, from = %address, "an aircraft is here");
        }
        self.prune_indices(key);
        true
    }

    /// Forgets the indices of keys that are gone.
    fn prune_indices(&mut self, key: PublicKey) {
        let Some(entry) = self.aircraft.get(&key) else { return };
        let session = entry.current.and_then(|current| self.sessions.get(&current.id));
        let live: Vec<u32> = session
            .into_iter()
            .flat_map(|(_, session)| session.indices())
            .chain(entry.pending.iter().map(|pending| pending.keys.local))
            .collect();
        self.indices.retain(|index, owner| *owner != key || live.contains(index));
    }

    /// Ends a session's flows and forgets it, but for what it learned of the path.
    fn end_session(&mut self, id: SessionId) {
        if let Some((key, mut session)) = self.sessions.remove(&id) {
            if let Some(entry) = self.aircraft.get_mut(&key) {
                entry.remembered = session.remembered().or(entry.remembered);
            }
            session.end_all_flows();
            while let Some(event) = session.next_event() {
                self.events.push_back((id, event));
            }
        }
    }

    fn drop_session(&mut self, id: SessionId) {
        let Some(key) = self.aircraft_of(id) else { return };
        tracing::info!(aircraft = %key, "the session is over");
        self.end_session(id);
        if let Some(entry) = self.aircraft.get_mut(&key) {
            entry.current = entry.current.filter(|current| current.id != id);
        }
        self.prune_indices(key);
    }
}

impl Core for HubCore {
    type Session = Session;

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration) {
        match datagram.first() {
            Some(&INIT) if datagram.len() == INIT_BYTES => self.take_init(datagram, from, now),
            Some(first) if first & 0xf0 == DATA => self.take_data(datagram, from, ce, now),
            _ => {}
        }
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        // Handshakes are the network's own.
        (self.ect, self.dscp) = (false, Dscp::EF);
        if let Some((reply, to)) = self.replies.pop_front() {
            out.extend_from_slice(&reply);
            return Some(to);
        }
        let after = self.turn;
        let mut order: Vec<SessionId> =
            self.sessions.range(after + 1..).map(|(id, _)| *id).collect();
        order.extend(self.sessions.range(..=after).map(|(id, _)| *id));
        for id in order {
            let Some((_, session)) = self.sessions.get_mut(&id) else { continue };
            if let Some(to) = session.transmit(now, out) {
                self.turn = id;
                (self.ect, self.dscp) = (session.is_ect(), session.dscp());
                self.sharing.sent(now);
                return Some(to);
            }
            if session.is_closed() {
                self.drop_session(id);
            }
        }
        None
    }

    fn is_ect(&self) -> bool {
        self.ect
    }

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn too_large(&mut self, to: SocketAddr, bytes: usize, now: Duration) -> bool {
        for (_, session) in self.sessions.values_mut().filter(|(_, it)| it.address() == to) {
            session.too_large(bytes, now);
        }
        true
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        let sessions = self.sessions.values_mut().map(|(_, session)| session.next_timeout(now));
        let first = sessions.min().unwrap_or(Duration::MAX);
        first.min(self.sharing.next_timeout().unwrap_or(Duration::MAX))
    }

    fn handle_timeout(&mut self, now: Duration) {
        for (_, session) in self.sessions.values_mut() {
            session.handle_timeout(now);
        }
        if self.sharing.next_timeout().is_some_and(|at| at <= now) {
            self.share_out(now);
        }
    }

    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)> {
        self.events.pop_front().or_else(|| {
            let mut sessions = self.sessions.iter_mut();
            sessions.find_map(|(id, (_, session))| session.next_event().map(|event| (*id, event)))
        })
    }

    fn sessions_begun(&self) -> u64 {
        self.last_session
    }

    fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id).map(|(_, session)| session)
    }

    fn close(&mut self) {
        for (_, session) in self.sessions.values_mut() {
            session.close();
        }
    }
}
