//! The ground's end: many aircraft on one port, each identified by its key.
//!
//! The [`Responder`] decides which packets are genuine; this module has the sessions, and what each
//! may do. The [`Agenda`] knows the sessions that need attention, so that nothing here visits all
//! of them for a packet.

mod dispatch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use bentpipe_units::BitRate;
use rand::{RngCore, SeedableRng};

use super::agenda::Agenda;
use super::aircraft::{Aircraft, Entry, params_of};
use super::bottlenecks::Bottlenecks;
use super::budget::{Budget, Shortage};
use super::responder::{Confirmed, Packet, Responder};
use super::shards::{Common, Shard, shards_of_aircraft};
use super::sharing::{Sessions, Sharing};
use super::{Core, FlowsRefused, Refused, SessionId, ShardMessage};
use crate::Dscp;
use crate::crypto::{InitPayload, PROLOGUE, Rng};
use crate::flow::FlowEvent;
use crate::key::{PublicKey, SecretKey};
use crate::lease::{BeamError, ModemRate};
use crate::session::{CONFIGURED_PATH, PeerParams, Session};
use crate::wire::header::DataHeader;

/// Identity of the hub, and of its aircraft.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The hub's key.
    pub secret: SecretKey,
    /// The aircraft that the hub serves.
    pub aircraft: Vec<Aircraft>,
}

/// A session, and the addresses of its paths.
pub(super) struct Member {
    pub(super) key: PublicKey,
    pub(super) session: Box<Session>,
    addresses: Vec<SocketAddr>,
    /// Bytes that it held beyond its reserves when last counted.
    pub(super) held: u64,
}

/// The ground's end of the link, or one shard of it.
pub struct HubCore {
    shard: Shard,
    /// Messages for other shards, besides the responder's: one for each in a second.
    messages: VecDeque<(usize, ShardMessage)>,
    /// Packets that tell aircraft that they are not served any more: three for each.
    pub(super) farewells: VecDeque<(Vec<u8>, SocketAddr)>,
    pub(super) responder: Responder,
    pub(super) aircraft: BTreeMap<PublicKey, Entry>,
    pub(super) sessions: BTreeMap<SessionId, Member>,
    /// Sessions that need attention.
    agenda: Agenda,
    /// Sessions at each address; several aircraft may share one behind a NAT.
    addresses: BTreeMap<SocketAddr, BTreeSet<SessionId>>,
    /// Number of times that a session was asked for a packet, an event or a timer.
    visits: u64,
    /// Session after which the search for the next packet begins, so that all take turns.
    turn: SessionId,
    events: VecDeque<(SessionId, FlowEvent)>,
    plaintext: Vec<u8>,
    /// ECN mark of the last datagram: `true` for ECT(0) …
    ect: bool,
    /// … and its DSCP.
    dscp: Dscp,
    pub(super) sharing: Sharing,
    bottlenecks: Bottlenecks,
    pub(super) budget: Budget,
    /// Refusals for memory.
    pub(super) shortage: Shortage,
    /// Flows refused by sessions since they were last taken.
    pub(super) flows_refused: Option<FlowsRefused>,
    /// Session that a flow's owner last accessed.
    reached: SessionId,
    rng: Rng,
}

impl HubCore {
    /// Creates an end that waits for calls. `seed` must be unpredictable outside simulations.
    pub fn new(config: HubConfig, seed: [u8; 32]) -> Self {
        let common = Common::of(&config.secret.public());
        Self::shard(config, (Shard::ONLY, &common), seed)
    }

    /// Creates a hub in as many shards as there are seeds. A packet is for the shard of
    /// [`shard_of_packet`](super::shard_of_packet), and messages between shards have to be carried:
    /// see [`Core::next_message`].
    pub fn shards(config: &HubConfig, seeds: impl ExactSizeIterator<Item = [u8; 32]>) -> Vec<Self> {
        let (count, common) = (seeds.len(), Common::of(&config.secret.public()));
        let shard =
            |(number, seed)| Self::shard(config.clone(), (Shard { number, count }, &common), seed);
        seeds.enumerate().map(shard).collect()
    }

