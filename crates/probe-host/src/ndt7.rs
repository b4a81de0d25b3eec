//! ndt7 tests of an own server or of the public service of M-Lab.
//!
//! | module | contents |
//! |---|---|
//! | `locate` | the choice of a public server |

mod locate;

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_probe::ndt7::{
    INTERVAL, LENGTH, MAX_LENGTH, MAX_SAMPLES, MAX_SENT_MESSAGE, Message, Ndt7, SUBPROTOCOL,
    next_size, path,
};
use bentpipe_probe::random::Random;
use bentpipe_probe::rate::Direction;
use futures_util::{SinkExt, StreamExt};
use hyper::body::Bytes;
use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL, USER_AGENT};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message as Frame};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;

use crate::channel::{self, CLIENT, Channel, Trust};
use crate::origin::ndt7_bounds;
use crate::{clock, failure, tcp_info, web};

/// Longest test, with the lookup and the handshake.
const MAX_TEST: Duration = Duration::from_secs(58);

/// Longest handshake, and time that is left for all after it. The protocol's own 5 to 10 s are 7 to 13 round trips of a
/// satellite, and a lost packet costs several.
const MAX_HANDSHAKE: Duration = Duration::from_secs(30);
const AFTER_HANDSHAKE: Duration = Duration::from_secs(18);

/// Wait for the server's end of a test.
const CLOSING: Duration = Duration::from_secs(3);

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// An own one, by its `ws://` or `wss://` address.
    Own(Url),
    /// The public service of M-Lab.
    Public,
}

impl std::str::FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "m-lab" {
            return Ok(Self::Public);
        }
        let url = Url::parse(text).ok();
        let usable = |url: &Url| matches!(url.scheme(), "ws" | "wss") && url.has_host();
        url.filter(usable).map(Self::Own).ok_or_else(|| {
            format!(
                "`{text}` does not name an ndt7 server: write ws://HOST:PORT/ or wss://HOST/ for an own server, or \
                 m-lab for the public service"
            )
        })
    }
}

/// Runs a test in each direction. Failures are results.
pub fn measure(server: &Server, resolvers: &[IpAddr], done: &mut dyn FnMut(Ndt7)) {
    let trust = Trust::of_the_system();
    // The choice of a server is part of the first test's time.
    let mut begin = clock::boot();
    let located = match server {
        Server::Own(url) => Ok(own(url)),
        Server::Public => locate::nearest(&trust, resolvers, begin + MAX_TEST),
    };
    for (number, direction) in [Direction::Down, Direction::Up].into_iter().enumerate() {
        let mut test = Ndt7::new("m-lab".into(), direction);
        test.public = *server == Server::Public;
        test.failure = match &located {
            Ok(urls) => {
                let url = &urls[number];
                test.server = url.host_str().unwrap_or_default().into();
                let result = attempt(&mut test, url, &trust, resolvers, begin + MAX_TEST);
                result.err().map(|error| failure::name(&error))
            }
            Err(error) => Some(failure::name(error)),
        };
        done(test);
        begin = clock::boot();
    }
}

/// Addresses of the tests of an own server: downloads first.
fn own(url: &Url) -> [Url; 2] {
    [Direction::Down, Direction::Up].map(|direction| {
        let mut own = url.clone();
        own.set_path(path(direction));
        own
    })
}

/// Runs a test until `end` at the latest.
fn attempt(
    test: &mut Ndt7,
    url: &Url,
    trust: &Trust,
    resolvers: &[IpAddr],
    end: Duration,
) -> io::Result<()> {
    let port = url.port_or_known_default().unwrap_or(443);
    let address = web::address_until(url, resolvers, end.saturating_sub(AFTER_HANDSHAKE))?;
    let address = SocketAddr::new(address, port);
    test.address = Some(address);
    let left = end.saturating_sub(clock::boot());
    let patience = MAX_HANDSHAKE.min(left.saturating_sub(AFTER_HANDSHAKE));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let begin = Instant::now();
        let handshake = timeout(patience, handshake(url, address, trust)).await;
        let (web, channel) = handshake.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        test.handshake_us = Some(bentpipe_probe::micros(begin.elapsed()));
        let start = Instant::now();
        let ended = match test.direction {
            Direction::Down => download(test, web, start).await,
            Direction::Up => upload(test, web, start).await,
        };
        test.own_tcp = tcp_info::ndt7(&channel, bentpipe_probe::micros(start.elapsed()));
        ended
    })
}

type WebSocket = WebSocketStream<Channel>;

