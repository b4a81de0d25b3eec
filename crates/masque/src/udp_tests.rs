//! CONNECT-UDP with standard clients, and with peers that violate the rules.

use std::{collections::HashSet, future::poll_fn, net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bentpipe_flow::ResetCode;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use proptest::prelude::*;
use tokio::time::timeout;

use crate::{
    Certificate, Client, ClientConfig, DatagramFlow, Incoming, Login, MAX_CONNECTIONS, Payload,
    Server, ServerConfig, Transport,
    auth::SCHEME,
    capsule::{self, MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES},
    client::connection::State,
    public_key,
    stream::RawSend,
    token_hash,
    unproven_tests::{LIMIT, Stranger, secret, socket},
    wire,
};

const TOKEN: &str = "a token of 256 random bits";
const PATH: &str = "/.well-known/masque/udp/192.0.2.6/443/";

/// A server for one gateway and two standard clients.
fn server() -> (Server, SocketAddr) {
    let made = rcgen::generate_simple_self_signed(["proxy.example".to_string()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let mut config = ServerConfig::new(secret(2), HashSet::from([public_key(&secret(1))]));
    config.certificate = Some(Arc::new(certificate));
    config.logins = vec![login(), Login { name: "other".into(), ..login_of("x") }];
    let server = Server::start(config, socket()).unwrap();
    let at = server.local_addr().unwrap();
    (server, at)
}

/// Maximum number of open requests of each client: more than its connections.
const REQUESTS: u32 = 20;

fn login() -> Login {
    login_of(TOKEN)
}

fn login_of(token: &str) -> Login {
    Login { name: "laptop".into(), token_hash: token_hash(token), max_flows: REQUESTS }
}

fn basic() -> String {
    format!("Basic {}", STANDARD.encode(format!("laptop:{TOKEN}")))
}

/// A CONNECT-UDP as in RFC 9298 §3.4, with credentials and more fields.
fn connect_udp<'a>(path: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        (":method", "CONNECT"),
        (":protocol", "connect-udp"),
        (":scheme", "https"),
        (":authority", "proxy.example"),
        (":path", path),
        ("capsule-protocol", "?1"),
    ];
    fields.extend_from_slice(more);
    fields
}

async fn accepted(server: &Server) -> Incoming {
    timeout(LIMIT, server.accept()).await.unwrap().unwrap()
}

async fn next(flow: &DatagramFlow) -> Bytes {
    timeout(LIMIT, flow.receive()).await.expect("a datagram in time").unwrap()
}

#[tokio::test]
async fn a_standard_client_is_served_with_its_token() {
    let (server, at) = server();
    let mut stranger = Stranger::connect(at).await;
    let authorization = basic();
    let fields = connect_udp(PATH, &[("proxy-authorization", &authorization)]);
    let mut sent = stranger.send(&fields).await;
    let incoming = accepted(&server).await;
    assert_eq!(incoming.client, login().identity());
    assert_eq!(incoming.authority, "192.0.2.6:443");
    assert_eq!(incoming.payload, Payload::Datagrams { protocol: 17, source: 0 });
    assert_eq!((incoming.class, incoming.passenger), (crate::DEFAULT_CLASS, 0));
    let flow = incoming.into_datagrams();
    flow.send(b"\0hello").unwrap();
    let response = sent.response().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["capsule-protocol"], "?1");
    // This client did not announce QUIC datagrams, so a capsule arrives.
    let mut recv = sent.request.take_recv().unwrap();
    let mut bytes = [0; 64];
    let read = timeout(LIMIT, poll_fn(|cx| recv.poll_read(cx, &mut bytes))).await.unwrap();
    assert_eq!(&bytes[..read.unwrap()], &capsule::datagram(b"\0hello")[..]);
    // Bearer works too, and so does a CONNECT on the same connection.
    let bearer = format!("Bearer {TOKEN}");
    let connect = [
        (":method", "CONNECT"),
        (":authority", "example.com:80"),
        ("proxy-authorization", &*bearer),
    ];
    let _asked = stranger.send(&connect).await;
    let incoming = accepted(&server).await;
    assert_eq!((incoming.client, incoming.payload), (login().identity(), Payload::Stream));
}

