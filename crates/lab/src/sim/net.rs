//! An in-memory UDP network in virtual time.
//!
//! [`Node`]s with an address each are joined by links; every datagram passes one
//! [`Direction`], which decides its fate when it is sent, and arrives at the first whole
//! millisecond from then on (the grain of tokio's timers). Datagrams due at the same millisecond
//! arrive in the order of their true arrival times, and of sending where those are equal.
//!
//! ```
//! # use bentpipe_channel::LinkSpec;
//! # use bentpipe_lab::{profile::Profile, sim::net::Net};
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let net = Net::new(7);
//! let ground = net.node([10, 0, 0, 1].into()).unwrap();
//! let air = net.node([10, 0, 0, 2].into()).unwrap();
//! net.join(&ground, &air, &Profile::named("clean").unwrap().link);
//! let (hub, aircraft) = (ground.bind(443).unwrap(), air.bind(5000).unwrap());
//! aircraft.send_to(b"hello", hub.local_addr()).unwrap();
//! assert_eq!(hub.recv_from().await, (b"hello".to_vec(), aircraft.local_addr()));
//! # }
//! ```

mod socket;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::Waker,
    time::Duration,
};

use bentpipe_channel::{Counters, Direction, Fate, LinkSpec};
use quinn::udp::EcnCodepoint;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::trace::{Event, Outcome};
use socket::Bound;
pub use socket::Socket;

/// Receive buffer of one socket; more is dropped, as a kernel does.
pub const RECEIVE_QUEUE_BYTES: usize = 4 << 20;

/// Maximum number of bytes in flight in a network: a bound for links without a rate, which have no
/// queue that could fill.
pub const MAX_IN_FLIGHT_BYTES: usize = 256 << 20;

/// The first port given to sockets that ask for any.
const FIRST_FREE_PORT: u16 = 49_152;

const UDP_HEADER_BYTES: usize = 8;

/// A network; clones share it.
#[derive(Clone)]
pub struct Net {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Tells the pump of an earlier arrival, and of the end.
    pump: Arc<Notify>,
    epoch: Instant,
    seed: u64,
}

type NodeId = usize;
type Hook = Box<dyn FnMut(&Event<'_>) + Send>;

#[derive(Default)]
struct State {
    nodes: Vec<NodeState>,
    /// From the first to the second.
    directions: BTreeMap<(NodeId, NodeId), Direction>,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    in_flight_bytes: usize,
    sent: u64,
    hook: Option<Hook>,
}

struct NodeState {
    ip: IpAddr,
    sockets: BTreeMap<u16, Receiver>,
}

#[derive(Default)]
struct Receiver {
    queue: VecDeque<Datagram>,
    bytes: usize,
    reader: Option<Waker>,
}

struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    ecn: Option<EcnCodepoint>,
    bytes: Vec<u8>,
}

struct InFlight {
    at: Duration,
    order: u64,
    datagram: Datagram,
}

impl Net {
    /// An empty network. Must be called within a tokio runtime whose clock is paused; `seed`
    /// decides all its losses and jitter.
    pub fn new(seed: u64) -> Net {
        let pump = Arc::new(Notify::new());
        let state = Mutex::new(State::default());
        let inner = Arc::new(Inner { state, pump: pump.clone(), epoch: Instant::now(), seed });
        tokio::spawn(deliver(Arc::downgrade(&inner), pump));
        Net { inner }
    }

    /// Adds a node; an error if another has the address.
    pub fn node(&self, ip: IpAddr) -> io::Result<Node> {
        let mut state = self.inner.lock();
        if state.node_at(ip).is_some() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.nodes.push(NodeState { ip, sockets: BTreeMap::new() });
        Ok(Node { net: self.clone(), id: state.nodes.len() - 1 })
    }

    /// Joins two nodes: `link.forward` leads from `ground` to `air`. A link they had is replaced;
    /// what is under way on it still arrives.
    pub fn join(&self, ground: &Node, air: &Node, link: &LinkSpec) {
        let mut state = self.inner.lock();
        let link_number = state.directions.len() as u64;
        let seed = |way| self.inner.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (link_number + way);
        let forward = Direction::new(&link.forward, seed(0));
        let return_ = Direction::new(&link.return_, seed(1));
        state.directions.insert((ground.id, air.id), forward);
        state.directions.insert((air.id, ground.id), return_);
    }

    /// Counters of the direction from one node to another.
    pub fn counters(&self, from: &Node, to: &Node) -> Option<Counters> {
        self.inner.lock().directions.get(&(from.id, to.id)).map(Direction::counters)
    }

    /// Calls `hook` for every event, in place of the hook before. It must not use the network.
    pub fn on_event(&self, hook: impl FnMut(&Event<'_>) + Send + 'static) {
        self.inner.lock().hook = Some(Box::new(hook));
    }

    /// Virtual time since the network was made.
    pub fn elapsed(&self) -> Duration {
        self.inner.epoch.elapsed()
    }
}

/// A host with one address.
#[derive(Clone)]
pub struct Node {
    net: Net,
    id: NodeId,
}

impl Node {
    /// Opens a socket; port 0 asks for any that is free.
    pub fn bind(&self, port: u16) -> io::Result<Socket> {
        let mut state = self.net.inner.lock();
        let sockets = &mut state.nodes[self.id].sockets;
        let port = match port {
            0 => (FIRST_FREE_PORT..=u16::MAX).find(|port| !sockets.contains_key(port)),
            port => Some(port).filter(|port| !sockets.contains_key(port)),
        };
        let port = port.ok_or(io::ErrorKind::AddrInUse)?;
        sockets.insert(port, Receiver::default());
        Ok(Socket { bound: Arc::new(Bound { node: self.clone(), port }) })
    }

