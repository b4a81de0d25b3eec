//! DNS over TLS (RFC 7858) and over HTTPS (RFC 8484), with the operator's certificate.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bentpipe_dns::io::MAX_QUERY_BYTES;
use bentpipe_dns::{Asker, min_ttl};
use bentpipe_net::{SocketError, listen_tcp};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::certificates::Certificates;
use super::resolver::{By, Resolver, STREAM_IDLE};
use bentpipe_config::Encrypted;
use bentpipe_uplink::Uplink;
use bentpipe_uplink::upload::Upload;

/// Time limit for a client's TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Path of queries (RFC 8484 section 4.1 leaves it to the server).
const PATH: &str = "/dns-query";

/// Error of a request's body.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

const MEDIA_TYPE: &str = "application/dns-message";

/// Maximum size of a body that is read to its end; of a longer one the rest is not read.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Maximum size of a connection's header buffer.
const MAX_HEADERS_BYTES: usize = 64 * 1024;

/// Maximum number of concurrent queries of one connection.
const MAX_STREAMS: u32 = 64;

/// Bytes of an answer that may wait for the client, and of a query that it may send ahead.
const MAX_WAITING_BYTES: usize = 16 * 1024;

/// Bytes of all its queries that a client may send ahead.
const CONNECTION_WINDOW_BYTES: u32 = 128 * 1024;

/// Interval and time limit of HTTP/2 pings, after which a silent peer counts as gone.
const PING: Duration = Duration::from_secs(30);

/// Listeners of DNS over TLS and over HTTPS.
pub struct Secure {
    tls: Vec<TcpListener>,
    https: Vec<TcpListener>,
    certificates: Arc<Certificates>,
}

impl Secure {
    /// Binds the addresses of `config`.
    pub fn bind(config: &Encrypted) -> Result<Self, SocketError> {
        let bind = |what, addresses: &[SocketAddr]| -> Result<Vec<_>, SocketError> {
            let bind = |address: &SocketAddr| {
                let failed = |source| SocketError::Bind { what, address: *address, source };
                TcpListener::from_std(listen_tcp(what, *address)?).map_err(failed)
            };
            addresses.iter().map(bind).collect()
        };
        Ok(Self {
            tls: bind("DNS over TLS", &config.tls)?,
            https: bind("DNS over HTTPS", &config.https)?,
            certificates: Arc::new(Certificates::new(config)),
        })
    }

    /// Addresses of DNS over TLS, then over HTTPS.
    pub fn addresses(&self) -> [Vec<SocketAddr>; 2] {
        [&self.tls, &self.https]
            .map(|all| all.iter().filter_map(|listener| listener.local_addr().ok()).collect())
    }

    /// TLS acceptors of the listeners.
    pub fn certificates(&self) -> Arc<Certificates> {
        self.certificates.clone()
    }

    /// Serves each listener. Never returns.
    pub fn serve<'a>(
        &'a self,
        resolver: &Arc<Resolver>,
        uplink: &Arc<Uplink>,
    ) -> Vec<BoxFuture<'a, ()>> {
        let mut serving: Vec<BoxFuture<'a, ()>> = Vec::new();
        for listener in &self.tls {
            let (resolver, certificates) = (resolver.clone(), self.certificates.clone());
            serving.push(Box::pin(bentpipe_uplink::accept::accept(
                listener,
                uplink,
                move |tcp, permit| {
                    let (resolver, acceptor) = (resolver.clone(), certificates.tls());
                    async move {
                        // Move the permit into the task, so that it lasts as long as the
                        // connection.
                        let permit = permit;
                        if let Ok(Ok(tls)) = timeout(HANDSHAKE, acceptor.accept(tcp)).await {
                            resolver.serve_stream(tls, By::Tls, permit.asker()).await;
                        }
                    }
                },
            )));
        }
        for listener in &self.https {
            let (resolver, certificates) = (resolver.clone(), self.certificates.clone());
            serving.push(Box::pin(bentpipe_uplink::accept::accept(
                listener,
                uplink,
                move |tcp, permit| {
                    let (resolver, acceptor) = (resolver.clone(), certificates.https());
                    async move {
                        permit.at_site();
                        https(resolver, acceptor, tcp, permit.asker()).await;
                    }
                },
            )));
        }
        serving
    }
}

