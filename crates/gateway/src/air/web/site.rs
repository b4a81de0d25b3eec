//! TLS for names whose certificate the operator has. All other TLS is carried untouched.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::Target;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::strict::{Gate, Strict};
use super::{Destination, Interims, Web, closing, refusal, unless_broken};
use crate::air::http::{Body, MAX_BUFFER_BYTES};
use crate::air::intake::Intake;
use crate::air::passengers::Ticket;
use crate::air::stall::StallGuard;
use crate::classify::{Visible, visible};
use crate::config::SiteLoaded;
use crate::replay::Replay;

/// The port whose connections are looked into.
pub const PORT: u16 = 443;

/// Maximum wait for the rest of a hello.
const HELLO: Duration = Duration::from_secs(1);

/// The longest hello that is waited for.
const MOST_HELLO_BYTES: usize = 16 * 1024;

/// Streams of one client's connection at once. Browsers have some ten under way.
const MAX_STREAMS: u32 = 32;

/// Bytes of an answer that wait for the client to take them: 1 MiB for all streams of a connection, and
/// 16 MiB for all connections that one passenger may have
/// ([`MAX_SITE_CONNECTIONS`](crate::air::passengers::MAX_SITE_CONNECTIONS)).
const MAX_WAITING_BYTES: usize = 32 * 1024;

/// Bytes of uploads that a client may send ahead, on one stream and on all of a connection.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;

/// Serves the connection if its hello names a site, or carries it to `dialled` untouched. `read` was
/// already read from it.
pub async fn carry(
    tcp: TcpStream,
    dialled: Target,
    ticket: Arc<Ticket>,
    intake: Arc<Intake>,
    read: Bytes,
) {
    let web = intake.web.clone().filter(|web| dialled.port == PORT && !web.sites().is_empty());
    let Some(web) = web else { return intake.carry(tcp, dialled, &ticket, read).await };
    let (read, named) = hello(&tcp, read).await;
    let site = named.and_then(|name| web.site(&name));
    match site {
        Some(site) => serve(tcp, read, site, ticket, intake, web).await,
        None => intake.carry(tcp, dialled, &ticket, read).await,
    }
}

/// First bytes of a client, and the name in them.
async fn hello(tcp: &TcpStream, read: Bytes) -> (Bytes, Option<String>) {
    let mut read = bytes::BytesMut::from(&read[..]);
    let until = Instant::now() + HELLO;
    loop {
        match visible(&read) {
            // A browser that pretends to have an encrypted name means the one outside; a real one whose
            // outside is a site's finds at the site that it has to say it openly.
            Visible::Name(name) | Visible::Outer(name) => {
                return (read.freeze(), Some(name.as_str().to_owned()));
            }
            Visible::Nothing if !read.is_empty() => return (read.freeze(), None),
            Visible::Nothing | Visible::Partial => {}
        }
        if read.len() >= MOST_HELLO_BYTES
            || !matches!(timeout_at(until, tcp.readable()).await, Ok(Ok(())))
        {
            return (read.freeze(), None);
        }
        read.reserve(4096);
        match tcp.try_read_buf(&mut read) {
            Ok(1..) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => return (read.freeze(), None),
        }
    }
}