    fn shard(config: HubConfig, (shard, common): (Shard, &Common), seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        let HubConfig { secret, mut aircraft } = config;
        let keys = aircraft.iter().map(|aircraft| aircraft.key);
        let shards: BTreeMap<_, _> = shards_of_aircraft(keys, shard.count).collect();
        aircraft.retain(|aircraft| shards.get(&aircraft.key) == Some(&shard.number));
        let responder = Responder::sharded(PROLOGUE, secret, shards, (shard, common), &mut rng);
        let entry = |aircraft: Aircraft| {
            let Aircraft { key, settings, highest_class } = aircraft;
            (key, Entry::new(settings, highest_class))
        };
        Self {
            shard,
            messages: VecDeque::new(),
            farewells: VecDeque::new(),
            responder,
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
            bottlenecks: Bottlenecks::default(),
            budget: Budget::new(common.memory.clone()),
            shortage: Shortage::default(),
            flows_refused: None,
            reached: 0,
            rng,
        }
    }

    /// Every session, with its aircraft's key.
    pub fn sessions(&mut self) -> impl Iterator<Item = (SessionId, PublicKey, &mut Session)> {
        let Self { sessions, agenda, sharing, .. } = self;
        sessions.iter_mut().map(|(id, member)| {
            agenda.touch(*id);
            sharing.touch(*id);
            (*id, member.key, &mut *member.session)
        })
    }

    /// Number of times that a session was asked for a packet, an event or a timer: the cost of
    /// packets and of passing time besides the packets themselves.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// Number of curve operations for handshakes so far: the largest cost of a flood.
    pub fn curve_operations(&self) -> u64 {
        self.responder.curve_operations()
    }

    /// Takes the counts of refusals since the last call: strangers' packets and handshakes of all
    /// shards; memory and flows of this one.
    pub fn take_refused(&mut self) -> Refused {
        let flows = self.flows_refused.take();
        Refused { memory: self.take_shortage(), flows, ..self.responder.take_refused() }
    }

    /// Address of each aircraft's last effective handshake, for the next process, from all shards.
    pub fn homes(&self) -> Vec<(PublicKey, IpAddr)> {
        self.responder.homes()
    }

    /// Sets an aircraft's address in the previous process: handshakes from there go before
    /// strangers'.
    pub fn remember_home(&mut self, aircraft: &PublicKey, home: IpAddr) {
        self.responder.remember_home(aircraft, home);
    }

    /// Sets the rates of a beam that the aircraft share, towards them and from them; `None` for a
    /// direction without one. To be called again when the rates change.
    ///
    /// Fails if a direction begins to be shared and the aircraft's floors do not fit into it, or if
    /// the hub has several shards. If the beam shrinks below the floors later, all are cut in
    /// proportion.
    pub fn set_beam(
        &mut self,
        forward: Option<BitRate>,
        back: Option<BitRate>,
        now: Duration,
    ) -> Result<(), BeamError> {
        if self.shard != Shard::ONLY && (forward.is_some() || back.is_some()) {
            return Err(BeamError::Shards(self.shard.count));
        }
        let shares = self.aircraft.iter().map(|(key, entry)| (*key, entry.settings.share));
        self.sharing.set_rates(forward, back, shares, now)?;
        self.share_out(now);
        Ok(())
    }

    /// Sets the rate that the modem of the first path towards an aircraft reports; `None` if nothing is known of it.
    /// Counts for [`crate::MODEM_LEASE`] and has to be repeated before that.
    pub fn set_modem_rate(
        &mut self,
        aircraft: &PublicKey,
        reported: Option<ModemRate>,
        now: Duration,
    ) {
        let Some(entry) = self.aircraft.get_mut(aircraft) else { return };
        entry.modem = reported.map(|reported| (reported, now));
        if let Some(session) = self.session_of(aircraft) {
            session.set_modem_rate(CONFIGURED_PATH, reported, now);
        }
    }

