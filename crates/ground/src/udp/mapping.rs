//! External ports. A socket serves either one port of a passenger in one family, or flows of many
//! passengers to different destinations.

mod peer;
mod reader;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_net::descriptors::{descriptor_limit, is_shortage};
use bentpipe_net::ip;
use bentpipe_net::path::{self, Paths};
use bentpipe_net::udp;
use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::raw_socket::{self, ExclusiveDestination, Taken};
use super::shares::{EntryId, Holder, Room, Shares, Usage, Used};
use crate::ports::{Budget, Range};
use crate::sources::Sources;
use bentpipe_config::Idle;
use bentpipe_metering::counters::Counters;
use bentpipe_metering::refusals::{Holding, Limit};
use bentpipe_transport::FlowDatagrams;
use bentpipe_transport::datagram::IcmpError;
use peer::{LastActivity, Peer, Peers};
use reader::Reader;

/// Number of shared ports below which each flow gets a new one.
const MIN_SHARED: usize = 512;

/// Maximum number of random shared ports tried for a flow before another is opened.
const MAX_TRIED: usize = 8;

/// Initial hop limit of our own packets.
const OWN_HOP_LIMIT: u8 = 64;

/// Name of an aircraft, by its key.
pub type AircraftNames = Arc<dyn Fn(&[u8; 32]) -> String + Send + Sync>;

/// MappingKey of an external port or echo identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MappingKey {
    /// Key of the aircraft.
    pub aircraft: [u8; 32],
    /// Number of the passenger.
    pub passenger: u32,
    /// The IP protocol.
    pub protocol: u8,
    /// Port or identifier of the passenger. With 0, every flow gets its own external port.
    pub source: u16,
    /// `true` for an air gateway of ours; a standard client supports only context 0.
    pub is_gateway: bool,
}

/// All external ports.
pub struct Mappings {
    counters: Arc<Counters>,
    paths: Arc<Paths>,
    sources: Sources,
    budget: Budget,
    /// Names of aircraft by their keys, for the log.
    names: AircraftNames,
    table: Mutex<Table>,
    taken: Taken,
    /// Source of unpredictable choices.
    random: RandomState,
}

struct Table {
    /// Mapping of each passenger port, used for all destinations.
    kept: HashMap<Key, Arc<Mapping>>,
    /// Mappings of one passenger each, reusable or not: IPv4, then IPv6.
    own: [Shares<Arc<Mapping>>; 2],
    /// Mappings that flows of any passenger may share, unordered.
    shared: HashMap<Pool, Vec<Arc<Mapping>>>,
    /// Number of random choices so far.
    chosen: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    owner: MappingKey,
    v6: bool,
}

/// Key of the shared mappings of one family and one source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Pool {
    v6: bool,
    source: Option<IpAddr>,
}

struct Mapping {
    socket: Arc<UdpSocket>,
    peers: Peers,
    reader: AbortHandle,
    place: Place,
    /// Cancelled when the mapping is evicted.
    ended: CancellationToken,
}

/// Table in which a mapping is registered.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Mapping of one passenger. It has a key if it is reusable, and an entry if it occupies a UDP
    /// port.
    Own { key: Option<Key>, v6: bool, entry_id: Option<EntryId> },
    /// Shared mapping.
    Shared(Pool),
}

/// Use of an external port by one flow, released when dropped.
pub struct NatBinding {
    mappings: Arc<Mappings>,
    mapping: Arc<Mapping>,
    address: SocketAddr,
    peer: Mutex<Peer>,
    _exclusive: Option<ExclusiveDestination>,
}

impl Mappings {
    /// Creates the table without mappings. `budget` limits passengers' ports on each of the
    /// `sources`.
    pub fn new(
        counters: Arc<Counters>,
        (paths, sources): (Arc<Paths>, Sources),
        budget: Budget,
        names: AircraftNames,
    ) -> Arc<Self> {
        let limit = |v6| budget.own * sources.all(v6).len().max(1);
        let own = [false, true].map(|v6| Shares::new(limit(v6)));
        let table = Table { kept: HashMap::new(), own, shared: HashMap::new(), chosen: 0 };
        let (table, taken, random) = (Mutex::new(table), Taken::default(), RandomState::new());
        Arc::new(Self { counters, paths, sources, budget, names, table, taken, random })
    }