/// HTTP/2 with bounds on what a client can make this gateway hold.
fn http2_server() -> http2::Builder<TokioExecutor> {
    let mut server = http2::Builder::new(TokioExecutor::new());
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(MAX_WAITING_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(super::framing::MOST_HEAD_BYTES as u32)
        .keep_alive_interval(Duration::from_secs(60));
    server
}

/// State shared by the requests of one connection.
struct Connection {
    site: Arc<SiteLoaded>,
    ticket: Arc<Ticket>,
    intake: Arc<Intake>,
    web: Arc<Web>,
    /// With HTTP/1.1.
    gate: Option<Arc<Gate>>,
}

async fn serve(
    tcp: TcpStream,
    read: Bytes,
    site: Arc<SiteLoaded>,
    ticket: Arc<Ticket>,
    intake: Arc<Intake>,
    web: Arc<Web>,
) {
    intake.counters.relayed.add(1);
    intake.counters.sites.add(1);
    ticket.at_site();
    let limits = intake.limits.clone();
    let guard = StallGuard::new(tcp, limits.stall_timeout.into()).noting(ticket.activity());
    let accepting = TlsAcceptor::from(site.server.clone()).accept(Replay::new(guard, read));
    let Ok(Ok(tls)) = timeout(limits.handshake_timeout.into(), accepting).await else {
        return intake.garbage(&ticket, "the TLS handshake for a site failed");
    };
    let counters = intake.counters.clone();
    let is_h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let mut connection = Connection { site, ticket, intake, web, gate: None };
    let served = if is_h2 {
        let connection = Arc::new(connection);
        let answer = service_fn(move |request| {
            let connection = connection.clone();
            async move { Ok::<_, std::convert::Infallible>(connection.answer(request).await) }
        });
        http2_server().serve_connection(TokioIo::new(tls), answer).await
    } else {
        let (io, gate) = Strict::new(tls, Bytes::new());
        connection.gate = Some(gate);
        let connection = Arc::new(connection);
        let answer = service_fn(move |request| {
            let connection = connection.clone();
            async move { Ok::<_, std::convert::Infallible>(connection.answer(request).await) }
        });
        let mut server = http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(limits.handshake_timeout.duration())
            .max_buf_size(MAX_BUFFER_BYTES)
            .half_close(true);
        server.serve_connection(TokioIo::new(io), answer).await
    };
    match served {
        Ok(()) => counters.finished.add(1),
        Err(error) => tracing::debug!(%error, "a connection to a site ended"),
    }
}

impl Connection {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        if let Some(refused) = self.gate.as_ref().and_then(|gate| gate.next()) {
            return refusal(&self.intake, &self.ticket, refused);
        }
        if request.method() == Method::CONNECT {
            let why = "This is no proxy.";
            return closing(StatusCode::METHOD_NOT_ALLOWED, why, request.version());
        }
        let Some(host) = self.host(&request) else {
            // RFC 9110 §15.5.20: the certificate says nothing of that name.
            let why = "This connection is for another name.";
            return closing(StatusCode::MISDIRECTED_REQUEST, why, request.version());
        };
        if request.version() == Version::HTTP_2 {
            join_cookies(request.headers_mut());
        }
        let to = Destination {
            named: Some(Target {
                host: bentpipe_link::Host::Name(self.site.name.as_str().into()),
                port: PORT,
            }),
            dialled: None,
            host,
            site: Some(self.site.clone()),
        };
        let Some(gate) = &self.gate else {
            let none = Interims::default();
            return self.web.exchange(&self.intake, &self.ticket, to, request, none).await;
        };
        let (interims, interim) = Interims::to_client(request.version());
        let exchange = self.web.exchange(&self.intake, &self.ticket, to, request, interims);
        let answer = gate.answer(exchange, interim).await;
        unless_broken(gate, (&self.intake, &self.ticket), answer)
    }

    /// The Host for the origin, if the request is for the site: no other name may be said here.
    fn host(&self, request: &Request<Incoming>) -> Option<HeaderValue> {
        let said = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        // HTTP/2 lets there be several.
        let hosts = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes);
        let name = self.site.name.as_str();
        let is_site = |said: &[u8]| {
            let said = said.strip_suffix(b":443").unwrap_or(said);
            said.strip_suffix(b".").unwrap_or(said).eq_ignore_ascii_case(name.as_bytes())
        };
        let mut all = hosts.chain(said).peekable();
        let good = all.peek().is_some() && all.all(is_site);
        HeaderValue::from_str(name).ok().filter(|_| good)
    }
}

/// RFC 9113 §8.2.3: HTTP/2 may split what HTTP/1.1 says in one field.
fn join_cookies(headers: &mut http::HeaderMap) {
    let crumbs: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use hyper::body::Frame;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Poll;

    const PIECE: usize = 4 * 1024;

    /// Counts the bytes that the server takes of answers without an end.
    fn endless(taken: Arc<AtomicUsize>) -> Body {
        let piece = futures_util::stream::poll_fn(move |_| {
            taken.fetch_add(PIECE, Relaxed);
            let piece = Bytes::from_static(&[7; PIECE]);
            Poll::Ready(Some(Ok::<_, super::super::BoxError>(Frame::data(piece))))
        });
        http_body_util::StreamBody::new(piece).boxed_unsync()
    }

    /// Streams that one client opened, and bytes that wait for it, while it reads none of its answers
    /// although it has room for all of them.
    async fn held(streams: usize) -> (usize, usize) {
        let (asked, taken) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (server, client) = tokio::io::duplex(16 * 1024);
        let (counted, bytes) = (asked.clone(), taken.clone());
        let answer = service_fn(move |_: Request<Incoming>| {
            counted.fetch_add(1, Relaxed);
            let body = endless(bytes.clone());
            async move { Ok::<_, std::convert::Infallible>(Response::new(body)) }
        });
        let serving = http2_server().serve_connection(TokioIo::new(server), answer);
        let serving = tokio::spawn(serving);
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE of 2^31 - 1, and as much for the connection.
        hello.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff]);
        hello.extend([0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0]);
        // HEADERS: GET, https, / by the static table, and an authority.
        for stream in 0..streams {
            let number = (2 * stream as u32 + 1).to_be_bytes();
            hello.extend([0, 0, 8, 1, 5]);
            hello.extend(number);
            hello.extend([0x82, 0x87, 0x84, 0x41, 3, b's', b'.', b'a']);
        }
        let (mut reading, mut writing) = tokio::io::split(client);
        tokio::io::AsyncWriteExt::write_all(&mut writing, &hello).await.unwrap();
        // The settings of the server and a little more are read, so that it gets to its answers.
        let mut some = [0; 1024];
        tokio::io::AsyncReadExt::read_exact(&mut reading, &mut some).await.unwrap();
        let mut before = usize::MAX;
        while before != taken.load(Relaxed) {
            before = taken.load(Relaxed);
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
        }
        serving.abort();
        (asked.load(Relaxed), before)
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_makes_the_gateway_hold_little() {
        let (one, of_one) = held(1).await;
        assert_eq!(one, 1);
        assert!(of_one <= MAX_WAITING_BYTES + 16 * 1024 + 2 * PIECE, "{of_one}");
        let (all, of_all) = held(100).await;
        assert!((1..=MAX_STREAMS as usize).contains(&all), "{all}");
        let most = MAX_STREAMS as usize * (MAX_WAITING_BYTES + PIECE) + 16 * 1024;
        assert!(of_all > of_one && of_all <= most, "{of_all}");
    }
}