    /// Divides the beam by the aircraft's present demands.
    pub(super) fn share_out(&mut self, now: Duration) {
        let Self { sharing, sessions, agenda, responder, visits, .. } = self;
        let mut roster = Roster { sessions, agenda, responder, visits };
        sharing.divide(&mut roster, now);
    }

    /// Divides what sessions with learned rates found among those that share a bottleneck.
    fn compare_queues(&mut self, now: Duration) {
        let Self { bottlenecks, sessions, agenda, responder, visits, .. } = self;
        bottlenecks.compare(&mut Roster { sessions, agenda, responder, visits }, now);
    }

    /// Notes that anything may have changed in the session.
    fn touch(&mut self, id: SessionId) {
        self.agenda.touch(id);
        self.sharing.touch(id);
    }

    /// Aircraft of a session.
    pub fn aircraft_of(&self, id: SessionId) -> Option<PublicKey> {
        self.sessions.get(&id).map(|member| member.key)
    }

    /// Counter of the handshake of an aircraft's session: later sessions of the aircraft, at any hub,
    /// have higher ones.
    pub fn counter_of(&self, aircraft: &PublicKey) -> Option<u64> {
        self.responder.counter_of(aircraft)
    }

    /// The aircraft's present session.
    pub(super) fn session_of(&mut self, aircraft: &PublicKey) -> Option<&mut Session> {
        let id = self.responder.session_of(aircraft)?;
        self.session(id)
    }

    fn take_init(&mut self, message: &[u8], from: SocketAddr, now: Duration) {
        let terms =
            |key: &PublicKey, payload: &InitPayload| params_of(&self.aircraft, key, payload);
        self.responder.take_init(message, from, now, &mut self.rng, terms);
        self.report_used_counter(from);
    }

