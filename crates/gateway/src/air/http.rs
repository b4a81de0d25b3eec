//! The HTTP proxy: CONNECT (RFC 9110 section 9.3.6) and absolute-form requests
//! (RFC 9112 section 3.2.2).

mod forward;
pub(crate) mod head;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bentpipe_link::Target;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::intake::Intake;
use super::passengers::Ticket;
use super::stall::StallGuard;
use super::web::{self, BoxError, Destination, Gate, Interims, Strict};
use crate::config::Auth;

pub(super) use forward::{failure, is_the_links_fault, no_tls};

/// The most a connection buffers: request heads beyond it are refused with 431.
pub(super) const MAX_BUFFER_BYTES: usize = 64 * 1024;

/// Fields of an answer's head: 16 KiB while it is read. Sites with long policies have more than a hundred.
pub(super) const MAX_ANSWER_FIELDS: usize = 256;

/// A body to answer with.
pub(super) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// State shared by the requests of one client connection.
struct Proxy {
    ticket: Arc<Ticket>,
    gate: Arc<Gate>,
    auth: Option<Arc<Auth>>,
    intake: Arc<Intake>,
    /// `true` once the client has sent a whole request head.
    asked: AtomicBool,
}

pub(super) async fn serve(
    tcp: TcpStream,
    ticket: Ticket,
    auth: Option<Arc<Auth>>,
    intake: Arc<Intake>,
) {
    let limits = &intake.limits;
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.handshake_timeout.duration())
        .max_buf_size(MAX_BUFFER_BYTES)
        .half_close(true);
    let guard = StallGuard::new(tcp, limits.stall_timeout.into()).noting(ticket.activity());
    let (io, gate) = Strict::new(guard, Bytes::new());
    let io = TokioIo::new(io);
    let ticket = Arc::new(ticket);
    let proxy = Arc::new(Proxy { ticket, gate, auth, intake, asked: AtomicBool::new(false) });
    let answer = {
        let proxy = proxy.clone();
        service_fn(move |request| answer(proxy.clone(), request))
    };
    // Boxed, so that a tunnel taken over from here leaves all this behind.
    let serving = Box::pin(server.serve_connection(io, answer).with_upgrades());
    if let Err(error) = serving.await
        && (error.is_parse() || error.is_timeout() || error.is_incomplete_message())
        // A connection kept open for a next request that never came is no fault.
        && !(error.is_timeout() && proxy.asked.load(Relaxed))
    {
        proxy.intake.garbage(&proxy.ticket, "it does not speak HTTP, or stopped half-way");
    }
}

async fn answer(
    proxy: Arc<Proxy>,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    proxy.asked.store(true, Relaxed);
    if let Some(refused) = proxy.gate.next() {
        return Ok(web::refusal(&proxy.intake, &proxy.ticket, refused));
    }
    let is_connect = request.method() == Method::CONNECT;
    let (interims, interim) = Interims::to_client(request.version());
    let answering = answer_good(&proxy, request, interims);
    let response = proxy.gate.answer(answering, interim).await?;
    let mut response = web::unless_broken(&proxy.gate, (&proxy.intake, &proxy.ticket), response);
    // What follows a CONNECT is not looked at any more: if it is no tunnel, it is nothing.
    if is_connect && !response.status().is_success() {
        let close = http::HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    Ok(response)
}

async fn answer_good(
    proxy: &Arc<Proxy>,
    request: Request<Incoming>,
    interims: Interims,
) -> Result<Response<Body>, hyper::Error> {
    if let Some(auth) = &proxy.auth
        && !head::authorized(request.headers(), auth)
    {
        proxy.intake.unauthorized(&proxy.ticket);
        let mut response = text(
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            "This proxy needs a username and a password.",
        );
        let realm = http::HeaderValue::from_static("Basic realm=\"bentpipe\"");
        response.headers_mut().insert(header::PROXY_AUTHENTICATE, realm);
        return Ok(response);
    }
    if request.method() == Method::CONNECT {
        return Ok(connect(proxy.clone(), request).await);
    }
    match head::target(request.uri()) {
        Ok(target) => Ok(match &proxy.intake.web {
            Some(web) if request.method() != Method::TRACE => {
                let host = request.uri().host().and_then(web::host_of);
                let target = Target { host: host.unwrap_or(target.host), port: target.port };
                let to = Destination::by_name(target, None);
                web.exchange(&proxy.intake, &proxy.ticket, to, request, interims).await
            }
            _ => forward::forward(proxy, request, target, interims).await,
        }),
        Err(why) => {
            proxy.intake.counters.garbage.add(1);
            Ok(text(StatusCode::BAD_REQUEST, why))
        }
    }
}

/// Answers "connected" as soon as there is a link, and carries what follows.
async fn connect(proxy: Arc<Proxy>, request: Request<Incoming>) -> Response<Body> {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let Some(Ok(target)) = authority.map(str::parse::<Target>) else {
        proxy.intake.counters.garbage.add(1);
        return text(StatusCode::BAD_REQUEST, "CONNECT needs a host and a port: host:443.");
    };
    if !proxy.intake.has_link().await {
        return no_link();
    }
    let flows = proxy.intake.flows.clone();
    let over = proxy.ticket.over();
    let tunnel = async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        // The type is the one that serve() gave to hyper.
        if let Ok(parts) = upgraded.downcast::<TokioIo<Strict<StallGuard>>>() {
            let (guard, rest) = parts.io.into_inner().into_parts();
            let read = if rest.is_empty() {
                parts.read_buf
            } else {
                [parts.read_buf, rest].concat().into()
            };
            let (intake, ticket) = (proxy.intake.clone(), proxy.ticket.clone());
            web::carry(guard.into_inner(), target, ticket, intake, read).await;
        }
    };
    flows.spawn(async move {
        over.run_until_cancelled_owned(tunnel).await;
    });
    Response::new(body(""))
}

/// Time after which a client should try again while the link is down, in seconds. Most outages are over by then.
const RETRY_AFTER_SECONDS: u32 = 30;

/// The link is down: that is not the destination's fault (RFC 9209 section 2.3.3).
pub(super) fn no_link() -> Response<Body> {
    let why = "The radio link to the ground is not up: try again in a while.";
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, why);
    let error = http::HeaderValue::from_static("bentpipe; error=destination_unavailable");
    response.headers_mut().insert("proxy-status", error);
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    response
}

/// The passenger holds as many flows as one may.
pub(super) fn busy() -> Response<Body> {
    let why = "Too much of yours is under way: try again in a moment.";
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, why);
    response.headers_mut().insert(header::RETRY_AFTER, http::HeaderValue::from_static("5"));
    response
}

fn body(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A short answer of the proxy's own.
pub(super) fn text(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(body(format!("{text}\n")));
    *response.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
