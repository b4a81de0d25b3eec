//! UDP at the ground, and what else has no connections: flows of datagrams become packets of ours,
//! and what answers becomes theirs.
//!
//! Mapping is endpoint-independent (RFC 4787 REQ-1): all flows from one port of one passenger have
//! one external port in each family. The exception is QUIC to a server ([`QUIC_PORTS`]), which is most of all
//! flows: its mapping is by address and port. Flows to different destinations share external ports, and no
//! destination sees two flows from one port. QUIC knows its peers by connection ids, and nobody tells
//! others where to reach a client of it. A flow to these ports that does not begin with a long header of
//! QUIC (STUN, a VPN) is mapped like all others, before its first packet leaves. External ports run out: see
//! [`shares`] for who gets them then. Filtering is by address and port: a flow is towards one
//! destination, so what comes from elsewhere has no flow to go by. Identifiers of echoes are mapped
//! as ports are (RFC 5508); protocols that have neither are mapped by address alone.

mod mapping;
mod outside;
mod shares;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bentpipe_link::{Class, ResetCode};
use bytes::BytesMut;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use super::eyeballs::Connect;
use super::policy::Policy;
use super::ports::Range;
use super::sources::Sources;
use crate::counters::Counters;
use crate::far::FarDatagrams;
use crate::far::datagram::Datagram;
use crate::net::ip;
use crate::net::path::{End, Paths};
use crate::quic::{has_long_header, is_quic};
use crate::quiet::Quiet;
use mapping::{Lease, Mappings};

pub use mapping::Owner;

/// Ports of servers that speak QUIC: HTTP/3, and DNS (RFC 9250).
const QUIC_PORTS: [u16; 2] = [443, 853];

/// All mappings of a ground gateway.
pub struct Udp {
    mappings: Arc<Mappings>,
    counters: Arc<Counters>,
    quiet: Quiet,
    /// Lifetime of a flow without an answer.
    unanswered: Duration,
    /// `true` if received QUIC datagrams are put back in order.
    quic_in_order: bool,
    /// Addresses on which this gateway itself listens: nobody may send there through it.
    listeners: RwLock<Vec<SocketAddr>>,
}

/// A destination, and whether it is this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Address.
    pub address: SocketAddr,
    /// `true` if packets to it stay here.
    pub local: bool,
}

impl Udp {
    /// No mappings yet. `names` are the aircraft by their keys. Flows that nothing has answered end after `unanswered` without a packet;
    /// `quic_in_order` says whether those of QUIC are put back in order.
    pub fn new(
        counters: Arc<Counters>,
        routes: (Arc<Paths>, Sources),
        names: HashMap<[u8; 32], String>,
        unanswered: Duration,
        quic_in_order: bool,
    ) -> Self {
        let budget = Range::of_kernel().budget();
        let mappings = Mappings::new(counters.clone(), routes, budget, names);
        let (quiet, listeners) = Default::default();
        Self { mappings, counters, quiet, unanswered, quic_in_order, listeners }
    }

    /// Notes where this gateway itself listens.
    pub fn set_listeners(&self, listeners: Vec<SocketAddr>) {
        *self.listeners.write().unwrap_or_else(PoisonError::into_inner) = listeners;
    }

    /// Returns `true` if `route` leads to one of the gateway's own listeners. That would be a loop,
    /// or a way to make one aircraft's packets look as if they came from the hub itself.
    pub fn is_own(&self, route: Route) -> bool {
        let listeners = self.listeners.read().unwrap_or_else(PoisonError::into_inner);
        route.local && listeners.iter().any(|own| own.port() == route.address.port())
    }

    /// Carries `flow` to `address` until it ends or nothing has moved for `idle`.
    pub async fn carry(
        &self,
        owner: Owner,
        address: SocketAddr,
        class: Class,
        flow: Arc<dyn FarDatagrams>,
        idle: Duration,
    ) -> ResetCode {
        let is_udp = owner.protocol == ip::UDP;
        let mut is_first = is_udp;
        let may_share = is_udp && QUIC_PORTS.contains(&address.port());
        let opened = if may_share {
            self.mappings.share(owner, address, flow.clone())
        } else {
            self.mappings.lease(owner, address, flow.clone())
        };
        let mut lease = match opened {
            Ok(lease) => lease,
            Err(error) => {
                let code = self.refusal(owner.protocol, &error);
                flow.reset(code);
                return code;
            }
        };
        flow.connected();
        self.counters.datagram_flows.add(1);
        let code = loop {
            let deadline = lease.deadline(idle, self.unanswered);
            tokio::select! {
                received = flow.receive() => match received {
                    Ok(datagram) => {
                        if std::mem::take(&mut is_first)
                            && let Some(first) = payload(&datagram)
                        {
                            if self.quic_in_order && is_quic(address.port(), first) {
                                flow.keep_order();
                            }
                            if may_share && !has_long_header(first) {
                                drop(lease);
                                match self.mappings.lease(owner, address, flow.clone()) {
                                    Ok(own) => lease = own,
                                    Err(error) => break self.refusal(owner.protocol, &error),
                                }
                            }
                        }
                        self.send(&lease, &datagram, class);
                    }
                    Err(code) => break code,
                },
                () = lease.ended() => break ResetCode::Limit,
                () = sleep_until(deadline) => {
                    if lease.deadline(idle, self.unanswered) <= Instant::now() {
                        break ResetCode::Idle;
                    }
                }
            }
        };
        flow.reset(code);
        code
    }

