//! UDP and other connectionless protocols in the ground gateway: translates between datagram flows
//! and packets.
//!
//! Mapping:
//!
//! - It is endpoint-independent (RFC 4787 REQ-1): all flows from one port of one passenger share
//!   one external port in each family.
//! - QUIC to a server ([`QUIC_PORTS`]), which is most of all flows, is mapped by address and port
//!   instead. Flows to different destinations share external ports, and no destination sees two
//!   flows from one port. This works because QUIC identifies peers by connection IDs, and clients
//!   do not advertise their addresses.
//! - A flow to these ports that does not begin with a QUIC long header (STUN, a VPN) is mapped like
//!   all others, before its first packet is sent.
//! - [`shares`] divides external ports if they run out.
//! - ICMP echo identifiers are mapped like ports (RFC 5508). Protocols with neither are mapped by
//!   address only.
//!
//! Filtering is by address and port, because each flow has one destination: packets from elsewhere
//! belong to no flow.

mod kept;
#[cfg(test)]
mod kept_tests;
mod mapping;
mod raw_socket;
mod shares;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_link::Class;
use bentpipe_net::ip;
use bentpipe_net::path::{End, Paths};
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use tokio::time::{Instant, sleep_until};

use super::eyeballs::Connect;
use super::policy::Policy;
use super::ports::Range;
use super::sources::Sources;
use bentpipe_config::Idle;
use bentpipe_metering::counters::Counters;
use bentpipe_metering::rate_limited_log::RateLimitedLog;
use bentpipe_transport::FlowDatagrams;
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::quic::{has_long_header, is_quic};
use kept::{KeptPorts, Key, Port, PortEntry};
use mapping::{Mappings, NatBinding};

pub use mapping::{AircraftNames, MappingKey};

/// Ports of QUIC servers: HTTP/3, and DNS (RFC 9250).
const QUIC_PORTS: [u16; 2] = [443, 853];

/// UDP state of a ground gateway.
pub struct Udp {
    mappings: Arc<Mappings>,
    counters: Arc<Counters>,
    log: RateLimitedLog,
    /// `true` if received QUIC datagrams are restored to their sending order.
    quic_in_order: bool,
    /// Listening addresses of this gateway, to which nobody may send through it.
    listeners: RwLock<Vec<SocketAddr>>,
    kept: KeptPorts,
    /// Time for which a flow that has lost its session keeps its external port.
    orphan_timeout: Duration,
}

/// A flow to carry.
pub struct FlowRequest {
    /// Its aircraft, passenger and port.
    pub owner: MappingKey,
    /// Number of the aircraft's session.
    pub session: u64,
    /// Its class.
    pub class: Class,
    /// Its idle timeouts.
    pub idle: Idle,
}

/// A destination, and whether it is this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Address.
    pub address: SocketAddr,
    /// `true` if the destination is this machine.
    pub local: bool,
}

impl Udp {
    /// Creates the state without mappings. `names` returns the name of an aircraft. `quic_in_order`
    /// enables reordering of received QUIC datagrams. A flow that has lost its session keeps its
    /// external port for `orphan_timeout`.
    pub fn new(
        counters: Arc<Counters>,
        routes: (Arc<Paths>, Sources),
        names: AircraftNames,
        quic_in_order: bool,
        orphan_timeout: Duration,
    ) -> Self {
        let budget = Range::of_kernel().budget();
        let mappings = Mappings::new(counters.clone(), routes, budget, names);
        let (log, listeners, kept) = Default::default();
        Self { mappings, counters, log, quic_in_order, listeners, kept, orphan_timeout }
    }

    /// Sets the listening addresses of this gateway.
    pub fn set_listeners(&self, listeners: Vec<SocketAddr>) {
        *self.listeners.write() = listeners;
    }

    /// Returns `true` if `route` leads to one of the gateway's own listeners. Such a flow would be
    /// a loop, or would disguise an aircraft's packets as the gateway's own.
    pub fn is_own(&self, route: Route) -> bool {
        let listeners = self.listeners.read();
        route.local && listeners.iter().any(|own| own.port() == route.address.port())
    }

    /// Returns `true` if QUIC datagrams from the aircraft are restored to their sending order.
    pub fn keeps_quic_in_order(&self) -> bool {
        self.quic_in_order
    }

    /// Keeps no external port of a lost flow from now on, because the gateway stops.
    pub fn close(&self) {
        self.kept.close();
    }

    /// Carries `flow` to `address` until it ends or its idle timeout expires.
    pub async fn carry(
        &self,
        request: &FlowRequest,
        address: SocketAddr,
        flow: Arc<dyn FlowDatagrams>,
    ) -> ResetCode {
        let owner = request.owner;
        let may_share = owner.protocol == ip::UDP && QUIC_PORTS.contains(&address.port());
        let opened = if may_share {
            self.mappings.share(owner, address, flow.clone())
        } else {
            self.mappings.binding(owner, address, flow.clone())
        };
        let port = match opened {
            Ok(binding) => Port::new(binding),
            Err(error) => {
                let code = self.refusal(owner.protocol, &error);
                flow.reset(code);
                return code;
            }
        };
        flow.connected();
        self.counters.datagram_flows.add(1);
        let is_new = owner.protocol == ip::UDP;
        let mut carried = Carried { udp: self, request, address, flow, port, entry: None, is_new };
        let code = carried.run().await;
        carried.flow.reset(code);
        if let (ResetCode::Lost, Some(entry)) = (code, &carried.entry) {
            self.wait(&carried.port.binding, entry, request.idle).await;
        }
        code
    }

