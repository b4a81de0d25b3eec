//! The ground's end: many aircraft on one port, each known by its key.
//!
//! The [`Reception`] decides who may speak; here are the sessions, and what each may do. The
//! [`Agenda`] knows the sessions that need attention: nothing here walks over all of them while
//! packets come and go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use bentpipe_units::BitRate;
use rand::{RngCore, SeedableRng};

use super::agenda::Agenda;
use super::budget::Budget;
use super::reception::{Confirmed, Packet, Reception, Terms};
use super::sharing::{Sessions, Sharing};
use super::{Core, Filter, SessionId};
use crate::crypto::{PROLOGUE, Rng};
use crate::flow::FlowEvent;
use crate::key::{PublicKey, SecretKey};
use crate::lease::{BeamError, ModemRate};
use crate::memory::Remembered;
use crate::session::{PeerTerms, Session};
use crate::settings::Settings;
use crate::wire::header::{DATA, DataHeader, INIT};
use crate::{Class, Dscp};

/// Our identity, and those of the aircraft we serve.
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
    /// Knowledge of the path to it from the session before.
    remembered: Option<Remembered>,
    /// Last report of the modem towards the aircraft, and its time.
    modem: Option<(ModemRate, Duration)>,
}

/// A session, and where its packets go as the hub last saw.
pub(super) struct Member {
    pub(super) key: PublicKey,
    pub(super) session: Box<Session>,
    address: SocketAddr,
    /// Bytes that it held when it was looked at last.
    pub(super) held: u64,
}

