//! Flows that another hub has forwarded.

use std::time::Duration;

use bentpipe_anchor::acceptor::AnchorAcceptor;
use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::forward::{Egresses, OtherEgress};
use bentpipe_anchor::hubs::Hubs;
use bentpipe_flow::{Class, ResetCode};
use bentpipe_transport::{Acceptor, Carried, DatagramError, FlowDatagrams, Incoming};
use bytes::Bytes;
use futures_util::future::{BoxFuture, pending};
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
    acceptor_with(&egress, Egresses::new(vec![other]))
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