    /// Keeps the external port of a flow that has lost its session for a later session.
    async fn wait(&self, binding: &NatBinding, entry: &PortEntry, idle: Idle) {
        let until = binding.deadline(idle).min(Instant::now() + self.orphan_timeout);
        tokio::select! {
            () = entry.taken() => {}
            () = entry.closed() => {}
            () = binding.ended() => {}
            () = sleep_until(until) => {}
        }
    }

    /// Returns the reset code for a flow without a socket, and logs the cause.
    fn refusal(&self, protocol: u8, error: &io::Error) -> ResetCode {
        match error.kind() {
            // Not a fault of this gateway. `Mappings` counts these refusals.
            io::ErrorKind::AddrInUse | io::ErrorKind::QuotaExceeded => ResetCode::Limit,
            io::ErrorKind::PermissionDenied if ip::is_echo(protocol) => {
                self.log.warn(
                    "this group may send no echoes: `sysctl net.ipv4.ping_group_range=\"0 65534\"`",
                    error,
                );
                ResetCode::Forbidden
            }
            io::ErrorKind::PermissionDenied if protocol != ip::UDP => {
                self.log.warn("protocols under [raw] need CAP_NET_RAW", error);
                ResetCode::Forbidden
            }
            _ => {
                self.log.warn("no socket for a flow of datagrams", error);
                ResetCode::Internal
            }
        }
    }

    fn send(&self, binding: &NatBinding, datagram: &[u8], class: Class) {
        let (hop_limit, payload) = match Datagram::parse(datagram) {
            Ok(Datagram::Payload(payload)) => (None, payload),
            Ok(Datagram::HopLimit(hops, payload)) if hops > 0 && binding.is_gateway() => {
                (Some(hops), payload)
            }
            _ => {
                self.counters.datagrams_unknown.add(1);
                return;
            }
        };
        binding.moved();
        match binding.send(payload, hop_limit, traffic_class(class)) {
            Ok(()) => {
                self.counters.datagrams_from_link.add(1);
                self.counters.datagram_bytes_from_link.add(payload.len() as u64);
            }
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                self.counters.datagrams_too_large.add(1);
                binding.too_large();
            }
            Err(_) => self.counters.datagrams_dropped.add(1),
        }
    }
}

/// Traffic class of packets of `class` towards the origin (RFC 4594, RFC 8622): the DSCP, above two
/// ECN bits.
pub fn traffic_class(class: Class) -> u8 {
    class.dscp().traffic_class(0)
}

/// Finds a route to a destination without sending packets. Addresses of a name are tried in Happy
/// Eyeballs order; the first one with a route is used.
pub struct Routes<'a>(pub &'a Policy);

impl Connect for Routes<'_> {
    type Stream = Route;

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, std::io::Result<Route>> {
        Box::pin(async move {
            let local = self.0.path(address)?.end == End::Here;
            Ok(Route { address, local })
        })
    }
}

/// A flow that is carried.
struct Carried<'a> {
    udp: &'a Udp,
    request: &'a FlowRequest,
    address: SocketAddr,
    flow: Arc<dyn FlowDatagrams>,
    port: Port,
    entry: Option<PortEntry>,
    /// `true` until the first payload of a UDP flow, which decides about its port.
    is_new: bool,
}

