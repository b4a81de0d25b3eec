//! UDP at the ground: flows of datagrams become packets of ours, and what answers becomes theirs.
//!
//! Mapping is endpoint-independent (RFC 4787 REQ-1): all flows from one port of one passenger have
//! one external port in each family. Filtering is by address and port: a flow is towards one
//! destination, so what comes from elsewhere has no flow to go by.

mod mapping;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bentpipe_link::{Class, ResetCode};
use bytes::BytesMut;
use futures_util::future::BoxFuture;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use super::eyeballs::Connect;
use crate::counters::Counters;
use crate::far::FarDatagrams;
use crate::far::datagram::Datagram;
use mapping::{Lease, Mappings};

pub use mapping::Owner;

/// UDP's number in IP headers.
pub const UDP: u8 = 17;

/// All mappings of a ground gateway.
pub struct Udp {
    mappings: Arc<Mappings>,
    counters: Arc<Counters>,
    /// Where this gateway itself listens: nobody may send there through it.
    listeners: RwLock<Vec<SocketAddr>>,
}

/// A destination, and whether it is this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub address: SocketAddr,
    /// Whether packets to it stay here.
    pub local: bool,
}

impl Udp {
    /// No mappings yet.
    pub fn new(counters: Arc<Counters>) -> Self {
        let mappings = Mappings::new(counters.clone());
        Self { mappings, counters, listeners: RwLock::default() }
    }

    /// Notes where this gateway itself listens.
    pub fn set_listeners(&self, listeners: Vec<SocketAddr>) {
        *self.listeners.write().unwrap_or_else(PoisonError::into_inner) = listeners;
    }

    /// Whether `route` leads to one of the gateway's own listeners: a loop, or a way to make one
    /// aircraft's packets look as if they came from the hub itself.
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
        let lease = match self.mappings.lease(owner, address, flow.clone()) {
            Ok(lease) => lease,
            Err(error) => {
                tracing::warn!(%error, "no socket for a flow of datagrams");
                flow.reset(ResetCode::Internal);
                return ResetCode::Internal;
            }
        };
        flow.connected();
        self.counters.datagram_flows.add(1);
        let code = loop {
            let deadline = lease.moved_at() + idle;
            tokio::select! {
                received = flow.receive() => match received {
                    Ok(datagram) => self.send(&lease, &datagram, class),
                    Err(code) => break code,
                },
                () = sleep_until(deadline) => {
                    if lease.moved_at() + idle <= Instant::now() {
                        break ResetCode::Idle;
                    }
                }
            }
        };
        flow.reset(code);
        code
    }

    fn send(&self, lease: &Lease, datagram: &[u8], class: Class) {
        let (hop_limit, payload) = match Datagram::parse(datagram) {
            Ok(Datagram::Payload(payload)) => (None, payload),
            Ok(Datagram::HopLimit(hops, payload)) if hops > 0 => (Some(hops), payload),
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
            Err(_) => self.counters.datagrams_dropped.add(1),
        }
    }
}

/// How packets of `class` are marked towards the origin (RFC 4594, RFC 8622): the DSCP, above two
/// bits for ECN.
pub fn traffic_class(class: Class) -> u8 {
    class.dscp().traffic_class(0)
}

/// Finds a way to a destination and sends nothing: what a name resolves to is tried in the order
/// of Happy Eyeballs, and the first that there is a route to is taken.
pub struct Routes;

impl Connect for Routes {
    type Stream = Route;

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, std::io::Result<Route>> {
        Box::pin(async move {
            let socket = UdpSocket::bind(mapping::any(address)).await?;
            socket.connect(address).await?;
            let ip = address.ip();
            let local = ip.is_loopback() || socket.local_addr()?.ip() == ip;
            Ok(Route { address, local })
        })
    }
}

/// `payload` as the link has it.
fn encoded(datagram: Datagram<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    datagram.encode(&mut out);
    out
}
