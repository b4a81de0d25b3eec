//! Datagram flows between our own client and server, over real UDP sockets on loopback.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use bentpipe_flow::ResetCode;
use bentpipe_masque::{
    Behalf, Client, ClientConfig, DatagramError, DatagramFlow, Incoming, Payload, SecretKey,
    Server, ServerConfig, Socket, public_key,
};
use bytes::Bytes;
use tokio::time::{sleep, timeout};

/// Public key of an aircraft.
const AIRCRAFT: [u8; 32] = [9; 32];

const LIMIT: Duration = Duration::from_secs(60);

/// Maximum size of a datagram in a capsule.
const CAPSULE_MOST: usize = 65_528;

fn secret(byte: u8) -> SecretKey {
    SecretKey::new([byte; 32])
}

fn socket() -> Socket {
    Socket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

/// A server and a client, each with or without QUIC datagrams.
fn ends(client_frames: bool, server_frames: bool) -> (Server, Client) {
    let mut config = ServerConfig::new(secret(2), HashSet::from([public_key(&secret(1))]));
    config.transport.datagrams = server_frames;
    let server = Server::start(config, socket()).unwrap();
    let at = server.local_addr().unwrap();
    let mut config = ClientConfig::new(at, public_key(&secret(2)), secret(1));
    config.transport.datagrams = client_frames;
    (server, Client::connect(config, socket()).unwrap())
}

async fn accepted(server: &Server) -> Incoming {
    timeout(LIMIT, server.accept()).await.unwrap().unwrap()
}

async fn next(flow: &DatagramFlow) -> Result<Bytes, ResetCode> {
    timeout(LIMIT, flow.receive()).await.expect("a datagram or the end, in time")
}

/// Both ends of an open flow.
async fn pair(server: &Server, client: &Client) -> (DatagramFlow, DatagramFlow) {
    let flow = client.open_datagrams("[2001:db8::1]:443", 17, 5000, 1, 7);
    // Before the stream is open, and before the response.
    flow.send(b"\0early").unwrap();
    let incoming = accepted(server).await;
    assert_eq!(incoming.client, public_key(&secret(1)));
    assert_eq!(incoming.authority, "[2001:db8::1]:443");
    assert_eq!(incoming.payload, Payload::Datagrams { protocol: 17, source: 5000 });
    assert_eq!((incoming.class, incoming.passenger), (1, 7));
    let far = incoming.into_datagrams();
    assert_eq!(next(&far).await.unwrap(), "\0early");
    far.send(b"\0back").unwrap();
    assert_eq!(next(&flow).await.unwrap(), "\0back");
    (flow, far)
}

/// A datagram of this length, in which each byte encodes its position.
fn datagram(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 64) as u8).collect()
}

async fn both_ways(flow: &DatagramFlow, far: &DatagramFlow, len: usize) {
    for (from, to) in [(flow, far), (far, flow)] {
        from.send(&datagram(len)).unwrap();
        assert_eq!(next(to).await.unwrap(), datagram(len));
        let most = from.max_bytes();
        let beyond = from.send(&datagram(most + 1));
        // The path MTU may just have grown.
        match beyond {
            Err(DatagramError::TooLarge { most: now }) => assert!(now >= most),
            other => assert!(from.max_bytes() > most, "{other:?}"),
        }
    }
}

#[tokio::test]
async fn frames_carry_what_fits_the_path() {
    let (server, client) = ends(true, true);
    let (flow, far) = pair(&server, &client).await;
    assert!((1_100..1_500).contains(&flow.max_bytes()), "{}", flow.max_bytes());
    let most = flow.max_bytes().min(far.max_bytes());
    both_ways(&flow, &far, most).await;
    both_ways(&flow, &far, 1).await;
    assert_eq!((client.datagrams_dropped(), server.datagrams_dropped()), (0, 0));
}

#[tokio::test]
async fn capsules_carry_datagrams_if_a_peer_accepts_no_frames() {
    for (client_frames, server_frames) in [(false, false), (true, false), (false, true)] {
        let (server, client) = ends(client_frames, server_frames);
        let (flow, far) = pair(&server, &client).await;
        assert_eq!((flow.max_bytes(), far.max_bytes()), (CAPSULE_MOST, CAPSULE_MOST));
        both_ways(&flow, &far, 1200).await;
        both_ways(&flow, &far, CAPSULE_MOST).await;
    }
}

#[tokio::test]
async fn a_hub_and_its_egress_carry_datagrams_of_any_size() {
    let mut config = ServerConfig::new(secret(2), HashSet::from([AIRCRAFT]));
    config.hubs = HashSet::from([public_key(&secret(1))]);
    let server = Server::start(config, socket()).unwrap();
    let at = server.local_addr().unwrap();
    let config = ClientConfig::new(at, public_key(&secret(2)), secret(1));
    let client = Client::connect(config, socket()).unwrap();
    let behalf = Behalf { aircraft: AIRCRAFT, session: 3 };
    let flow = client.forward_datagrams("192.0.2.1:443", (17, 5000), (1, 7), &behalf);
    // Before the stream is open, and before the response.
    flow.send(&datagram(3_000)).unwrap();
    let far = accepted(&server).await.into_datagrams();
    assert_eq!(next(&far).await.unwrap(), datagram(3_000));
    assert_eq!((flow.max_bytes(), far.max_bytes()), (CAPSULE_MOST, CAPSULE_MOST));
    for len in [1, 1_100, 1_600, CAPSULE_MOST] {
        both_ways(&flow, &far, len).await;
    }
    assert_eq!((client.datagrams_dropped(), server.datagrams_dropped()), (0, 0));
}