impl Carried<'_> {
    async fn run(&mut self) -> ResetCode {
        let idle = self.request.idle;
        loop {
            let binding = self.port.binding.clone();
            let deadline = binding.deadline(idle);
            tokio::select! {
                received = self.flow.receive() => match received {
                    Ok(datagram) => if let Err(code) = self.received(&datagram) {
                        return code;
                    },
                    Err(code) => return code,
                },
                () = binding.ended() => return ResetCode::Limit,
                () = taken(self.entry.as_ref()) => return ResetCode::Lost,
                () = sleep_until(deadline) => {
                    if binding.deadline(idle) <= Instant::now() {
                        return ResetCode::Idle;
                    }
                }
            }
        }
    }

    fn received(&mut self, datagram: &[u8]) -> Result<(), ResetCode> {
        if let Ok(Datagram::Number(number)) = Datagram::parse(datagram)
            && self.request.owner.is_gateway
        {
            self.name(number);
            return Ok(());
        }
        if let Some(first) = payload(datagram)
            && std::mem::take(&mut self.is_new)
        {
            self.begin(first)?;
        }
        self.udp.send(&self.port.binding, datagram, self.request.class);
        Ok(())
    }

    /// Goes on with the port that the flow had in an earlier session, and keeps it for a later one.
    fn name(&mut self, number: u64) {
        let protocol = self.request.owner.protocol;
        // Other protocols have no ports. What is kept would only exclude their next flow.
        let has_port = protocol == ip::UDP || ip::is_echo(protocol);
        if self.entry.is_some() || !has_port {
            return;
        }
        let (session, key) = (self.request.session, Key { owner: self.request.owner, number });
        if let Some(earlier) = self.udp.kept.take(key, session) {
            earlier.binding.hand_to(self.flow.clone());
            if earlier.keeps_order {
                self.flow.keep_order();
            }
            (self.port, self.is_new) = (earlier, false);
        }
        self.entry = self.udp.kept.list(key, session, self.port.clone());
    }

    /// Changes the port to what the first payload needs.
    fn begin(&mut self, first: &[u8]) -> Result<(), ResetCode> {
        let (udp, owner, port) = (self.udp, self.request.owner, self.address.port());
        if udp.quic_in_order && is_quic(port, first) {
            self.flow.keep_order();
            self.port.keeps_order = true;
        }
        if self.port.binding.is_shared() && !has_long_header(first) {
            let binding = udp.mappings.binding(owner, self.address, self.flow.clone());
            self.port = Port::new(binding.map_err(|error| udp.refusal(owner.protocol, &error))?);
        }
        if let Some(entry) = &self.entry {
            entry.set(self.port.clone());
        }
        Ok(())
    }
}

/// Waits until a later session takes the port of a flow with an entry.
async fn taken(entry: Option<&PortEntry>) {
    match entry {
        Some(entry) => entry.taken().await,
        None => std::future::pending().await,
    }
}

/// Payload of a datagram of the link, if it has one.
fn payload(datagram: &[u8]) -> Option<&[u8]> {
    match Datagram::parse(datagram) {
        Ok(Datagram::Payload(payload) | Datagram::HopLimit(_, payload)) => Some(payload),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_transport::DatagramError;
    use bytes::Bytes;
    use parking_lot::Mutex;
    use tokio::net::UdpSocket;

    fn nameless() -> AircraftNames {
        Arc::new(|_| String::new())
    }

    /// A flow that delivers these datagrams and records those it is given.
    #[derive(Default)]
    struct Flow {
        brings: Mutex<Vec<&'static [u8]>>,
        given: Mutex<Vec<Vec<u8>>>,
    }

    impl FlowDatagrams for Flow {
        fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
            self.given.lock().push(datagram.to_vec());
            Ok(())
        }
        fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
            let next = self.brings.lock().pop();
            Box::pin(async move {
                match next {
                    Some(datagram) => Ok(Bytes::from_static(datagram)),
                    None => std::future::pending().await,
                }
            })
        }
        fn max_bytes(&self) -> usize {
            1200
        }
        fn reset(&self, _: ResetCode) {}
    }

    async fn closed_port() -> SocketAddr {
        UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    }

    /// Returns whether a network error is passed on, and the number of unknown datagrams.
    async fn told(is_gateway: bool) -> (bool, u64) {
        let counters = Arc::<Counters>::default();
        let second = Duration::from_secs(1);
        let udp = Udp::new(counters.clone(), Default::default(), nameless(), true, second);
        let brings = Mutex::new(vec![&b"\x00payload"[..], b"\x02\x05with hops"]);
        let flow = Arc::new(Flow { brings, ..Flow::default() });
        let owner = MappingKey {
            aircraft: [1; 32],
            passenger: 1,
            protocol: ip::UDP,
            source: 9,
            is_gateway,
        };
        let to = closed_port().await;
        let idle = Idle { answered: second, unanswered: second };
        let request = FlowRequest { owner, session: 1, class: Class::BestEffort, idle };
        let code = udp.carry(&request, to, flow.clone()).await;
        assert_eq!(code, ResetCode::Idle);
        let crossed = flow.given.lock().iter().any(|datagram| datagram[0] == 4);
        (crossed, counters.datagrams_unknown.get())
    }

    #[tokio::test]
    async fn a_standard_client_knows_context_0_alone() {
        assert_eq!(told(true).await, (true, 0));
        assert_eq!(told(false).await, (false, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_without_an_answer_ends_sooner() {
        let origin = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to = origin.local_addr().unwrap();
        let seconds = Duration::from_secs;
        let idle = Idle { answered: seconds(300), unanswered: seconds(10) };
        let budget = Range::of_kernel().budget();
        let mappings = Mappings::new(Arc::default(), Default::default(), budget, nameless());
        let owner = MappingKey {
            aircraft: [1; 32],
            passenger: 1,
            protocol: ip::UDP,
            source: 9,
            is_gateway: true,
        };
        let binding = mappings.binding(owner, to, Arc::new(Flow::default())).unwrap();
        assert_eq!(binding.deadline(idle), Instant::now() + idle.unanswered);
        binding.send(b"?", None, 0).unwrap();
        let (_, from) = origin.recv_from(&mut [0; 8]).await.unwrap();
        origin.send_to(b"!", from).await.unwrap();
        while binding.deadline(idle) < Instant::now() + idle.answered {
            tokio::task::yield_now().await;
        }
    }
}
