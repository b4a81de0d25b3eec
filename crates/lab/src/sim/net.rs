//! An in-memory UDP network in virtual time.
//!
//! [`Node`]s with one address each are joined by links. Every datagram passes one [`Direction`],
//! which decides its fate when it is sent. It arrives at the first whole millisecond after its
//! arrival time (the resolution of tokio's timers). Datagrams due at the same millisecond arrive in
//! the order of their exact arrival times; equal times keep the sending order.
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
    sync::{Arc, Weak},
    task::Waker,
    time::Duration,
};

use bentpipe_channel::{Counters, Direction, Fate, LinkSpec, Packet};
use parking_lot::{Mutex, MutexGuard};
use quinn::udp::EcnCodepoint;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::trace::{Event, Outcome};
pub use socket::Socket;

/// Receive buffer of one socket. Datagrams beyond it are dropped, as in a kernel.
pub const RECEIVE_QUEUE_BYTES: usize = 4 << 20;

/// Maximum bytes in flight in a network. It bounds links without a rate, which have no queue that
/// could fill.
pub const MAX_IN_FLIGHT_BYTES: usize = 256 << 20;

/// First port for sockets that request port 0.
const FIRST_FREE_PORT: u16 = 49_152;

const UDP_HEADER_BYTES: usize = 8;

/// A network. Clones share it.
#[derive(Clone)]
pub struct Net {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Notifies the pump of an earlier arrival, and of the end.
    pump: Arc<Notify>,
    epoch: Instant,
    seed: u64,
}

type NodeId = usize;
type Hook = Box<dyn FnMut(&Event<'_>) + Send>;

#[derive(Default)]
struct State {
    nodes: Vec<NodeState>,
    /// Keyed by sender and receiver.
    directions: BTreeMap<(NodeId, NodeId), Direction>,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    /// Datagrams in queues under an AQM, by direction and number.
    waiting: BTreeMap<(NodeId, NodeId, u64), Datagram>,
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
    /// An empty network. Must be called within a tokio runtime with a paused clock. `seed` decides
    /// all losses and jitter.
    pub fn new(seed: u64) -> Net {
        let pump = Arc::new(Notify::new());
        let state = Mutex::new(State::default());
        let inner = Arc::new(Inner { state, pump: pump.clone(), epoch: Instant::now(), seed });
        tokio::spawn(deliver(Arc::downgrade(&inner), pump));
        Net { inner }
    }

    /// Adds a node. Fails if another node has the address.
    pub fn node(&self, ip: IpAddr) -> io::Result<Node> {
        let mut state = self.inner.lock();
        if state.node_at(ip).is_some() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.nodes.push(NodeState { ip, sockets: BTreeMap::new() });
        Ok(Node { net: self.clone(), id: state.nodes.len() - 1 })
    }

    /// Joins two nodes: `link.forward` leads from `ground` to `air`. An existing link between them
    /// is replaced; packets in flight on it still arrive.
    pub fn join(&self, ground: &Node, air: &Node, link: &LinkSpec) {
        let mut state = self.inner.lock();
        let link_number = state.directions.len() as u64;
        let seed = |way| self.inner.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (link_number + way);
        let forward = Direction::new(&link.forward, seed(0));
        let return_ = Direction::new(&link.return_, seed(1));
        state.directions.insert((ground.id, air.id), forward);
        state.directions.insert((air.id, ground.id), return_);
    }

    /// Removes the link between two nodes. Packets in flight on it still arrive.
    pub fn part(&self, one: &Node, other: &Node) {
        let mut state = self.inner.lock();
        for key in [(one.id, other.id), (other.id, one.id)] {
            state.directions.remove(&key);
        }
    }

    /// Counters of the direction from one node to another.
    pub fn counters(&self, from: &Node, to: &Node) -> Option<Counters> {
        self.inner.lock().directions.get(&(from.id, to.id)).map(Direction::counters)
    }

    /// Calls `hook` for every event, instead of the previous hook. The hook must not use the
    /// network.
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
    /// Current address.
    pub fn ip(&self) -> IpAddr {
        self.net.inner.lock().nodes[self.id].ip
    }

    /// Moves the node and all its sockets to another address at once. Datagrams in flight to the
    /// old address are lost.
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
        // A hook that panicked ends its test; the state itself is consistent.
        self.state.lock()
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
        let (outcome, marked) = state.offer(node, from, to, now, ecn, bytes.len());
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
        if let Outcome::Link(Fate::Waiting(number)) = outcome
            && let Some(holder) = state.node_at(to.ip())
        {
            let datagram = Datagram { from, to, ecn, bytes: bytes.to_vec() };
            state.in_flight_bytes += bytes.len();
            state.waiting.insert((node, holder, number), datagram);
            self.pump.notify_one();
        }
    }

    /// Delivers everything that is due. Returns the time of the next arrival.
    fn deliver_due(&self) -> Option<Instant> {
        let now = self.epoch.elapsed();
        let mut readers = Vec::new();
        let mut state = self.lock();
        state.settle(now);
        while state.in_flight.peek().is_some_and(|Reverse(first)| first.at <= now) {
            if let Some(Reverse(InFlight { datagram, .. })) = state.in_flight.pop() {
                readers.extend(state.arrive(datagram, now));
            }
        }
        let next = state.next().map(|at| self.epoch + at);
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

    /// Fate of the datagram, and `true` if it is marked with ECN CE.
    fn offer(
        &mut self,
        node: NodeId,
        from: SocketAddr,
        to: SocketAddr,
        now: Duration,
        ecn: Option<EcnCodepoint>,
        bytes: usize,
    ) -> (Outcome, bool) {
        let holder = self.node_at(to.ip());
        let Some(direction) = holder.and_then(|to| self.directions.get_mut(&(node, to))) else {
            return (Outcome::NoRoute, false);
        };
        if self.in_flight_bytes + bytes > MAX_IN_FLIGHT_BYTES {
            return (Outcome::TooMuchInFlight, false);
        }
        let ip_header_bytes = if to.is_ipv4() { 20 } else { 40 };
        let ip_bytes = bytes + UDP_HEADER_BYTES + ip_header_bytes;
        // The ports tell the flows of two nodes apart.
        let flow = u64::from(from.port()) << 16 | u64::from(to.port());
        let packet = Packet { bytes: ip_bytes, flow, is_ect: ecn.is_some() };
        let (fate, marked) = direction.offer_packet(now, packet);
        (Outcome::Link(fate), marked)
    }

    /// Next time at which something arrives, or leaves a queue under an AQM.
    fn next(&self) -> Option<Duration> {
        let arrival = self.in_flight.peek().map(|Reverse(first)| first.at);
        let decisions = self.directions.values().filter_map(Direction::next_decision);
        decisions.chain(arrival).min()
    }

    /// Puts in flight what queues under an AQM have let pass by `now`.
    fn settle(&mut self, now: Duration) {
        for ((from, to), direction) in &mut self.directions {
            while let Some(decision) = direction.decide(now) {
                let key = (*from, *to, decision.number);
                let Some(mut datagram) = self.waiting.remove(&key) else { continue };
                let Fate::Delivered { at } = decision.fate else {
                    self.in_flight_bytes -= datagram.bytes.len();
                    continue;
                };
                if decision.marked {
                    datagram.ecn = Some(EcnCodepoint::Ce);
                }
                self.sent += 1;
                self.in_flight.push(Reverse(InFlight { at, order: self.sent, datagram }));
            }
        }
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
