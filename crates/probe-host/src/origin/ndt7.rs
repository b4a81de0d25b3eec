//! ndt7 tests for probes and other clients.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::places::Place;
use bentpipe_probe::ndt7::{
    self, AppInfo, ConnectionInfo, INTERVAL, LENGTH, MAX_LENGTH, MAX_MESSAGE, MAX_SENT_MESSAGE,
    Message, SUBPROTOCOL,
};
use bentpipe_probe::rate::Direction;
use futures_util::{SinkExt, StreamExt};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::{OnUpgrade, Parts};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message as Frame};

use crate::channel::{self, Channel};
use crate::tcp_info;

/// Maximum number of tests at a time. A message in parts takes up to 16 MB, and its next part another 16 MB: 128 MB
/// together.
pub const MAX_TESTS: usize = 4;

/// Bytes that wait in the kernel and were not sent yet. A measurement message is late by the time that they take.
const UNSENT: u32 = 128 * 1024;

/// Longest query.
const MAX_QUERY: usize = 4096;

/// Wait for the end of the closing handshake.
const CLOSING: Duration = Duration::from_secs(3);

type WebSocket = WebSocketStream<Channel>;

/// Bounds of messages.
pub fn bounds() -> WebSocketConfig {
    WebSocketConfig::default()
        .write_buffer_size(0)
        .max_write_buffer_size(4 * MAX_SENT_MESSAGE)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}

/// Direction of the test that a path names.
pub fn direction(path: &str) -> Option<Direction> {
    [Direction::Down, Direction::Up].into_iter().find(|direction| ndt7::path(*direction) == path)
}

/// Answers the request for a test, and starts it. `place` is absent if the client has another one.
pub fn upgrade(
    request: &mut Request<Incoming>,
    direction: Direction,
    client: SocketAddr,
    place: Option<Place>,
    content: &Bytes,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    let Some(accept) = accept(request) else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let Some(place) = place else {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return response;
    };
    let upgraded = hyper::upgrade::on(request);
    let content = content.clone();
    tokio::spawn(async move {
        // A client that goes away is not an error, and no test outlives its bounds.
        let bound = MAX_LENGTH + 2 * CLOSING;
        let _ = tokio::time::timeout(bound, test(upgraded, direction, client, content)).await;
        drop(place);
    });
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields: [(HeaderName, &str); 4] = [
        (CONNECTION, "Upgrade"),
        (UPGRADE, "websocket"),
        (SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL),
        (SEC_WEBSOCKET_ACCEPT, &accept),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, value.parse().expect("a valid value"));
    }
    response
}

/// The key that accepts a request for a test; `None` if it is not one (RFC 6455, section 4.2.1).
fn accept(request: &Request<Incoming>) -> Option<String> {
    let fields = request.headers();
    let valid = *request.method() == Method::GET
        && lists(fields, &CONNECTION, "upgrade")
        && lists(fields, &UPGRADE, "websocket")
        && lists(fields, &SEC_WEBSOCKET_VERSION, "13")
        && lists(fields, &SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
        && request.uri().query().is_none_or(|query| query.len() <= MAX_QUERY);
    let key = fields.get(SEC_WEBSOCKET_KEY).filter(|_| valid)?;
    Some(derive_accept_key(key.as_bytes()))
}

fn lists(fields: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let texts = fields.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|part| part.trim().eq_ignore_ascii_case(wanted))
}

async fn test(
    upgraded: OnUpgrade,
    direction: Direction,
    client: SocketAddr,
    content: Bytes,
) -> io::Result<()> {
    let upgraded = upgraded.await.map_err(io::Error::other)?;
    let parts: Parts<TokioIo<Channel>> =
        upgraded.downcast().map_err(|_| io::Error::other("another connection"))?;
    let channel = parts.io.into_inner();
    let socket = SockRef::from(channel::socket(&channel));
    // Kernels without BBR keep their own congestion control.
    let _ = socket.set_tcp_congestion(b"bbr");
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
    let server = socket.local_addr()?.as_socket().map(|server| server.to_string());
    let connection =
        ConnectionInfo { client: client.to_string(), server: server.unwrap_or_default() };
    let web = WebSocketStream::from_partially_read(
        channel,
        parts.read_buf.to_vec(),
        Role::Server,
        Some(bounds()),
    )
    .await;
    let test = Test { web, direction, connection, start: Instant::now(), bytes: 0 };
    let ended = match direction {
        Direction::Down => test.download(content).await,
        Direction::Up => test.upload().await,
    };
    ended.map_err(io::Error::other)
}

/// A test that runs.
struct Test {
    web: WebSocket,
    direction: Direction,
    connection: ConnectionInfo,
    start: Instant,
    bytes: u64,
}

impl Test {
    /// Sends random bytes for ten seconds.
    async fn download(mut self, content: Bytes) -> tungstenite::Result<()> {
        let (mut size, mut next) = (0, self.start);
        while self.start.elapsed() < LENGTH {
            if Instant::now() >= next {
                next = Instant::now() + INTERVAL;
                self.tell().await?;
            }
            size = ndt7::next_size(size, self.bytes).min(content.len());
            let left = LENGTH.saturating_sub(self.start.elapsed());
            let message = Frame::Binary(content.slice(..size));
            match tokio::time::timeout(left, self.web.send(message)).await {
                Ok(sent) => sent?,
                // The rest of it is in the buffer.
                Err(_) => break,
            }
            self.bytes += size as u64;
        }
        self.tell().await?;
        self.close().await
    }

    /// Receives until the client ends the test, and says how much.
    async fn upload(mut self) -> tungstenite::Result<()> {
        let mut next = tokio::time::interval(INTERVAL);
        let end = self.start + MAX_LENGTH;
        loop {
            tokio::select! {
                message = self.web.next() => match message {
                    Some(Ok(Frame::Binary(data))) => self.bytes += data.len() as u64,
                    // Its answer is on its way.
                    Some(Ok(Frame::Close(_))) | None => return self.close().await,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error),
                },
                _ = next.tick() => self.tell().await?,
                () = tokio::time::sleep_until(end) => {
                    self.tell().await?;
                    return self.close().await;
                }
            }
        }
    }

    /// Sends a measurement.
    async fn tell(&mut self) -> tungstenite::Result<()> {
        let elapsed_us = bentpipe_probe::micros(self.start.elapsed());
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let app = AppInfo { elapsed_time: signed(elapsed_us), num_bytes: signed(self.bytes) };
        let message = Message {
            app_info: Some(app),
            connection_info: Some(self.connection.clone()),
            origin: Some("server".into()),
            test: Some(
                match self.direction {
                    Direction::Down => "download",
                    Direction::Up => "upload",
                }
                .into(),
            ),
            tcp_info: tcp_info::ndt7(channel::socket(self.web.get_ref()), elapsed_us),
        };
        let text = serde_json::to_string(&message).unwrap_or_default();
        self.web.send(Frame::text(text)).await
    }

    /// Ends the connection, and drops what the client still sends. A download's client sends no data.
    async fn close(mut self) -> tungstenite::Result<()> {
        let closing = async {
            // The client may have closed it already.
            let _ = self.web.close(None).await;
            while let Some(Ok(_)) = self.web.next().await {}
            let _ = self.web.get_mut().shutdown().await;
        };
        let _ = tokio::time::timeout(CLOSING, closing).await;
        Ok(())
    }
}
