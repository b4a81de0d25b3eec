//! Flows through a proxy. This gateway resolves and permits their destinations, as if it dialled them, and
//! gives the proxy addresses alone: otherwise a name could lead into the proxy's own network.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_config::Idle;
use bentpipe_flow::{ResetCode, Target};
use bentpipe_metering::counters::Counters;
use bentpipe_net::ip;
use bentpipe_relay::{Outcome, Relay};
use bentpipe_transport::datagram::{Datagram, IcmpError};
use bentpipe_transport::quic::is_quic;
use bentpipe_transport::{Claim, DatagramError, Dialler, FlowDatagrams, FlowStream};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use crate::Shared;
use crate::eyeballs::{Connect, Slot};
use crate::fleet::FlowPermit;
use crate::left::Owner;
use crate::policy::Policy;

/// Hop limit of our own packets.
const HOP_LIMIT: u8 = 64;
/// Headers of IPv4 and UDP.
const V4_HEADERS_BYTES: usize = 28;
/// Headers of IPv6 and UDP.
const V6_HEADERS_BYTES: usize = 48;
/// Minimum packet that is reported as the largest possible one, which IPv6 guarantees. A smaller one is a
/// path to the proxy whose MTU is still being discovered.
const MIN_MTU: usize = 1280;

/// Connector that connects by a proxy, under this gateway's policy.
struct Through<'a> {
    dialler: &'a dyn Dialler,
    policy: &'a Policy,
    slots: Arc<Semaphore>,
}

/// Checks a destination, and sends nothing.
struct Permitted<'a>(&'a Policy);

impl Connect for Through<'_> {
    type Stream = Box<dyn FlowStream>;

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Self::Stream>> {
        Box::pin(async move {
            permit(self.policy, address)?;
            self.dialler.connect(address).await.map_err(io::Error::other)
        })
    }

    fn slot(&self) -> Option<Slot> {
        self.slots.clone().try_acquire_owned().ok().map(|slot| Slot(Some(slot)))
    }
}

impl Connect for Permitted<'_> {
    type Stream = SocketAddr;

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<SocketAddr>> {
        Box::pin(async move { permit(self.0, address).map(|()| address) })
    }
}

/// Rejects this gateway and its neighbours. An address without a route from here may have one from the
/// proxy.
fn permit(policy: &Policy, address: SocketAddr) -> io::Result<()> {
    match policy.path(address) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

impl Shared {
    /// Serves a TCP flow through a proxy until it ends.
    pub(super) async fn serve_through(
        &self,
        dialler: &dyn Dialler,
        owner: &Owner,
        claim: Option<Claim>,
        mut stream: Box<dyn FlowStream>,
        permit: FlowPermit,
    ) {
        let through = Through { dialler, policy: &self.policy, slots: self.slots.clone() };
        let (destination, claimed) = ((&owner.aircraft, &owner.target), (owner.class, claim));
        let dialled = self.dial(destination, claimed, &through, &mut *stream, &permit).await;
        dialler.dialled(dialled.as_ref().map(|_| ()).map_err(|code| *code));
        let Ok((far, class)) = dialled else { return };
        let relay = Relay::new(far, stream, Vec::new(), self.relay, self.counters.clone())
            .with_police(permit.police(class, owner.passenger))
            .with_activity(permit.activity());
        if let Outcome::Reset(code) = relay.await {
            let (aircraft, target) = (permit.aircraft(), &owner.target);
            tracing::debug!(aircraft, %target, %class, %code, "flow through a proxy reset");
        }
    }

    /// Carries UDP through a proxy until the flow ends or is idle.
    pub(super) async fn carry_through(
        &self,
        dialler: &dyn Dialler,
        (aircraft, target): (&[u8; 32], &Target),
        flow: Arc<dyn FlowDatagrams>,
        idle: Idle,
    ) -> ResetCode {
        let opened = async {
            // UDP to port 0 has no destination.
            if target.port == 0 {
                return Err(ResetCode::Forbidden);
            }
            let permitted = Permitted(&self.policy);
            let address = self.reach(aircraft, &permitted, ip::UDP, target).await?;
            let far = dialler.open_datagrams(address).map_err(|error| error.code())?;
            Ok((address, far))
        };
        let code = match opened.await {
            Ok((address, far)) => {
                flow.connected();
                self.counters.datagram_flows.add(1);
                let carried = Carried { shared: self, address, near: &*flow, far: &*far };
                let code = carried.run(idle).await;
                far.reset(code);
                code
            }
            Err(code) => code,
        };
        flow.reset(code);
        code
    }
}

/// A flow of UDP between an aircraft and a proxy.
struct Carried<'a> {
    shared: &'a Shared,
    address: SocketAddr,
    near: &'a dyn FlowDatagrams,
    far: &'a dyn FlowDatagrams,
}

