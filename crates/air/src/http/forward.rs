//! Forwards absolute-form requests to their origin, each on its own flow.

use std::sync::Arc;

use bentpipe_flow::{ResetCode, Target};
use bentpipe_prefetch::address::Address;
use bentpipe_schedule::Dscp;
use bentpipe_split_http::{AirPages, Condition};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::passengers::FlowPermit;
use bentpipe_origin::via::add_via;
use bentpipe_uplink::Uplink;
use bentpipe_uplink::lazy_flow::{CloseWatch, LazyFlow};
use bentpipe_web::message::interim::Interims;
use bentpipe_web::message::respond::{
    Body, MAX_ANSWER_FIELDS, MAX_BUFFER_BYTES, failure, is_the_links_fault, no_link, text,
};
use bentpipe_web::message::{codings, head, inflate};
use bentpipe_web::pages;

/// Sends `request` to `target`. Returns the response, or an error response of the proxy. `pages` is
/// the state of Split HTTP.
pub async fn forward(
    (uplink, permit): (&Arc<Uplink>, &FlowPermit),
    pages: Option<&Arc<AirPages>>,
    request: Request<Incoming>,
    target: Target,
    interims: Interims,
) -> Response<Body> {
    if request.method() == Method::TRACE {
        // TRACE would reveal the fields that this proxy adds and removes.
        return text(StatusCode::METHOD_NOT_ALLOWED, "TRACE does not pass through this proxy.");
    }
    if !uplink.has_link().await {
        return no_link();
    }
    if let Some(pushed) = pushed(pages, (uplink, permit), &request).await {
        return pushed;
    }
    uplink.counters.relayed.add(1);
    let spoken = request.version();
    match ask(uplink, permit, &target, outbound(request), interims).await {
        (Some(response), _) => {
            uplink.counters.finished.add(1);
            inbound(response, spoken).unwrap_or_else(|| failure(&target, ResetCode::Aborted))
        }
        (None, ending) => match ending.get() {
            Some(ended) if is_the_links_fault(*ended) => no_link(),
            ended => failure(&target, ended.map_or(ResetCode::Aborted, |ended| ended.code)),
        },
    }
}

/// Sends the request on a new flow. Without a response, the flow's ending has the reason.
async fn ask(
    uplink: &Arc<Uplink>,
    permit: &FlowPermit,
    target: &Target,
    request: Request<Incoming>,
    mut interims: Interims,
) -> (Option<Response<Incoming>>, CloseWatch) {
    let mut request = interims.hold(request.map(|body| body.map_err(Into::into).boxed_unsync()));
    interims.follow(&mut request);
    let open = uplink.open(target.clone(), permit, Dscp::DF, Bytes::new());
    let meter = uplink.meter(permit, open.class);
    let (flow, ending) = LazyFlow::new(uplink.clone(), open, meter);
    let client = http1::Builder::new()
        .max_buf_size(MAX_BUFFER_BYTES)
        .max_headers(MAX_ANSWER_FIELDS)
        .handshake(TokioIo::new(flow));
    // The flow opens when something is sent.
    let Ok((mut sender, connection)) = client.await else { return (None, ending) };
    uplink.flows.spawn(async move {
        // The flow's ending has the reason of failure.
        let _ = connection.await;
    });
    (sender.send_request(request).await.ok(), ending)
}

/// Returns the response of Split HTTP to `request`, if any.
async fn pushed(
    pages: Option<&Arc<AirPages>>,
    (uplink, permit): (&Arc<Uplink>, &FlowPermit),
    request: &Request<Incoming>,
) -> Option<Response<Body>> {
    let pages = pages?;
    if !request.body().is_end_stream() {
        return None;
    }
    let address = Address::parse(&request.uri().to_string()).ok()?;
    let asked = (request.method(), &address, request.headers(), Condition::OfClient);
    let came = pages::answer(pages, uplink, permit, asked, Vec::new).await?;
    let mut pushed = came.response();
    add_via(pushed.headers_mut(), Version::HTTP_11);
    Some(pushed.map(|body| body.map_err(Into::into).boxed_unsync()))
}

fn outbound(mut request: Request<Incoming>) -> Request<Incoming> {
    let version = request.version();
    let host = head::host(request.uri());
    *request.uri_mut() = head::origin_form(request.uri());
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    head::strip(headers);
    // RFC 9112 section 3.2.2: the target overrides the client's Host field.
    if let Some(host) = host {
        headers.insert(header::HOST, host);
    }
    add_via(headers, version);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if !request.body().is_end_stream() {
        head::name_framing(request.headers_mut());
    }
    request
}

/// Converts the response for a client that speaks `spoken`; `None` if its framing is invalid or
/// cannot be expressed in that version.
fn inbound(mut response: Response<Incoming>, spoken: Version) -> Option<Response<Body>> {
    let version = response.version();
    codings::framed(response.headers_mut())?;
    let response = response.map(|body| body.map_err(Into::into).boxed_unsync());
    let (mut response, coded) = inflate::for_client(response, spoken)?;
    head::strip(response.headers_mut());
    add_via(response.headers_mut(), version);
    if let Some(coded) = coded {
        response.headers_mut().insert(header::TRANSFER_ENCODING, coded);
    }
    *response.version_mut() = Version::HTTP_11;
    Some(response)
}
