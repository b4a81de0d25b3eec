//! DNS over TLS (RFC 7858) and over HTTPS (RFC 8484), with the operator's certificate.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bentpipe_dns::least_ttl;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::{Board, By, STREAM_IDLE};
use crate::air::intake::Intake;
use crate::config::Encrypted;
use crate::net::{StartError, listen_tcp};

/// Maximum time of a client's TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Path of questions (RFC 8484 section 4.1 leaves it to the server).
const PATH: &str = "/dns-query";

/// The same as devices are told of it (RFC 9461 section 5).
pub const PATH_TEMPLATE: &str = "/dns-query{?dns}";

const MEDIA_TYPE: &str = "application/dns-message";

/// The most that a question takes, and a connection buffers of a head.
const MOST_MESSAGE: usize = 64 * 1024;

/// Questions that one connection may have open.
const MOST_STREAMS: u32 = 64;

/// Bytes of an answer that wait for the client to take them, and of a question that it may send ahead.
const MAX_WAITING_BYTES: usize = 16 * 1024;

/// Bytes of all its questions that a client may send ahead.
const CONNECTION_WINDOW_BYTES: u32 = 128 * 1024;

/// A peer of HTTP/2 that does not answer for this long has gone.
const PING: Duration = Duration::from_secs(30);

/// The listeners of both.
pub struct Secure {
    tls: Vec<TcpListener>,
    https: Vec<TcpListener>,
    certificates: Arc<Certificates>,
}

/// Certificates that clients are shown: over TLS, and over HTTPS.
pub struct Certificates(RwLock<[TlsAcceptor; 2]>);

impl Certificates {
    fn new(config: &Encrypted) -> Self {
        Self(RwLock::new(acceptors(config)))
    }

    /// From now on connections to come are shown the certificate of `config`; those that are open go on.
    pub fn set(&self, config: &Encrypted) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = acceptors(config);
    }

    fn tls(&self) -> TlsAcceptor {
        // Nothing in there panics half-way.
        self.0.read().unwrap_or_else(PoisonError::into_inner)[0].clone()
    }

    fn https(&self) -> TlsAcceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner)[1].clone()
    }
}

fn acceptors(config: &Encrypted) -> [TlsAcceptor; 2] {
    [config.server(&["dot"]), config.server(&["h2", "http/1.1"])].map(TlsAcceptor::from)
}

impl Secure {
    /// Binds the addresses of `config`.
    pub fn bind(config: &Encrypted) -> Result<Self, StartError> {
        let bind = |what, addresses: &[SocketAddr]| -> Result<Vec<_>, StartError> {
            let bind = |address: &SocketAddr| {
                let failed = |source| StartError::Bind { what, address: *address, source };
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

    /// Their addresses: over TLS, then over HTTPS.
    pub fn addresses(&self) -> [Vec<SocketAddr>; 2] {
        [&self.tls, &self.https]
            .map(|all| all.iter().filter_map(|listener| listener.local_addr().ok()).collect())
    }

    /// Their certificates.
    pub fn certificates(&self) -> Arc<Certificates> {
        self.certificates.clone()
    }

    /// Serves each listener, for ever.
    pub fn serve<'a>(&'a self, board: &Arc<Board>, intake: &Arc<Intake>) -> Vec<BoxFuture<'a, ()>> {
        let mut serving: Vec<BoxFuture<'a, ()>> = Vec::new();
        for listener in &self.tls {
            let (board, certificates) = (board.clone(), self.certificates.clone());
            serving.push(Box::pin(crate::air::accept(listener, intake, move |tcp, ticket| {
                let (board, acceptor) = (board.clone(), certificates.tls());
                async move {
                    // All of it, so that it lasts as long as the connection.
                    let ticket = ticket;
                    if let Ok(Ok(tls)) = timeout(HANDSHAKE, acceptor.accept(tcp)).await {
                        board.serve_stream(tls, By::Tls, ticket.client).await;
                    }
                }
            })));
        }
        for listener in &self.https {
            let (board, certificates) = (board.clone(), self.certificates.clone());
            serving.push(Box::pin(crate::air::accept(listener, intake, move |tcp, ticket| {
                let (board, acceptor) = (board.clone(), certificates.https());
                async move {
                    ticket.at_site();
                    https(board, acceptor, tcp, ticket.client).await;
                }
            })));
        }
        serving
    }
}

/// The requests of one connection; a client that breaks it off is no fault.
async fn https(board: Arc<Board>, acceptor: TlsAcceptor, tcp: TcpStream, client: IpAddr) {
    let Ok(Ok(tls)) = timeout(HANDSHAKE, acceptor.accept(tcp)).await else { return };
    let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let answer = service_fn(move |request| {
        let board = board.clone();
        async move { Ok::<_, Infallible>(respond(&board, request, client).await) }
    });
    let io = TokioIo::new(tls);
    if is_http2 {
        let mut server = http2::Builder::new(TokioExecutor::new());
        server.timer(TokioTimer::new()).max_concurrent_streams(MOST_STREAMS);
        server.max_send_buf_size(MAX_WAITING_BYTES);
        server.initial_stream_window_size(MAX_WAITING_BYTES as u32);
        server.initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        server.keep_alive_interval(PING).keep_alive_timeout(PING);
        let _ = server.serve_connection(io, answer).await;
    } else {
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(STREAM_IDLE);
        server.max_buf_size(MOST_MESSAGE);
        let _ = server.serve_connection(io, answer).await;
    }
}

async fn respond(
    board: &Board,
    request: Request<Incoming>,
    client: IpAddr,
) -> Response<Full<Bytes>> {
    let message = match question(request).await {
        Ok(message) => message,
        Err(status) => return refusal(status),
    };
    let Some(answer) = board.ask_by(By::Tls, client, message).await else {
        return refusal(StatusCode::BAD_REQUEST);
    };
    // RFC 8484 section 5.1: an HTTP cache keeps it no longer than the records hold.
    let age = format!("max-age={}", least_ttl(&answer).unwrap_or(0));
    let mut response = Response::new(Full::from(answer));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(MEDIA_TYPE));
    if let Ok(age) = age.try_into() {
        headers.insert(header::CACHE_CONTROL, age);
    }
    response
}

/// An answer that says in words what the status means, for people who try the address out.
fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let words = status.canonical_reason().unwrap_or_default();
    let mut response = Response::new(Full::from(words));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    response
}

/// The message in a request: the body of a POST, or `dns` in base64url of a GET.
///
/// The body is read before anything is refused: a client of HTTP/1.1 that still sends may lose an answer behind
/// which the connection closes, and over HTTP/2 a request is malformed only if its body is (RFC 9113 section
/// 8.1.1).
async fn question(request: Request<Incoming>) -> Result<Bytes, StatusCode> {
    let (head, body) = request.into_parts();
    let body = match timeout(STREAM_IDLE, Limited::new(body, MOST_MESSAGE).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
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
            let dns = dns.filter(|dns| dns.len() <= MOST_MESSAGE).ok_or(StatusCode::BAD_REQUEST)?;
            let message = URL_SAFE_NO_PAD.decode(dns.trim_end_matches('='));
            message.map(Bytes::from).map_err(|_| StatusCode::BAD_REQUEST)
        }
        Method::POST => {
            let kind = head.headers.get(header::CONTENT_TYPE);
            let is_message = kind.is_some_and(|kind| kind.as_bytes() == MEDIA_TYPE.as_bytes());
            if is_message { Ok(body) } else { Err(StatusCode::UNSUPPORTED_MEDIA_TYPE) }
        }
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    }
}