    /// Returns the external port of `owner` for a flow to `address`; it is the same for all
    /// destinations.
    ///
    /// Two flows of one owner to the same destination are possible, because passengers may share a
    /// number. Each then gets its own port. If the protocol has no ports, the second flow fails
    /// with [`io::ErrorKind::AddrInUse`].
    ///
    /// Fails with [`io::ErrorKind::QuotaExceeded`] if the aircraft has used up its share of the
    /// ports.
    pub fn binding(
        self: &Arc<Self>,
        owner: MappingKey,
        address: SocketAddr,
        flow: Arc<dyn FlowDatagrams>,
    ) -> io::Result<NatBinding> {
        let exclusive = self.taken.take(owner.protocol, address.ip()).inspect_err(|_| {
            let newcomer = self.label(owner);
            let who = || Holding { newcomer, held: 1, most: 1, ..Holding::default() };
            self.counters.refusals.refused(Limit::RawDestinations, who);
        })?;
        let peer = Peer::of(flow, owner.is_gateway);
        let key = (owner.source != 0).then_some(Key { owner, v6: address.is_ipv6() });
        let mut table = self.table.lock();
        let known = key.and_then(|key| table.kept.get(&key));
        if let Some(known) = known.filter(|known| known.add(address, &peer)) {
            let mapping = known.clone();
            drop(table);
            return Ok(self.leased(mapping, address, peer, exclusive));
        }
        let key = key.filter(|key| !table.kept.contains_key(key));
        let opened = self.open_own(&mut table, owner, address, key);
        if let Ok((mapping, _)) = &opened {
            mapping.add(address, &peer);
        }
        drop(table);
        let who = || self.holding(owner, address);
        match &opened {
            Ok((_, true)) => self.counters.refusals.evicted(Limit::UdpPorts, who),
            Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                self.counters.refusals.refused(Limit::UdpPorts, who);
            }
            Err(error) => self.count_kernel(error, owner, address),
            _ => {}
        }
        Ok(self.leased(opened?.0, address, peer, exclusive))
    }

    /// Opens a new mapping of `owner`. Also returns whether another mapping was evicted.
    fn open_own(
        &self,
        table: &mut Table,
        owner: MappingKey,
        address: SocketAddr,
        key: Option<Key>,
    ) -> io::Result<(Arc<Mapping>, bool)> {
        let v6 = address.is_ipv6();
        let MappingKey { aircraft, passenger, protocol, .. } = owner;
        let holder = Holder { aircraft, passenger };
        let shares = &mut table.own[usize::from(v6)];
        let has_port = protocol == ip::UDP;
        let freed = match has_port.then(|| shares.room(holder, Instant::now())) {
            None | Some(Room::Free) => None,
            Some(Room::Freed(freed)) => Some(freed),
            Some(Room::None) => return Err(io::ErrorKind::QuotaExceeded.into()),
        };
        let entry_id = has_port.then(|| shares.entry_id(holder));
        if let Some(freed) = &freed {
            table.forget(freed);
            freed.ended.cancel();
        }
        let place = Place::Own { key, v6, entry_id };
        let source = self.sources.of(&aircraft, &(aircraft, passenger), v6);
        let mapping = Arc::new(Mapping::open(protocol, address, source, place, &self.counters)?);
        if let Some(entry_id) = entry_id {
            table.own[usize::from(v6)].add(entry_id, mapping.clone());
        }
        if let Some(key) = key {
            table.kept.insert(key, mapping.clone());
        }
        Ok((mapping, freed.is_some()))
    }

    /// Returns a shared external port for a UDP flow of `owner` to `address`. Other flows use the
    /// port for other destinations. If all shared ports already have a flow to `address`, the flow
    /// gets a port of its own.
    pub fn share(
        self: &Arc<Self>,
        owner: MappingKey,
        address: SocketAddr,
        flow: Arc<dyn FlowDatagrams>,
    ) -> io::Result<NatBinding> {
        let peer = Peer::of(flow.clone(), owner.is_gateway);
        let v6 = address.is_ipv6();
        let who = (owner.aircraft, owner.passenger);
        let pool = Pool { v6, source: self.sources.of(&owner.aircraft, &who, v6) };
        let mut table = self.table.lock();
        let open = table.shared.get(&pool).map_or(0, Vec::len);
        let most = self.budget.shared;
        if open >= MIN_SHARED.min(most)
            && let Some(mapping) = table.choose(pool, &self.random, address, &peer)
        {
            drop(table);
            return Ok(self.leased(mapping, address, peer, None));
        }
        if open >= most {
            drop(table);
            return self.binding(owner, address, flow);
        }
        let place = Place::Shared(pool);
        let mapping = match Mapping::open(ip::UDP, address, pool.source, place, &self.counters) {
            Ok(mapping) => Arc::new(mapping),
            // Other programs on this machine have taken all ports.
            Err(error) => match table.choose(pool, &self.random, address, &peer) {
                Some(mapping) => return Ok(self.leased(mapping, address, peer, None)),
                None => {
                    drop(table);
                    self.count_kernel(&error, owner, address);
                    return Err(error);
                }
            },
        };
        mapping.add(address, &peer);
        table.shared.entry(pool).or_default().push(mapping.clone());
        drop(table);
        Ok(self.leased(mapping, address, peer, None))
    }

    fn leased(
        self: &Arc<Self>,
        mapping: Arc<Mapping>,
        address: SocketAddr,
        peer: Peer,
        exclusive: Option<ExclusiveDestination>,
    ) -> NatBinding {
        let (mappings, peer) = (self.clone(), Mutex::new(peer));
        NatBinding { mappings, mapping, address, peer, _exclusive: exclusive }
    }

    /// Counts a refusal by the kernel, if it has no free port or descriptor.
    fn count_kernel(&self, error: &io::Error, owner: MappingKey, address: SocketAddr) {
        let (limit, most) = match error {
            error if error.kind() == io::ErrorKind::AddrInUse => {
                (Limit::KernelPorts, Range::of_kernel().count())
            }
            error if is_shortage(error) => (Limit::Descriptors, descriptor_limit()),
            _ => return,
        };
        let who = || Holding { most, ..self.holding(owner, address) };
        self.counters.refusals.refused(limit, who);
    }

    /// Label of `owner` in the log.
    fn label(&self, owner: MappingKey) -> String {
        let MappingKey { aircraft, passenger, .. } = owner;
        let name = (self.names)(&aircraft);
        format!("{name} (passenger {passenger})")
    }

    /// Number of ports held by `owner` and by the largest holder, in the family of `address`.
    fn holding(&self, owner: MappingKey, address: SocketAddr) -> Holding {
        let table = self.table.lock();
        let shares = &table.own[usize::from(address.is_ipv6())];
        let (held, most) = shares.total();
        Holding {
            newcomer: self.label(owner),
            holds: shares.held(&owner.aircraft),
            held,
            most,
            largest: shares.largest().map(|(key, count)| ((self.names)(&key), count)),
        }
    }
}

