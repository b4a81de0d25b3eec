//! The air gateway: one ground gateway, one association, handshakes until it answers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::{Reach, Target};
use bentpipe_link::secure::{Answer, DATA, DataHeader, Initiator, PeerAddresses, Rng};
use bentpipe_link::{Class, Core, FlowEvent, OpenError, PublicKey, SecretKey, SessionId};
use bentpipe_units::BitRate;
use rand::SeedableRng;

use super::PROLOGUE;
use crate::session::{PeerParams, Session};
use crate::settings::Settings;

/// Sleep of an endpoint without anything to do.
const IDLE: Duration = Duration::from_secs(10);

/// Keys of the air gateway and of its ground gateway.
#[derive(Debug, Clone)]
pub struct AirConfig {
    /// Secret key.
    pub secret: SecretKey,
    /// Public key of the ground gateway.
    pub ground: PublicKey,
    /// Address of the ground gateway.
    pub address: SocketAddr,
    /// Windows, buffers and bounds.
    pub settings: Settings,
    /// First handshake counter. Must exceed all counters that this key has ever used.
    pub first_counter: u64,
}

/// The air gateway.
pub struct AirCore {
    config: AirConfig,
    initiator: Initiator,
    addresses: PeerAddresses,
    session: Option<(SessionId, Session)>,
    last_session: SessionId,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    closing: bool,
    rng: Rng,
}

impl AirCore {
    /// Creates an air gateway that starts to connect at its first timeout. `seed` must be
    /// unpredictable outside of simulations.
    pub fn new(config: AirConfig, seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        let AirConfig { secret, ground, first_counter, .. } = &config;
        let initiator = Initiator::new(PROLOGUE, secret.clone(), *ground, *first_counter, &mut rng);
        Self {
            initiator,
            addresses: PeerAddresses::new(config.address),
            session: None,
            last_session: 0,
            events: VecDeque::new(),
            plaintext: Vec::new(),
            closing: false,
            rng,
            config,
        }
    }

    /// Adds addresses of the ground gateway.
    pub fn also_at(&mut self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.addresses.add(addresses);
    }

    /// The association, once the ground gateway has answered.
    pub fn current(&mut self) -> Option<(SessionId, &mut Session)> {
        self.session.as_mut().map(|(id, session)| (*id, session))
    }

    /// Opens a connection to `target`. Returns its identity, and the number of `first` bytes
    /// accepted.
    pub fn open(
        &mut self,
        target: &Target,
        class: Class,
        passenger: u32,
        first: &[u8],
        now: Duration,
    ) -> Result<((SessionId, u64), usize), OpenError> {
        let (id, session) = self.current().ok_or(OpenError::NotConnected)?;
        session.open(target, class, passenger, first, now).map(|(flow, taken)| ((id, flow), taken))
    }

    fn wants_handshake(&self, now: Duration) -> bool {
        let wants = |(_, session): &(SessionId, Session)| session.wants_handshake(now);
        !self.closing && self.session.as_ref().is_none_or(wants)
    }

    fn install(&mut self, answer: Answer, from: SocketAddr, now: Duration) {
        let Answer { keys, payload, resumes, .. } = answer;
        self.addresses.answered(from);
        let terms = PeerParams {
            bandwidth: BitRate::from_bps(payload.rate_bps),
            window: payload.reserve_bytes,
            max_connections: payload.max_flows,
        };
        match self.session.as_mut().filter(|_| resumes) {
            Some((_, session)) => session.rekey(keys, terms, from, now),
            None => {
                self.drop_session();
                let settings = self.config.settings.clone();
                let session = Session::new(settings, true, terms, keys, from, now);
                self.last_session += 1;
                self.session = Some((self.last_session, session));
                tracing::info!(ground = %from, "the AeroTCP association is up");
            }
        }
    }

    /// Ends the connections of an association that cannot continue.
    fn drop_session(&mut self) {
        if let Some((id, mut session)) = self.session.take() {
            session.end_all();
            while let Some(event) = session.next_event() {
                self.events.push_back((id, event));
            }
        }
    }

    fn drop_if_closed(&mut self) {
        if self.session.as_ref().is_some_and(|(_, session)| session.is_closed()) {
            tracing::info!("the AeroTCP association was closed");
            self.drop_session();
            self.initiator.forget_session();
        }
    }
}

impl Core for AirCore {
    type Session = Session;

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, _ce: bool, now: Duration) {
        match datagram.first() {
            Some(first) if first & 0xf0 == DATA => {
                let Ok((header, sealed)) = DataHeader::parse(datagram) else { return };
                let Some((_, session)) = &mut self.session else { return };
                if session.unseal(&header, sealed, &mut self.plaintext) {
                    session.receive(&self.plaintext, now);
                }
                self.drop_if_closed();
            }
            _ if !self.addresses.has(from) => {}
            _ => {
                if let Some(answer) = self.initiator.take(datagram, now) {
                    self.install(answer, from, now);
                }
            }
        }
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        if self.initiator.next_attempt() <= now && self.wants_handshake(now) {
            let settings = &self.config.settings;
            // A SYN reports the window of its connection.
            let terms = (settings.bandwidth.bps(), 0);
            self.initiator.call(terms, settings.rtt, now, &mut self.rng, out);
            return Some(self.addresses.call(self.session.is_some()));
        }
        let to = self.session.as_mut()?.1.transmit(now, out);
        if to.is_none() {
            self.drop_if_closed();
        }
        to
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        let attempt = self.wants_handshake(now).then(|| self.initiator.next_attempt());
        let session = self.session.as_ref().map(|(_, session)| session.next_timeout(now));
        attempt.into_iter().chain(session).min().unwrap_or(now + IDLE)
    }

    fn handle_timeout(&mut self, now: Duration) {
        if let Some((_, session)) = &mut self.session {
            session.handle_timeout(now);
        }
    }

    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)> {
        self.events.pop_front().or_else(|| {
            let (id, session) = self.session.as_mut()?;
            session.next_event().map(|event| (*id, event))
        })
    }

    fn reach(&self) -> Reach {
        if self.session.is_some() { Reach::Up } else { Reach::Down }
    }

    fn sessions_begun(&self) -> u64 {
        self.last_session
    }

    fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.session.as_mut().filter(|(current, _)| *current == id).map(|(_, session)| session)
    }

    fn close(&mut self) {
        self.closing = true;
        if let Some((_, session)) = &mut self.session {
            session.close();
        }
    }
}
