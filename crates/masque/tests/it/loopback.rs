//! Client and server over real UDP sockets on loopback.

use std::{
    collections::HashSet,
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use bentpipe_flow::ResetCode;
use bentpipe_masque::{
    Client, ClientConfig, ConnectError, Flow, FlowReset, SecretKey, Server, ServerConfig, Socket,
    Trust, public_key,
};
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

const LIMIT: Duration = Duration::from_secs(60);

fn secret(byte: u8) -> SecretKey {
    SecretKey::new([byte; 32])
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn start_server(at: SocketAddr) -> Arc<Server> {
    let clients = HashSet::from([public_key(&secret(1))]);
    let config = ServerConfig::new(secret(2), clients);
    Arc::new(Server::start(config, Socket::bind(at).unwrap()).unwrap())
}

fn client_config(server: SocketAddr) -> ClientConfig {
    let mut config = ClientConfig::new(server, public_key(&secret(2)), secret(1));
    config.reconnect_min = Duration::from_millis(50);
    config
}

fn start_client(server: &Server) -> Client {
    let config = client_config(server.local_addr().unwrap());
    Client::connect(config, Socket::bind(loopback()).unwrap()).unwrap()
}

/// A server, a client, and both ends of a flow.
async fn pair(first: &'static [u8]) -> (Arc<Server>, Client, Flow, Flow) {
    let server = start_server(loopback());
    let client = start_client(&server);
    let flow = client.open("example.com:80", 1, 7, Bytes::from_static(first));
    let incoming = timeout(LIMIT, server.accept()).await.unwrap().unwrap();
    assert_eq!(incoming.client, public_key(&secret(1)));
    assert_eq!(incoming.authority, "example.com:80");
    assert_eq!((incoming.class, incoming.passenger), (1, 7));
    let far = incoming.accept().await.unwrap();
    (server, client, flow, far)
}

fn reset_of(error: io::Error) -> ResetCode {
    why_of(error, io::ErrorKind::ConnectionReset)
}

fn why_of(error: io::Error, kind: io::ErrorKind) -> ResetCode {
    assert_eq!(error.kind(), kind, "{error}");
    error.get_ref().unwrap().downcast_ref::<FlowReset>().unwrap().0
}

async fn read_error(flow: &mut Flow) -> ResetCode {
    let error = timeout(LIMIT, flow.read_to_end(&mut Vec::new())).await.unwrap().unwrap_err();
    let why = reset_of(error);
    assert_eq!(flow.reset_code(), Some(why));
    why
}

#[tokio::test]
async fn first_bytes_are_echoed() {
    let (_server, _client, flow, far) = pair(b"first, ").await;
    let payload: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let echo = tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(far);
        tokio::io::copy(&mut read, &mut write).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let (mut read, mut write) = tokio::io::split(flow);
    let sent = payload.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    timeout(LIMIT, read.read_to_end(&mut back)).await.unwrap().unwrap();
    writer.await.unwrap();
    echo.await.unwrap();
    assert_eq!(&back[..7], b"first, ");
    assert!(back[7..] == payload);
}

#[tokio::test]
async fn a_flow_answers_its_request_with_its_first_use_or_refuses_it() {
    let server = start_server(loopback());
    let client = start_client(&server);
    let mut flow = client.open("example.com:80", 1, 7, Bytes::new());
    let mut far = timeout(LIMIT, server.accept()).await.unwrap().unwrap().into_stream();
    far.confirm_class(2);
    far.write_all(b"hi").await.unwrap();
    let mut read = [0; 2];
    timeout(LIMIT, flow.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!((&read, flow.class()), (b"hi", Some(2)));
    let mut refused = client.open("example.com:80", 1, 7, Bytes::new());
    timeout(LIMIT, server.accept())
        .await
        .unwrap()
        .unwrap()
        .into_stream()
        .reset(ResetCode::Forbidden);
    assert_eq!(read_error(&mut refused).await, ResetCode::Forbidden);
    let mut dropped = client.open("example.com:80", 1, 7, Bytes::new());
    drop(timeout(LIMIT, server.accept()).await.unwrap().unwrap().into_stream());
    assert_eq!(read_error(&mut dropped).await, ResetCode::Aborted);
}

/// A connection that was lost silently, its replacement, and another one.
#[tokio::test]
async fn a_key_keeps_its_two_newest_connections() {
    let server = start_server(loopback());
    let mut opened = Vec::new();
    for _ in 0..3 {
        let mut config = client_config(server.local_addr().unwrap());
        // A closed connection does not reconnect and displace another.
        (config.reconnect_min, config.reconnect_max) = (LIMIT * 100, LIMIT * 100);
        let client = Client::connect(config, Socket::bind(loopback()).unwrap()).unwrap();
        let flow = client.open("example.com:80", 1, 7, Bytes::from_static(b"hi"));
        let incoming = timeout(LIMIT, server.accept()).await.unwrap().unwrap();
        opened.push((client, flow, incoming.accept().await.unwrap()));
    }
    let mut opened = opened.into_iter();
    let (_oldest, _flow, mut far) = opened.next().unwrap();
    // The flow's own bytes come first, if they arrived in time.
    let ended = timeout(LIMIT, far.read_to_end(&mut Vec::new())).await.unwrap();
    assert!(ended.is_err(), "the oldest is closed");
    for (_client, mut flow, mut far) in opened {
        let mut came = [0; 2];
        timeout(LIMIT, far.read_exact(&mut came)).await.unwrap().unwrap();
        assert_eq!(&came, b"hi");
        far.write_all(b"back").await.unwrap();
        let mut back = [0; 4];
        timeout(LIMIT, flow.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(&back, b"back");
    }
}

#[tokio::test]
async fn half_close_works_in_both_directions() {
    let (_server, _client, mut flow, mut far) = pair(b"").await;
    // The client ends first and still reads,
    flow.shutdown().await.unwrap();
    assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
    far.write_all(b"late").await.unwrap();
    far.shutdown().await.unwrap();
    let mut got = Vec::new();
    flow.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"late");

    // and the other way round.
    let (_server, _client, mut flow, mut far) = pair(b"").await;
    far.shutdown().await.unwrap();
    assert_eq!(flow.read(&mut [0; 8]).await.unwrap(), 0);
    flow.write_all(b"late").await.unwrap();
    flow.shutdown().await.unwrap();
    got.clear();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"late");
}

/// Bytes written before the end arrive even when the flow is dropped at once.
#[tokio::test]
async fn a_finished_flow_may_be_dropped() {
    let (_server, _client, mut flow, mut far) = pair(b"").await;
    let payload = vec![5; 1_000_000];
    let reader = tokio::spawn(async move {
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.map(|_| got)
    });
    flow.write_all(&payload).await.unwrap();
    flow.shutdown().await.unwrap();
    drop(flow);
    assert!(timeout(LIMIT, reader).await.unwrap().unwrap().unwrap() == payload);
}

#[tokio::test]
async fn resets_travel_both_ways() {
    let (_server, _client, mut flow, mut far) = pair(b"").await;
    far.reset(ResetCode::Limit);
    assert_eq!(read_error(&mut flow).await, ResetCode::Limit);

    let (_server, _client, mut flow, mut far) = pair(b"x").await;
    flow.reset(ResetCode::Aborted);
    // The byte before the reset may or may not arrive.
    assert_eq!(read_error(&mut far).await, ResetCode::Aborted);

    let (_server, _client, flow, mut far) = pair(b"").await;
    drop(flow);
    assert_eq!(read_error(&mut far).await, ResetCode::Aborted, "a dropped flow is reset");
}

/// A read that waits is stopped, and the writer learns it; the other direction goes on.
#[tokio::test]
async fn stop_reading_ends_the_peers_writing_only() {
    let (_server, _client, mut flow, mut far) = pair(b"").await;
    assert!(timeout(Duration::from_millis(50), flow.read(&mut [0; 8])).await.is_err());
    flow.stop_reading(ResetCode::Limit);
    let written = async {
        loop {
            if let Err(error) = far.write_all(&[0; 1024]).await {
                return why_of(error, io::ErrorKind::BrokenPipe);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert_eq!(timeout(LIMIT, written).await.unwrap(), ResetCode::Limit);
    flow.write_all(b"still").await.unwrap();
    flow.shutdown().await.unwrap();
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"still");
}

#[tokio::test]
async fn refusals_keep_their_reason() {
    let server = start_server(loopback());
    let client = start_client(&server);
    for why in
        [ResetCode::Refused, ResetCode::NameNotFound, ResetCode::Forbidden, ResetCode::Timeout]
    {
        let mut flow = client.open("192.0.2.1:9", 2, 1, Bytes::from_static(b"hello"));
        timeout(LIMIT, server.accept()).await.unwrap().unwrap().refuse(why).await;
        assert_eq!(read_error(&mut flow).await, why);
        assert!(flow.write_all(&[0; 65536]).await.is_err() || flow.flush().await.is_err());
    }
    let mut unanswered = client.open("192.0.2.1:9", 2, 1, Bytes::new());
    drop(timeout(LIMIT, server.accept()).await.unwrap().unwrap());
    assert_eq!(read_error(&mut unanswered).await, ResetCode::Aborted);
    let mut nonsense = client.open("not an authority", 2, 1, Bytes::new());
    assert_eq!(read_error(&mut nonsense).await, ResetCode::Internal);
    let mut no_port = client.open("example.com", 2, 1, Bytes::new());
    assert_eq!(read_error(&mut no_port).await, ResetCode::Internal);
    // The connection is still alive.
    assert_eq!(client.status(), Ok(()));
}

async fn status_after_a_try(config: ClientConfig) -> ConnectError {
    let client = Client::connect(config, Socket::bind(loopback()).unwrap()).unwrap();
    let wait = async {
        loop {
            match client.status() {
                Err(ConnectError::Connecting) => tokio::time::sleep(Duration::from_millis(5)).await,
                other => return other.unwrap_err(),
            }
        }
    };
    timeout(LIMIT, wait).await.unwrap()
}

#[tokio::test]
async fn keys_that_do_not_match_are_refused() {
    let server = start_server(loopback());
    let at = server.local_addr().unwrap();
    let with = |server_key, secret| ClientConfig {
        trust: Trust::Keys { server_key, secret },
        ..client_config(at)
    };
    let own = public_key(&secret(2));
    let unknown_client = with(own, secret(9));
    assert_eq!(status_after_a_try(unknown_client).await, ConnectError::Refused);
    let other_server = with(public_key(&secret(9)), secret(1));
    assert_eq!(status_after_a_try(other_server).await, ConnectError::Refused);
    let low_order = with([0; 32], secret(1));
    assert_eq!(status_after_a_try(low_order).await, ConnectError::UnusableKey);
}

#[tokio::test]
async fn a_flow_waits_for_a_server_that_comes_up_late() {
    // No other test uses a port of this address while none holds it.
    let nobody = UdpSocket::bind("127.0.0.2:0").unwrap();
    nobody.set_read_timeout(Some(LIMIT)).unwrap();
    let at = nobody.local_addr().unwrap();
    let mut config = client_config(at);
    config.transport.initial_rtt = Duration::from_millis(50);
    let client = Client::connect(config, Socket::bind(loopback()).unwrap()).unwrap();
    let mut flow = client.open("example.com:80", 2, 1, Bytes::from_static(b"early"));
    // The first packets arrive when nobody is there to answer.
    let mut unheard = [0; 1500];
    tokio::task::spawn_blocking(move || nobody.recv(&mut unheard)).await.unwrap().unwrap();
    let server = start_server(at);
    let incoming = timeout(LIMIT, server.accept()).await.unwrap().unwrap();
    let mut far = incoming.accept().await.unwrap();
    flow.shutdown().await.unwrap();
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"early");
}

#[tokio::test]
async fn reconnects_when_the_server_restarts() {
    let (server, client, mut flow, far) = pair(b"").await;
    let at = server.local_addr().unwrap();
    server.close().await;
    drop((server, far));
    assert_eq!(read_error(&mut flow).await, ResetCode::Lost, "HTTP/3 cannot resume flows");
    // The task of the old endpoint releases the port soon.
    let socket = timeout(LIMIT, async {
        loop {
            match UdpSocket::bind(at) {
                Ok(socket) => return socket,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    drop(socket.await.unwrap());
    let server = start_server(at);
    let mut flow = client.open("example.com:80", 2, 1, Bytes::from_static(b"again"));
    let incoming = timeout(LIMIT, server.accept()).await.unwrap().unwrap();
    let mut far = incoming.accept().await.unwrap();
    flow.shutdown().await.unwrap();
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"again");
}

#[tokio::test]
async fn a_flow_without_a_server_is_reset_after_the_timeout() {
    let nobody = UdpSocket::bind(loopback()).unwrap();
    let config = ClientConfig {
        open_timeout: Duration::from_millis(100),
        ..client_config(nobody.local_addr().unwrap())
    };
    let client = Client::connect(config, Socket::bind(loopback()).unwrap()).unwrap();
    let mut flow = client.open("example.com:80", 2, 1, Bytes::new());
    assert_eq!(read_error(&mut flow).await, ResetCode::Unreachable);
}

#[tokio::test]
async fn garbage_on_the_socket_is_ignored() {
    let (server, _client, mut flow, mut far) = pair(b"").await;
    let noise = UdpSocket::bind(loopback()).unwrap();
    let at = server.local_addr().unwrap();
    let mut state = 1u32;
    for len in (0..1400).step_by(7) {
        let bytes: Vec<u8> = (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        noise.send_to(&bytes, at).unwrap();
    }
    flow.write_all(b"through").await.unwrap();
    flow.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(LIMIT, far.read_to_end(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, b"through");
}

#[tokio::test]
async fn a_closed_client_opens_nothing() {
    let (_server, client, mut flow, _far) = pair(b"").await;
    timeout(LIMIT, client.close()).await.unwrap();
    assert_eq!(read_error(&mut flow).await, ResetCode::Lost);
    let mut late = client.open("example.com:80", 2, 1, Bytes::new());
    assert_eq!(read_error(&mut late).await, ResetCode::Unreachable);
    assert_eq!(client.status(), Err(ConnectError::Closed));
}
