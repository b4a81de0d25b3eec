//! The ground's end: many aircraft on one port, each known by its key.
//!
//! Who may speak is decided at the [`Reception`]; here are the sessions, and what each may do.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use bentpipe_units::BitRate;
use rand::{RngCore, SeedableRng};

use super::reception::{Confirmed, Packet, Reception, Terms};
use super::sharing::Sharing;
use super::{Core, SessionId};
use crate::crypto::{PROLOGUE, Rng};
use crate::flow::FlowEvent;
use crate::key::{PublicKey, SecretKey};
use crate::lease::{BeamError, ModemRate};
use crate::memory::Remembered;
use crate::session::{PeerTerms, Session};
use crate::settings::Settings;
use crate::wire::header::{DATA, DataHeader, INIT};
use crate::{Class, Dscp};

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
    /// What was learned of the path to it by the session before.
    remembered: Option<Remembered>,
    /// What the modem towards the aircraft last told, and when.
    modem: Option<(ModemRate, Duration)>,
}

/// The ground's end of the link.
pub struct HubCore {
    pub(super) reception: Reception,
    pub(super) aircraft: BTreeMap<PublicKey, Entry>,
    pub(super) sessions: BTreeMap<SessionId, (PublicKey, Session)>,
    /// The session after which the next packet is looked for, so that all take turns.
    turn: SessionId,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    /// The datagram given last leaves as ECT(0) …
    ect: bool,
    /// … and is marked so.
    dscp: Dscp,
    sharing: Sharing,
    rng: Rng,
}

impl HubCore {
    /// An end that waits. `seed` must be unpredictable outside simulations.
    pub fn new(config: HubConfig, seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        let HubConfig { secret, aircraft } = config;
        let keys = aircraft.iter().map(|aircraft| aircraft.key);
        let reception = Reception::new(PROLOGUE, secret, keys, &mut rng);
        let entry = |aircraft: Aircraft| {
            let Aircraft { key, settings, highest_class } = aircraft;
            let entry = Entry { settings, highest_class, remembered: None, modem: None };
            (key, entry)
        };
        Self {
            reception,
            aircraft: aircraft.into_iter().map(entry).collect(),
            sessions: BTreeMap::new(),
            turn: 0,
            events: VecDeque::new(),
            plaintext: Vec::new(),
            ect: false,
            dscp: Dscp::EF,
            sharing: Sharing::default(),
            rng,
        }
    }

    /// Every session, with the key of its aircraft.
    pub fn sessions(&mut self) -> impl Iterator<Item = (SessionId, PublicKey, &mut Session)> {
        self.sessions.iter_mut().map(|(id, (key, session))| (*id, *key, session))
    }