impl Table {
    /// Tries some random shared mappings without a flow to `address`, chooses the one with the
    /// fewest flows, and adds `peer` to it.
    fn choose(
        &mut self,
        pool: Pool,
        random: &RandomState,
        address: SocketAddr,
        peer: &Peer,
    ) -> Option<Arc<Mapping>> {
        let all = self.shared.get(&pool)?;
        let mut best: Option<(usize, &Arc<Mapping>)> = None;
        for _ in 0..MAX_TRIED {
            self.chosen += 1;
            let at = random.hash_one(self.chosen) % all.len().max(1) as u64;
            let Some(mapping) = all.get(at as usize) else { continue };
            let peers = mapping.peers.lock();
            let is_better = best.is_none_or(|(fewest, _)| peers.len() < fewest);
            if is_better && !peers.contains_key(&address) {
                best = Some((peers.len(), mapping));
            }
        }
        let (_, mapping) = best?;
        mapping.add(address, peer).then(|| mapping.clone())
    }

    /// Removes `mapping`, which is unused or evicted.
    fn forget(&mut self, mapping: &Arc<Mapping>) {
        match mapping.place {
            Place::Own { key, v6, entry_id } => {
                if let Some(entry_id) = entry_id {
                    self.own[usize::from(v6)].remove(entry_id);
                }
                let is_it = |known: &Arc<Mapping>| Arc::ptr_eq(known, mapping);
                if let Some(key) = key.filter(|key| self.kept.get(key).is_some_and(is_it)) {
                    self.kept.remove(&key);
                }
            }
            Place::Shared(pool) => {
                let Some(all) = self.shared.get_mut(&pool) else { return };
                if let Some(at) = all.iter().position(|known| Arc::ptr_eq(known, mapping)) {
                    all.swap_remove(at);
                }
            }
        }
    }
}

