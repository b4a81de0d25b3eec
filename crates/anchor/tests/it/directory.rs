//! Streams of the fleet's directory at a ground that others ask.

use std::time::Duration;

use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::neighbours::Neighbours;
use bentpipe_anchor::wire::Control;
use bentpipe_directory::{Directory, Key, MIN_STREAM_INTERVAL, Side, Statement};
use bentpipe_flow::{Class, Host, ResetCode, Service, Target};
use bentpipe_transport::{Acceptor, Connector, FlowStream, Incoming, Open};
use bytes::Bytes;
use curve25519_dalek::MontgomeryPoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::hub::{AIRCRAFT, FakeHub, acceptor};

/// Keys of the ground that is asked.
fn own() -> ([u8; 32], Key) {
    ([3; 32], MontgomeryPoint::mul_base_clamped([3; 32]).to_bytes())
}

/// Opens a stream of the directory from the peer with the key [`AIRCRAFT`].
async fn ask(
    hub: &FakeHub,
    to: &mpsc::Sender<Incoming>,
    opened: &mut mpsc::Receiver<Incoming>,
    is_forwarded: bool,
) -> Box<dyn FlowStream> {
    let mut first = Vec::new();
    Control::Directory.put(&mut first);
    let target = Target { host: Host::Service(Service::Anchor), port: 0 };
    let (class, first) = (Class::Network, Bytes::from(first));
    let stream = hub.open(Open { target, class, passenger: 0, claim: None, first }).await.unwrap();
    let mut incoming = opened.recv().await.unwrap();
    incoming.is_forwarded = is_forwarded;
    to.send(incoming).await.unwrap();
    stream
}

/// Code with which a stream is refused; `None` if bytes come.
async fn refusal(stream: &mut dyn FlowStream) -> Option<ResetCode> {
    match stream.read(&mut [0; 1]).await {
        Ok(1) => None,
        _ => Some(stream.reset_code().unwrap()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_ground_in_the_file_is_heard_and_nobody_else() {
    for (peers, is_forwarded, expected) in [
        (vec![AIRCRAFT], false, None),
        (vec![[8; 32]], false, Some(ResetCode::Forbidden)),
        // A hub speaks for itself, not for an aircraft.
        (vec![AIRCRAFT], true, Some(ResetCode::Forbidden)),
    ] {
        let egress = Egress::new([1; 8], Duration::from_secs(120)).unwrap();
        let (to, acceptor) = acceptor(&egress);
        let neighbours = Neighbours::start(own(), &peers, Statement::default(), 0);
        let acceptor = acceptor.with_neighbours(Some(neighbours));
        let (to_hub, mut opened) = mpsc::channel(8);
        let hub = FakeHub::new(1, &to_hub);
        let mut stream = ask(&hub, &to, &mut opened, is_forwarded).await;
        tokio::select! {
            _ = acceptor.accept() => panic!("the stream is not a flow"),
            refused = refusal(&mut *stream) => assert_eq!(refused, expected),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_stream_takes_the_place_of_an_earlier_one() {
    let egress = Egress::new([1; 8], Duration::from_secs(120)).unwrap();
    let (to, acceptor) = acceptor(&egress);
    let neighbours = Neighbours::start(own(), &[AIRCRAFT], Statement::default(), 0);
    let acceptor = acceptor.with_neighbours(Some(neighbours.clone()));
    tokio::spawn(async move { while acceptor.accept().await.is_some() {} });
    let (to_hub, mut opened) = mpsc::channel(8);
    let hub = FakeHub::new(1, &to_hub);
    let mut first = ask(&hub, &to, &mut opened, false).await;
    assert_eq!(refusal(&mut *first).await, None);
    sleep(MIN_STREAM_INTERVAL).await;
    let mut second = ask(&hub, &to, &mut opened, false).await;
    assert_eq!(refusal(&mut *second).await, None);
    let mut rest = Vec::new();
    assert!(first.read_to_end(&mut rest).await.is_err(), "it was reset");
    assert!(neighbours.seen()[0].is_connected, "by the second one");
    // Nonsense ends the stream alone.
    second.write_all(&[2, 0xff, 0xff]).await.unwrap();
    assert!(second.read_to_end(&mut rest).await.is_err());
    assert!(!neighbours.seen()[0].is_connected);
    let mut early = ask(&hub, &to, &mut opened, false).await;
    assert_eq!(refusal(&mut *early).await, Some(ResetCode::Forbidden), "too soon");
    sleep(MIN_STREAM_INTERVAL).await;
    let mut third = ask(&hub, &to, &mut opened, false).await;
    assert_eq!(refusal(&mut *third).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_ground_that_is_about_to_stop_says_so() {
    let egress = Egress::new([1; 8], Duration::from_secs(120)).unwrap();
    let (to, acceptor) = acceptor(&egress);
    // The peer's secret key is not used here: it only listens.
    let mut peer = Directory::new(([5; 32], AIRCRAFT), &[own().1], 0);
    assert!(peer.connect(own().1, Side::Ours, Duration::ZERO));
    let neighbours = Neighbours::start(own(), &[AIRCRAFT], Statement::default(), 0);
    let acceptor = acceptor.with_neighbours(Some(neighbours));
    let (to_hub, mut opened) = mpsc::channel(8);
    let hub = FakeHub::new(1, &to_hub);
    let mut stream = ask(&hub, &to, &mut opened, false).await;
    let stopping = async {
        sleep(Duration::from_secs(5)).await;
        acceptor.set_load(200);
        acceptor.leave().await;
        std::future::pending::<()>().await;
    };
    let listening = async {
        let mut read = [0; 4096];
        loop {
            let count = stream.read(&mut read).await.unwrap();
            assert_ne!(count, 0);
            peer.receive((own().1, Side::Ours), &read[..count], Duration::ZERO).unwrap();
            let seen = peer.seen(Duration::ZERO);
            if seen[0].statement.is_some_and(|(it, _)| it.is_leaving && it.load == 200) {
                return;
            }
        }
    };
    tokio::select! {
        _ = acceptor.accept() => panic!("the stream is not a flow"),
        () = stopping => {}
        () = listening => {}
    }
}