    /// How many curve operations handshakes have cost so far: what a flood of them costs most.
    pub fn curve_operations(&self) -> u64 {
        self.reception.curve_operations()
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
        if let Some(session) = self.session_of(aircraft) {
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

    /// The session of an aircraft that goes on.
    pub(super) fn session_of(&mut self, aircraft: &PublicKey) -> Option<&mut Session> {
        let id = self.reception.session_of(aircraft)?;
        self.sessions.get_mut(&id).map(|(_, session)| session)
    }

    fn take_init(&mut self, message: &[u8], from: SocketAddr, now: Duration) {
        let terms = |key: &PublicKey, _: &_| {
            let Entry { settings, .. } = self.aircraft.get(key)?;
            Some(Terms {
                rate_bps: settings.rate.bps(),
                reserve_bytes: settings.flow_reserve.bytes() as u32,
                max_flows: settings.max_flows,
            })
        };
        self.reception.take_init(message, from, now, &mut self.rng, terms);
        if let Some(key) = self.reception.take_used_counter() {
            let aircraft = self.aircraft.get(&key).map(|entry| entry.settings.called(&key));
            tracing::warn!(
                aircraft = %aircraft.unwrap_or(&key), %from,
                "an aircraft calls with a handshake counter that was used, and is not answered: do \
                 two gateways have its key, was its state file restored, or does somebody replay it?"
            );
        }
    }

    fn take_data(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration) {
        let Ok((header, sealed)) = DataHeader::parse(datagram) else { return };
        let mut plaintext = std::mem::take(&mut self.plaintext);
        let opened = match self.reception.take_packet(&header, sealed, &mut plaintext) {
            Some(Packet::First(confirmed)) => Some(self.confirm(*confirmed, now)),
            Some(Packet::Of(id)) => Some(id).filter(|id| {
                let session = self.sessions.get_mut(id);
                session.is_some_and(|(_, it)| it.unseal(&header, sealed, &mut plaintext))
            }),
            None => None,
        };
        if let Some(id) = opened
            && let Some((key, session)) = self.sessions.get_mut(&id)
        {
            session.receive(&header, &plaintext, from, (datagram.len(), ce), now);
            if let Some(demand) = session.take_demand() {
                let key = *key;
                let name = self.aircraft.get(&key).map(|entry| entry.settings.called(&key));
                self.sharing.asked(key, name.unwrap_or(&key), &demand, now);
            }
            if session.is_closed() {
                self.drop_session(id);
            }
        }
        self.plaintext = plaintext;
    }

    /// New keys take effect, for the session that goes on or for one that begins.
    fn confirm(&mut self, confirmed: Confirmed, now: Duration) -> SessionId {
        let Confirmed { aircraft: key, address, payload, keys, session: id, .. } = confirmed;
        if let Some(old) = confirmed.ends {
            self.end_session(old);
        }
        let Some(entry) = self.aircraft.get(&key) else { return id };
        let terms = PeerTerms {
            rate: BitRate::from_bps(payload.rate_bps),
            reserve_bytes: payload.reserve_bytes,
            max_flows: entry.settings.max_flows,
        };
        if confirmed.begins {
            let (settings, prior) = (entry.settings.clone(), entry.remembered);
            let mut seed = [0; 32];
            self.rng.fill_bytes(&mut seed);
            let rng = Rng::from_seed(seed);
            let aircraft = settings.called(&key).to_string();
            let mut session = Session::new(settings, false, terms, keys, address, prior, now, rng);
            session.limit_class(entry.highest_class);
            if let Some((told, at)) = entry.modem {
                session.set_modem_rate(Some(told), at);
            }
            self.sharing.joined(key);
            self.sessions.insert(id, (key, session));
            // It has its part of the beam before its first packet leaves.
            self.share_out(now);
            tracing::info!(aircraft, %key, from = %address, "an aircraft is here");
        } else if let Some((_, session)) = self.sessions.get_mut(&id) {
            session.rekey(keys, terms, now);
        }
        if let Some((_, session)) = self.sessions.get(&id) {
            self.reception.keep_indices(&key, session.indices());
        }
        id
    }

    /// The next datagram of the first of these sessions that has one. Those that have said goodbye
    /// are dropped on the way.
    fn transmit_of(
        &mut self,
        mut ids: RangeInclusive<SessionId>,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        loop {
            let closed = 'look: {
                for (id, (_, session)) in self.sessions.range_mut(ids.clone()) {
                    if let Some(to) = session.transmit(now, out) {
                        self.turn = *id;
                        (self.ect, self.dscp) = (session.is_ect(), session.dscp());
                        self.sharing.sent(now);
                        return Some(to);
                    }
                    if session.is_closed() {
                        break 'look *id;
                    }
                }
                return None;
            };
            self.drop_session(closed);
            ids = closed..=*ids.end();
        }
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
        if let Some(entry) = self.aircraft.get(&key) {
            tracing::info!(aircraft = %entry.settings.called(&key), "the session is over");
        }
        self.end_session(id);
        self.reception.forget_session(&key, id);
    }
}

impl Core for HubCore {
    type Session = Session;

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration) {
        match datagram.first() {
            Some(&INIT) => self.take_init(datagram, from, now),
            Some(first) if first & 0xf0 == DATA => self.take_data(datagram, from, ce, now),
            _ => {}
        }
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        // Handshakes are the network's own.
        (self.ect, self.dscp) = (false, Dscp::EF);
        if let Some((reply, to)) = self.reception.next_reply() {
            out.extend_from_slice(&reply);
            return Some(to);
        }
        // Those behind the one whose turn was last, then from the first on.
        let last = self.turn;
        self.transmit_of(last.saturating_add(1)..=SessionId::MAX, now, out)
            .or_else(|| self.transmit_of(0..=last, now, out))
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
        self.reception.sessions_begun()
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
