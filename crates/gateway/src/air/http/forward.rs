//! Absolute-form requests, passed to their origin over a flow of their own.

use std::sync::Arc;

use bentpipe_link::{ResetCode, Target};
use bentpipe_prefetch::address::Address;
use bentpipe_schedule::Dscp;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::head::{self, PSEUDONYM};
use super::{Body, MAX_ANSWER_FIELDS, MAX_BUFFER_BYTES, Proxy, no_link, text};
use crate::air::first::{Ended, Ending};
use crate::air::intake::Intake;
use crate::air::pages;
use crate::air::passengers::Ticket;
use crate::air::request::Attempt;
use crate::air::web::{self, Interims};
use crate::far::Reach;
use crate::pages::Condition;
use crate::single::AskedPacked;

/// Sends `request` to `target` and gives its answer, or one of the proxy's own.
pub async fn forward(
    proxy: &Proxy,
    request: Request<Incoming>,
    target: Target,
    interims: Interims,
) -> Response<Body> {
    if request.method() == Method::TRACE {
        // It would show the origin's answer to what this proxy adds and removes.
        return text(StatusCode::METHOD_NOT_ALLOWED, "TRACE does not pass through this proxy.");
    }
    let intake = &proxy.intake;
    if !intake.has_link().await {
        return no_link();
    }
    if let Some(pushed) = pushed(proxy, &request).await {
        return pushed;
    }
    intake.counters.relayed.add(1);
    let spoken = request.version();
    match ask(intake, &proxy.ticket, &target, outbound(request), interims).await {
        (Some(response), _) => {
            intake.counters.finished.add(1);
            inbound(response, spoken).unwrap_or_else(|| failure(&target, ResetCode::Aborted))
        }
        (None, ending) => match ending.get() {
            Some(ended) if is_the_links_fault(*ended) => no_link(),
            ended => failure(&target, ended.map_or(ResetCode::Aborted, |ended| ended.code)),
        },
    }
}

/// Asks with the head packed, and plainly where the ground does not take that. Without an answer the ending
/// says why.
async fn ask(
    intake: &Arc<Intake>,
    ticket: &Ticket,
    target: &Target,
    request: Request<Incoming>,
    mut interims: Interims,
) -> (Option<Response<Incoming>>, Ending) {
    let (parts, body) = request.into_parts();
    let may_repeat = matches!(parts.method, Method::GET | Method::HEAD) && body.is_end_stream();
    let again = may_repeat.then(|| parts.clone());
    let request = Request::from_parts(parts, body.map_err(Into::into).boxed_unsync());
    let mut request = interims.hold(request);
    let mut attempt = Attempt::new(intake, None, may_repeat);
    loop {
        interims.follow(&mut request);
        let (response, ending) = send(intake, ticket, target, request, attempt.packed()).await;
        let is_again = attempt.is_again(intake, &ending, response.is_some());
        let Some(parts) = again.clone().filter(|_| is_again) else { return (response, ending) };
        request = Request::from_parts(parts, super::body(""));
    }
}

/// Sends `request` on a flow of its own.
async fn send(
    intake: &Arc<Intake>,
    ticket: &Ticket,
    target: &Target,
    request: Request<Body>,
    packed: Option<AskedPacked>,
) -> (Option<Response<Incoming>>, Ending) {
    let open = intake.open(target.clone(), ticket, Dscp::DF, Bytes::new());
    let meter = intake.meter(ticket, open.class);
    let (flow, ending, _) = intake.request_flow(open, meter, packed, None);
    let client = http1::Builder::new()
        .max_buf_size(MAX_BUFFER_BYTES)
        .max_headers(MAX_ANSWER_FIELDS)
        .handshake(TokioIo::new(flow));
    // It begins when something is sent.
    let Ok((mut sender, connection)) = client.await else { return (None, ending) };
    intake.flows.spawn(async move {
        // Why it ended is in the flow's ending.
        let _ = connection.await;
    });
    (sender.send_request(request).await.ok(), ending)
}

