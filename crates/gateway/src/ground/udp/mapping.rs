//! External ports: one socket for all that one port of a passenger sends in one family, or for flows of
//! many passengers towards different destinations.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::encoded;
use super::outside::{self, Sole, Taken};
use super::shares::{Holder, Room, Shares, Ticket, Usage, Used};
use crate::counters::Counters;
use crate::far::datagram::{Datagram, IcmpError};
use crate::far::{DatagramError, FarDatagrams};
use crate::ground::ports::Budget;
use crate::ground::sources::Sources;
use crate::net::ip;
use crate::net::path::{self, Paths};
use crate::net::udp::{self, Control, ErrorHeard};
use crate::refusals::{Holding, Limit};

/// Packets and errors taken from one socket before other tasks have their turn.
const MOST_AT_A_TURN: usize = 64;

/// Flows have a port each until so many shared ones are open.
const MIN_SHARED: usize = 512;

/// Shared ports that are tried for a flow, at random, before one more is opened.
const MAX_TRIED: usize = 8;

/// Initial hop limit of our own packets.
const OWN_HOP_LIMIT: u8 = 64;

/// Owner of an external port, or of an identifier of echoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The aircraft's key.
    pub aircraft: [u8; 32],
    /// The passenger's number there.
    pub passenger: u32,
    /// The IP protocol.
    pub protocol: u8,
    /// The passenger's own port, or identifier; with 0 every flow has an external one of its own.
    pub source: u16,
    /// `true` for a gateway of ours; a standard client knows only context 0.
    pub is_gateway: bool,
}

/// All external ports.
pub struct Mappings {
    counters: Arc<Counters>,
    paths: Arc<Paths>,
    sources: Sources,
    budget: Budget,
    /// Aircraft by their keys, for the log.
    names: HashMap<[u8; 32], String>,
    table: Mutex<Table>,
    taken: Taken,
    /// Source of choices that nobody can guess.
    random: RandomState,
}

struct Table {
    /// The mappings that one port of a passenger has, and keeps for all destinations.
    kept: HashMap<Key, Arc<Mapping>>,
    /// The mappings of one passenger each, whether they are kept or not: of IPv4, of IPv6.
    own: [Shares<Arc<Mapping>>; 2],
    /// The mappings that are for anybody, in no order.
    shared: HashMap<Pool, Vec<Arc<Mapping>>>,
    /// Choices made so far.
    chosen: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    owner: Owner,
    v6: bool,
}

/// The shared mappings of one family and one source address.
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
    /// Cancelled when it ends for another's sake.
    ended: CancellationToken,
}

/// Table in which a mapping is noted.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Among those of one passenger: its key if it is kept, and its ticket if it takes a port of UDP.
    Own { key: Option<Key>, v6: bool, ticket: Option<Ticket> },
    /// Among those that are for anybody.
    Shared(Pool),
}

type Peers = Arc<Mutex<HashMap<SocketAddr, Peer>>>;

/// A destination, and the flow towards it.
#[derive(Clone)]
struct Peer {
    flow: Arc<dyn FarDatagrams>,
    is_gateway: bool,
    moved: Arc<Mutex<Moved>>,
}

#[derive(Clone, Copy)]
struct Moved {
    /// Time, in either direction.
    at: Instant,
    /// `true` if anything has ever come from the destination.
    is_answered: bool,
}

/// A flow's part of an external port, given back when dropped.
pub struct Lease {
    mappings: Arc<Mappings>,
    mapping: Arc<Mapping>,
    address: SocketAddr,
    peer: Peer,
    _sole: Option<Sole>,
}

impl Mappings {
    /// No mappings yet. Passengers' ports are bounded by `budget` on each of the `sources`.
    pub fn new(
        counters: Arc<Counters>,
        (paths, sources): (Arc<Paths>, Sources),
        budget: Budget,
        names: HashMap<[u8; 32], String>,
    ) -> Arc<Self> {
        let limit = |v6| budget.own * sources.all(v6).len().max(1);
        let own = [false, true].map(|v6| Shares::new(limit(v6)));
        let table = Table { kept: HashMap::new(), own, shared: HashMap::new(), chosen: 0 };
        let (table, taken, random) = (Mutex::new(table), Taken::default(), RandomState::new());
        Arc::new(Self { counters, paths, sources, budget, names, table, taken, random })
    }

