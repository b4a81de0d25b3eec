//! Peers that violate the rules: clients without a proof, a server without the key.

use std::{
    collections::HashSet,
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use h3::error::Code;
use http::StatusCode;
use tokio::time::timeout;

use crate::{
    Client, ClientConfig, ConnectError, INFO_HEADER, SecretKey, Server, ServerConfig, Socket,
    Transport, Trust, auth,
    client::connection::Response,
    public_key,
    quic::{self, H3Requests, Request},
    settings::UNPROVEN_STREAMS,
    stream::RawSend,
    tls,
    unproven::MAX_UNPROVEN_PER_SOURCE,
    wire,
};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn socket() -> Socket {
    Socket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

pub(crate) fn secret(byte: u8) -> SecretKey {
    SecretKey::new([byte; 32])
}

fn server() -> (Server, SocketAddr) {
    let config = ServerConfig::new(secret(2), HashSet::from([public_key(&secret(1))]));
    let server = Server::start(config, socket()).unwrap();
    let at = server.local_addr().unwrap();
    (server, at)
}

/// An HTTP/3 client without our extensions.
pub(crate) struct Stranger {
    pub(crate) conn: quinn::Connection,
    requests: h3::client::SendRequest<quic::Opener, Bytes>,
    h3_requests: H3Requests,
    _endpoint: quinn::Endpoint,
}

/// A request that was sent.
pub(crate) struct SentRequest {
    pub(crate) request: Request,
    stream: Response,
    send: RawSend,
}

impl SentRequest {
    /// Waits for the response. Returns `None` if the stream or the connection was reset.
    pub(crate) async fn response(&mut self) -> Option<http::Response<()>> {
        timeout(LIMIT, self.stream.recv_response()).await.expect("an answer in time").ok()
    }

    pub(crate) fn into_send(self) -> RawSend {
        self.send
    }
}

impl Stranger {
    pub(crate) async fn connect(to: SocketAddr) -> Stranger {
        Stranger::connect_with(to, &Transport::default()).await
    }

    pub(crate) async fn connect_with(to: SocketAddr, transport: &Transport) -> Stranger {
        let (endpoint, conn) = dial(to, transport.client().unwrap()).await;
        let (connection, h3_requests) = quic::Connection::new(conn.clone());
        let (mut driver, requests) = h3::client::new(connection).await.unwrap();
        tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        Stranger { conn, requests, h3_requests, _endpoint: endpoint }
    }

    /// Sends a request with these fields.
    pub(crate) async fn try_send(&mut self, fields: &[(&str, &str)]) -> Option<SentRequest> {
        let request = http::Request::connect("a:1").body(()).unwrap();
        let stream = self.requests.send_request(request).await.ok()?;
        let request = self.h3_requests.take(stream.id()).unwrap();
        let mut send = request.take_send()?;
        send.write(wire::headers(fields)).await.ok()?;
        Some(SentRequest { request, stream, send })
    }

    pub(crate) async fn send(&mut self, fields: &[(&str, &str)]) -> SentRequest {
        self.try_send(fields).await.expect("the connection lives")
    }

    /// Waits for the response to a request with these fields. Returns `None` if the connection was
    /// closed.
    pub(crate) async fn ask(&mut self, fields: &[(&str, &str)]) -> Option<http::Response<()>> {
        let mut sent = self.try_send(fields).await?;
        sent.send.finish();
        sent.response().await
    }

    async fn close_code(&self) -> u64 {
        close_code(&self.conn).await
    }
}

fn trust() -> Trust {
    Trust::Keys { server_key: public_key(&secret(2)), secret: secret(1) }
}

/// A bare connection, which ends with its endpoint.
async fn dial(
    to: SocketAddr,
    transport: Arc<quinn::TransportConfig>,
) -> (quinn::Endpoint, quinn::Connection) {
    let mut config = tls::client(&trust()).unwrap();
    config.transport_config(transport);
    let endpoint = socket().endpoint(None).unwrap();
    let conn = endpoint.connect_with(config, to, tls::SERVER_NAME).unwrap().await.unwrap();
    (endpoint, conn)
}

async fn close_code(conn: &quinn::Connection) -> u64 {
    match timeout(LIMIT, conn.closed()).await.expect("closed in time") {
        quinn::ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
        other => panic!("closed with {other}"),
    }
}

/// Longer than the time for a proof, shorter than the idle timeout.
async fn pass_the_deadline() {
    // Packets in flight arrive.
    tokio::time::sleep(Duration::from_millis(100)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
}

/// HTTP/3 cannot start, because the server may not open a control stream.
#[tokio::test]
async fn a_client_that_blocks_settings_is_closed() {
    let (_server, at) = server();
    let mut transport = quinn::TransportConfig::default();
    transport.max_concurrent_uni_streams(0u32.into()).max_idle_timeout(None);
    let (_endpoint, conn) = dial(at, Arc::new(transport)).await;
    pass_the_deadline().await;
    assert_eq!(close_code(&conn).await, Code::H3_REQUEST_REJECTED.value());
}

/// Without open requests, GOAWAY is the last frame that h3 reads.
#[tokio::test]
async fn a_client_that_only_sends_goaway_is_closed() {
    let (_server, at) = server();
    let (_endpoint, conn) = dial(at, Transport::default().client().unwrap()).await;
    let mut control = conn.open_uni().await.unwrap();
    // A control stream, empty SETTINGS, GOAWAY of 0.
    control.write_all(&[0, 4, 0, 7, 1, 0]).await.unwrap();
    pass_the_deadline().await;
    assert_eq!(close_code(&conn).await, Code::H3_REQUEST_REJECTED.value());
}

/// All datagrams before the proof are read and do not stay in QUIC's buffer.
#[tokio::test]
async fn datagrams_before_the_proof_are_read() {
    let (_server, at) = server();
    let stranger = Stranger::connect(at).await;
    // A datagram without a stream id is an error for its reader (RFC 9297 §2.1).
    stranger.conn.send_datagram(Bytes::new()).unwrap();
    assert_eq!(stranger.close_code().await, 0x33);
}

#[tokio::test]
async fn unproven_connections_per_address_are_bounded() {
    let (_server, at) = server();
    let mut held = Vec::new();
    for _ in 0..MAX_UNPROVEN_PER_SOURCE {
        held.push(dial(at, Transport::default().client().unwrap()).await);
    }
    let mut config = tls::client(&trust()).unwrap();
    config.transport_config(Transport::default().client().unwrap());
    let endpoint = socket().endpoint(None).unwrap();
    let connect = || endpoint.connect_with(config.clone(), at, tls::SERVER_NAME).unwrap();
    let refused = timeout(LIMIT, connect()).await.expect("an answer in time");
    assert!(matches!(refused, Err(quinn::ConnectionError::ConnectionClosed(_))), "{refused:?}");
    drop(held.pop());
    let welcome = async { while connect().await.is_err() {} };
    timeout(LIMIT, welcome).await.expect("the place comes back");
}

#[tokio::test]
async fn a_connect_without_a_proof_is_refused_a_few_times() {
    let (server, at) = server();
    let mut stranger = Stranger::connect(at).await;
    let connect = [(":method", "CONNECT"), (":authority", "example.com:80")];
    let mut refused = 0;
    while let Some(response) = stranger.ask(&connect).await {
        assert_eq!(response.status(), StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        assert_eq!(response.headers()["proxy-authenticate"], "Bentpipe");
        refused += 1;
    }
    assert!(refused < 20, "{refused}");
    assert_eq!(stranger.close_code().await, Code::H3_EXCESSIVE_LOAD.value());
    assert!(timeout(Duration::from_millis(50), server.accept()).await.is_err());
}

#[tokio::test]
async fn a_proof_of_another_session_is_refused() {
    let (_server, at) = server();
    let mut stranger = Stranger::connect(at).await;
    let proofs =
        auth::Proofs::new(&secret(1), auth::Side::Client, &public_key(&secret(2)), [9; 32]);
    let proof = proofs.unwrap().prove(auth::Side::Client);
    let authorization = auth::write_authorization(&public_key(&secret(1)), &proof);
    let get = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", tls::SERVER_NAME),
        (":path", crate::SESSION_PATH),
        ("proxy-authorization", &*authorization),
    ];
    assert!(stranger.ask(&get).await.is_none());
    assert_eq!(stranger.close_code().await, Code::H3_REQUEST_REJECTED.value());
}

/// An unproven client may hold only a few open streams.
#[tokio::test]
async fn streams_before_the_proof_are_bounded() {
    let (_server, at) = server();
    let stranger = Stranger::connect(at).await;
    let mut open = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(200), stranger.conn.open_bi()).await {
        open.push(stream.unwrap());
    }
    assert_eq!(open.len(), UNPROVEN_STREAMS as usize);
}

#[tokio::test]
async fn oversized_headers_are_refused() {
    let (_server, at) = server();
    let mut stranger = Stranger::connect(at).await;
    let long = "x".repeat(quic::MAX_HEADERS_BYTES as usize);
    let connect = [(":method", "CONNECT"), (":authority", "a:1"), ("x", &long)];
    assert!(stranger.ask(&connect).await.is_none_or(|answer| !answer.status().is_success()));
}

/// Responds to every client with 200 and a proof of another key.
#[tokio::test]
async fn an_impostor_gets_no_passenger_data() {
    let endpoint = socket().endpoint(Some(tls::server(None).unwrap())).unwrap();
    let at = endpoint.local_addr().unwrap();
    let impostor = tokio::spawn(async move {
        let conn = endpoint.accept().await.unwrap().await.unwrap();
        let (connection, h3_requests) = quic::Connection::new(conn);
        let mut h3: h3::server::Connection<_, Bytes> =
            h3::server::Connection::new(connection).await.unwrap();
        let resolver = h3.accept().await.unwrap().unwrap();
        let request = h3_requests.next().unwrap();
        let (_, _stream) = resolver.resolve_request().await.unwrap();
        let info = auth::write_info(&[7; 32]);
        let mut send = request.take_send().unwrap();
        send.write(wire::headers(&[(":status", "200"), (INFO_HEADER, &info)])).await.unwrap();
        send.finish();
        // Nothing more may arrive, because the client closes the connection.
        assert!(h3.accept().await.is_err());
    });
    let mut config = ClientConfig::new(at, public_key(&secret(2)), secret(1));
    config.reconnect_min = Duration::from_secs(100);
    let client = Client::connect(config, socket()).unwrap();
    let _flow = client.open("example.com:80", 2, 1, Bytes::from_static(b"secret"));
    timeout(LIMIT, impostor).await.unwrap().unwrap();
    let refused = async {
        while client.status() != Err(ConnectError::Impostor) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, refused).await.unwrap();
}
