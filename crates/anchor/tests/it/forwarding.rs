//! Flows that another hub has forwarded.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_anchor::acceptor::AnchorAcceptor;
use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::forward::{Chosen, Egresses, OtherEgress};
use bentpipe_anchor::hubs::Hubs;
use bentpipe_anchor::leg::Leg;
use bentpipe_flow::{Class, ResetCode};
use bentpipe_masque::{Client, ClientConfig, SecretKey, Server, ServerConfig, Socket, public_key};
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::{Acceptor, Carried, DatagramError, FlowDatagrams, Incoming};
use bytes::{Bytes, BytesMut};
use futures_util::future::{BoxFuture, pending};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::hub::{AIRCRAFT, FakeHub, acceptor_with};
use crate::hub_change::open;

/// A flow without datagrams.
struct Silent;

impl FlowDatagrams for Silent {
    fn send(&self, _: &[u8]) -> Result<(), DatagramError> {
        Ok(())
    }
    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(pending())
    }
    fn max_bytes(&self) -> usize {
        1200
    }
    fn reset(&self, _: ResetCode) {}
}

/// Returns an acceptor that has one egress, which is down.
fn acceptor() -> (mpsc::Sender<Incoming>, AnchorAcceptor) {
    let egress = Egress::new([1; 8], Duration::from_secs(120)).unwrap();
    let other = OtherEgress::new(&[9; 32], watch::channel(None).1);
    acceptor_with(&egress, Egresses::new(vec![other], true))
}

async fn accepts(acceptor: &AnchorAcceptor) -> bool {
    timeout(Duration::from_secs(10), acceptor.accept()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn datagrams_that_a_hub_forwards_are_not_forwarded_again() {
    let (to, acceptor) = acceptor();
    for is_forwarded in [false, true] {
        let (protocol, source, is_gateway) = (17, 5_000, true);
        let incoming = Incoming {
            aircraft: AIRCRAFT,
            session: 1,
            is_forwarded,
            target: "192.0.2.1:9".parse().unwrap(),
            class: Class::BestEffort,
            passenger: 1,
            claim: None,
            dialler: None,
            carries: Carried::Datagrams { protocol, source, is_gateway, flow: Box::new(Silent) },
        };
        to.send(incoming).await.unwrap();
        assert_eq!(accepts(&acceptor).await, is_forwarded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_carrier_that_a_hub_forwards_is_not_forwarded_again() {
    let (to, acceptor) = acceptor();
    for is_forwarded in [false, true] {
        let (to_hub, mut at_hub) = mpsc::channel(8);
        let hubs = Hubs::new(FakeHub::new(1, &to_hub));
        let _flow = open(&hubs, 80, b"hello").await;
        let mut carrier = at_hub.recv().await.unwrap();
        carrier.is_forwarded = is_forwarded;
        to.send(carrier).await.unwrap();
        assert_eq!(accepts(&acceptor).await, is_forwarded);
    }
}

/// A flow that brings these datagrams, and notes whether its order is kept.
struct Brings {
    datagrams: Mutex<VecDeque<Bytes>>,
    order: watch::Sender<bool>,
}

impl FlowDatagrams for Brings {
    fn send(&self, _: &[u8]) -> Result<(), DatagramError> {
        Ok(())
    }
    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        let next = self.datagrams.lock().pop_front();
        Box::pin(async move {
            match next {
                Some(datagram) => Ok(datagram),
                None => pending().await,
            }
        })
    }
    fn max_bytes(&self) -> usize {
        1200
    }
    fn reset(&self, _: ResetCode) {}
    fn keep_order(&self) {
        self.order.send_replace(true);
    }
}

/// Forwards a flow to `port` with this first payload. Returns whether its order is kept once the
/// egress has the payload.
async fn keeps_order(quic_in_order: bool, port: u16, first: &[u8]) -> bool {
    let (hub, egress) = (SecretKey::new([1; 32]), SecretKey::new([2; 32]));
    let any = || Socket::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let mut settings = ServerConfig::new(egress.clone(), HashSet::from([AIRCRAFT]));
    settings.hubs = HashSet::from([public_key(&hub)]);
    let server = Server::start(settings, any()).unwrap();
    let key = public_key(&egress);
    let settings = ClientConfig::new(server.local_addr().unwrap(), key, hub);
    let client = Client::connect(settings, any()).unwrap();
    client.connected().await;
    let other = OtherEgress::new(&key, watch::channel(Some(Arc::new(client) as Arc<dyn Leg>)).1);
    let here = Egress::new([1; 8], Duration::from_secs(120)).unwrap();
    let (to, acceptor) = acceptor_with(&here, Egresses::new(vec![other], quic_in_order));
    let forwarding = tokio::spawn(async move { acceptor.accept().await.is_some() });

    let (order, is_kept) = watch::channel(false);
    // The number comes before the first payload.
    let datagrams = [Datagram::Number(7).encoded(), Datagram::Payload(first).encoded()];
    let datagrams = Mutex::new(datagrams.map(BytesMut::freeze).into());
    let flow = Box::new(Brings { datagrams, order });
    let incoming = Incoming {
        aircraft: AIRCRAFT,
        session: 1,
        is_forwarded: false,
        target: format!("192.0.2.1:{port}").parse().unwrap(),
        class: Class::BestEffort,
        passenger: 1,
        claim: None,
        dialler: None,
        carries: Carried::Datagrams { protocol: 17, source: 5_000, is_gateway: true, flow },
    };
    to.send(incoming).await.unwrap();
    let far = server.accept().await.unwrap().into_datagrams();
    for _ in 0..2 {
        far.receive().await.unwrap();
    }
    forwarding.abort();
    *is_kept.borrow()
}

#[tokio::test]
async fn a_hub_keeps_the_order_of_quic() {
    let initial = [0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
    assert!(keeps_order(true, 443, b"any").await);
    assert!(keeps_order(true, 8443, &initial).await);
    assert!(!keeps_order(true, 8443, b"any").await);
    assert!(!keeps_order(false, 443, &initial).await);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_gets_udp_alone() {
    const ICMP: u8 = 1;
    let proxy = || OtherEgress::proxy(watch::channel(None).1);
    let chosen = |all| {
        let egresses = Egresses::new(all, true);
        [17, ICMP].map(|protocol| egresses.choose_for_datagrams(protocol))
    };
    assert_eq!(chosen(Vec::new()), [Ok(Chosen::Here); 2]);
    // It may be up soon.
    assert_eq!(chosen(vec![proxy()]), [Err(ResetCode::Lost), Ok(Chosen::Here)]);
    let gateway = OtherEgress::new(&[9; 32], watch::channel(None).1);
    assert_eq!(chosen(vec![proxy(), gateway]), [Err(ResetCode::Lost); 2]);
}