    fn report_used_counter(&mut self, from: SocketAddr) {
        if let Some(key) = self.responder.take_used_counter() {
            let aircraft = self.aircraft.get(&key).map(|entry| entry.settings.peer_label(&key));
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
        let opened = match self.responder.take_packet(&header, sealed, &mut plaintext) {
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

    /// Handles a session's decrypted packet of `bytes`.
    fn receive(
        &mut self,
        id: SessionId,
        (header, plaintext, bytes): (&DataHeader, &[u8], usize),
        from: SocketAddr,
        ce: bool,
        now: Duration,
    ) {
        self.touch(id);
        let Some(Member { key, session, addresses, .. }) = self.sessions.get_mut(&id) else {
            return;
        };
        session.receive(header, plaintext, from, (bytes, ce), now);
        let key = *key;
        let moved = !session.addresses().eq(addresses.iter().copied());
        let is: Vec<_> = if moved { session.addresses().collect() } else { Vec::new() };
        let was = if moved { std::mem::replace(addresses, is.clone()) } else { Vec::new() };
        let (demand, drains) = (session.take_demand(), session.take_drain());
        let closed = session.is_closed();
        was.into_iter().for_each(|address| self.leave_address(address, id));
        for address in is {
            self.addresses.entry(address).or_default().insert(id);
        }
        if drains {
            self.drain_siblings(id, now);
        }
        if let Some(demand) = demand {
            let name = self.aircraft.get(&key).map(|entry| entry.settings.peer_label(&key));
            self.sharing.asked(key, name.unwrap_or(&key), &demand, now);
        }
        if closed {
            self.drop_session(id);
        }
    }

    /// Lets the other sessions through the same bottleneck drain its queue too.
    fn drain_siblings(&mut self, id: SessionId, now: Duration) {
        for other in self.bottlenecks.siblings(id) {
            if let Some(Member { session, .. }) = self.sessions.get_mut(other) {
                session.drain(now);
                self.agenda.touch(*other);
            }
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

    /// Puts new keys into effect, for the present session or a new one.
    fn confirm(&mut self, confirmed: Confirmed, now: Duration) -> SessionId {
        let Confirmed { aircraft: key, address, payload, keys, session: id, .. } = confirmed;
        if let Some(old) = confirmed.ends {
            self.end_session(old);
        }
        let Some(entry) = self.aircraft.get(&key) else { return id };
        let terms = PeerParams {
            rate: BitRate::from_bps(payload.rate_bps),
            reserve_bytes: payload.reserve_bytes,
            max_flows: entry.settings.max_flows,
            max_paths: payload.max_paths,
        };
        if confirmed.begins {
            let (settings, prior) =
                (entry.settings.clone(), entry.remembered.at(Some(address.ip())));
            let mut seed = [0; 32];
            self.rng.fill_bytes(&mut seed);
            let rng = Rng::from_seed(seed);
            let aircraft = settings.peer_label(&key).to_string();
            let at = (address, payload.path);
            let mut session = Session::new(settings, false, terms, keys, at, prior, now, rng);
            session.limit_class(entry.highest_class);
            session.set_lending(self.budget.lending(0));
            if let Some((reported, at)) = entry.modem {
                session.set_modem_rate(CONFIGURED_PATH, Some(reported), at);
            }
            self.sharing.joined(key, id);
            let session = Box::new(session);
            self.sessions.insert(id, Member { key, session, addresses: vec![address], held: 0 });
            self.addresses.entry(address).or_default().insert(id);
            self.touch(id);
            // The session gets its part of the beam before its first packet is sent.
            self.share_out(now);
            tracing::info!(aircraft, %key, from = %address, "an aircraft is here");
        } else if let Some(session) = self.session(id) {
            session.rekey(keys, terms, now);
        }
        if let Some(Member { session, .. }) = self.sessions.get(&id) {
            self.responder.keep_indices(&key, session.indices());
        }
        id
    }

    /// Returns the next datagram of the first of these sessions that has one. Closed sessions are
    /// dropped on the way.
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
                let learns = session.learns_rate(now);
                self.touch(id);
                self.sharing.sent(now);
                self.bottlenecks.sent(id, learns, now);
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

    /// Ends a session's flows and drops it, except for its measurements of the path.
    fn end_session(&mut self, id: SessionId) {
        if let Some(Member { key, mut session, addresses, held }) = self.sessions.remove(&id) {
            self.budget.settle(held, 0);
            self.agenda.forget(id);
            self.sharing.left(&key, id);
            self.bottlenecks.left(id);
            addresses.into_iter().for_each(|address| self.leave_address(address, id));
            if let Some(entry) = self.aircraft.get_mut(&key) {
                if let Some(remembered) = session.remembered() {
                    entry.remembered.store(Some(session.address().ip()), remembered);
                }
                if let Some(next) = entry.next.take() {
                    entry.settings = *next;
                }
            }
            session.end_all_flows();
            while let Some(event) = session.next_event() {
                self.events.push_back((id, event));
            }
        }
    }

    /// Ends the session of an aircraft after too long an outage.
    fn drop_vanished(&mut self, id: SessionId) {
        let Some(key) = self.aircraft_of(id) else { return };
        if let Some(Entry { settings, .. }) = self.aircraft.get(&key) {
            let silent = settings.session_lifetime;
            tracing::info!(aircraft = %settings.peer_label(&key), ?silent, "an aircraft has vanished");
        }
        self.drop_session(id);
    }

    pub(super) fn drop_session(&mut self, id: SessionId) {
        let Some(key) = self.aircraft_of(id) else { return };
        if let Some(entry) = self.aircraft.get(&key) {
            tracing::info!(aircraft = %entry.settings.peer_label(&key), "the session is over");
        }
        self.end_session(id);
        self.responder.forget_session(&key, id);
    }
}

/// The sessions, for the division of a beam.
struct Roster<'a> {
    sessions: &'a mut BTreeMap<SessionId, Member>,
    agenda: &'a mut Agenda,
    responder: &'a Responder,
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
        self.responder.session_of(aircraft)
    }
}
