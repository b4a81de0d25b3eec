//! The HTTP proxy: CONNECT (RFC 9110 section 9.3.6) and absolute-form requests
//! (RFC 9112 section 3.2.2).

mod forward;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bentpipe_flow::Target;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::passengers::FlowPermit;
use super::services::Services;
use bentpipe_config::Auth;
use bentpipe_uplink::write_timeout::{ClientStream, client_stream, into_tcp};
use bentpipe_web::message::interim::Interims;
use bentpipe_web::message::respond::{Body, body, http1_server, no_link, text};
use bentpipe_web::message::sanitizer::{PendingRefusals, RequestSanitizer, sanitize};
use bentpipe_web::message::{head, refuse};
use bentpipe_web::{self, Destination};

/// State shared by the requests of one client connection.
struct Proxy {
    permit: Arc<FlowPermit>,
    gate: Arc<PendingRefusals>,
    auth: Option<Arc<Auth>>,
    services: Arc<Services>,
    /// `true` once the client has sent a whole request header.
    asked: AtomicBool,
}

pub(super) async fn serve(
    tcp: TcpStream,
    permit: FlowPermit,
    auth: Option<Arc<Auth>>,
    services: Arc<Services>,
) {
    let limits = &services.uplink.limits;
    let server = http1_server(limits.handshake_timeout.duration());
    let guard = client_stream(tcp, limits.stall_timeout.into(), permit.activity());
    let (io, gate) = sanitize(guard, Bytes::new());
    let io = TokioIo::new(io);
    let permit = Arc::new(permit);
    let proxy = Arc::new(Proxy { permit, gate, auth, services, asked: AtomicBool::new(false) });
    let answer = {
        let proxy = proxy.clone();
        service_fn(move |request| answer(proxy.clone(), request))
    };
    // Boxed, so that a tunnel taken over from here does not keep this memory.
    let serving = Box::pin(server.serve_connection(io, answer).with_upgrades());
    if let Err(error) = serving.await
        && (error.is_parse() || error.is_timeout() || error.is_incomplete_message())
        // A persistent connection that times out without another request is not an error.
        && !(error.is_timeout() && proxy.asked.load(Relaxed))
    {
        proxy.services.uplink.garbage(&proxy.permit, "it does not speak HTTP, or stopped half-way");
    }
}

async fn answer(
    proxy: Arc<Proxy>,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    proxy.asked.store(true, Relaxed);
    if let Some(refused) = proxy.gate.next() {
        return Ok(refuse::refusal(&proxy.services.uplink, &proxy.permit, refused));
    }
    let is_connect = request.method() == Method::CONNECT;
    let (interims, interim) = Interims::to_client(request.version());
    let answering = answer_good(&proxy, request, interims);
    let response = proxy.gate.answer(answering, interim).await?;
    let mut response =
        refuse::unless_broken(&proxy.gate, (&proxy.services.uplink, &proxy.permit), response);
    // Data after a CONNECT is not parsed, so if the tunnel is refused, the connection must close.
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
        proxy.services.uplink.unauthorized(&proxy.permit);
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
        Ok(target) => Ok(match &proxy.services.web {
            Some(web) if request.method() != Method::TRACE => {
                let host = request.uri().host().and_then(bentpipe_web::host_of);
                let target = Target { host: host.unwrap_or(target.host), port: target.port };
                let to = Destination::by_name(target, None);
                web.exchange(&proxy.services.uplink, &proxy.permit, to, request, interims).await
            }
            _ => {
                let from = (&proxy.services.uplink, &*proxy.permit);
                let pages = proxy.services.pages.as_ref();
                forward::forward(from, pages, request, target, interims).await
            }
        }),
        Err(why) => {
            proxy.services.uplink.counters.garbage.add(1);
            Ok(text(StatusCode::BAD_REQUEST, why))
        }
    }
}

/// Answers "connected" as soon as there is a link, and carries the following data.
async fn connect(proxy: Arc<Proxy>, request: Request<Incoming>) -> Response<Body> {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let Some(Ok(target)) = authority.map(str::parse::<Target>) else {
        proxy.services.uplink.counters.garbage.add(1);
        return text(StatusCode::BAD_REQUEST, "CONNECT needs a host and a port: host:443.");
    };
    if !proxy.services.uplink.has_link().await {
        return no_link();
    }
    let flows = proxy.services.uplink.flows.clone();
    let over = proxy.permit.over();
    let tunnel = async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        // This is the type that serve() passed to hyper.
        if let Ok(parts) = upgraded.downcast::<TokioIo<RequestSanitizer<ClientStream>>>() {
            let (guard, sanitizer) = parts.io.into_inner().into_parts();
            let rest = sanitizer.into_unread();
            let read = if rest.is_empty() {
                parts.read_buf
            } else {
                [parts.read_buf, rest].concat().into()
            };
            let permit = proxy.permit.clone();
            proxy.services.carry(into_tcp(guard), target, permit, read).await;
        }
    };
    flows.spawn(async move {
        over.run_until_cancelled_owned(tunnel).await;
    });
    Response::new(body(""))
}