impl NatBinding {
    /// Sends to the flow's destination; see [`udp::send`].
    pub fn send(&self, payload: &[u8], hop_limit: Option<u8>, traffic_class: u8) -> io::Result<()> {
        let socket = &*self.mapping.socket;
        let send = || udp::send(socket, payload, self.address, hop_limit, traffic_class);
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // The kernel reported an earlier ICMP error instead of sending, so try again.
            Err(_) => send(),
            sent => sent,
        }
    }

    /// Time at which the flow ends if it stays idle.
    pub fn deadline(&self, idle: Idle) -> Instant {
        let peer = self.peer.lock();
        let moved = peer.moved.lock();
        moved.at + idle.of(moved.is_answered)
    }

    /// Records activity.
    pub fn moved(&self) {
        self.peer.lock().moved.lock().at = Instant::now();
    }

    /// Waits until the mapping is evicted.
    pub async fn ended(&self) {
        self.mapping.ended.cancelled().await;
    }

    /// Returns `true` if the flow belongs to an air gateway of ours.
    pub fn is_gateway(&self) -> bool {
        self.peer.lock().is_gateway
    }

    /// Returns `true` if flows of any passenger share the port.
    pub fn is_shared(&self) -> bool {
        matches!(self.mapping.place, Place::Shared(_))
    }

    /// Reports the path MTU to the flow after the kernel rejected an oversized packet (DF is set).
    pub fn too_large(&self) {
        // Without a route there is no MTU to report.
        let Ok(error) = too_big(&self.mappings.paths, self.address) else { return };
        self.peer.lock().explain(error, &self.mappings.counters);
    }

    /// Gives what comes from the destination to `flow` from now on.
    pub fn hand_to(&self, flow: Arc<dyn FlowDatagrams>) {
        let mut peer = self.peer.lock();
        peer.flow = flow;
        self.mapping.peers.lock().insert(self.address, peer.clone());
    }
}

impl Drop for NatBinding {
    fn drop(&mut self) {
        let mut table = self.mappings.table.lock();
        let is_unused = {
            let mut peers = self.mapping.peers.lock();
            peers.remove(&self.address);
            peers.is_empty()
        };
        if is_unused {
            table.forget(&self.mapping);
        }
    }
}

impl Mapping {
    fn open(
        protocol: u8,
        address: SocketAddr,
        source: Option<IpAddr>,
        place: Place,
        counters: &Arc<Counters>,
    ) -> io::Result<Self> {
        let v6 = address.is_ipv6();
        let socket = Arc::new(raw_socket::open(protocol, address, source)?);
        udp::keep_errors(&socket, v6)?;
        udp::tell_headers(&socket, v6)?;
        // RFC 9298 section 3.1: packets must not be fragmented.
        path::dont_fragment(&*socket, v6)?;
        let peers = Peers::default();
        let counters = counters.clone();
        let reader = Reader { protocol, socket: socket.clone(), peers: peers.clone(), counters };
        let reader = tokio::spawn(reader.run()).abort_handle();
        Ok(Self { socket, peers, reader, place, ended: CancellationToken::new() })
    }

    /// Adds `peer`. Returns `false` if another flow uses its address.
    fn add(&self, address: SocketAddr, peer: &Peer) -> bool {
        let mut peers = self.peers.lock();
        let free = !peers.contains_key(&address);
        if free {
            peers.insert(address, peer.clone());
        }
        free
    }
}

impl Used for Arc<Mapping> {
    fn usage(&self) -> Usage {
        let peers = self.peers.lock();
        let usages = peers.values().map(|peer| {
            let LastActivity { at: moved_at, is_answered } = *peer.moved.lock();
            Usage { is_answered, moved_at }
        });
        let both = |a: Usage, b: Usage| Usage {
            is_answered: a.is_answered | b.is_answered,
            moved_at: a.moved_at.max(b.moved_at),
        };
        let unused = || Usage { is_answered: false, moved_at: Instant::now() };
        usages.reduce(both).unwrap_or_else(unused)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Builds the message of a router at our end of the path to `address` that a packet is too big.
fn too_big(paths: &Paths, address: SocketAddr) -> io::Result<IcmpError> {
    let path = paths.towards(address)?;
    let from = path.own_address.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let (kind, code) = if from.is_ipv4() { (3, 4) } else { (2, 0) };
    // RFC 1191 has 16 bits for the MTU.
    let rest = path.mtu_bytes.unwrap_or_default().min(u32::from(u16::MAX)).to_be_bytes();
    Ok(IcmpError { from, kind, code, rest, hop_limit: OWN_HOP_LIMIT, quote: None })
}

#[cfg(test)]
mod tests;
