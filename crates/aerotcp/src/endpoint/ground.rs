//! The ground's end: many aircraft on one port, each known by its key.
//!
//! As the link's: nothing is kept for a stranger, nothing is answered that does not carry the mac1
//! of our key, and a handshake takes effect with the first packet under its keys.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::secure::{
    CookieJar, DATA, DataHeader, INIT, INIT_BYTES, InitPayload, Keys, Load, MacKey, ReceivedInit,
    ResponsePayload, Rng, respond,
};
use bentpipe_link::{Core, FlowEvent, PublicKey, SecretKey, SessionId};
use bentpipe_units::BitRate;
use rand::{RngCore, SeedableRng};

use super::PROLOGUE;
use crate::session::{PeerTerms, Session};
use crate::settings::Settings;

/// Handshakes of one aircraft that wait for their first packet.
const MAX_PENDING: usize = 4;
/// Handshake messages that wait to be sent; more are dropped, their senders ask again.
const MAX_REPLIES: usize = 256;

/// Who we are, and whom we serve.
#[derive(Debug, Clone)]
pub struct GroundConfig {
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
    /// Windows, buffers and bounds of its association; the bandwidth is what we may send to it.
    pub settings: Settings,
}

struct Entry {
    settings: Settings,
    last_counter: Option<u64>,
    pending: VecDeque<Pending>,
    current: Option<Current>,
}

/// The association that goes on, and the instances at its two ends.
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
    /// Where our answer went.
    address: SocketAddr,
    /// The instance that the answer named.
    here: u64,
    /// It is the current association's.
    resumes: bool,
}

/// The ground's end.
pub struct GroundCore {
    secret: SecretKey,
    mac: MacKey,
    jar: CookieJar,
    load: Load,
    aircraft: BTreeMap<PublicKey, Entry>,
    /// Whose keys an index names.
    indices: BTreeMap<u32, PublicKey>,
    sessions: BTreeMap<SessionId, (PublicKey, Session)>,
    last_session: SessionId,
    /// The association after which the next packet is looked for, so that all take turns.
    turn: SessionId,
    replies: VecDeque<(Vec<u8>, SocketAddr)>,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    rng: Rng,
}

impl GroundCore {
    /// An end that waits. `seed` must be unpredictable outside simulations.
    pub fn new(config: GroundConfig, seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        let public = config.secret.public();
        let entry = |aircraft: Aircraft| {
            let Aircraft { key, settings } = aircraft;
            let pending = VecDeque::new();
            (key, Entry { settings, last_counter: None, pending, current: None })
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
            rng,
            secret: config.secret,
        }
    }

    /// Every association.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, PublicKey, &Session)> {
        self.sessions.iter().map(|(id, (key, session))| (*id, *key, session))
    }

    /// Whose association it is.
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
        let read = ReceivedInit::read_as(PROLOGUE, &self.secret, message, &mut self.rng);
        let Some(received) = read else { return };
        let (key, payload) = (received.from, received.payload);
        let Some(entry) = self.aircraft.get_mut(&key) else { return };
        if entry.last_counter.is_some_and(|last| payload.counter <= last) {
            return; // recorded, or overtaken by a later one
        }
        entry.last_counter = Some(payload.counter);
        let index = loop {
            let index = self.rng.next_u32();
            if !self.indices.contains_key(&index) {
                break index;
            }
        };
        let asked = (payload.instance, payload.resumes);
        let resumed = entry.current.filter(|current| (current.air, current.here) == asked);
        let resumes = resumed.is_some();
        let here = resumed.map_or_else(|| self.rng.next_u64().max(1), |current| current.here);
        let settings = &entry.settings;
        let buffers = settings.buffers(BitRate::from_bps(payload.rate_bps));
        let answer = ResponsePayload {
            instance: here,
            rate_bps: settings.bandwidth.bps(),
            reserve_bytes: u32::try_from(buffers.receive).unwrap_or(u32::MAX),
            max_flows: settings.max_connections,
        };
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

    fn take_data(&mut self, datagram: &[u8], now: Duration) {
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
            session.receive(&plaintext, now);
            if session.is_closed() {
                self.drop_session(id);
            }
        }
        self.plaintext = plaintext;
    }

    /// The first packet under new keys has come: they take effect. `false` when they were for an
    /// association that is gone meanwhile: the air hears nothing, and asks again.
    fn confirm(&mut self, key: PublicKey, pending: Pending, now: Duration) -> bool {
        let Some(entry) = self.aircraft.get_mut(&key) else { return false };
        let Pending { keys, payload, address, here, resumes } = pending;
        let current =
            entry.current.filter(|current| (current.air, current.here) == (payload.instance, here));
        if resumes && current.is_none() {
            self.indices.remove(&keys.local);
            return false;
        }
        let terms = PeerTerms {
            bandwidth: BitRate::from_bps(payload.rate_bps),
            window: 0,
            max_connections: entry.settings.max_connections,
        };
        for older in std::mem::take(&mut entry.pending) {
            self.indices.remove(&older.keys.local);
        }
        if let Some((_, session)) = current.and_then(|current| self.sessions.get_mut(&current.id)) {
            session.rekey(keys, terms, address, now);
        } else {
            let before = entry.current.take();
            let settings = entry.settings.clone();
            let aircraft = settings.called(&key).to_string();
            self.last_session += 1;
            let id = self.last_session;
            entry.current = Some(Current { id, air: payload.instance, here });
            let session = Session::new(settings, false, terms, keys, address, now);
            self.sessions.insert(id, (key, session));
            if let Some(old) = before {
                self.end_session(old.id);
            }
            tracing::info!(aircraft, %key, from = %address, "an aircraft is here over AeroTCP");
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

    /// Ends an association's connections and forgets it.
    fn end_session(&mut self, id: SessionId) {
        if let Some((_, mut session)) = self.sessions.remove(&id) {
            session.end_all();
            while let Some(event) = session.next_event() {
                self.events.push_back((id, event));
            }
        }
    }

    fn drop_session(&mut self, id: SessionId) {
        let Some(key) = self.aircraft_of(id) else { return };
        self.end_session(id);
        if let Some(entry) = self.aircraft.get_mut(&key) {
            let aircraft = entry.settings.called(&key);
            tracing::info!(%aircraft, "the AeroTCP association is over");
            entry.current = entry.current.filter(|current| current.id != id);
        }
        self.prune_indices(key);
    }
}

impl Core for GroundCore {
    type Session = Session;

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, _ce: bool, now: Duration) {
        match datagram.first() {
            Some(&INIT) if datagram.len() == INIT_BYTES => self.take_init(datagram, from, now),
            Some(first) if first & 0xf0 == DATA => self.take_data(datagram, now),
            _ => {}
        }
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
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
                return Some(to);
            }
            if session.is_closed() {
                self.drop_session(id);
            }
        }
        None
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        let sessions = self.sessions.values().map(|(_, session)| session.next_timeout(now));
        sessions.min().unwrap_or(Duration::MAX)
    }

    fn handle_timeout(&mut self, now: Duration) {
        for (_, session) in self.sessions.values_mut() {
            session.handle_timeout(now);
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
