//! Refusals of ambiguous requests.

use http::{HeaderValue, Response, header};

use super::framing;
use super::respond::{Body, text};
use super::sanitizer::PendingRefusals;
use bentpipe_uplink::Uplink;
use bentpipe_uplink::passengers::FlowPermit;

/// Builds the response to an ambiguous request.
pub fn refusal(uplink: &Uplink, permit: &FlowPermit, refused: framing::Refusal) -> Response<Body> {
    uplink.counters.http_requests.add(1);
    uplink.counters.http_refused.add(1);
    uplink.garbage(permit, refused.why());
    let mut response =
        text(refused.status(), &format!("This request is refused: {}.", refused.why()));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Returns `answer`, or a refusal if the body of the request turned out to be malformed and caused
/// the error.
pub fn unless_broken(
    gate: &PendingRefusals,
    (uplink, permit): (&Uplink, &FlowPermit),
    answer: Response<Body>,
) -> Response<Body> {
    match gate.broken() {
        // A response of the origin before the end of the body is valid and stands.
        Some(broken) if answer.status().is_server_error() => refusal(uplink, permit, broken),
        _ => answer,
    }
}
