//! The air's end: one hub, one session, and handshakes until the hub answers.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_flow::{OpenDatagrams, Reach, Target};
use bentpipe_units::BitRate;
use rand::{RngCore, SeedableRng};

use super::initiator::{Answer, Initiator, MAX_ATTEMPT_INTERVAL};
use super::peer_addresses::PeerAddresses;
use super::{Core, Filter, FlowsRefused, Refused, SessionId};
use crate::crypto::{PROLOGUE, Rng};
use crate::flow::FlowEvent;
use crate::key::{PublicKey, SecretKey};
use crate::lease::ModemRate;
use crate::memory::{Attachments, Remembered};
use crate::session::{HEADER_BYTES, OpenError, PeerParams, Session};
use crate::settings::Settings;
use crate::wire::header::{DATA, DataHeader, INIT_BYTES, RESPONSE_BYTES};
use crate::{Class, Dscp};

/// Volume of a handshake: message 1 and its answer, with headers.
const CALL_BYTES: u64 = (INIT_BYTES + RESPONSE_BYTES) as u64 + 2 * HEADER_BYTES;
/// Interval at which the quotas are read if all are used up.
const QUOTA_LOOK: Duration = Duration::from_secs(1);

/// Identity of the air, and of the hub it calls.
#[derive(Debug, Clone)]
pub struct AirConfig {
    /// The air's key.
    pub secret: SecretKey,
    /// The hub's key.
    pub hub: PublicKey,
    /// The hub's address.
    pub address: SocketAddr,
    /// Bounds and timers.
    pub settings: Settings,
    /// First handshake counter: above every one that this key has ever used.
    pub first_counter: u64,
}

/// The air's end of the link.
pub struct AirCore {
    pub(super) config: AirConfig,
    initiator: Initiator,
    addresses: PeerAddresses,
    /// Addresses of the hub that only one path uses.
    path_addresses: BTreeMap<u8, SocketAddr>,
    filter: Filter,
    pub(super) session: Option<(SessionId, Session)>,
    last_session: SessionId,
    /// Measurements of the paths to the hub by previous sessions.
    remembered: Attachments,
    /// Our address, as far as somebody has looked it up.
    own_address: Option<IpAddr>,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    closing: bool,
    /// ECN mark of the last datagram: `true` for ECT(0) …
    ect: bool,
    /// … its DSCP …
    dscp: Dscp,
    /// … and its path.
    sent_on: u8,
    /// Path of the next handshake.
    next_call_on: u8,
    /// Last report of the modem of each path, and its time; kept over sessions.
    modems: BTreeMap<u8, (ModemRate, Duration)>,
    rng: Rng,
}

impl AirCore {
    /// Creates an end that begins to call at its first timeout. `seed` must be unpredictable
    /// outside simulations.
    pub fn new(config: AirConfig, seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        let AirConfig { secret, hub, first_counter, .. } = &config;
        let mut initiator =
            Initiator::new(PROLOGUE, secret.clone(), *hub, *first_counter, &mut rng);
        initiator.set_calls_often(config.settings.calls_often);
        Self {
            initiator,
            addresses: PeerAddresses::new(config.address),
            path_addresses: BTreeMap::new(),
            filter: Filter::of_air(&[config.address]),
            session: None,
            last_session: 0,
            remembered: Attachments::default(),
            own_address: None,
            events: VecDeque::new(),
            plaintext: Vec::new(),
            closing: false,
            ect: false,
            dscp: Dscp::EF,
            sent_on: 0,
            next_call_on: 0,
            modems: BTreeMap::new(),
            rng,
            config,
        }
    }

    /// The session, once the hub has answered.
    pub fn current(&mut self) -> Option<(SessionId, &mut Session)> {
        self.session.as_mut().map(|(id, session)| (*id, session))
    }

    /// Measurements of the path to the hub that are worth storing, even beyond this process.
    pub fn remembered(&self) -> Option<Remembered> {
        let session = self.session.as_ref();
        session.and_then(|(_, session)| session.remembered()).or(self.remembered.latest())
    }

    /// Sets an earlier process's measurements of the path, for the sessions that begin from now on.
    pub fn remember(&mut self, remembered: Remembered) {
        self.remembered.add(remembered);
    }

    /// Sets the address from which packets to the hub are sent, if it is known. A learned rate is
    /// only remembered for sessions from the same network.
    pub fn set_own_address(&mut self, address: Option<IpAddr>) {
        self.own_address = address;
    }

    /// Time of the first handshake without an answer since.
    pub fn unanswered_since(&self) -> Option<Duration> {
        self.initiator.unanswered_since()
    }

