//! The air's end: one hub, one session, handshakes until it answers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_units::BitRate;
use rand::{RngCore, SeedableRng};

use super::{Core, SessionId};
use crate::crypto::{CookieMonitor, InitPayload, Initiator, Keys, MacKey, ResponsePayload, Rng};
use crate::flow::FlowEvent;
use crate::key::{PublicKey, SecretKey};
use crate::lease::ModemRate;
use crate::memory::Remembered;
use crate::session::{OpenError, PeerTerms, Session};
use crate::settings::Settings;
use crate::target::Target;
use crate::wire::frame::OpenDatagrams;
use crate::wire::header::{COOKIE, COOKIE_BYTES, DATA, DataHeader, RESPONSE, RESPONSE_BYTES};
use crate::{Class, Dscp};

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
    /// The hub's key.
    pub hub: PublicKey,
    /// The hub's address.
    pub address: SocketAddr,
    /// Bounds and timers.
    pub settings: Settings,
    /// Handshake counters start here: above every one this key has ever used.
    pub first_counter: u64,
}

/// The air's end of the link.
pub struct AirCore {
    pub(super) config: AirConfig,
    mac: MacKey,
    cookies: CookieMonitor,
    instance: u64,
    session_instance: u64,
    counter: u64,
    attempts: VecDeque<Initiator>,
    next_attempt: Duration,
    attempt_interval: Option<Duration>,
    pub(super) session: Option<(SessionId, Session)>,
    last_session: SessionId,
    /// What was learned of the path by the session before.
    remembered: Option<Remembered>,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    closing: bool,
    /// The datagram given last leaves as ECT(0) …
    ect: bool,
    /// … and is marked so.
    dscp: Dscp,
    /// What the modem last told, and when: it outlives sessions.
    modem: Option<(ModemRate, Duration)>,
    rng: Rng,
}

impl AirCore {
    /// An end that begins calling at its first timeout. `seed` must be unpredictable outside simulations.
    pub fn new(config: AirConfig, seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        Self {
            mac: MacKey::new(&config.hub),
            cookies: CookieMonitor::default(),
            instance: rng.next_u64().max(1),
            session_instance: 0,
            counter: config.first_counter,
            attempts: VecDeque::new(),
            next_attempt: Duration::ZERO,
            attempt_interval: None,
            session: None,
            last_session: 0,
            remembered: None,
            events: VecDeque::new(),
            plaintext: Vec::new(),
            closing: false,
            ect: false,
            dscp: Dscp::EF,
            modem: None,
            rng,
            config,
        }
    }

    /// The session, once the hub has answered.
    pub fn current(&mut self) -> Option<(SessionId, &mut Session)> {
        self.session.as_mut().map(|(id, session)| (*id, session))
    }

    /// What is worth remembering of the path to the hub, beyond this process too.
    pub fn remembered(&self) -> Option<Remembered> {
        let session = self.session.as_ref();
        session.and_then(|(_, session)| session.remembered()).or(self.remembered)
    }

    /// Gives what an earlier process learned of the path, for the sessions that begin from now on.
    pub fn remember(&mut self, remembered: Remembered) {
        self.remembered = Some(remembered);
    }

    /// The modem tells what it sends at, or that nothing is known of it any more. Counts for
    /// [`crate::MODEM_LEASE`]; tell it again before that.
    pub fn set_modem_rate(&mut self, told: Option<ModemRate>, now: Duration) {
        self.modem = told.map(|told| (told, now));
        if let Some((_, session)) = &mut self.session {
            session.set_modem_rate(told, now);
        }
    }

    /// Opens a flow to `target`; `first` are its first bytes and travel with the opening, as many
    /// as there is room for: how many those were is returned with the flow.
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

    /// Opens a flow of datagrams.
    pub fn open_datagrams(
        &mut self,
        open: &OpenDatagrams,
        now: Duration,
    ) -> Result<(SessionId, u64), OpenError> {
        let (id, session) = self.current().ok_or(OpenError::NotConnected)?;
        Ok((id, session.open_datagrams(open, now)?))
    }

    fn wants_handshake(&self, now: Duration) -> bool {
        !self.closing
            && self
                .session
                .as_ref()
                .is_none_or(|(_, session)| session.wants_new_keys(now) || session.is_quiet())
    }