/// The ground's end of the link.
pub struct HubCore {
    pub(super) reception: Reception,
    pub(super) aircraft: BTreeMap<PublicKey, Entry>,
    pub(super) sessions: BTreeMap<SessionId, Member>,
    /// The sessions that need attention.
    agenda: Agenda,
    /// The sessions at each address; several aircraft may share one behind a NAT.
    addresses: BTreeMap<SocketAddr, BTreeSet<SessionId>>,
    /// Times that a session was asked for a packet, an event or a timer.
    visits: u64,
    /// The session after which the next packet is looked for, so that all take turns.
    turn: SessionId,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    /// The datagram given last leaves as ECT(0) …
    ect: bool,
    /// … and is marked so.
    dscp: Dscp,
    sharing: Sharing,
    pub(super) budget: Budget,
    /// The session that its flows' owners reached into last.
    reached: SessionId,
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
            agenda: Agenda::default(),
            addresses: BTreeMap::new(),
            visits: 0,
            turn: 0,
            events: VecDeque::new(),
            plaintext: Vec::new(),
            ect: false,
            dscp: Dscp::EF,
            sharing: Sharing::default(),
            budget: Budget::default(),
            reached: 0,
            rng,
        }
    }

    /// Every session, with the key of its aircraft.
    pub fn sessions(&mut self) -> impl Iterator<Item = (SessionId, PublicKey, &mut Session)> {
        let Self { sessions, agenda, sharing, .. } = self;
        sessions.iter_mut().map(|(id, member)| {
            agenda.touch(*id);
            sharing.touch(*id);
            (*id, member.key, &mut *member.session)
        })
    }

    /// Times that a session was asked for a packet, an event or a timer so far. This is the cost of
    /// packets, and of time that passes, beside the packets themselves.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// Number of curve operations for handshakes so far: the highest cost of a flood of them.
    pub fn curve_operations(&self) -> u64 {
        self.reception.curve_operations()
    }

    /// The address from which each aircraft's last handshake came that took effect, for the process after
    /// this one.
    pub fn homes(&self) -> impl Iterator<Item = (&PublicKey, IpAddr)> {
        self.reception.homes()
    }

    /// Takes the address that an aircraft had in the process before this one: from there it goes before
    /// strangers.
    pub fn remember_home(&mut self, aircraft: &PublicKey, home: IpAddr) {
        self.reception.remember_home(aircraft, home);
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
        let Self { sharing, sessions, agenda, reception, visits, .. } = self;
        let mut roster = Roster { sessions, agenda, reception, visits };
        sharing.divide(&mut roster, now);
    }

    /// Anything may have changed in the session.
    fn touch(&mut self, id: SessionId) {
        self.agenda.touch(id);
        self.sharing.touch(id);
    }

    /// Aircraft of a session.
    pub fn aircraft_of(&self, id: SessionId) -> Option<PublicKey> {
        self.sessions.get(&id).map(|member| member.key)
    }

    /// The session of an aircraft that goes on.
    pub(super) fn session_of(&mut self, aircraft: &PublicKey) -> Option<&mut Session> {
        let id = self.reception.session_of(aircraft)?;
        self.session(id)
    }

    fn take_init(&mut self, message: &[u8], from: SocketAddr, now: Duration) {
        let terms = |key: &PublicKey, _: &_| terms_of(&self.aircraft, key);
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
                let member = self.sessions.get_mut(id);
                member.is_some_and(|it| it.session.unseal(&header, sealed, &mut plaintext))
            }),
            None => None,
        };
        if let Some(id) = opened {
            let came = (&header, &plaintext[..], datagram.len());
            self.receive(id, came, from, ce, now);
        }
        self.plaintext = plaintext;
    }

    /// A session's packet of so many bytes was opened.
    fn receive(
        &mut self,
        id: SessionId,
        (header, plaintext, bytes): (&DataHeader, &[u8], usize),
        from: SocketAddr,
        ce: bool,
        now: Duration,
    ) {
        self.touch(id);
        let Some(Member { key, session, address, .. }) = self.sessions.get_mut(&id) else { return };
        session.receive(header, plaintext, from, (bytes, ce), now);
        let (key, was, is) = (*key, *address, session.address());
        *address = is;
        let (demand, closed) = (session.take_demand(), session.is_closed());
        if was != is {
            self.leave_address(was, id);
            self.addresses.entry(is).or_default().insert(id);
        }
        if let Some(demand) = demand {
            let name = self.aircraft.get(&key).map(|entry| entry.settings.called(&key));
            self.sharing.asked(key, name.unwrap_or(&key), &demand, now);
        }
        if closed {
            self.drop_session(id);
        }
    }

    fn leave_address(&mut self, address: SocketAddr, id: SessionId) {
        if let Some(ids) = self.addresses.get_mut(&address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.addresses.remove(&address);
            }
        }
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
            session.heed(self.budget.pressure());
            if let Some((told, at)) = entry.modem {
                session.set_modem_rate(Some(told), at);
            }
            self.sharing.joined(key, id);
            let session = Box::new(session);
            self.sessions.insert(id, Member { key, session, address, held: 0 });
            self.addresses.entry(address).or_default().insert(id);
            self.touch(id);
            // It has its part of the beam before its first packet leaves.
            self.share_out(now);
            tracing::info!(aircraft, %key, from = %address, "an aircraft is here");
        } else if let Some(session) = self.session(id) {
            session.rekey(keys, terms, now);
        }
        if let Some(Member { session, .. }) = self.sessions.get(&id) {
            self.reception.keep_indices(&key, session.indices());
        }
        id
    }

    /// The next datagram of the first of these sessions that has one. Those that have said goodbye
    /// are dropped on the way.
    fn transmit_of(
        &mut self,
        ids: RangeInclusive<SessionId>,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        while let Some(id) = self.agenda.next_ready(ids.clone()) {
            let Some(Member { session, .. }) = self.sessions.get_mut(&id) else {
                self.agenda.forget(id);
                continue;
            };
            self.visits += 1;
            if let Some(to) = session.transmit(now, out) {
                self.turn = id;
                (self.ect, self.dscp) = (session.is_ect(), session.dscp());
                self.touch(id);
                self.sharing.sent(now);
                return Some(to);
            }
            if session.is_closed() {
                self.drop_session(id);
            } else {
                self.agenda.had_no_packet(id);
            }
        }
        None
    }

    /// Ends a session's flows and forgets it, but for what it learned of the path.
    fn end_session(&mut self, id: SessionId) {
        if let Some(Member { key, mut session, address, held }) = self.sessions.remove(&id) {
            self.budget.settle(held, 0);
            self.agenda.forget(id);
            self.sharing.left(&key, id);
            self.leave_address(address, id);
            if let Some(entry) = self.aircraft.get_mut(&key) {
                entry.remembered = session.remembered().or(entry.remembered);
            }
            session.end_all_flows();
            while let Some(event) = session.next_event() {
                self.events.push_back((id, event));
            }
        }
    }

    /// Ends the session of an aircraft that was silent for too long.
    fn drop_vanished(&mut self, id: SessionId) {
        let Some(key) = self.aircraft_of(id) else { return };
        if let Some(Entry { settings, .. }) = self.aircraft.get(&key) {
            let silent = settings.session_lifetime;
            tracing::info!(aircraft = %settings.called(&key), ?silent, "an aircraft has vanished");
        }
        self.drop_session(id);
    }

    pub(super) fn drop_session(&mut self, id: SessionId) {
        let Some(key) = self.aircraft_of(id) else { return };
        if let Some(entry) = self.aircraft.get(&key) {
            tracing::info!(aircraft = %entry.settings.called(&key), "the session is over");
        }
        self.end_session(id);
        self.reception.forget_session(&key, id);
    }
}

