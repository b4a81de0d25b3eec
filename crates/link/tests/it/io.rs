//! The async edge over real sockets on loopback.

use std::net::UdpSocket as StdUdpSocket;
use std::time::Duration;

use bentpipe_flow::{Claim, OpenDatagrams, ResetCode};
use bentpipe_link::io::{
    Air, Arrived, FlowReset, Hub, IncomingDatagrams, Open, SendError, UdpSocket,
};
use bentpipe_link::{AirConfig, Aircraft, Class, HubConfig, OpenError, SecretKey, Settings};
use bentpipe_units::BitRate;
use bytes::Bytes;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

fn settings() -> Settings {
    let initial_rtt = Duration::from_millis(50);
    Settings { rate: BitRate::from_bps(200_000_000), initial_rtt, ..Settings::default() }
}

fn socket() -> StdUdpSocket {
    StdUdpSocket::bind("127.0.0.1:0").unwrap()
}

struct Keys {
    air: SecretKey,
    hub: SecretKey,
}

fn keys() -> Keys {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    Keys { air: SecretKey::generate(&mut rng), hub: SecretKey::generate(&mut rng) }
}

fn start_hub(keys: &Keys, socket: StdUdpSocket) -> Hub {
    let aircraft = vec![Aircraft {
        key: keys.air.public(),
        settings: settings(),
        highest_class: Class::BestEffort,
    }];
    let config = HubConfig { secret: keys.hub.clone(), aircraft };
    Hub::start(Box::new(UdpSocket::from_std(socket).unwrap()), config)
}

fn start_air(keys: &Keys, address: std::net::SocketAddr) -> Air {
    let config = AirConfig {
        secret: keys.air.clone(),
        hub: keys.hub.public(),
        address,
        settings: settings(),
        first_counter: 1,
    };
    Air::start(Box::new(UdpSocket::from_std(socket()).unwrap()), config)
}

fn open(first: &'static [u8]) -> Open {
    let target = "origin.example:80".parse().unwrap();
    Open {
        target,
        class: Class::BestEffort,
        passenger: 1,
        claim: None,
        first: Bytes::from_static(first),
    }
}

#[tokio::test]
async fn a_megabyte_is_echoed_intact() {
    let keys = keys();
    let hub_socket = socket();
    let address = hub_socket.local_addr().unwrap();
    let (hub, air) = (start_hub(&keys, hub_socket), start_air(&keys, address));
    let serve = tokio::spawn(async move {
        let incoming = hub.accept().await.unwrap().stream().unwrap();
        assert_eq!(incoming.aircraft, keys.air.public());
        assert_eq!(incoming.target.to_string(), "origin.example:80");
        let (mut read, mut write) = tokio::io::split(incoming.flow);
        tokio::io::copy(&mut read, &mut write).await.unwrap();
        write.shutdown().await.unwrap();
        hub
    });
    let flow = air.open(open(b"first ")).await.unwrap();
    let (mut read, mut write) = tokio::io::split(flow);
    let body: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let sent = body.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut echoed = Vec::new();
    timeout(PATIENCE, read.read_to_end(&mut echoed)).await.unwrap().unwrap();
    assert!(echoed == [b"first ".as_slice(), &body].concat());
    writer.await.unwrap();
    let hub = serve.await.unwrap();
    timeout(PATIENCE, air.close()).await.unwrap();
    timeout(PATIENCE, hub.close()).await.unwrap();
}

