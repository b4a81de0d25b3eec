//! TLS for names whose certificate the operator has. All other TLS is carried unchanged.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::Target;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::{Destination, RequestBody, Web};
use crate::message::interim::Interims;
use crate::message::refuse::{refusal, unless_broken};
use crate::message::respond::{Body, closing, http1_server};
use crate::message::sanitizer::{PendingRefusals, sanitize};
use crate::prefixed_io::{Prefix, PrefixedIo};
use bentpipe_config::Site;
use bentpipe_uplink::Uplink;
use bentpipe_uplink::passengers::FlowPermit;
use bentpipe_uplink::upload::Upload;
use bentpipe_uplink::write_timeout::client_stream;

/// Port of sites.
pub const PORT: u16 = 443;

/// Maximum number of concurrent streams of one connection. Browsers have about ten in progress.
const MAX_STREAMS: u32 = 32;

/// Maximum bytes of a response buffered for the client: 1 MiB for all streams of a connection, and
/// 16 MiB for all connections of one passenger
/// ([`MAX_SITE_CONNECTIONS`](bentpipe_uplink::passengers::MAX_SITE_CONNECTIONS)).
const MAX_WAITING_BYTES: usize = 32 * 1024;

/// Bytes of uploads that a client may send ahead, on one stream and on all streams of a connection.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;

/// HTTP/2 server with limits on the memory that a client can occupy.
fn http2_server() -> http2::Builder<TokioExecutor> {
    let mut server = http2::Builder::new(TokioExecutor::new());
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(MAX_WAITING_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(crate::message::framing::MAX_HEAD_BYTES as u32)
        .keep_alive_interval(Duration::from_secs(60));
    server
}

/// State shared by the requests of one connection.
struct Connection {
    site: Arc<Site>,
    permit: Arc<FlowPermit>,
    uplink: Arc<Uplink>,
    web: Arc<Web>,
    /// Set for HTTP/1.1 only.
    gate: Option<Arc<PendingRefusals>>,
}

/// Serves the connection whose hello `read` names `site`.
pub async fn serve(
    tcp: TcpStream,
    read: Bytes,
    site: Arc<Site>,
    permit: Arc<FlowPermit>,
    uplink: Arc<Uplink>,
    web: Arc<Web>,
) {
    uplink.counters.relayed.add(1);
    uplink.counters.sites.add(1);
    permit.at_site();
    let limits = uplink.limits.clone();
    let guard = client_stream(tcp, limits.stall_timeout.into(), permit.activity());
    let accepting =
        TlsAcceptor::from(site.server.clone()).accept(PrefixedIo::new(guard, Prefix(read)));
    let Ok(Ok(tls)) = timeout(limits.handshake_timeout.into(), accepting).await else {
        return uplink.garbage(&permit, "the TLS handshake for a site failed");
    };
    let (known, whose) = (uplink.clone(), permit.clone());
    let is_h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let mut connection = Connection { site, permit, uplink, web, gate: None };
    let served = if is_h2 {
        let connection = Arc::new(connection);
        let answer = service_fn(move |request: Request<Incoming>| {
            let connection = connection.clone();
            let request = request.map(Upload::new);
            async move { Ok::<_, std::convert::Infallible>(connection.answer(request).await) }
        });
        http2_server().serve_connection(TokioIo::new(tls), answer).await
    } else {
        let (io, gate) = sanitize(tls, Bytes::new());
        connection.gate = Some(gate);
        let connection = Arc::new(connection);
        let answer = service_fn(move |request| {
            let connection = connection.clone();
            async move { Ok::<_, std::convert::Infallible>(connection.answer(request).await) }
        });
        let server = http1_server(limits.handshake_timeout.duration());
        server.serve_connection(TokioIo::new(io), answer).await
    };
    match served {
        Ok(()) => known.counters.finished.add(1),
        Err(error) => {
            tracing::debug!(%error, "a connection to a site ended");
            if is_flood(&error) {
                known.garbage(&whose, "it sends HTTP/2 frames to keep this gateway busy");
            }
        }
    }
}

/// Returns `true` if HTTP/2 ended the connection because of a flood of frames, in particular
/// streams that are reset at once (CVE-2023-44487).
fn is_flood(error: &hyper::Error) -> bool {
    let of_h2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    of_h2.and_then(h2::Error::reason) == Some(h2::Reason::ENHANCE_YOUR_CALM)
}

impl Connection {
    async fn answer<B: RequestBody>(&self, mut request: Request<B>) -> Response<Body> {
        if let Some(refused) = self.gate.as_ref().and_then(|gate| gate.next()) {
            return refusal(&self.uplink, &self.permit, refused);
        }
        if request.method() == Method::CONNECT {
            let why = "This is not a proxy.";
            return closing(StatusCode::METHOD_NOT_ALLOWED, why, request.version());
        }
        let Some(host) = self.host(&request) else {
            // RFC 9110 §15.5.20: the certificate does not cover that name.
            let why = "This connection is for another name.";
            return closing(StatusCode::MISDIRECTED_REQUEST, why, request.version());
        };
        if request.version() == Version::HTTP_2 {
            join_cookies(request.headers_mut());
        }
        let to = Destination {
            named: Some(Target {
                host: bentpipe_flow::Host::Name(self.site.name.as_str().into()),
                port: PORT,
            }),
            dialled: None,
            host,
            site: Some(self.site.clone()),
        };
        let Some(gate) = &self.gate else {
            let none = Interims::default();
            return self.web.exchange(&self.uplink, &self.permit, to, request, none).await;
        };
        let (interims, interim) = Interims::to_client(request.version());
        let exchange = self.web.exchange(&self.uplink, &self.permit, to, request, interims);
        let answer = gate.answer(exchange, interim).await;
        unless_broken(gate, (&self.uplink, &self.permit), answer)
    }

    /// Host field for the origin, if the request names only this site.
    fn host<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        let said = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        // HTTP/2 permits several fields.
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

/// Joins cookie fields: HTTP/2 may split what HTTP/1.1 sends in one field (RFC 9113 §8.2.3).
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

    /// An endless response that counts the bytes taken by the server.
    fn endless(taken: Arc<AtomicUsize>) -> Body {
        let piece = futures_util::stream::poll_fn(move |_| {
            taken.fetch_add(PIECE, Relaxed);
            let piece = Bytes::from_static(&[7; PIECE]);
            Poll::Ready(Some(Ok::<_, crate::message::respond::BoxError>(Frame::data(piece))))
        });
        http_body_util::StreamBody::new(piece).boxed_unsync()
    }

    /// Number of streams opened by one client, and bytes buffered for it, while it reads no
    /// responses although its windows are large enough.
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
        // SETTINGS_INITIAL_WINDOW_SIZE of 2^31 - 1, and the same for the connection.
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
        // Read the server's settings and a little more, so that it begins to respond.
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