    /// Takes the counts of strangers' packets, and of flows that the session's limits refused, since
    /// the last call.
    pub fn take_refused(&mut self) -> Refused {
        let flows = self.session.as_mut().map(|(_, session)| session.take_flow_refusals());
        let flows = flows.filter(|flows| !flows.is_empty());
        let flows = flows.map(|flows| FlowsRefused { session: String::new(), flows });
        Refused { datagrams: self.filter.take_dropped(), flows, ..Refused::default() }
    }

    /// Raises the handshake counter to `first` if that is above, because another gateway with this
    /// key may have used the next ones.
    pub fn raise_counter(&mut self, first: u64) {
        self.initiator.raise_counter(first);
    }

    /// Adds addresses at which the hub may be found; the first few count ([`MAX_PEER_ADDRESSES`]).
    ///
    /// [`MAX_PEER_ADDRESSES`]: super::MAX_PEER_ADDRESSES
    pub fn also_at(&mut self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.addresses.add(addresses);
        self.set_places();
    }

    /// Sets the hub's address on a path. Other paths do not use it.
    pub fn set_path_address(&mut self, path: u8, address: SocketAddr) {
        self.path_addresses.insert(path, address);
        self.set_places();
    }

    fn set_places(&mut self) {
        let of_paths = self.path_addresses.values();
        let all: Vec<SocketAddr> = self.addresses.all().iter().chain(of_paths).copied().collect();
        self.filter.set_places(&all);
    }

    fn is_hub(&self, from: SocketAddr) -> bool {
        self.addresses.has(from) || self.path_addresses.values().any(|of_path| *of_path == from)
    }

    /// Sets the rate that a path's modem reports; `None` if nothing is known of it. Counts for
    /// [`crate::MODEM_LEASE`] and has to be repeated before that.
    pub fn set_modem_rate(&mut self, path: u8, reported: Option<ModemRate>, now: Duration) {
        if path >= self.config.settings.max_paths() {
            return;
        }
        let was_down = self.modems.get(&path).is_some_and(|(last, _)| last.is_down);
        let is_down = reported.is_some_and(|reported| reported.is_down);
        match reported {
            Some(reported) => drop(self.modems.insert(path, (reported, now))),
            None => drop(self.modems.remove(&path)),
        }
        let Some((_, session)) = &mut self.session else { return };
        session.set_modem_rate(path, reported, now);
        match (was_down, is_down) {
            (false, true) => session.path_failed(path, now),
            (true, false) => session.path_returned(path, now),
            _ => {}
        }
    }

    /// Opens a flow to `target`. As many of the `first` bytes as fit are sent with the opening;
    /// returns the flow and their number.
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
                .is_none_or(|(_, session)| session.needs_rekey(now) || session.is_quiet())
    }

    /// Appends message 1. Returns `false` if no path may carry it, because the bytes of all are limited.
    fn start_handshake(&mut self, now: Duration, out: &mut Vec<u8>) -> bool {
        let Some(path) = self.path_of_call() else {
            self.initiator.postpone(now + QUOTA_LOOK);
            return false;
        };
        let settings = &self.config.settings;
        let round_trip = self.session.as_ref().map(|(_, session)| session.round_trip());
        let remembered = self.remembered.latest().filter(|it| it.is_fresh(now)).map(|it| it.rtt);
        let expected = round_trip.or(remembered).unwrap_or(settings.initial_rtt);
        let terms = (settings.announced_rate_bps(), settings.flow_reserve.bytes() as u32);
        let max_paths = settings.max_paths();
        self.sent_on = path;
        // The next call goes on another path: this one may be dead.
        self.next_call_on = (path + 1) % max_paths;
        self.initiator.set_paths(max_paths, path);
        self.initiator.call(terms, expected, now, &mut self.rng, out);
        true
    }

    /// Path of the next handshake, whose quota pays for the answer too.
    fn path_of_call(&self) -> Option<u8> {
        let settings = &self.config.settings;
        let max_paths = settings.max_paths();
        let mut paths = (0..max_paths).map(|further| (self.next_call_on + further) % max_paths);
        paths.find(|path| settings.quota_of(*path).is_none_or(|quota| quota.take(CALL_BYTES)))
    }

    fn install(&mut self, answer: Answer, from: SocketAddr, now: Duration) {
        let Answer { keys, payload, resumes, round_trip, path } = answer;
        let place = self.addresses.answered(from);
        let terms = PeerParams {
            rate: BitRate::from_bps(payload.rate_bps),
            reserve_bytes: payload.reserve_bytes,
            max_flows: payload.max_flows,
            max_paths: payload.max_paths,
        };
        match self.session.as_mut().filter(|_| resumes) {
            Some((_, session)) => {
                session.rekey(keys, terms, now);
                // The sender has the hub's key, and there is a path in both directions.
                if let Some(place) = place {
                    let own = &self.path_addresses;
                    session.paths_moved_to(place, |id| !own.contains_key(&id), now);
                }
            }
            None => {
                self.drop_session();
                let mut seed = [0; 32];
                self.rng.fill_bytes(&mut seed);
                let settings = self.config.settings.clone();
                let rng = Rng::from_seed(seed);
                let prior = self.remembered.at(self.own_address);
                let mut session =
                    Session::new(settings, true, terms, keys, (from, path), prior, now, rng);
                session.on_rtt_sample(round_trip);
                session.ask();
                let common = self.addresses.present();
                for further in 0..self.config.settings.max_paths() {
                    let address = self.path_addresses.get(&further).copied();
                    session.add_path(further, address.unwrap_or(common), now);
                }
                for (path, (reported, at)) in &self.modems {
                    session.set_modem_rate(*path, Some(*reported), *at);
                }
                self.last_session += 1;
                self.session = Some((self.last_session, session));
                tracing::info!(hub = %from, ?round_trip, "the link is up");
            }
        }
    }

    /// Ends the flows of a session that cannot continue.
    fn drop_session(&mut self) {
        if let Some((id, mut session)) = self.session.take() {
            if let Some(remembered) = session.remembered() {
                self.remembered.store(self.own_address, remembered);
            }
            session.end_all_flows();
            while let Some(event) = session.next_event() {
                self.events.push_back((id, event));
            }
        }
    }
}