    /// Its address now.
    pub fn ip(&self) -> IpAddr {
        self.net.inner.lock().nodes[self.id].ip
    }

    /// Moves the node and all its sockets to another address at once. What is under way to the old
    /// one is not heard any more.
    pub fn move_to(&self, ip: IpAddr) -> io::Result<()> {
        let mut state = self.net.inner.lock();
        if state.node_at(ip).is_some_and(|holder| holder != self.id) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.nodes[self.id].ip = ip;
        Ok(())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A hook that panicked ends its test; the state itself is whole.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn send(
        &self,
        node: NodeId,
        port: u16,
        to: SocketAddr,
        ecn: Option<EcnCodepoint>,
        bytes: &[u8],
    ) {
        let now = self.epoch.elapsed();
        let mut state = self.lock();
        let from = SocketAddr::new(state.nodes[node].ip, port);
        let (outcome, marked) = state.offer(node, to, now, ecn, bytes.len());
        state.tell(Event { at: now, from, to, bytes, outcome });
        if let Outcome::Link(Fate::Delivered { at }) = outcome {
            let first = state.in_flight.peek().is_none_or(|Reverse(first)| at < first.at);
            let ecn = if marked { Some(EcnCodepoint::Ce) } else { ecn };
            let datagram = Datagram { from, to, ecn, bytes: bytes.to_vec() };
            state.sent += 1;
            state.in_flight_bytes += bytes.len();
            let order = state.sent;
            state.in_flight.push(Reverse(InFlight { at, order, datagram }));
            if first {
                self.pump.notify_one();
            }
        }
    }

    /// Hands over what is due, and says when the next is.
    fn deliver_due(&self) -> Option<Instant> {
        let now = self.epoch.elapsed();
        let mut readers = Vec::new();
        let mut state = self.lock();
        while state.in_flight.peek().is_some_and(|Reverse(first)| first.at <= now) {
            if let Some(Reverse(InFlight { datagram, .. })) = state.in_flight.pop() {
                readers.extend(state.arrive(datagram, now));
            }
        }
        let next = state.in_flight.peek().map(|Reverse(first)| self.epoch + first.at);
        drop(state);
        readers.into_iter().for_each(Waker::wake);
        next
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pump.notify_one();
    }
}

impl State {
    fn node_at(&self, ip: IpAddr) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.ip == ip)
    }

    /// Fate of the datagram, and its mark.
    fn offer(
        &mut self,
        from: NodeId,
        to: SocketAddr,
        now: Duration,
        ecn: Option<EcnCodepoint>,
        bytes: usize,
    ) -> (Outcome, bool) {
        let holder = self.node_at(to.ip());
        let Some(direction) = holder.and_then(|to| self.directions.get_mut(&(from, to))) else {
            return (Outcome::NoRoute, false);
        };
        if self.in_flight_bytes + bytes > MAX_IN_FLIGHT_BYTES {
            return (Outcome::TooMuchInFlight, false);
        }
        let ip_header_bytes = if to.is_ipv4() { 20 } else { 40 };
        let ip_bytes = bytes + UDP_HEADER_BYTES + ip_header_bytes;
        if ecn.is_none() {
            return (Outcome::Link(direction.offer(now, ip_bytes)), false);
        }
        let (fate, marked) = direction.offer_ect(now, ip_bytes);
        (Outcome::Link(fate), marked)
    }

    fn arrive(&mut self, datagram: Datagram, now: Duration) -> Option<Waker> {
        self.in_flight_bytes -= datagram.bytes.len();
        let holder = self.node_at(datagram.to.ip());
        let receiver =
            holder.and_then(|node| self.nodes[node].sockets.get_mut(&datagram.to.port()));
        let outcome = match receiver {
            None => Outcome::NotListening,
            Some(full) if full.bytes + datagram.bytes.len() > RECEIVE_QUEUE_BYTES => {
                Outcome::ReceiveQueueFull
            }
            Some(receiver) => {
                receiver.bytes += datagram.bytes.len();
                receiver.queue.push_back(datagram);
                return receiver.reader.take();
            }
        };
        let Datagram { from, to, bytes, .. } = &datagram;
        self.tell(Event { at: now, from: *from, to: *to, bytes, outcome });
        None
    }

    fn tell(&mut self, event: Event<'_>) {
        if let Some(hook) = &mut self.hook {
            hook(&event);
        }
    }
}

async fn deliver(net: Weak<Inner>, pump: Arc<Notify>) {
    loop {
        let Some(inner) = net.upgrade() else {
            return;
        };
        let next = inner.deliver_due();
        drop(inner);
        match next {
            None => pump.notified().await,
            Some(at) => tokio::select! {
                biased;
                () = pump.notified() => {}
                () = sleep_until(at) => {}
            },
        }
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &InFlight) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &InFlight) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &InFlight) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