#[tokio::test]
async fn other_ip_protocols_are_carried() {
    let (server, client) = ends(true, true);
    let flow = client.open_datagrams("192.0.2.1:0", 47, 0, 2, 9);
    let incoming = accepted(&server).await;
    assert_eq!(incoming.authority, "192.0.2.1:0");
    assert_eq!(incoming.payload, Payload::Datagrams { protocol: 47, source: 0 });
    let far = incoming.into_datagrams();
    far.send(b"\x04an ICMP error").unwrap();
    assert_eq!(next(&flow).await.unwrap(), "\x04an ICMP error");
    // A request for a stream is not accepted as one for datagrams, and vice versa.
    let _stream = client.open("192.0.2.1:80", 2, 9, Bytes::new());
    let none = accepted(&server).await.into_datagrams();
    assert_eq!(next(&none).await, Err(ResetCode::Internal));
    let _flow = client.open_datagrams("192.0.2.1:80", 17, 0, 2, 9);
    assert!(accepted(&server).await.accept().await.is_err());
}

#[tokio::test]
async fn refusals_keep_their_reason() {
    let (server, client) = ends(true, true);
    for why in
        [ResetCode::NameNotFound, ResetCode::Forbidden, ResetCode::Limit, ResetCode::Unreachable]
    {
        let flow = client.open_datagrams("192.0.2.1:443", 17, 0, 2, 1);
        accepted(&server).await.refuse(why).await;
        assert_eq!(next(&flow).await, Err(why));
        assert_eq!(flow.send(b"\0late"), Err(DatagramError::Ended(why)));
        let flow = client.open_datagrams("192.0.2.1:443", 17, 0, 2, 1);
        let far = accepted(&server).await.into_datagrams();
        far.reset(why);
        assert_eq!(next(&flow).await, Err(why));
        assert_eq!(next(&far).await, Err(why));
    }
    let flow = client.open_datagrams("192.0.2.1:443", 17, 0, 2, 1);
    drop(accepted(&server).await.into_datagrams());
    assert_eq!(next(&flow).await, Err(ResetCode::Aborted), "nobody answered");
    for nonsense in ["192.0.2.1", "192.0.2.1:0", "2001:db8::1:443", "a b:1", ""] {
        let flow = client.open_datagrams(nonsense, 17, 0, 2, 1);
        assert_eq!(next(&flow).await, Err(ResetCode::Internal), "{nonsense}");
    }
}

#[tokio::test]
async fn flows_end_on_both_sides() {
    for frames in [true, false] {
        let (server, client) = ends(frames, frames);
        let (flow, far) = pair(&server, &client).await;
        drop(flow);
        assert_eq!(next(&far).await, Err(ResetCode::Idle), "nobody misses it");
        let (flow, far) = pair(&server, &client).await;
        drop(far);
        assert_eq!(next(&flow).await, Err(ResetCode::Idle));
        let (flow, far) = pair(&server, &client).await;
        far.reset(ResetCode::Limit);
        assert_eq!(next(&flow).await, Err(ResetCode::Limit));
        let (flow, far) = pair(&server, &client).await;
        flow.reset(ResetCode::Aborted);
        assert_eq!(next(&far).await, Err(ResetCode::Aborted));
        let (flow, _far) = pair(&server, &client).await;
        timeout(LIMIT, server.close()).await.unwrap();
        assert_eq!(next(&flow).await, Err(ResetCode::Lost));
    }
}

#[tokio::test]
async fn flows_do_not_mix() {
    let (server, client) = ends(true, true);
    let mut flows = Vec::new();
    for _ in 0..100 {
        flows.push(pair(&server, &client).await);
    }
    for (n, (flow, _)) in flows.iter().enumerate() {
        flow.send(&[0, n as u8]).unwrap();
    }
    for (n, (_, far)) in flows.iter().enumerate() {
        assert_eq!(next(far).await.unwrap()[..], [0, n as u8]);
    }
}

/// Datagrams that wait for a connection are bounded too.
#[tokio::test]
async fn a_flow_without_a_server_is_bounded_and_ends() {
    let nobody = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = nobody.local_addr().unwrap();
    let mut config = ClientConfig::new(at, public_key(&secret(2)), secret(1));
    config.open_timeout = Duration::from_millis(200);
    let client = Client::connect(config, socket()).unwrap();
    let flow = client.open_datagrams("192.0.2.1:443", 17, 0, 2, 1);
    for _ in 0..1000 {
        flow.send(&datagram(1000)).unwrap();
    }
    assert!(client.datagrams_dropped() > 700, "{}", client.datagrams_dropped());
    assert_eq!(next(&flow).await, Err(ResetCode::Unreachable));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(flow.send(b"\0late"), Err(DatagramError::Ended(ResetCode::Unreachable)));
}