/// Answer of Split HTTP for `request`, if any.
async fn pushed(proxy: &Proxy, request: &Request<Incoming>) -> Option<Response<Body>> {
    let pages = proxy.intake.pages.as_ref()?;
    if !request.body().is_end_stream() {
        return None;
    }
    let address = Address::parse(&request.uri().to_string()).ok()?;
    let asked = (request.method(), &address, request.headers(), Condition::OfClient);
    let came = pages::answer(pages, &proxy.intake, &proxy.ticket, asked, Vec::new).await?;
    let mut pushed = came.response();
    head::add_via(pushed.headers_mut(), Version::HTTP_11);
    Some(pushed.map(|body| body.map_err(Into::into).boxed_unsync()))
}

/// Returns `true` if the flow ended because nothing came over the link, rather than by what came.
pub fn is_the_links_fault(ended: Ended) -> bool {
    use ResetCode::{Aborted, Idle, Internal, Timeout, Unreachable};
    let silent = matches!(ended.code, Aborted | Idle | Internal | Timeout | Unreachable);
    silent && ended.reach != Reach::Up
}

fn outbound(mut request: Request<Incoming>) -> Request<Incoming> {
    let version = request.version();
    let host = head::host(request.uri());
    *request.uri_mut() = head::origin_form(request.uri());
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    head::strip(headers);
    // RFC 9112 section 3.2.2: the address decides, whatever Host the client sent.
    if let Some(host) = host {
        headers.insert(header::HOST, host);
    }
    head::add_via(headers, version);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if !request.body().is_end_stream() {
        head::name_framing(request.headers_mut());
    }
    request
}

/// The answer as it goes to a client that speaks `spoken`; `None` if it cannot be read, or not be told.
fn inbound(mut response: Response<Incoming>, spoken: Version) -> Option<Response<Body>> {
    let version = response.version();
    web::framed(response.headers_mut())?;
    let coded = web::for_client(response.headers());
    // Only HTTP/1.1 can say how the body is coded.
    if coded.is_some() && spoken != Version::HTTP_11 {
        return None;
    }
    head::strip(response.headers_mut());
    head::add_via(response.headers_mut(), version);
    if let Some(coded) = coded {
        response.headers_mut().insert(header::TRANSFER_ENCODING, coded);
    }
    *response.version_mut() = Version::HTTP_11;
    Some(response.map(|body| body.map_err(Into::into).boxed_unsync()))
}

/// The proxy's own answer where a gateway could not speak TLS with a site's origin, or does not believe that it
/// is the origin.
pub fn no_tls(target: &Target) -> Response<Body> {
    let why = format!(
        "There is no TLS with {target}, or its certificate is not to be trusted. The operator finds why in the log \
         of the gateway that tried."
    );
    refusal(StatusCode::BAD_GATEWAY, "tls_protocol_error", &why)
}

/// The proxy's own answer where the origin gave none, with its reason also in
/// Proxy-Status (RFC 9209).
pub fn failure(target: &Target, code: ResetCode) -> Response<Body> {
    let (status, error) = match code {
        ResetCode::Timeout => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
        ResetCode::Idle => (StatusCode::GATEWAY_TIMEOUT, "http_response_timeout"),
        ResetCode::Refused => (StatusCode::BAD_GATEWAY, "connection_refused"),
        ResetCode::Unreachable => (StatusCode::BAD_GATEWAY, "destination_ip_unroutable"),
        ResetCode::NameNotFound => (StatusCode::BAD_GATEWAY, "dns_error"),
        ResetCode::Forbidden => (StatusCode::BAD_GATEWAY, "destination_ip_prohibited"),
        ResetCode::Limit => (StatusCode::BAD_GATEWAY, "connection_limit_reached"),
        ResetCode::Aborted => (StatusCode::BAD_GATEWAY, "http_response_incomplete"),
        ResetCode::Internal => (StatusCode::BAD_GATEWAY, "proxy_internal_error"),
    };
    refusal(status, error, &format!("{target} gave no answer: {code}."))
}

fn refusal(status: StatusCode, error: &str, why: &str) -> Response<Body> {
    let mut response = text(status, why);
    if let Ok(value) = HeaderValue::from_str(&format!("{PSEUDONYM}; error={error}")) {
        response.headers_mut().insert("proxy-status", value);
    }
    response
}
