//! The air's end: one ground, one association, handshakes until it answers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::secure::{
    COOKIE, COOKIE_BYTES, CookieMonitor, DATA, DataHeader, InitPayload, Initiator, Keys, MacKey,
    RESPONSE, RESPONSE_BYTES, ResponsePayload, Rng,
};
use bentpipe_link::{Class, Core, FlowEvent, OpenError, PublicKey, SecretKey, SessionId, Target};
use bentpipe_units::BitRate;
use rand::{RngCore, SeedableRng};

use super::PROLOGUE;
use crate::session::{PeerTerms, Session};
use crate::settings::Settings;

/// Handshakes that may still be answered: a slow answer to an early one counts too.
const MAX_ATTEMPTS: usize = 4;
/// Handshakes are this far apart at least, however short the path.
const LEAST_ATTEMPT_INTERVAL: Duration = Duration::from_millis(100);
/// Handshakes are this far apart at most.
const MOST_ATTEMPT_INTERVAL: Duration = Duration::from_secs(10);

/// Who we are, and whom we call.
#[derive(Debug, Clone)]
pub struct AirConfig {
    /// Our key.
    pub secret: SecretKey,
    /// The ground's key.
    pub ground: PublicKey,
    /// The ground's address.
    pub address: SocketAddr,
    /// Windows, buffers and bounds.
    pub settings: Settings,
    /// Handshake counters start here: above every one this key has ever used.
    pub first_counter: u64,
}

/// The air's end.
pub struct AirCore {
    config: AirConfig,
    mac: MacKey,
    cookies: CookieMonitor,
    instance: u64,
    session_instance: u64,
    counter: u64,
    attempts: VecDeque<Initiator>,
    next_attempt: Duration,
    attempt_interval: Option<Duration>,
    session: Option<(SessionId, Session)>,
    last_session: SessionId,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    closing: bool,
    rng: Rng,
}

impl AirCore {
    /// An end that begins calling at its first timeout. `seed` must be unpredictable outside
    /// simulations.
    pub fn new(config: AirConfig, seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        Self {
            mac: MacKey::new(&config.ground),
            cookies: CookieMonitor::default(),
            instance: rng.next_u64().max(1),
            session_instance: 0,
            counter: config.first_counter,
            attempts: VecDeque::new(),
            next_attempt: Duration::ZERO,
            attempt_interval: None,
            session: None,
            last_session: 0,
            events: VecDeque::new(),
            plaintext: Vec::new(),
            closing: false,
            rng,
            config,
        }
    }

    /// The association, once the ground has answered.
    pub fn current(&mut self) -> Option<(SessionId, &mut Session)> {
        self.session.as_mut().map(|(id, session)| (*id, session))
    }

    /// Opens a connection to `target`; how many of the `first` bytes were taken is returned with
    /// its name.
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

    fn start_handshake(&mut self, now: Duration, out: &mut Vec<u8>) {
        let payload = InitPayload {
            counter: self.counter,
            instance: self.instance,
            resumes: self.session_instance,
            rate_bps: self.config.settings.bandwidth.bps(),
            // A SYN tells the window of its connection.
            reserve_bytes: 0,
        };
        self.counter += 1;
        let AirConfig { secret, ground, .. } = &self.config;
        let (attempt, mut message) =
            Initiator::start_as(PROLOGUE, secret, ground, &payload, now, &mut self.rng);
        self.cookies.sign(&self.mac, &mut message, now);
        if self.attempts.len() == MAX_ATTEMPTS {
            self.attempts.pop_front();
        }
        self.attempts.push_back(attempt);
        let first = self.config.settings.rtt * 3 / 2;
        let interval = self.attempt_interval.map_or(first, |interval| interval * 3 / 2);
        let interval = interval.clamp(LEAST_ATTEMPT_INTERVAL, MOST_ATTEMPT_INTERVAL);
        self.attempt_interval = Some(interval);
        self.next_attempt = now + interval;
        out.extend_from_slice(&message);
    }

    fn take_response(&mut self, message: &[u8], from: SocketAddr, now: Duration) {
        if !MacKey::new(&self.config.secret.public()).accepts(message) {
            return;
        }
        let Some(index) = Initiator::named_in(message) else { return };
        let Some(at) = self.attempts.iter().position(|attempt| attempt.index == index) else {
            return;
        };
        let Some(attempt) = self.attempts.remove(at) else { return };
        let (keys, payload) = match attempt.finish(message, now) {
            Ok(finished) => finished,
            // A forgery must not cost us the attempt.
            Err(attempt) => return self.attempts.insert(at, *attempt),
        };
        self.attempts.clear();
        self.attempt_interval = None;
        self.install(keys, &payload, from, now);
    }

    fn install(&mut self, keys: Keys, payload: &ResponsePayload, from: SocketAddr, now: Duration) {
        let terms = PeerTerms {
            bandwidth: BitRate::from_bps(payload.rate_bps),
            window: payload.reserve_bytes,
            max_connections: payload.max_flows,
        };
        let resumes = payload.instance == self.session_instance;
        self.session_instance = payload.instance;
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

    /// Ends the connections of an association that cannot go on.
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
            self.session_instance = 0;
        }
    }
}

impl Core for AirCore {
    type Session = Session;

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, _ce: bool, now: Duration) {
        match datagram.first() {
            Some(&RESPONSE) if datagram.len() == RESPONSE_BYTES => {
                self.take_response(datagram, from, now);
            }
            Some(&COOKIE) if datagram.len() == COOKIE_BYTES => {
                let named = Initiator::named_in(datagram);
                let ours = self.attempts.back().is_some_and(|attempt| Some(attempt.index) == named);
                if ours && self.cookies.take(&self.mac, datagram, now).is_ok() {
                    self.next_attempt = now; // once: a reply is taken once for every attempt
                }
            }
            Some(first) if first & 0xf0 == DATA => {
                let Ok((header, sealed)) = DataHeader::parse(datagram) else { return };
                let Some((_, session)) = &mut self.session else { return };
                if session.unseal(&header, sealed, &mut self.plaintext) {
                    session.receive(&self.plaintext, now);
                }
                self.drop_if_closed();
            }
            _ => {}
        }
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        if self.next_attempt <= now && self.wants_handshake(now) {
            self.start_handshake(now, out);
            return Some(self.config.address);
        }
        let to = self.session.as_mut()?.1.transmit(now, out);
        if to.is_none() {
            self.drop_if_closed();
        }
        to
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        let attempt = self.wants_handshake(now).then_some(self.next_attempt);
        let session = self.session.as_ref().map(|(_, session)| session.next_timeout(now));
        attempt.into_iter().chain(session).min().unwrap_or(now + MOST_ATTEMPT_INTERVAL)
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