#[tokio::test]
async fn a_reset_shows_its_code_and_a_dropped_flow_is_reset() {
    let keys = keys();
    let hub_socket = socket();
    let address = hub_socket.local_addr().unwrap();
    let (hub, air) = (start_hub(&keys, hub_socket), start_air(&keys, address));
    let mut flow = air.open(open(b"")).await.unwrap();
    let mut far = hub.accept().await.unwrap().stream().unwrap().flow;
    far.reset(ResetCode::Refused);
    let error = timeout(PATIENCE, flow.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let source = error.get_ref().and_then(|source| source.downcast_ref::<FlowReset>());
    assert_eq!(source, Some(&FlowReset(ResetCode::Refused)));
    assert_eq!(flow.reset_code(), Some(ResetCode::Refused));

    let dropped = air.open(open(b"")).await.unwrap();
    let mut far = hub.accept().await.unwrap().stream().unwrap().flow;
    drop(dropped);
    let error = timeout(PATIENCE, far.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn early_clients_are_served_and_a_silent_hub_is_an_error() {
    let keys = keys();
    let hub_socket = socket();
    let address = hub_socket.local_addr().unwrap();
    drop(hub_socket);
    let air = start_air(&keys, address);
    let early = tokio::spawn({
        let air = air.clone();
        async move { air.open(open(b"early")).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let hub = start_hub(&keys, StdUdpSocket::bind(address).unwrap());
    let _flow = timeout(PATIENCE, early).await.unwrap().unwrap().unwrap();
    let mut first = [0; 5];
    let mut far = timeout(PATIENCE, hub.accept()).await.unwrap().unwrap().stream().unwrap().flow;
    timeout(PATIENCE, far.read_exact(&mut first)).await.unwrap().unwrap();
    assert_eq!(&first, b"early");
}

#[tokio::test]
async fn datagrams_go_both_ways_and_too_long_ones_are_refused_with_the_limit() {
    let keys = keys();
    let hub_socket = socket();
    let address = hub_socket.local_addr().unwrap();
    let (hub, air) = (start_hub(&keys, hub_socket), start_air(&keys, address));
    let target = "192.0.2.7:53".parse().unwrap();
    let (protocol, source, class, passenger) = (17, 5353, Class::BestEffort, 7);
    let open = OpenDatagrams { target, protocol, source, class, passenger };
    let flow = air.open_datagrams(open.clone()).await.unwrap();
    flow.send(b"question").unwrap();
    let incoming = timeout(PATIENCE, hub.accept()).await.unwrap().unwrap();
    let Arrived::Datagrams(incoming) = incoming else { panic!("it is a flow of datagrams") };
    assert_eq!((&incoming.open, incoming.aircraft), (&open, keys.air.public()));
    let far = incoming.flow;
    assert_eq!(timeout(PATIENCE, far.receive()).await.unwrap().unwrap(), "question");
    let longest = vec![9; far.max_bytes()];
    far.send(&longest).unwrap();
    assert_eq!(timeout(PATIENCE, flow.receive()).await.unwrap().unwrap(), longest);
    let max = far.max_bytes();
    assert_eq!(far.send(&vec![9; max + 1]), Err(SendError::TooLarge { max }));
    flow.send(b"").unwrap();
    assert_eq!(timeout(PATIENCE, far.receive()).await.unwrap().unwrap(), "");

    far.reset(ResetCode::Unreachable);
    let over = timeout(PATIENCE, flow.receive()).await.unwrap();
    assert_eq!(over, Err(ResetCode::Unreachable));
    assert_eq!(flow.send(b"more"), Err(SendError::Ended(ResetCode::Unreachable)));
    let dropped = air.open_datagrams(open).await.unwrap();
    dropped.send(b"last").unwrap();
    let incoming = timeout(PATIENCE, hub.accept()).await.unwrap().unwrap();
    let Arrived::Datagrams(IncomingDatagrams { flow: far, .. }) = incoming else {
        panic!("it is one");
    };
    drop(dropped);
    let over = async { while far.receive().await.is_ok() {} };
    timeout(PATIENCE, over).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_opening_gives_up_when_there_is_no_hub() {
    let keys = keys();
    let silent = socket();
    let air = start_air(&keys, silent.local_addr().unwrap());
    let result = air.open(open(b"")).await;
    assert!(matches!(result, Err(OpenError::NotConnected)));
}

#[tokio::test]
async fn a_confirmed_claim_changes_the_class_at_both_ends() {
    let keys = keys();
    let hub_socket = socket();
    let address = hub_socket.local_addr().unwrap();
    let (hub, air) = (start_hub(&keys, hub_socket), start_air(&keys, address));
    let claim = Claim::new("www.gov.uk", Class::BestEffort).unwrap();
    let target = "192.0.2.7:443".parse().unwrap();
    let claiming =
        Open { target, class: Class::LowerEffort, claim: Some(claim.clone()), ..open(b"hello") };
    let flow = air.open(claiming).await.unwrap();
    assert_eq!(flow.confirmed(), None);
    let mut incoming = hub.accept().await.unwrap().stream().unwrap();
    assert_eq!((incoming.class, incoming.claim), (Class::LowerEffort, Some(claim)));
    // Neither more than the aircraft's highest class nor more than was claimed.
    incoming.flow.confirm(Class::Operator);
    let confirmed = async {
        while flow.confirmed().is_none() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, confirmed).await.unwrap();
    assert_eq!(flow.confirmed(), Some(Class::BestEffort));
    // Without a claim, nothing is confirmed.
    let plain = air.open(open(b"")).await.unwrap();
    let mut incoming = hub.accept().await.unwrap().stream().unwrap();
    assert_eq!(incoming.claim, None);
    incoming.flow.confirm(Class::BestEffort);
    incoming.flow.write_all(b"a").await.unwrap();
    let mut plain = plain;
    assert_eq!(timeout(PATIENCE, plain.read_u8()).await.unwrap().unwrap(), b'a');
    assert_eq!(plain.confirmed(), None);
}
