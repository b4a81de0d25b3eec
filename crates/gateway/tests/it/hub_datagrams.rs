//! Datagram flows over two hubs and an egress: they keep their external port.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bentpipe_flow::Class;
use bentpipe_gateway::transport::datagram::Datagram;
use bentpipe_gateway::transport::{FlowDatagrams, OpenDatagrams};
use bentpipe_net::ip;
use tokio::net::UdpSocket;
use tokio::time::{interval, timeout};

use crate::bench::{soon, until};
use crate::hubs::{Leg, World};

/// Time after which a datagram that may have been lost is sent again.
const REPEAT: Duration = Duration::from_millis(100);

fn payload(datagram: &[u8]) -> &[u8] {
    match Datagram::parse(datagram).unwrap() {
        Datagram::Payload(payload) => payload,
        other => panic!("{other:?}"),
    }
}

/// Sends to the server until it receives. Returns the address that it sees. The flow is read as well:
/// only so it finds another hub.
pub async fn sender(flow: &dyn FlowDatagrams, server: &UdpSocket, text: &[u8]) -> SocketAddr {
    let mut buffer = [0; 100];
    let received = async {
        let mut repeat = interval(REPEAT);
        loop {
            tokio::select! {
                biased;
                // Anything else is a repetition of an earlier one.
                Ok((count, from)) = server.recv_from(&mut buffer) => {
                    if &buffer[..count] == text {
                        return from;
                    }
                }
                received = flow.receive() => {
                    received.unwrap_or_else(|code| panic!("the flow has ended: {code}"));
                }
                _ = repeat.tick() => drop(flow.send(&Datagram::Payload(text).encoded())),
            }
        }
    };
    soon("a datagram at the server", received).await
}

/// Sends from the server to `to` until it arrives on the flow.
pub async fn pushed(flow: &dyn FlowDatagrams, server: &UdpSocket, to: SocketAddr, text: &[u8]) {
    let received = async {
        loop {
            server.send_to(text, to).await.unwrap();
            match timeout(REPEAT, flow.receive()).await {
                Ok(Ok(datagram)) if payload(&datagram) == text => return,
                Ok(Err(code)) => panic!("the flow has ended: {code}"),
                _ => {}
            }
        }
    };
    soon("a datagram at the air", received).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_of_datagrams_keeps_its_port_at_another_hub() {
    keeps_its_port(Leg::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_of_datagrams_keeps_its_port_over_the_radio_transport() {
    keeps_its_port(Leg::Radio).await;
}

async fn keeps_its_port(leg: Leg) {
    let world = World::with(leg, "").await;
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let target = server.local_addr().unwrap().to_string().parse().unwrap();
    let open = |source| {
        let (class, target) = (Class::BestEffort, Clone::clone(&target));
        OpenDatagrams { target, protocol: ip::UDP, source, class, passenger: 1 }
    };
    let flow = world.connector.open_datagrams(open(5_000)).await.unwrap();
    let other = world.connector.open_datagrams(open(5_001)).await.unwrap();
    let port = sender(&*flow, &server, b"first").await;
    let port_of_other = sender(&*other, &server, b"other").await;
    assert_ne!(port, port_of_other);
    assert_eq!(world.egress.gateway.open_flows(), 2, "the egress has the sockets");
    assert_eq!(world.hubs[0].gateway.open_flows(), 0, "the hub only forwards");

    // The hub becomes silent. The server goes on before the passenger does.
    world.paths[0].is_cut.store(true, Ordering::Relaxed);
    pushed(&*flow, &server, port, b"pushed").await;
    assert_eq!(sender(&*flow, &server, b"second").await, port);
    pushed(&*other, &server, port_of_other, b"pushed too").await;
    assert_eq!(sender(&*other, &server, b"third").await, port_of_other);

    drop((flow, other));
    until("the egress is idle", || world.egress.gateway.open_flows() == 0).await;
}
