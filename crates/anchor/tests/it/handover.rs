//! Flows that the next process of a gateway continues.

use bentpipe_anchor::acceptor::AnchorAcceptor;
use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::hubs::Hubs;
use bentpipe_anchor::parts::{AirParts, EgressParts, FlowParts};
use bentpipe_transport::{Acceptor, Carried, FlowStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::hub::{FakeHub, acceptor};
use crate::hub_change::{ORPHANED, open};

async fn accepted(acceptor: &AnchorAcceptor) -> Box<dyn FlowStream> {
    match acceptor.accept().await.unwrap().carries {
        Carried::Stream(flow) => flow,
        Carried::Datagrams { .. } => panic!("a stream"),
    }
}

/// Reads `count` bytes, which are `byte`.
async fn expect(flow: &mut dyn FlowStream, byte: u8, count: usize) {
    let mut read = vec![0; count];
    flow.read_exact(&mut read).await.unwrap();
    assert!(read.iter().all(|it| *it == byte));
}

#[tokio::test(start_paused = true)]
async fn the_next_egress_continues_the_flows() {
    let first = Egress::new([1; 8], ORPHANED).unwrap();
    let (to, of_first) = acceptor(&first);
    let hub = FakeHub::new(1, &to);
    let hubs = Hubs::new(hub.clone());
    let mut air = open(&hubs, 80, &[1; 100]).await;
    let mut old = accepted(&of_first).await;
    expect(&mut *old, 1, 50).await;
    // Bytes are under way in both directions, some of them are with neither end's user.
    old.write_all(&[2; 20_000]).await.unwrap();
    air.write_all(&[3; 20_000]).await.unwrap();
    expect(&mut *air, 2, 5_000).await;
    air.write_all(&[4]).await.unwrap();

    first.close();
    let flow = old.hand_over().unwrap();
    drop(old);
    let egress = first.parts().encode();
    assert_eq!(first.flows(), 0);
    let next = Egress::from_parts(EgressParts::decode(&egress).unwrap(), ORPHANED);
    let mut new = next.adopt(FlowParts::decode(&flow).unwrap()).unwrap();
    assert!(next.adopt(FlowParts::decode(&flow).unwrap()).is_none(), "once");
    let (to, of_next) = acceptor(&next);
    let serve = tokio::spawn(async move { of_next.accept().await });
    hubs.change_to(FakeHub::new(2, &to));

    let at_air = async {
        expect(&mut *air, 2, 15_000).await;
        let mut rest = Vec::new();
        air.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"end");
    };
    let at_egress = async {
        expect(&mut new, 1, 50).await;
        expect(&mut new, 3, 20_000).await;
        expect(&mut new, 4, 1).await;
        new.write_all(b"end").await.unwrap();
        new.shutdown().await.unwrap();
    };
    tokio::join!(at_air, at_egress);
    serve.abort();
}

#[tokio::test(start_paused = true)]
async fn a_carrier_that_comes_during_the_handover_asks_again() {
    let first = Egress::new([1; 8], ORPHANED).unwrap();
    let (to, of_first) = acceptor(&first);
    let hubs = Hubs::new(FakeHub::new(1, &to));
    let mut air = open(&hubs, 80, b"abc").await;
    let mut old = accepted(&of_first).await;
    expect(&mut *old, b'a', 1).await;
    old.write_all(b"d").await.unwrap();
    expect(&mut *air, b'd', 1).await;
    first.close();
    let flow = FlowParts::decode(&old.hand_over().unwrap()).unwrap();
    let serve = tokio::spawn(async move { of_first.accept().await });
    // The old process refuses it for a while.
    let read = tokio::time::timeout(ORPHANED / 10, air.read_u8()).await;
    assert!(read.is_err(), "it waits");
    let next = Egress::from_parts(EgressParts::decode(&first.parts().encode()).unwrap(), ORPHANED);
    let mut new = next.adopt(flow).unwrap();
    let (to, of_next) = acceptor(&next);
    let serve_next = tokio::spawn(async move { of_next.accept().await });
    hubs.change_to(FakeHub::new(2, &to));
    new.write_all(b"e").await.unwrap();
    expect(&mut *air, b'e', 1).await;
    serve.abort();
    serve_next.abort();
}

#[tokio::test(start_paused = true)]
async fn the_next_air_continues_its_flows() {
    let egress = Egress::new([1; 8], ORPHANED).unwrap();
    let (to, accepting) = acceptor(&egress);
    let hubs = Hubs::new(FakeHub::new(1, &to));
    let mut air = open(&hubs, 80, &[1; 100]).await;
    let mut far = accepted(&accepting).await;
    expect(&mut *far, 1, 100).await;
    far.write_all(&[2; 20_000]).await.unwrap();
    expect(&mut *air, 2, 5_000).await;
    air.write_all(&[3; 20_000]).await.unwrap();
    let parts = air.hand_over().unwrap();
    drop((air, hubs));

    let serve = tokio::spawn(async move { accepting.accept().await });
    let hubs = Hubs::new(FakeHub::new(2, &to));
    let mut air = hubs.resume(AirParts::decode(&parts).unwrap());
    // The far end sends while it is polled.
    let at_egress = async {
        expect(&mut *far, 3, 20_000).await;
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    };
    let at_air = async {
        expect(&mut air, 2, 15_000).await;
        air.shutdown().await.unwrap();
    };
    tokio::join!(at_air, at_egress);
    serve.abort();
}