impl Carried<'_> {
    async fn run(&self, idle: Idle) -> ResetCode {
        let (mut is_new, mut limit) = (true, idle.unanswered);
        let mut deadline = Instant::now() + limit;
        loop {
            let is_payload = tokio::select! {
                received = self.near.receive() => match received {
                    Ok(datagram) => self.send(&datagram, &mut is_new),
                    Err(code) => return code,
                },
                received = self.far.receive() => match received {
                    Ok(datagram) => {
                        let is_answer = pass(&datagram, self.near, &self.shared.counters);
                        limit = if is_answer { idle.answered } else { limit };
                        is_answer
                    }
                    // The flow has no next connection to the proxy.
                    Err(ResetCode::Lost) => return ResetCode::Unreachable,
                    Err(code) => return code,
                },
                () = sleep_until(deadline) => return ResetCode::Idle,
            };
            if is_payload {
                deadline = Instant::now() + limit;
            }
        }
    }

    /// Sends an aircraft's datagram to the proxy. Returns `false` if it is not a payload.
    fn send(&self, datagram: &[u8], is_new: &mut bool) -> bool {
        let counters = &self.shared.counters;
        let payload = match Datagram::parse(datagram) {
            Ok(Datagram::Payload(payload)) => payload,
            // Only a flow with a port of this gateway goes on in another session.
            Ok(Datagram::Number(_)) => return false,
            // A proxy cannot limit hops, and a packet that goes too far would mislead a traceroute.
            _ => {
                counters.datagrams_unknown.add(1);
                return false;
            }
        };
        let is_first = std::mem::take(is_new);
        if is_first
            && self.shared.udp.keeps_quic_in_order()
            && is_quic(self.address.port(), payload)
        {
            self.near.keep_order();
        }
        match self.far.send(datagram) {
            Ok(()) => {
                counters.datagrams_from_link.add(1);
                counters.datagram_bytes_from_link.add(payload.len() as u64);
            }
            Err(DatagramError::TooLarge { max_bytes }) => {
                counters.datagrams_too_large.add(1);
                self.report_mtu(max_bytes.saturating_sub(1));
            }
            Err(_) => counters.datagrams_dropped.add(1),
        }
        true
    }

    /// Reports the largest packet whose payload has `payload_bytes`.
    fn report_mtu(&self, payload_bytes: usize) {
        let headers = if self.address.is_ipv4() { V4_HEADERS_BYTES } else { V6_HEADERS_BYTES };
        let mtu = payload_bytes + headers;
        if mtu < MIN_MTU {
            return;
        }
        let path = self.shared.policy.paths().towards(self.address);
        let own = path.ok().and_then(|path| path.own_address);
        let from: IpAddr = own.unwrap_or(self.address.ip());
        let (kind, code) = if from.is_ipv4() { (3, 4) } else { (2, 0) };
        let rest = u32::from(u16::try_from(mtu).unwrap_or(u16::MAX)).to_be_bytes();
        let error = IcmpError { from, kind, code, rest, hop_limit: HOP_LIMIT, quote: None };
        if self.near.send(&Datagram::Error(error).encoded()).is_ok() {
            self.shared.counters.icmp_sent.add(1);
        }
    }
}

/// Passes on a payload of the proxy. It knows no other context id, so that it cannot forge the errors of
/// routers. Returns `false` if it is not a payload.
fn pass(datagram: &[u8], near: &dyn FlowDatagrams, counters: &Counters) -> bool {
    let Ok(Datagram::Payload(payload)) = Datagram::parse(datagram) else {
        counters.datagrams_unknown.add(1);
        return false;
    };
    match near.send(&Datagram::Payload(payload).encoded()) {
        Ok(()) => {
            counters.datagrams_to_link.add(1);
            counters.datagram_bytes_to_link.add(payload.len() as u64);
        }
        Err(DatagramError::TooLarge { .. }) => counters.datagrams_too_large.add(1),
        Err(DatagramError::Policed) => counters.datagrams_policed.add(1),
        Err(DatagramError::Ended) => counters.datagrams_dropped.add(1),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use parking_lot::Mutex;

    /// A flow that records what it is given.
    #[derive(Default)]
    struct Given(Mutex<Vec<Vec<u8>>>);

    impl FlowDatagrams for Given {
        fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
            self.0.lock().push(datagram.to_vec());
            Ok(())
        }
        fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
            Box::pin(std::future::pending())
        }
        fn max_bytes(&self) -> usize {
            1200
        }
        fn reset(&self, _: ResetCode) {}
    }

    #[test]
    fn a_proxy_passes_payloads_alone() {
        let (near, counters) = (Given::default(), Counters::default());
        let from = IpAddr::from([192, 0, 2, 1]);
        let error = IcmpError { from, kind: 3, code: 1, rest: [0; 4], hop_limit: 64, quote: None };
        let datagrams = [
            (Datagram::Payload(b"answer").encoded().to_vec(), true),
            // An empty UDP datagram, and a context id of two bytes.
            (vec![0], true),
            (vec![0x40, 0, b'x'], true),
            (Datagram::Error(error).encoded().to_vec(), false),
            (Datagram::Number(7).encoded().to_vec(), false),
            (Datagram::HopLimit(1, b"x").encoded().to_vec(), false),
            (Vec::new(), false),
        ];
        for (datagram, passes) in &datagrams {
            assert_eq!(pass(datagram, &near, &counters), *passes, "{datagram:?}");
        }
        assert_eq!(*near.0.lock(), [&b"\x00answer"[..], b"\x00", b"\x00x"]);
        assert_eq!(counters.datagrams_unknown.get(), 4);
    }
}
