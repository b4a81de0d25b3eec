//! Split HTTP for the passengers' requests: pages by the ground's half, objects from what it promised.

use std::sync::Arc;

use bentpipe_link::{Host, ResetCode, Service, Target};
use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::wire::Head;
use bentpipe_schedule::Dscp;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http::{HeaderMap, Method, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use super::first::{Ended, FirstWrite};
use super::intake::Intake;
use super::passengers::Ticket;
use crate::far::Reach;
use crate::pages::{AirPages, Condition, PromiseBroken, is_object, is_page};

/// The port that is written for the ground's half, which has no use for one.
const PORT: u16 = 80;

/// An answer that came by the ground's half.
pub type Pushed = Response<UnsyncBoxBody<Bytes, PromiseBroken>>;

/// Kind of an answer.
pub enum Came {
    /// A page, which was asked for across the link.
    Page(Pushed),
    /// An object that nobody had to ask for.
    Object(Pushed),
}

/// Requested resource, and the form of the request.
pub type Asked<'a> = (&'a Method, &'a Address, &'a HeaderMap, Condition);

/// Answer of Split HTTP for a request of the passenger with `ticket`; `None` if it is to cross the
/// link as usual. `cached` gives the hashes of our cache's objects of the page's site, the newest
/// first.
pub async fn answer(
    pages: &Arc<AirPages>,
    intake: &Arc<Intake>,
    ticket: &Ticket,
    (method, address, headers, condition): Asked<'_>,
    cached: impl FnOnce() -> Vec<u64>,
) -> Option<Came> {
    if is_page(method, headers, condition) {
        let page = page(pages, intake, ticket, (address, headers), cached()).await;
        return page.map(Came::Page);
    }
    if !is_object(method, address, headers) {
        return None;
    }
    let (head, body) = pages.object(ticket.client, address, headers).await?;
    response(head, body).map(Came::Object)
}

impl Came {
    /// The answer itself.
    pub fn response(self) -> Pushed {
        match self {
            Self::Page(response) | Self::Object(response) => response,
        }
    }
}

/// The ground's half, which is asked for pages and for single requests.
pub fn service() -> Target {
    Target { host: Host::Service(Service::Pages), port: PORT }
}

async fn page(
    pages: &Arc<AirPages>,
    intake: &Arc<Intake>,
    ticket: &Ticket,
    (address, headers): (&Address, &HeaderMap),
    cached: Vec<u64>,
) -> Option<Pushed> {
    let mut page = pages.ask_for(ticket.client, address.clone(), headers, cached)?;
    let origin = address.origin();
    let meant = Target { host: origin.host.parse().ok()?, port: origin.port };
    let mut open = intake.open(meant, ticket, Dscp::DF, Bytes::new());
    open.target = service();
    // It would be held against the target.
    open.claim = None;
    let meter = intake.meter(ticket, open.class);
    let (flow, ending) = FirstWrite::new(intake.clone(), open, meter);
    let is_conditional = page.is_conditional();
    intake.flows.spawn(page.carry(flow));
    let Some((head, body)) = page.answer().await else {
        // What a ground's half does not like it declines in the stream.
        match ending.get() {
            Some(Ended { code: ResetCode::Forbidden, .. }) => pages.not_served(),
            // So a ground's half ends what it cannot read.
            Some(Ended { code: ResetCode::Aborted, reach: Reach::Up, .. }) if is_conditional => {
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