    /// Reset code for a flow without a socket, with the reason in the log.
    fn refusal(&self, protocol: u8, error: &io::Error) -> ResetCode {
        match error.kind() {
            // Somebody else's: nothing of ours is wrong. Shares of ports are counted where they are kept.
            io::ErrorKind::AddrInUse | io::ErrorKind::QuotaExceeded => ResetCode::Limit,
            io::ErrorKind::PermissionDenied if ip::is_echo(protocol) => {
                self.quiet.warn(
                    "this group may send no echoes: `sysctl net.ipv4.ping_group_range=\"0 65534\"`",
                    error,
                );
                ResetCode::Forbidden
            }
            io::ErrorKind::PermissionDenied => {
                self.quiet.warn("protocols under [raw] need CAP_NET_RAW", error);
                ResetCode::Forbidden
            }
            _ => {
                self.quiet.warn("no socket for a flow of datagrams", error);
                ResetCode::Internal
            }
        }
    }

    fn send(&self, lease: &Lease, datagram: &[u8], class: Class) {
        let (hop_limit, payload) = match Datagram::parse(datagram) {
            Ok(Datagram::Payload(payload)) => (None, payload),
            Ok(Datagram::HopLimit(hops, payload)) if hops > 0 && lease.is_gateway() => {
                (Some(hops), payload)
            }
            _ => {
                self.counters.datagrams_unknown.add(1);
                return;
            }
        };
        lease.moved();
        match lease.send(payload, hop_limit, traffic_class(class)) {
            Ok(()) => {
                self.counters.datagrams_from_far.add(1);
                self.counters.datagram_bytes_from_far.add(payload.len() as u64);
            }
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                self.counters.datagrams_too_large.add(1);
                lease.too_large();
            }
            Err(_) => self.counters.datagrams_dropped.add(1),
        }
    }
}

/// Mark of packets of `class` towards the origin (RFC 4594, RFC 8622): the DSCP, above two bits for
/// ECN.
pub fn traffic_class(class: Class) -> u8 {
    class.dscp().traffic_class(0)
}

/// Finds a way to a destination and sends nothing: what a name resolves to is tried in the order
/// of Happy Eyeballs, and the first that there is a route to is taken.
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

/// Payload of a datagram of the link, if it has any.
fn payload(datagram: &[u8]) -> Option<&[u8]> {
    match Datagram::parse(datagram) {
        Ok(Datagram::Payload(payload) | Datagram::HopLimit(_, payload)) => Some(payload),
        _ => None,
    }
}

/// `payload` as the link has it.
fn encoded(datagram: Datagram<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    datagram.encode(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far::DatagramError;
    use bytes::Bytes;
    use std::sync::Mutex;
    use tokio::net::UdpSocket;

    /// A flow that brings these datagrams and keeps what it is given.
    #[derive(Default)]
    struct Flow {
        brings: Mutex<Vec<&'static [u8]>>,
        given: Mutex<Vec<Vec<u8>>>,
    }

    impl FarDatagrams for Flow {
        fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
            self.given.lock().unwrap().push(datagram.to_vec());
            Ok(())
        }
        fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
            let next = self.brings.lock().unwrap().pop();
            Box::pin(async move {
                match next {
                    Some(datagram) => Ok(Bytes::from_static(datagram)),
                    None => std::future::pending().await,
                }
            })
        }
        fn most_bytes(&self) -> usize {
            1200
        }
        fn reset(&self, _: ResetCode) {}
    }

    async fn closed_port() -> SocketAddr {
        UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    }

    /// Returns `true` if an error of the network crosses, and the number of unknown datagrams.
    async fn told(is_gateway: bool) -> (bool, u64) {
        let counters = Arc::<Counters>::default();
        let second = Duration::from_secs(1);
        let udp = Udp::new(counters.clone(), Default::default(), HashMap::new(), second, true);
        let brings = Mutex::new(vec![&b"\x00payload"[..], b"\x02\x05with hops"]);
        let flow = Arc::new(Flow { brings, ..Flow::default() });
        let owner =
            Owner { aircraft: [1; 32], passenger: 1, protocol: ip::UDP, source: 9, is_gateway };
        let to = closed_port().await;
        let code = udp.carry(owner, to, Class::BestEffort, flow.clone(), second).await;
        assert_eq!(code, ResetCode::Idle);
        let crossed = flow.given.lock().unwrap().iter().any(|datagram| datagram[0] == 4);
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
        let (unanswered, idle) = (Duration::from_secs(10), Duration::from_secs(300));
        let budget = Range::of_kernel().budget();
        let mappings = Mappings::new(Arc::default(), Default::default(), budget, HashMap::new());
        let owner = Owner {
            aircraft: [1; 32],
            passenger: 1,
            protocol: ip::UDP,
            source: 9,
            is_gateway: true,
        };
        let lease = mappings.lease(owner, to, Arc::new(Flow::default())).unwrap();
        assert_eq!(lease.deadline(idle, unanswered), Instant::now() + unanswered);
        lease.send(b"?", None, 0).unwrap();
        let (_, from) = origin.recv_from(&mut [0; 8]).await.unwrap();
        origin.send_to(b"!", from).await.unwrap();
        while lease.deadline(idle, unanswered) < Instant::now() + idle {
            tokio::task::yield_now().await;
        }
    }
}
