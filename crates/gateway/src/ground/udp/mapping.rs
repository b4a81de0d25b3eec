//! External ports: one socket for all that one port of a passenger sends in one family.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::encoded;
use super::outside::{self, Sole, Taken};
use crate::counters::Counters;
use crate::far::datagram::{Datagram, IcmpError};
use crate::far::{DatagramError, FarDatagrams};
use crate::ground::sources::Sources;
use crate::net::ip;
use crate::net::path::{self, Paths};
use crate::net::udp::{self, Control, ErrorHeard};

/// Packets and errors taken from one socket before other tasks have their turn.
const MOST_AT_A_TURN: usize = 64;

/// What a packet of our own starts with.
const OWN_HOP_LIMIT: u8 = 64;

/// Whose external port it is, or whose identifier of echoes.
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
    /// Whether it is a gateway of ours; a standard client knows no context but 0.
    pub is_gateway: bool,
}

/// All external ports.
pub struct Mappings {
    counters: Arc<Counters>,
    paths: Arc<Paths>,
    sources: Sources,
    table: Mutex<HashMap<Key, Arc<Mapping>>>,
    taken: Taken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    owner: Owner,
    v6: bool,
}

struct Mapping {
    socket: Arc<UdpSocket>,
    peers: Peers,
    reader: AbortHandle,
}

type Peers = Arc<Mutex<HashMap<SocketAddr, Peer>>>;

/// A destination, and the flow towards it.
#[derive(Clone)]
struct Peer {
    flow: Arc<dyn FarDatagrams>,
    is_gateway: bool,
    moved: Arc<Mutex<Moved>>,
}

struct Moved {
    /// When, in either direction.
    at: Instant,
    /// Whether anything has ever come from the destination.
    is_answered: bool,
}

/// A flow's part of an external port, given back when dropped.
pub struct Lease {
    mappings: Arc<Mappings>,
    mapping: Arc<Mapping>,
    /// Where the mapping is shared with other flows.
    key: Option<Key>,
    address: SocketAddr,
    peer: Peer,
    _sole: Option<Sole>,
}

impl Mappings {
    pub fn new(counters: Arc<Counters>, paths: Arc<Paths>, sources: Sources) -> Arc<Self> {
        let (table, taken) = Default::default();
        Arc::new(Self { counters, paths, sources, table, taken })
    }

    /// The external port of `owner` for a flow towards `address`. Two flows of one owner towards
    /// one destination (passengers may have one number) have a port each; where the protocol has no
    /// ports, the second fails with [`io::ErrorKind::AddrInUse`].
    pub fn lease(
        self: &Arc<Self>,
        owner: Owner,
        address: SocketAddr,
        flow: Arc<dyn FarDatagrams>,
    ) -> io::Result<Lease> {
        let sole = self.taken.take(owner.protocol, address.ip())?;
        let moved = Arc::new(Mutex::new(Moved { at: Instant::now(), is_answered: false }));
        let peer = Peer { flow, is_gateway: owner.is_gateway, moved };
        let key = (owner.source != 0).then_some(Key { owner, v6: address.is_ipv6() });
        let mut table = lock(&self.table);
        let shared = key.and_then(|key| table.get(&key)).filter(|known| known.add(address, &peer));
        let (mapping, key) = match (shared, key) {
            (Some(known), key) => (known.clone(), key),
            (None, key) => {
                let source = self.sources.of(&(owner.aircraft, owner.passenger), address.is_ipv6());
                let mapping = Mapping::open(owner.protocol, address, source, &self.counters)?;
                let mapping = Arc::new(mapping);
                mapping.add(address, &peer);
                let free = key.filter(|key| !table.contains_key(key));
                if let Some(key) = free {
                    table.insert(key, mapping.clone());
                }
                (mapping, free)
            }
        };
        drop(table);
        Ok(Lease { mappings: self.clone(), mapping, key, address, peer, _sole: sole })
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

    /// When the flow ends if nothing moves until then: after `idle`, or `unanswered` where that is
    /// sooner and nothing has answered yet.
    pub fn deadline(&self, idle: Duration, unanswered: Duration) -> Instant {
        let moved = lock(&self.peer.moved);
        moved.at + if moved.is_answered { idle } else { idle.min(unanswered) }
    }

    /// Something moves.
    pub fn moved(&self) {
        lock(&self.peer.moved).at = Instant::now();
    }

    /// Whether the flow is of a gateway of ours.
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
        let mut peers = lock(&self.mapping.peers);
        peers.remove(&self.address);
        if peers.is_empty()
            && let Some(key) = &self.key
        {
            table.remove(key);
        }
    }
}

impl Mapping {
    fn open(
        protocol: u8,
        address: SocketAddr,
        source: Option<IpAddr>,
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
        Ok(Self { socket, peers, reader })
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
    fn explain(&self, error: IcmpError, counters: &Counters) {
        if self.is_gateway && self.flow.send(&encoded(Datagram::Error(error))).is_ok() {
            counters.icmp_sent.add(1);
        }
    }
}

/// What a router at our end of the path to `address` would say of a packet too large for it.
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

    #[tokio::test]
    async fn one_port_for_all_destinations_of_one_source() {
        let mappings = Mappings::new(Arc::default(), Arc::default(), Sources::default());
        let owner = Owner {
            aircraft: [1; 32],
            passenger: 1,
            protocol: ip::UDP,
            source: 4000,
            is_gateway: true,
        };
        let lease = |owner, to: &str| {
            mappings.lease(owner, to.parse().unwrap(), Arc::new(Nothing)).unwrap()
        };
        let first = lease(owner, "127.0.0.1:1");
        let second = lease(owner, "127.0.0.1:2");
        assert_eq!(port(&first), port(&second));
        for other in [
            Owner { passenger: 2, ..owner },
            Owner { source: 4001, ..owner },
            Owner { aircraft: [2; 32], ..owner },
        ] {
            assert_ne!(port(&lease(other, "127.0.0.1:1")), port(&first));
        }
        // The same destination twice: its answers could not be told apart.
        let twice = lease(owner, "127.0.0.1:1");
        assert_ne!(port(&twice), port(&first));
        drop(twice);
        assert_eq!(port(&lease(owner, "127.0.0.1:3")), port(&first));
        let nameless = Owner { source: 0, ..owner };
        let (a, b) = (lease(nameless, "127.0.0.1:1"), lease(nameless, "127.0.0.1:2"));
        assert_ne!(port(&a), port(&b));
        assert_eq!(lock(&mappings.table).len(), 1);
        drop((first, second));
        assert_eq!(lock(&mappings.table).len(), 0);
    }
}