    fn start_handshake(&mut self, now: Duration, out: &mut Vec<u8>) {
        let payload = InitPayload {
            counter: self.counter,
            instance: self.instance,
            resumes: self.session_instance,
            rate_bps: self.config.settings.rate.bps(),
            reserve_bytes: self.config.settings.flow_reserve.bytes() as u32,
        };
        self.counter += 1;
        let (attempt, mut message) =
            Initiator::start(&self.config.secret, &self.config.hub, &payload, now, &mut self.rng);
        self.cookies.sign(&self.mac, &mut message, now);
        if self.attempts.len() == MAX_ATTEMPTS {
            self.attempts.pop_front();
        }
        self.attempts.push_back(attempt);
        let round_trip = self.session.as_ref().map(|(_, session)| session.round_trip());
        let remembered = self.remembered.filter(|it| it.is_fresh(now)).map(|it| it.rtt);
        let expected = round_trip.or(remembered).unwrap_or(self.config.settings.initial_rtt);
        let first = expected * 3 / 2;
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
        let round_trip = now.saturating_sub(attempt.sent_at);
        let (keys, payload) = match attempt.finish(message, now) {
            Ok(finished) => finished,
            // A forgery must not cost us the attempt.
            Err(attempt) => return self.attempts.insert(at, *attempt),
        };
        self.attempts.clear();
        self.attempt_interval = None;
        self.install(keys, &payload, from, round_trip, now);
    }

    fn install(
        &mut self,
        keys: Keys,
        payload: &ResponsePayload,
        from: SocketAddr,
        round_trip: Duration,
        now: Duration,
    ) {
        let terms = PeerTerms {
            rate: BitRate::from_bps(payload.rate_bps),
            reserve_bytes: payload.reserve_bytes,
            max_flows: payload.max_flows,
        };
        let resumes = payload.instance == self.session_instance;
        self.session_instance = payload.instance;
        match self.session.as_mut().filter(|_| resumes) {
            Some((_, session)) => session.rekey(keys, terms, now),
            None => {
                self.drop_session();
                let mut seed = [0; 32];
                self.rng.fill_bytes(&mut seed);
                let settings = self.config.settings.clone();
                let rng = Rng::from_seed(seed);
                let prior = self.remembered;
                let mut session = Session::new(settings, true, terms, keys, from, prior, now, rng);
                session.saw_round_trip(round_trip);
                if let Some((told, at)) = self.modem {
                    session.set_modem_rate(Some(told), at);
                }
                session.ask();
                self.last_session += 1;
                self.session = Some((self.last_session, session));
                tracing::info!(hub = %from, ?round_trip, "the link is up");
            }
        }
    }

    /// Ends the flows of a session that cannot go on.
    fn drop_session(&mut self) {
        if let Some((id, mut session)) = self.session.take() {
            self.remembered = session.remembered().or(self.remembered);
            session.end_all_flows();
            while let Some(event) = session.next_event() {
                self.events.push_back((id, event));
            }
        }
    }
}

impl Core for AirCore {
    type Session = Session;

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration) {
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
                    session.receive(&header, &self.plaintext, from, (datagram.len(), ce), now);
                }
                if session.is_closed() {
                    tracing::info!(hub = %from, "the session was closed");
                    self.drop_session();
                    self.session_instance = 0;
                }
            }
            _ => {}
        }
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        // Handshakes are the network's own.
        (self.ect, self.dscp) = (false, Dscp::EF);
        if self.next_attempt <= now && self.wants_handshake(now) {
            self.start_handshake(now, out);
            return Some(self.config.address);
        }
        let (_, session) = self.session.as_mut()?;
        let to = session.transmit(now, out);
        (self.ect, self.dscp) = (to.is_some() && session.is_ect(), session.dscp());
        if to.is_none() && session.is_closed() {
            self.drop_session();
            self.session_instance = 0;
        }
        to
    }

    fn is_ect(&self) -> bool {
        self.ect
    }

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn too_large(&mut self, to: SocketAddr, bytes: usize, now: Duration) -> bool {
        if let Some((_, session)) = self.session.as_mut().filter(|(_, it)| it.address() == to) {
            session.too_large(bytes, now);
        }
        true
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        let attempt = if self.wants_handshake(now) { Some(self.next_attempt) } else { None };
        let session = self.session.as_mut().map(|(_, session)| {
            let worn = Some(session.keys_worn_at()).filter(|at| *at > now);
            session.next_timeout(now).min(worn.unwrap_or(Duration::MAX))
        });
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