    /// The external port of `owner` for a flow towards `address`: the same for all destinations. Two flows
    /// of one owner towards one destination (passengers may have one number) have a port each; if the
    /// protocol has no ports, the second fails with [`io::ErrorKind::AddrInUse`]. Fails with
    /// [`io::ErrorKind::QuotaExceeded`] if the aircraft has its share of the ports.
    pub fn lease(
        self: &Arc<Self>,
        owner: Owner,
        address: SocketAddr,
        flow: Arc<dyn FarDatagrams>,
    ) -> io::Result<Lease> {
        let sole = self.taken.take(owner.protocol, address.ip())?;
        let peer = Peer::of(flow, owner.is_gateway);
        let key = (owner.source != 0).then_some(Key { owner, v6: address.is_ipv6() });
        let mut table = lock(&self.table);
        let known = key.and_then(|key| table.kept.get(&key));
        if let Some(known) = known.filter(|known| known.add(address, &peer)) {
            let mapping = known.clone();
            drop(table);
            return Ok(self.leased(mapping, address, peer, sole));
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
            _ => {}
        }
        Ok(self.leased(opened?.0, address, peer, sole))
    }

    /// A new mapping of `owner`, and whether another one ends for it.
    fn open_own(
        &self,
        table: &mut Table,
        owner: Owner,
        address: SocketAddr,
        key: Option<Key>,
    ) -> io::Result<(Arc<Mapping>, bool)> {
        let v6 = address.is_ipv6();
        let Owner { aircraft, passenger, protocol, .. } = owner;
        let holder = Holder { aircraft, passenger };
        let shares = &mut table.own[usize::from(v6)];
        let has_port = protocol == ip::UDP;
        let freed = match has_port.then(|| shares.room(holder, Instant::now())) {
            None | Some(Room::Free) => None,
            Some(Room::Freed(freed)) => Some(freed),
            Some(Room::None) => return Err(io::ErrorKind::QuotaExceeded.into()),
        };
        let ticket = has_port.then(|| shares.ticket(holder));
        if let Some(freed) = &freed {
            table.forget(freed);
            freed.ended.cancel();
        }
        let place = Place::Own { key, v6, ticket };
        let source = self.sources.of(&(aircraft, passenger), v6);
        let mapping = Arc::new(Mapping::open(protocol, address, source, place, &self.counters)?);
        if let Some(ticket) = ticket {
            table.own[usize::from(v6)].add(ticket, mapping.clone());
        }
        if let Some(key) = key {
            table.kept.insert(key, mapping.clone());
        }
        Ok((mapping, freed.is_some()))
    }

