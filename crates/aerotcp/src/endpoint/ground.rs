//! The ground gateway: many aircraft on one port, each identified by its key.
//!
//! The link's [`Responder`] decides which peers may speak. This module has the associations.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::secure::{
    AnswerParams, Confirmed, DATA, DataHeader, INIT, InitPayload, Packet, Responder, Rng,
};
use bentpipe_link::{Core, FlowEvent, PublicKey, SecretKey, SessionId};
use bentpipe_units::BitRate;
use rand::SeedableRng;

use super::PROLOGUE;
use crate::session::{PeerParams, Session};
use crate::settings::Settings;

/// Keys of the ground gateway and of the aircraft that it serves.
#[derive(Debug, Clone)]
pub struct GroundConfig {
    /// Secret key.
    pub secret: SecretKey,
    /// Aircraft that are served.
    pub aircraft: Vec<Aircraft>,
}

/// One aircraft.
#[derive(Debug, Clone)]
pub struct Aircraft {
    /// Public key.
    pub key: PublicKey,
    /// Windows, buffers and bounds of its association. The bandwidth is the sending rate towards
    /// it.
    pub settings: Settings,
}

/// The ground gateway.
pub struct GroundCore {
    responder: Responder,
    /// Settings of each aircraft.
    aircraft: BTreeMap<PublicKey, Settings>,
    sessions: BTreeMap<SessionId, (PublicKey, Session)>,
    /// Association after which the next packet is searched, so that all take turns.
    turn: SessionId,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    rng: Rng,
}

impl GroundCore {
    /// Creates a ground gateway that waits for aircraft. `seed` must be unpredictable outside of
    /// simulations.
    pub fn new(config: GroundConfig, seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        let GroundConfig { secret, aircraft } = config;
        let keys = aircraft.iter().map(|aircraft| aircraft.key);
        let responder = Responder::new(PROLOGUE, secret, keys, &mut rng);
        Self {
            responder,
            aircraft: aircraft.into_iter().map(|it| (it.key, it.settings)).collect(),
            sessions: BTreeMap::new(),
            turn: 0,
            events: VecDeque::new(),
            plaintext: Vec::new(),
            rng,
        }
    }

    /// All associations.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, PublicKey, &Session)> {
        self.sessions.iter().map(|(id, (key, session))| (*id, *key, session))
    }

    /// Key of the aircraft with this association.
    pub fn aircraft_of(&self, id: SessionId) -> Option<PublicKey> {
        self.sessions.get(&id).map(|(key, _)| *key)
    }

    fn take_init(&mut self, message: &[u8], from: SocketAddr, now: Duration) {
        let terms = |key: &PublicKey, init: &_| params_of(self.aircraft.get(key)?, init);
        self.responder.take_init(message, from, now, &mut self.rng, terms);
    }

    fn take_data(&mut self, datagram: &[u8], now: Duration) {
        let Ok((header, sealed)) = DataHeader::parse(datagram) else { return };
        let mut plaintext = std::mem::take(&mut self.plaintext);
        let opened = match self.responder.take_packet(&header, sealed, &mut plaintext) {
            Some(Packet::First(confirmed)) => Some(self.confirm(*confirmed, now)),
            Some(Packet::Of(id)) => Some(id).filter(|id| {
                let session = self.sessions.get_mut(id);
                session.is_some_and(|(_, it)| it.unseal(&header, sealed, &mut plaintext))
            }),
            None => None,
        };
        if let Some(id) = opened
            && let Some((_, session)) = self.sessions.get_mut(&id)
        {
            session.receive(&plaintext, now);
            if session.is_closed() {
                self.drop_session(id);
            }
        }
        self.plaintext = plaintext;
    }

    /// Puts new keys in effect, for an existing association or a new one.
    fn confirm(&mut self, confirmed: Confirmed, now: Duration) -> SessionId {
        let Confirmed { aircraft: key, address, payload, keys, session: id, .. } = confirmed;
        if let Some(old) = confirmed.ends {
            self.end_session(old);
        }
        let Some(settings) = self.aircraft.get(&key) else { return id };
        let terms = PeerParams {
            bandwidth: BitRate::from_bps(payload.rate_bps),
            window: 0,
            max_connections: settings.max_connections,
        };
        if confirmed.begins {
            let session = Session::new(settings.clone(), false, terms, keys, address, now);
            self.sessions.insert(id, (key, session));
            let aircraft = settings.called(&key);
            tracing::info!(%aircraft, %key, from = %address, "an aircraft is here over AeroTCP");
        } else if let Some((_, session)) = self.sessions.get_mut(&id) {
            session.rekey(keys, terms, address, now);
        }
        if let Some((_, session)) = self.sessions.get(&id) {
            self.responder.keep_indices(&key, session.indices());
        }
        id
    }

    /// Ends the connections of an association, and forgets it.
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
        if let Some(settings) = self.aircraft.get(&key) {
            let aircraft = settings.called(&key);
            tracing::info!(%aircraft, "the AeroTCP association is over");
        }
        self.end_session(id);
        self.responder.forget_session(&key, id);
    }
}

/// Parameters for an aircraft with this INIT.
fn params_of(settings: &Settings, init: &InitPayload) -> Option<AnswerParams> {
    let buffers = settings.buffers(BitRate::from_bps(init.rate_bps));
    Some(AnswerParams {
        rate_bps: settings.bandwidth.bps(),
        reserve_bytes: u32::try_from(buffers.receive).unwrap_or(u32::MAX),
        max_flows: settings.max_connections,
        max_paths: 1,
    })
}

impl Core for GroundCore {
    type Session = Session;

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, _ce: bool, now: Duration) {
        match datagram.first() {
            Some(&INIT) => self.take_init(datagram, from, now),
            Some(first) if first & 0xf0 == DATA => self.take_data(datagram, now),
            _ => {}
        }
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        if let Some((reply, to)) = self.responder.next_reply() {
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
        sessions.chain(self.responder.next_timeout()).min().unwrap_or(Duration::MAX)
    }

    fn handle_timeout(&mut self, now: Duration) {
        let terms = |key: &PublicKey, init: &_| params_of(self.aircraft.get(key)?, init);
        self.responder.handle_timeout(now, &mut self.rng, terms);
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
        self.responder.sessions_begun()
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