async fn handshake(
    url: &Url,
    address: SocketAddr,
    trust: &Trust,
) -> io::Result<(WebSocket, std::os::fd::OwnedFd)> {
    let (channel, socket) = channel::open(url, address, trust).await?;
    let mut request = url.as_str().into_client_request().map_err(fault)?;
    let fields = request.headers_mut();
    fields.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    fields.insert(USER_AGENT, HeaderValue::from_static(CLIENT));
    let (web, _) =
        client_async_with_config(request, channel, Some(ndt7_bounds())).await.map_err(fault)?;
    Ok((web, socket))
}

/// Receives until the server ends the test.
async fn download(test: &mut Ndt7, mut web: WebSocket, start: Instant) -> io::Result<()> {
    let (mut bytes, mut closed) = (0, false);
    loop {
        let message = match timeout_at(start + MAX_LENGTH, web.next()).await {
            Ok(message) => message,
            // Cut, as the protocol allows.
            Err(_) => break,
        };
        let at = bentpipe_probe::micros(start.elapsed());
        match message {
            Some(Ok(Frame::Binary(data))) => {
                bytes += data.len() as u64;
                sample(&mut test.samples, at, bytes);
            }
            Some(Ok(Frame::Text(text))) => {
                bytes += text.len() as u64;
                if let Some(message) = Message::parse(text.as_str()) {
                    test.note(&message);
                }
            }
            Some(Ok(Frame::Close(_))) => closed = true,
            Some(Ok(_)) => {}
            // A server may end the connection in any way once the test is over.
            Some(Err(_)) if closed => break,
            Some(Err(error)) => return ended(error),
            None => break,
        }
    }
    match test.samples.is_empty() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(()),
    }
}

/// Sends for ten seconds, and listens to the server meanwhile.
async fn upload(test: &mut Ndt7, web: WebSocket, start: Instant) -> io::Result<()> {
    let (mut sink, mut stream) = web.split();
    let test = RefCell::new(test);
    let mut random = Random::new(bentpipe_probe::micros(clock::boot()));
    let content: Bytes = {
        let words = 0..MAX_SENT_MESSAGE / 8;
        words.flat_map(|_| random.next_u64().to_be_bytes()).collect::<Vec<u8>>().into()
    };
    let write = async {
        let (mut size, mut bytes) = (0, 0);
        while start.elapsed() < LENGTH {
            size = next_size(size, bytes);
            let message = Frame::Binary(content.slice(..size));
            match timeout_at(start + LENGTH, sink.send(message)).await {
                Ok(sent) => sent?,
                Err(_) => break,
            }
            bytes += size as u64;
            let at = bentpipe_probe::micros(start.elapsed());
            sample(&mut test.borrow_mut().samples, at, bytes);
        }
        sink.send(Frame::Close(None)).await
    };
    let read = async {
        while let Some(message) = stream.next().await {
            match message? {
                Frame::Text(text) => {
                    if let Some(message) = Message::parse(text.as_str()) {
                        test.borrow_mut().note(&message);
                    }
                }
                Frame::Close(_) => break,
                _ => {}
            }
        }
        Ok(())
    };
    let both = async {
        tokio::pin!(read);
        // The server may end the test.
        let written = tokio::select! {
            written = write => written,
            ended = &mut read => return ended,
        };
        match (written, read.await) {
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Ok(()),
        }
    };
    match timeout_at(start + MAX_LENGTH + CLOSING, both).await {
        Ok(Err(error)) => ended(error),
        Ok(Ok(())) => Ok(()),
        // Cut, as the protocol allows, if the server said what it got.
        Err(_) if test.borrow().server_app.is_some() => Ok(()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Notes the bytes so far, at most once an interval; the last ones always.
fn sample(samples: &mut Vec<(u64, u64)>, at_us: u64, bytes: u64) {
    let interval = bentpipe_probe::micros(INTERVAL);
    let slot = |us: u64| us / interval;
    match samples.last_mut() {
        Some(last) if slot(last.0) == slot(at_us) || samples_full(at_us, interval) => {
            *last = (at_us, bytes);
        }
        _ => samples.push((at_us, bytes)),
    }
}

fn samples_full(at_us: u64, interval: u64) -> bool {
    at_us / interval >= MAX_SAMPLES as u64
}

/// The end of a connection. A server may close it in any way once the test is over.
fn ended(error: tungstenite::Error) -> io::Result<()> {
    match error {
        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => Ok(()),
        error => Err(fault(error)),
    }
}

/// The system's error within one of WebSocket, if there is one, so that it gets its name.
fn fault(error: tungstenite::Error) -> io::Error {
    match error {
        tungstenite::Error::Io(error) => error,
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests;