    /// An external port for a flow of UDP of `owner` towards `address` alone: others have the same one for
    /// other destinations. If all such ports lead to `address` already, a port of the owner's own.
    pub fn share(
        self: &Arc<Self>,
        owner: Owner,
        address: SocketAddr,
        flow: Arc<dyn FarDatagrams>,
    ) -> io::Result<Lease> {
        let peer = Peer::of(flow.clone(), owner.is_gateway);
        let v6 = address.is_ipv6();
        let pool = Pool { v6, source: self.sources.of(&(owner.aircraft, owner.passenger), v6) };
        let mut table = lock(&self.table);
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
            return self.lease(owner, address, flow);
        }
        let place = Place::Shared(pool);
        let mapping = match Mapping::open(ip::UDP, address, pool.source, place, &self.counters) {
            Ok(mapping) => Arc::new(mapping),
            // Somebody else on this machine has taken all ports.
            Err(error) => match table.choose(pool, &self.random, address, &peer) {
                Some(mapping) => return Ok(self.leased(mapping, address, peer, None)),
                None => return Err(error),
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
        sole: Option<Sole>,
    ) -> Lease {
        Lease { mappings: self.clone(), mapping, address, peer, _sole: sole }
    }

    /// Largest holder of ports in the family of `address`, and the holdings of `owner`.
    fn holding(&self, owner: Owner, address: SocketAddr) -> Holding {
        let table = lock(&self.table);
        let shares = &table.own[usize::from(address.is_ipv6())];
        let name = |key: &[u8; 32]| self.names.get(key).cloned().unwrap_or_default();
        let (held, most) = shares.total();
        Holding {
            newcomer: format!("{} (passenger {})", name(&owner.aircraft), owner.passenger),
            holds: shares.held(&owner.aircraft),
            held,
            most,
            largest: shares.largest().map(|(key, count)| (name(&key), count)),
        }
    }
}

impl Table {
    /// One of some shared mappings, the one with the fewest flows of those that have none towards `address`;
    /// `peer` is added to it.
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
            let peers = lock(&mapping.peers);
            let is_better = best.is_none_or(|(fewest, _)| peers.len() < fewest);
            if is_better && !peers.contains_key(&address) {
                best = Some((peers.len(), mapping));
            }
        }
        let (_, mapping) = best?;
        mapping.add(address, peer).then(|| mapping.clone())
    }

    /// Removes `mapping`, of which nothing is left or which has to end.
    fn forget(&mut self, mapping: &Arc<Mapping>) {
        match mapping.place {
            Place::Own { key, v6, ticket } => {
                if let Some(ticket) = ticket {
                    self.own[usize::from(v6)].remove(ticket);
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

impl Lease {
    /// Sends to the flow's destination; see [`udp::send`].
    pub fn send(&self, payload: &[u8], hop_limit: Option<u8>, traffic_class: u8) -> io::Result<()> {
        let socket = &*self.mapping.socket;
        let send = || udp::send(socket, payload, self.address, hop_limit, traffic_class);
        match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // An ICMP error about an earlier packet is told in place of sending this one.
            Err(_) => send(),
            sent => sent,
        }
    }

    /// Time at which the flow ends if nothing moves until then: after `idle`, or `unanswered` if
    /// that is sooner and nothing has answered yet.
    pub fn deadline(&self, idle: Duration, unanswered: Duration) -> Instant {
        let moved = lock(&self.peer.moved);
        moved.at + if moved.is_answered { idle } else { idle.min(unanswered) }
    }

    /// Something moves.
    pub fn moved(&self) {
        lock(&self.peer.moved).at = Instant::now();
    }

    /// Waits until the mapping has to end for another's sake.
    pub async fn ended(&self) {
        self.mapping.ended.cancelled().await;
    }

    /// Returns `true` if the flow belongs to a gateway of ours.
    pub fn is_gateway(&self) -> bool {
        self.peer.is_gateway
    }

    /// Tells the flow how large packets to its destination may be: the kernel, which keeps them
    /// whole, sent one not.
    pub fn too_large(&self) {
        // Without a way there any more, there is nothing to tell.
        let Ok(error) = too_big(&self.mappings.paths, self.address) else { return };
        self.peer.explain(error, &self.mappings.counters);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut table = lock(&self.mappings.table);
        let is_unused = {
            let mut peers = lock(&self.mapping.peers);
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
        let socket = Arc::new(outside::open(protocol, address, source)?);
        udp::keep_errors(&socket, v6)?;
        udp::tell_headers(&socket, v6)?;
        // RFC 9298 section 3.1: packets are never fragmented on their way.
        path::dont_fragment(&*socket, v6)?;
        let peers = Peers::default();
        let counters = counters.clone();
        let reader = Reader { protocol, socket: socket.clone(), peers: peers.clone(), counters };
        let reader = tokio::spawn(reader.run()).abort_handle();
        Ok(Self { socket, peers, reader, place, ended: CancellationToken::new() })
    }

    /// Takes `peer` in; false where another flow has its address.
    fn add(&self, address: SocketAddr, peer: &Peer) -> bool {
        let mut peers = lock(&self.peers);
        let free = !peers.contains_key(&address);
        if free {
            peers.insert(address, peer.clone());
        }
        free
    }
}

impl Used for Arc<Mapping> {
    fn usage(&self) -> Usage {
        let peers = lock(&self.peers);
        let usages = peers.values().map(|peer| {
            let Moved { at: moved_at, is_answered } = *lock(&peer.moved);
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

/// Passes on what comes to an external port.
struct Reader {
    protocol: u8,
    socket: Arc<UdpSocket>,
    peers: Peers,
    counters: Arc<Counters>,
}

impl Reader {
    async fn run(self) {
        loop {
            // Fails only when the runtime is going away.
            let Ok(ready) = self.socket.ready(Interest::READABLE | Interest::ERROR).await else {
                return;
            };
            if ready.is_error() {
                udp::with_room(|buffer, control| self.errors(buffer, control));
            }
            if ready.is_readable() {
                udp::with_room(|buffer, control| self.packets(buffer, control));
            }
            tokio::task::yield_now().await;
        }
    }

    fn packets(&self, buffer: &mut [u8], control: &mut Control) {
        for _ in 0..MOST_AT_A_TURN {
            let heard = || udp::heard(&*self.socket, buffer, control);
            match self.socket.try_io(Interest::READABLE, heard) {
                Ok(heard) => {
                    let peer = heard.from.and_then(|from| {
                        let bytes = &buffer[..heard.bytes];
                        Some((self.peer(from)?, outside::payload(self.protocol, from, bytes)?))
                    });
                    match peer {
                        Some((peer, payload)) => self.pass(&peer, payload),
                        None => self.counters.datagrams_unknown.add(1),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Told again, in full, by the queue of errors.
                Err(_) => {}
            }
        }
    }

    fn pass(&self, peer: &Peer, payload: &[u8]) {
        *lock(&peer.moved) = Moved { at: Instant::now(), is_answered: true };
        match peer.flow.send(&encoded(Datagram::Payload(payload))) {
            Ok(()) => {
                self.counters.datagrams_to_far.add(1);
                self.counters.datagram_bytes_to_far.add(payload.len() as u64);
            }
            Err(DatagramError::TooLarge { .. }) => self.counters.datagrams_too_large.add(1),
            Err(DatagramError::Policed) => self.counters.datagrams_policed.add(1),
            Err(DatagramError::Ended) => self.counters.datagrams_dropped.add(1),
        }
    }

    fn errors(&self, buffer: &mut [u8], control: &mut Control) {
        for _ in 0..MOST_AT_A_TURN {
            let heard = || udp::heard_error(&*self.socket, buffer, control);
            let Ok(heard) = self.socket.try_io(Interest::ERROR, heard) else { return };
            if heard.is_known {
                continue;
            }
            let peer = heard.from.and_then(|to| self.peer(to));
            let (Some(peer), Some(error)) = (peer, heard.error) else {
                self.counters.datagrams_unknown.add(1);
                continue;
            };
            // Behind UDP's header routers need quote nothing.
            let quote = if self.protocol == ip::UDP { &[] } else { &buffer[..heard.bytes] };
            let mut error = icmp_error(&error, heard.hop_limit);
            error.quote = quote.first_chunk().copied();
            peer.explain(error, &self.counters);
        }
    }

    fn peer(&self, address: SocketAddr) -> Option<Peer> {
        lock(&self.peers).get(&plain(address)).cloned()
    }
}

impl Peer {
    fn of(flow: Arc<dyn FarDatagrams>, is_gateway: bool) -> Self {
        let moved = Arc::new(Mutex::new(Moved { at: Instant::now(), is_answered: false }));
        Self { flow, is_gateway, moved }
    }

    fn explain(&self, error: IcmpError, counters: &Counters) {
        if self.is_gateway && self.flow.send(&encoded(Datagram::Error(error))).is_ok() {
            counters.icmp_sent.add(1);
        }
    }
}

/// Message of a router at our end of the path to `address` about a packet too large for it.
fn too_big(paths: &Paths, address: SocketAddr) -> io::Result<IcmpError> {
    let path = paths.towards(address)?;
    let from = path.own_address.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let (kind, code) = if from.is_ipv4() { (3, 4) } else { (2, 0) };
    // RFC 1191 has 16 bits for it.
    let rest = path.mtu_bytes.unwrap_or_default().min(u32::from(u16::MAX)).to_be_bytes();
    Ok(IcmpError { from, kind, code, rest, hop_limit: OWN_HOP_LIMIT, quote: None })
}

fn icmp_error(heard: &ErrorHeard, hop_limit: Option<u8>) -> IcmpError {
    let from = heard.from.ip();
    let rest = match (from, heard.kind, heard.code) {
        // The MTU: ICMP has it in the last two bytes, ICMPv6 in all four.
        (IpAddr::V4(_), 3, 4) | (IpAddr::V6(_), 2, _) => heard.info.to_be_bytes(),
        _ => [0; 4],
    };
    let hop_limit = hop_limit.unwrap_or_default();
    IcmpError { from, kind: heard.kind, code: heard.code, rest, hop_limit, quote: None }
}

/// Without the scope that the kernel adds, which says nothing for a global address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here panics half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::ResetCode;
    use bytes::Bytes;
    use futures_util::future::BoxFuture;
    use std::collections::HashSet;

    /// A flow of which only the beginning and the end are looked at.
    struct Nothing;

    impl FarDatagrams for Nothing {
        fn send(&self, _: &[u8]) -> Result<(), DatagramError> {
            Ok(())
        }
        fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
            Box::pin(std::future::pending())
        }
        fn most_bytes(&self) -> usize {
            1200
        }
        fn reset(&self, _: ResetCode) {}
    }

    fn port(lease: &Lease) -> u16 {
        lease.mapping.socket.local_addr().unwrap().port()
    }

    const OWNER: Owner = Owner {
        aircraft: [1; 32],
        passenger: 1,
        protocol: ip::UDP,
        source: 4000,
        is_gateway: true,
    };

    fn mappings(own: usize, shared: usize) -> Arc<Mappings> {
        Mappings::new(Arc::default(), Default::default(), Budget { own, shared }, HashMap::new())
    }

    fn owner(aircraft: u8, source: u16) -> Owner {
        Owner { aircraft: [aircraft; 32], source, ..OWNER }
    }

    #[tokio::test]
    async fn one_port_for_all_destinations_of_one_source() {
        let mappings = mappings(100, 1);
        let lease = |owner, to: &str| {
            mappings.lease(owner, to.parse().unwrap(), Arc::new(Nothing)).unwrap()
        };
        let first = lease(OWNER, "127.0.0.1:1");
        let second = lease(OWNER, "127.0.0.1:2");
        assert_eq!(port(&first), port(&second));
        for other in [
            Owner { passenger: 2, ..OWNER },
            Owner { source: 4001, ..OWNER },
            Owner { aircraft: [2; 32], ..OWNER },
        ] {
            assert_ne!(port(&lease(other, "127.0.0.1:1")), port(&first));
        }
        // The same destination twice: its answers could not be told apart.
        let twice = lease(OWNER, "127.0.0.1:1");
        assert_ne!(port(&twice), port(&first));
        drop(twice);
        assert_eq!(port(&lease(OWNER, "127.0.0.1:3")), port(&first));
        let nameless = Owner { source: 0, ..OWNER };
        let (a, b) = (lease(nameless, "127.0.0.1:1"), lease(nameless, "127.0.0.1:2"));
        assert_ne!(port(&a), port(&b));
        let kept_and_own = || {
            let table = lock(&mappings.table);
            (table.kept.len(), table.own[0].total().0)
        };
        assert_eq!(kept_and_own(), (1, 3));
        drop((first, second, a, b));
        assert_eq!(kept_and_own(), (0, 0));
    }

    #[tokio::test]
    async fn shared_ports_have_one_flow_for_each_destination() {
        let mappings = mappings(100, 4);
        let share = |source, to: &str| {
            let (owner, to) = (owner(1, source), to.parse().unwrap());
            mappings.share(owner, to, Arc::new(Nothing)).unwrap()
        };
        let shared = || lock(&mappings.table).shared.values().map(Vec::len).sum::<usize>();
        let own = || lock(&mappings.table).own[0].total().0;
        let ports = |leases: &[Lease]| leases.iter().map(port).collect::<HashSet<_>>().len();
        let mut leases: Vec<_> = (1..=100).map(|n| share(n, &format!("127.0.0.1:{n}"))).collect();
        assert_eq!((shared(), own(), ports(&leases)), (4, 0, 4));
        // More flows to one destination than there are shared ports.
        leases.extend((101..=112).map(|n| share(n, "127.0.0.1:1000")));
        assert_eq!(shared(), 4);
        assert!((8..=11).contains(&own()), "{}", own());
        assert_eq!(ports(&leases), 4 + own());
        let mut pairs: Vec<_> = leases.iter().map(|it| (port(it), it.address)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), leases.len(), "no destination sees two flows from one port");
        drop(leases);
        assert_eq!((shared(), own()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_mapping_that_ends_for_another_tells_its_flows() {
        let mappings = mappings(2, 1);
        let lease =
            |owner| mappings.lease(owner, "127.0.0.1:1".parse().unwrap(), Arc::new(Nothing));
        let idlest = lease(owner(1, 1)).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let other = lease(owner(1, 2)).unwrap();
        let newcomer = lease(owner(2, 1)).unwrap();
        idlest.ended().await;
        assert_eq!(mappings.counters.refusals.count_evicted(Limit::UdpPorts), 1);
        lock(&newcomer.peer.moved).is_answered = true;
        let refused = lease(owner(2, 2)).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(mappings.counters.refusals.count_refused(Limit::UdpPorts), 1);
        // The same port again is a mapping of its own, and what is left of the old one does not end it.
        drop(other);
        let again = lease(owner(1, 1)).unwrap();
        drop(idlest);
        assert!(
            lock(&mappings.table).kept.values().any(|known| Arc::ptr_eq(known, &again.mapping))
        );
        assert_eq!(lock(&mappings.table).kept.len(), 2);
    }
}
