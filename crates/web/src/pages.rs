//! Split HTTP for passengers' requests: pages from the ground gateway, objects from its promises.

use std::sync::Arc;

use bentpipe_flow::{Host, ResetCode, Service, Target};
use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::wire::Head;
use bentpipe_schedule::Dscp;
use bentpipe_split_http::{AirPages, Condition, PromiseBroken, Reader, is_object, is_page};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http::{HeaderMap, Method, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use bentpipe_config::AirConfig;
use bentpipe_metering::counters::Counters;
use bentpipe_transport::Reach;
use bentpipe_uplink::Uplink;
use bentpipe_uplink::lazy_flow::{CloseReason, LazyFlow};
use bentpipe_uplink::passengers::FlowPermit;

/// Port of the service target, which is not used.
const PORT: u16 = 80;

/// A response delivered by Split HTTP.
pub type Pushed = Response<UnsyncBoxBody<Bytes, PromiseBroken>>;

/// Kind of the response.
pub enum Delivered {
    /// A page, which was requested across the link.
    Page(Pushed),
    /// An object that was pushed.
    Object(Pushed),
}

/// The requested resource, and the form of the request.
pub type Query<'a> = (&'a Method, &'a Address, &'a HeaderMap, Condition);

/// Creates the state of Split HTTP, if `config` has it.
pub fn configured(config: &AirConfig, counters: &Arc<Counters>) -> Option<Arc<AirPages>> {
    let idle = config.limits.idle_timeout.into();
    let pages = config.split_http.as_ref();
    pages.map(|pages| AirPages::new(pages.settings(idle), counters.clone()))
}

/// Returns the response of Split HTTP to a request of the passenger with `permit`; `None` if the
/// request must cross the link as usual. `cached` returns the hashes of our cache's objects of the
/// page's site, newest first.
pub async fn answer(
    pages: &Arc<AirPages>,
    uplink: &Arc<Uplink>,
    permit: &FlowPermit,
    (method, address, headers, condition): Query<'_>,
    cached: impl FnOnce() -> Vec<u64>,
) -> Option<Delivered> {
    if is_page(method, headers, condition) {
        let page = page(pages, uplink, permit, (address, headers), cached()).await;
        return page.map(Delivered::Page);
    }
    if !is_object(method, address, headers) {
        return None;
    }
    let (head, body) = pages.object(permit.client, address, headers).await?;
    response(head, body).map(Delivered::Object)
}

impl Delivered {
    /// Returns the response itself.
    pub fn response(self) -> Pushed {
        match self {
            Self::Page(response) | Self::Object(response) => response,
        }
    }
}

/// Target of the ground gateway's Split HTTP service.
pub fn service() -> Target {
    Target { host: Host::Service(Service::Pages), port: PORT }
}

async fn page(
    pages: &Arc<AirPages>,
    uplink: &Arc<Uplink>,
    permit: &FlowPermit,
    (address, headers): (&Address, &HeaderMap),
    cached: Vec<u64>,
) -> Option<Pushed> {
    let reader = Reader { address: permit.client, label: permit.label() };
    let mut page = pages.ask_for(reader, address.clone(), headers, cached)?;
    let origin = address.origin();
    let meant = Target { host: origin.host.parse().ok()?, port: origin.port };
    let mut open = uplink.open(meant, permit, Dscp::DF, Bytes::new());
    open.target = service();
    // The claim would be verified against the service's target.
    open.claim = None;
    let meter = uplink.meter(permit, open.class);
    let (flow, ending) = LazyFlow::new(uplink.clone(), open, meter);
    let is_conditional = page.is_conditional();
    uplink.flows.spawn(page.carry(flow));
    let Some((head, body)) = page.answer().await else {
        // A ground gateway that declines a page does so in the stream.
        match ending.get() {
            Some(CloseReason { code: ResetCode::Forbidden, .. }) => pages.not_served(),
            // A ground gateway resets a stream that it cannot parse.
            Some(CloseReason { code: ResetCode::Aborted, reach: Reach::Up, .. })
                if is_conditional =>
            {
                pages.conditions_unknown();
            }
            _ => {}
        }
        return None;
    };
    response(head, body)
}

fn response<S>(head: Head, body: S) -> Option<Pushed>
where
    S: Stream<Item = Result<Bytes, PromiseBroken>> + Send + 'static,
{
    let mut response = Response::new(StreamBody::new(body.map_ok(Frame::data)).boxed_unsync());
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    Some(response)
}