/// The answer to an aircraft.
fn terms_of(aircraft: &BTreeMap<PublicKey, Entry>, key: &PublicKey) -> Option<Terms> {
    let Entry { settings, .. } = aircraft.get(key)?;
    Some(Terms {
        rate_bps: settings.rate.bps(),
        reserve_bytes: settings.flow_reserve.bytes() as u32,
        max_flows: settings.max_flows,
    })
}

impl Core for HubCore {
    type Session = Session;

    fn filter(&self) -> Option<Filter> {
        Some(self.reception.filter())
    }

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
        for id in self.addresses.get(&to).cloned().unwrap_or_default() {
            if let Some(session) = self.session(id) {
                session.too_large(bytes, now);
            }
        }
        true
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        while let Some(id) = self.agenda.next_untimed() {
            self.settle(id);
            let Some(Member { session, .. }) = self.sessions.get_mut(&id) else { continue };
            self.visits += 1;
            let at = session.next_timeout(now);
            self.agenda.set_timer(id, at);
            if session.is_unpaused(at) {
                self.agenda.ask_again(id);
            }
        }
        let others = [self.sharing.next_timeout(), self.budget.next_timeout()];
        let timers = [self.agenda.next_timer(), self.reception.next_timeout()];
        let timers = timers.into_iter().chain(others);
        timers.flatten().min().unwrap_or(Duration::MAX)
    }

    fn handle_timeout(&mut self, now: Duration) {
        let terms = |key: &PublicKey, _: &_| terms_of(&self.aircraft, key);
        self.reception.handle_timeout(now, &mut self.rng, terms);
        self.agenda.time_passed();
        for id in self.agenda.due(now) {
            self.visits += 1;
            let Some(session) = self.session(id) else { continue };
            session.handle_timeout(now);
            if session.has_vanished(now) {
                self.drop_vanished(id);
            }
        }
        if self.budget.looks(now) {
            self.reclaim(now);
        }
        if self.sharing.next_timeout().is_some_and(|at| at <= now) {
            self.share_out(now);
        }
    }

    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(id) = self.agenda.next_talking() {
            self.visits += 1;
            let member = self.sessions.get_mut(&id);
            match member.and_then(|member| member.session.next_event()) {
                Some(event) => return Some((id, event)),
                None => self.agenda.had_no_event(id),
            }
        }
        None
    }

    fn sessions_begun(&self) -> u64 {
        self.reception.sessions_begun()
    }

    fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        // Writers may fill many sessions before the driver looks.
        if self.reached != id {
            let reached = std::mem::replace(&mut self.reached, id);
            self.settle(reached);
        }
        let Member { session, .. } = self.sessions.get_mut(&id)?;
        self.agenda.touch(id);
        self.sharing.touch(id);
        Some(session)
    }

    fn close(&mut self) {
        self.sessions().for_each(|(_, _, session)| session.close());
    }
}

/// The sessions, as who divides a beam sees them.
struct Roster<'a> {
    sessions: &'a mut BTreeMap<SessionId, Member>,
    agenda: &'a mut Agenda,
    reception: &'a Reception,
    visits: &'a mut u64,
}

impl Sessions for Roster<'_> {
    fn all(&self) -> Vec<SessionId> {
        self.sessions.keys().copied().collect()
    }

    fn get(&mut self, id: SessionId) -> Option<(PublicKey, &mut Session)> {
        let Member { key, session, .. } = self.sessions.get_mut(&id)?;
        *self.visits += 1;
        Some((*key, session))
    }

    fn touch(&mut self, id: SessionId) {
        self.agenda.touch(id);
    }

    fn id_of(&self, aircraft: &PublicKey) -> Option<SessionId> {
        self.reception.session_of(aircraft)
    }
}