impl Core for AirCore {
    type Session = Session;

    fn filter(&self) -> Option<Filter> {
        Some(self.filter.clone())
    }

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration) {
        match datagram.first() {
            Some(first) if first & 0xf0 == DATA => {
                let Ok((header, sealed)) = DataHeader::parse(datagram) else { return };
                let Some((_, session)) = &mut self.session else { return };
                if session.unseal(&header, sealed, &mut self.plaintext) {
                    session.receive(&header, &self.plaintext, from, (datagram.len(), ce), now);
                }
                if session.is_closed() {
                    tracing::info!(hub = %from, "the session was closed");
                    self.drop_session();
                    self.initiator.forget_session();
                }
            }
            _ if !self.is_hub(from) => {}
            _ => {
                if let Some(answer) = self.initiator.take(datagram, now) {
                    self.install(answer, from, now);
                }
            }
        }
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        // Handshakes are the network's own.
        (self.ect, self.dscp) = (false, Dscp::EF);
        if self.initiator.next_attempt() <= now
            && self.wants_handshake(now)
            && self.start_handshake(now, out)
        {
            let of_path = self.path_addresses.get(&self.sent_on).copied();
            return Some(of_path.unwrap_or_else(|| self.addresses.call(self.session.is_some())));
        }
        let (_, session) = self.session.as_mut()?;
        let to = session.transmit(now, out);
        (self.ect, self.dscp) = (to.is_some() && session.is_ect(), session.dscp());
        self.sent_on = session.sent_on();
        if to.is_none() && session.is_closed() {
            self.drop_session();
            self.initiator.forget_session();
        }
        to
    }

    fn is_ect(&self) -> bool {
        self.ect
    }

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn path(&self) -> u8 {
        self.sent_on
    }

    fn unsendable(&mut self, path: u8, now: Duration) {
        if let Some((_, session)) = &mut self.session {
            session.path_failed(path, now);
        }
    }

    fn sendable(&mut self, path: u8, now: Duration) {
        if let Some((_, session)) = &mut self.session {
            session.path_returned(path, now);
        }
    }

    fn too_large(&mut self, (to, path): (SocketAddr, u8), bytes: usize, now: Duration) -> bool {
        if let Some((_, session)) = &mut self.session {
            session.too_large(to, |id| id == path, bytes, now);
        }
        true
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        let attempt = self.wants_handshake(now).then(|| self.initiator.next_attempt());
        let session = self.session.as_mut().map(|(_, session)| {
            let worn = Some(session.rekey_at()).filter(|at| *at > now);
            session.next_timeout(now).min(worn.unwrap_or(Duration::MAX))
        });
        attempt.into_iter().chain(session).min().unwrap_or(now + MAX_ATTEMPT_INTERVAL)
    }

    fn next_timer(&mut self, now: Duration) -> &'static str {
        let call = self.wants_handshake(now).then(|| (self.initiator.next_attempt(), "handshake"));
        let session = self.session.as_mut().map(|(_, session)| session.next_timer(now));
        call.into_iter().chain(session).min().map_or("handshake", |(_, name)| name)
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
        match &self.session {
            Some((_, session)) if session.is_quiet() => Reach::Out,
            Some(_) => Reach::Up,
            None => Reach::Down,
        }
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