#[tokio::test]
async fn other_credentials_are_refused_a_few_times() {
    let (server, at) = server();
    let mut stranger = Stranger::connect(at).await;
    let wrong_name = format!("Basic {}", STANDARD.encode(format!("other:{TOKEN}")));
    let mut refused = 0;
    'all: loop {
        for credentials in ["Bearer wrong", &wrong_name, "Basic", "Bentpipe key=\"\", proof=\"\""] {
            let fields = connect_udp(PATH, &[("proxy-authorization", credentials)]);
            let Some(response) = stranger.ask(&fields).await else { break 'all };
            assert_eq!(response.status(), StatusCode::PROXY_AUTHENTICATION_REQUIRED);
            let offers: Vec<_> = response.headers().get_all("proxy-authenticate").iter().collect();
            assert_eq!(offers, [SCHEME, crate::login::CHALLENGES]);
            refused += 1;
        }
    }
    assert!((1..20).contains(&refused), "{refused}");
    assert!(timeout(Duration::from_millis(50), server.accept()).await.is_err());
}

/// Requests that a standard client may not send, or not in this form.
#[tokio::test]
async fn malformed_and_unsupported_requests_get_their_status() {
    let (server, at) = server();
    let mut stranger = Stranger::connect(at).await;
    let authorization = basic();
    let proof = ("proxy-authorization", &*authorization);
    for (path, more, status) in [
        ("/.well-known/masque/udp/192.0.2.6/0/", None, 400),
        ("/.well-known/masque/udp/192.0.2.6/443", None, 400),
        ("/.well-known/masque/udp/a%2Fb/443/", None, 400),
        ("/", None, 400),
        (PATH, Some(("bentpipe-protocol", "47")), 403),
        (PATH, Some(("bentpipe-protocol", "17")), 403),
    ] {
        let more: Vec<_> = [proof].into_iter().chain(more).collect();
        let response = stranger.ask(&connect_udp(path, &more)).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
    let mut web_transport = connect_udp(PATH, &[proof]);
    web_transport[1].1 = "webtransport";
    assert_eq!(stranger.ask(&web_transport).await.unwrap().status(), 501);
    let get =
        [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/"), proof];
    assert_eq!(stranger.ask(&get).await.unwrap().status(), 405);
    let fields = connect_udp(PATH, &[proof]);
    let mut sent = stranger.send(&fields).await;
    accepted(&server).await.into_datagrams().reset(ResetCode::Forbidden);
    let response = sent.response().await.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(response.headers()["proxy-status"], "bentpipe; error=destination_ip_prohibited");
}

#[tokio::test]
async fn connections_per_token_are_bounded() {
    let (server, at) = server();
    let authorization = basic();
    let fields = connect_udp(PATH, &[("proxy-authorization", &authorization)]);
    let mut held = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut stranger = Stranger::connect(at).await;
        let sent = stranger.send(&fields).await;
        accepted(&server).await;
        held.push((stranger, sent));
    }
    let mut one_more = Stranger::connect(at).await;
    assert!(one_more.ask(&fields).await.is_none());
    let refused = server.take_refused_requests();
    assert_eq!(
        refused.iter().map(|one| (&*one.client, one.count)).collect::<Vec<_>>(),
        [("laptop", 1)]
    );
    assert_eq!(refused[0].max, REQUESTS);
    assert_eq!(server.take_refused_requests(), []);
    held.remove(0).0.conn.close(0u32.into(), b"");
    let served = async {
        loop {
            let mut stranger = Stranger::connect(at).await;
            let _asked = stranger.send(&fields).await;
            if timeout(Duration::from_millis(100), server.accept()).await.is_ok() {
                return;
            }
        }
    };
    timeout(LIMIT, served).await.expect("the place is given back");
}

/// An open flow of our own client, and its connection.
async fn pair() -> (Server, Client, DatagramFlow, DatagramFlow, quinn::Connection) {
    let (server, at) = server();
    let config = ClientConfig::new(at, public_key(&secret(2)), secret(1));
    let client = Client::connect(config, socket()).unwrap();
    let flow = client.open_datagrams("192.0.2.6:443", 17, 5000, 1, 7);
    let far = accepted(&server).await.into_datagrams();
    far.send(b"\0open").unwrap();
    assert_eq!(next(&flow).await, "\0open");
    let conn = match &*client.state.borrow() {
        State::Up(live) => live.conn.clone(),
        State::Down(why) => panic!("{why}"),
    };
    (server, client, flow, far, conn)
}

#[tokio::test]
async fn malformed_datagrams_are_dropped_and_counted() {
    let (server, _client, flow, far, conn) = pair().await;
    let mut strange = vec![
        // Nonexistent streams of both parities; no context id, half of one.
        Bytes::from_static(b"\x3f\0for nobody"),
        Bytes::from_static(b"\xcf\xff\xff\xff\xff\xff\xff\xff\0for nobody"),
        Bytes::from_static(b"\x01"),
        Bytes::from_static(b"\x01\x40"),
    ];
    // More than are buffered for streams that may still arrive.
    strange.extend((0..200u8).map(|n| Bytes::copy_from_slice(&[0x41, n, 0, n])));
    for datagram in strange {
        conn.send_datagram(datagram).unwrap();
    }
    flow.send(b"\0through").unwrap();
    // The receiver interprets contexts.
    flow.send(b"\x3funknown context").unwrap();
    assert_eq!(next(&far).await, "\0through");
    assert_eq!(next(&far).await, "\x3funknown context");
    assert!(server.datagrams_dropped() > 100, "{}", server.datagrams_dropped());
}

#[tokio::test]
async fn a_datagram_without_a_stream_id_ends_the_connection() {
    for malformed in [&b""[..], b"\x40", b"\xd0\0\0\0\0\0\0\0rest"] {
        let (_server, _client, flow, _far, conn) = pair().await;
        conn.send_datagram(Bytes::copy_from_slice(malformed)).unwrap();
        let why = timeout(LIMIT, conn.closed()).await.unwrap();
        let quinn::ConnectionError::ApplicationClosed(close) = why else { panic!("{why}") };
        assert_eq!(close.error_code.into_inner(), 0x33);
        assert_eq!(timeout(LIMIT, flow.receive()).await.unwrap(), Err(ResetCode::Lost));
    }
}

/// A flow of a standard client with a raw stream.
async fn capsules() -> (Server, Stranger, RawSend, DatagramFlow) {
    let (server, at) = server();
    let mut stranger = Stranger::connect(at).await;
    let authorization = basic();
    let sent = stranger.send(&connect_udp(PATH, &[("proxy-authorization", &authorization)])).await;
    let far = accepted(&server).await.into_datagrams();
    far.accept();
    let send = sent.into_send();
    (server, stranger, send, far)
}

/// A DATA frame with one capsule whose header announces `len`.
fn raw_capsule(kind: u64, len: u64, value: &[u8]) -> Bytes {
    let mut body = BytesMut::new();
    wire::write_varint(kind, &mut body);
    wire::write_varint(len, &mut body);
    body.extend_from_slice(value);
    let mut frame = BytesMut::new();
    wire::data_header(body.len(), &mut frame);
    frame.extend_from_slice(&body);
    frame.freeze()
}

#[tokio::test]
async fn hostile_capsules_are_skipped() {
    let (server, _stranger, mut send, far) = capsules().await;
    let beyond = vec![7; MAX_DATAGRAM_BYTES + 1];
    for frame in [
        raw_capsule(0x2028, 5, b"draft"),
        raw_capsule(0, 0, b""),
        raw_capsule(0, 1, b"\x40"),
        raw_capsule(0x17, 70_000, &vec![1; 70_000]),
        raw_capsule(0, beyond.len() as u64, &beyond),
        capsule::datagram(b"\0after all that"),
    ] {
        send.write(frame).await.unwrap();
    }
    assert_eq!(next(&far).await, "\0after all that");
    assert_eq!(server.datagrams_dropped(), 3);
    let largest = [&[0][..], &vec![9; MAX_PAYLOAD_BYTES]].concat();
    send.write(capsule::datagram(&largest)).await.unwrap();
    assert_eq!(next(&far).await, largest);
    // An endless capsule needs no memory. The end of the stream inside it ends the flow.
    send.write(raw_capsule(0, u64::MAX >> 2, b"\x07half")).await.unwrap();
    send.finish();
    assert_eq!(timeout(LIMIT, far.receive()).await.unwrap(), Err(ResetCode::Aborted));
}

/// RFC 9298 §5.
#[tokio::test]
async fn an_oversized_udp_payload_aborts_the_flow() {
    let (_server, _stranger, mut send, far) = capsules().await;
    send.write(raw_capsule(0, 70_000, b"\0so far")).await.unwrap();
    assert_eq!(timeout(LIMIT, far.receive()).await.unwrap(), Err(ResetCode::Aborted));
}

/// The response waits for credit that never arrives. The end of the flow ends the wait.
#[tokio::test]
async fn a_response_without_credit_ends_with_its_flow() {
    let (server, at) = server();
    // SETTINGS pass, because the client reads them; the response does not.
    let tight = Transport { flow_window_bytes: 8, ..Transport::default() };
    let mut stranger = Stranger::connect_with(at, &tight).await;
    let authorization = basic();
    let fields = connect_udp(PATH, &[("proxy-authorization", &authorization)]);
    let mut sent = stranger.send(&fields).await;
    let flow = accepted(&server).await.into_datagrams();
    flow.accept();
    tokio::time::sleep(Duration::from_millis(50)).await;
    flow.reset(ResetCode::Forbidden);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(sent.response().await.is_none());
}

/// The limit covers all connections. Requests beyond it are refused until others end.
#[tokio::test]
async fn requests_per_token_are_bounded() {
    let (server, at) = server();
    let authorization = basic();
    let fields = connect_udp(PATH, &[("proxy-authorization", &authorization)]);
    let (mut one, mut two) = (Stranger::connect(at).await, Stranger::connect(at).await);
    let mut held = Vec::new();
    for _ in 0..REQUESTS / 2 {
        for stranger in [&mut one, &mut two] {
            let sent = stranger.send(&fields).await;
            let flow = accepted(&server).await.into_datagrams();
            flow.accept();
            held.push((sent, flow));
        }
    }
    let refused = one.ask(&fields).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(held.pop());
    let served = async {
        loop {
            let _asked = one.send(&fields).await;
            if timeout(Duration::from_millis(100), server.accept()).await.is_ok() {
                break;
            }
        }
    };
    timeout(LIMIT, served).await.unwrap();
}

/// Nobody reads, so new datagrams displace old ones.
#[tokio::test]
async fn an_unread_flow_is_bounded() {
    let (server, _stranger, mut send, far) = capsules().await;
    for n in 0..2000u32 {
        send.write(capsule::datagram(&[&[0][..], &n.to_be_bytes()].concat())).await.unwrap();
    }
    let dropped = 2000 - crate::datagrams::queue::QUEUE_DATAGRAMS as u64;
    let all = async {
        while server.datagrams_dropped() < dropped {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, all).await.unwrap();
    assert_eq!(next(&far).await[1..], (dropped as u32).to_be_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The server survives whatever a client writes into an open flow.
    #[test]
    fn any_body_is_survived(body in prop::collection::vec(any::<u8>(), 0..3000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (server, mut stranger, mut send, far) = capsules().await;
            // The frames may be truncated, or of a type that ends the flow.
            let _ = send.write(body.into()).await;
            send.finish();
            let read = async { while far.receive().await.is_ok() {} };
            timeout(LIMIT, read).await.expect("the flow ends");
            let authorization = basic();
            let fields = connect_udp(PATH, &[("proxy-authorization", &authorization)]);
            let _asked = stranger.send(&fields).await;
            accepted(&server).await;
        });
    }
}