/// Serves the requests of one connection. A client that closes it early is not an error.
async fn https(resolver: Arc<Resolver>, acceptor: TlsAcceptor, tcp: TcpStream, client: Asker) {
    let Ok(Ok(tls)) = timeout(HANDSHAKE, acceptor.accept(tcp)).await else { return };
    let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(tls);
    if is_http2 {
        let answer = service_fn(move |request: Request<Incoming>| {
            let (resolver, request) = (resolver.clone(), request.map(Upload::new));
            async move { Ok::<_, Infallible>(respond(&resolver, request, client).await) }
        });
        let mut server = http2::Builder::new(TokioExecutor::new());
        server.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
        server.max_send_buf_size(MAX_WAITING_BYTES);
        server.initial_stream_window_size(MAX_WAITING_BYTES as u32);
        server.initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        server.keep_alive_interval(PING).keep_alive_timeout(PING);
        let _ = server.serve_connection(io, answer).await;
    } else {
        let answer = service_fn(move |request: Request<Incoming>| {
            let resolver = resolver.clone();
            async move { Ok::<_, Infallible>(respond(&resolver, request, client).await) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(STREAM_IDLE);
        server.max_buf_size(MAX_HEADERS_BYTES);
        let _ = server.serve_connection(io, answer).await;
    }
}

async fn respond<B: Body<Data = Bytes, Error: Into<BoxError>>>(
    resolver: &Resolver,
    request: Request<B>,
    client: Asker,
) -> Response<Full<Bytes>> {
    let message = match question(request).await {
        Ok(message) => message,
        Err(status) => return refusal(status),
    };
    let Some(answer) = resolver.ask_by(By::Tls, client, message).await else {
        return refusal(StatusCode::BAD_REQUEST);
    };
    // RFC 8484 section 5.1: an HTTP cache must not keep it longer than the records' TTL.
    let age = format!("max-age={}", min_ttl(&answer).unwrap_or(0));
    let mut response = Response::new(Full::from(answer));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(MEDIA_TYPE));
    if let Ok(age) = age.try_into() {
        headers.insert(header::CACHE_CONTROL, age);
    }
    response
}

/// A response that explains the status in words, for people who try the address.
fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let words = status.canonical_reason().unwrap_or_default();
    let mut response = Response::new(Full::from(words));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    response
}

/// Reads a body to its end. Returns `None` if it is larger than a query; it is not kept then.
async fn read_query<B: Body<Data = Bytes, Error: Into<BoxError>>>(
    body: B,
) -> Result<Option<Bytes>, BoxError> {
    let mut body = pin!(Limited::new(body, MAX_BODY_BYTES));
    let mut query = Some(BytesMut::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        query = query.filter(|query| query.len() + data.len() <= MAX_QUERY_BYTES);
        if let Some(query) = &mut query {
            query.extend_from_slice(&data);
        }
    }
    Ok(query.map(BytesMut::freeze))
}

/// Returns the DNS message in a request: the body of a POST, or `dns` in base64url of a GET.
///
/// The body is read before a refusal, for two reasons. An HTTP/1.1 client that is still sending may
/// lose a response after which the connection closes. Over HTTP/2, only the complete body shows
/// whether the request is malformed (RFC 9113 section 8.1.1).
async fn question<B: Body<Data = Bytes, Error: Into<BoxError>>>(
    request: Request<B>,
) -> Result<Bytes, StatusCode> {
    let (head, body) = request.into_parts();
    let body = match timeout(STREAM_IDLE, read_query(body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => return Err(StatusCode::REQUEST_TIMEOUT),
    };
    if head.uri.path() != PATH {
        return Err(StatusCode::NOT_FOUND);
    }
    match head.method {
        Method::GET => {
            let query = head.uri.query().unwrap_or_default();
            let dns = query.split('&').find_map(|pair| pair.strip_prefix("dns="));
            let dns =
                dns.filter(|dns| dns.len() <= MAX_QUERY_BYTES).ok_or(StatusCode::BAD_REQUEST)?;
            let message = URL_SAFE_NO_PAD.decode(dns.trim_end_matches('='));
            message.map(Bytes::from).map_err(|_| StatusCode::BAD_REQUEST)
        }
        Method::POST => {
            let kind = head.headers.get(header::CONTENT_TYPE);
            let is_message = kind.is_some_and(|kind| kind.as_bytes() == MEDIA_TYPE.as_bytes());
            if !is_message {
                return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            }
            body.ok_or(StatusCode::PAYLOAD_TOO_LARGE)
        }
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    }
}
