//! Requests to origins, each over a flow.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::{Host, ResetCode, Target};
use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::digest::MAX_ENTRIES;
use bentpipe_prefetch::eligible::FORWARDED;
use bentpipe_schedule::{Class, Dscp};
use bentpipe_split_http::{AirPages, Condition};
use bentpipe_webcache::{Answer, Cache, Origin, OriginError, OriginRequest, Scheme, Waiters};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};

use super::destination::Destination;
use super::idle::{Connection, Origins, PoolKey, PoolOwner, Wire};
use crate::message::codings::{self, Framing};
use crate::message::head;
use crate::message::interim::Interims;
use crate::message::respond::{MAX_ANSWER_FIELDS, MAX_BUFFER_BYTES, Outbound, is_the_links_fault};
use crate::pages::{self, Delivered};
use bentpipe_origin::request_error::RequestError;
use bentpipe_origin::tls::Failed;
use bentpipe_transport::still::MAX_FORGIVEN;
use bentpipe_transport::{Reach, wait_for_reach};
use bentpipe_uplink::Uplink;
use bentpipe_uplink::lazy_flow::{CloseWatch, LazyFlow};
use bentpipe_uplink::passengers::FlowPermit;

/// Time for which a site's stream waits until its passenger may open another flow.
const PERMIT_PATIENCE: Duration = Duration::from_secs(5);

/// Polling interval of that wait, because opening rates recover only with time.
const PERMIT_LOOK: Duration = Duration::from_millis(100);

/// Sends requests for one passenger, or for the preload.
pub struct OriginClient(Arc<Shared>);

struct Shared {
    uplink: Arc<Uplink>,
    requester: Requester,
    origins: Arc<Origins>,
    /// HTTP cache, which provides the hashes of a site's objects.
    cache: Cache,
    /// State of Split HTTP, if configured.
    pages: Option<Arc<AirPages>>,
    to: Destination,
    interims: Interims,
}

/// Shared state of requests to origins: idle connections, the cache, and Split HTTP.
pub type Sources = (Arc<Origins>, Cache, Option<Arc<AirPages>>);

/// Owner of a request.
pub enum Requester {
    /// The passenger with this permit, whose connection has one request at a time.
    Passenger(Arc<FlowPermit>),
    /// The passenger with this permit, whose connection has many requests: each flow takes its own
    /// permit.
    Stream(Arc<FlowPermit>),
    /// The preload of this gateway, in this class.
    Preload(Class),
}

impl Requester {
    fn permit(&self) -> Option<&Arc<FlowPermit>> {
        match self {
            Self::Passenger(permit) | Self::Stream(permit) => Some(permit),
            Self::Preload(_) => None,
        }
    }
}

impl OriginClient {
    pub fn new(
        uplink: Arc<Uplink>,
        requester: Requester,
        sources: Sources,
        to: Destination,
    ) -> Self {
        Self::telling(uplink, requester, sources, to, Interims::default())
    }

    /// Creates a requester that forwards interim responses of origins to `interims`.
    pub fn telling(
        uplink: Arc<Uplink>,
        requester: Requester,
        (origins, cache, pages): Sources,
        to: Destination,
        interims: Interims,
    ) -> Self {
        Self(Arc::new(Shared { uplink, requester, origins, cache, pages, to, interims }))
    }

    /// Target to name in error messages.
    pub fn target(&self) -> Target {
        self.0.meant().clone()
    }

    /// Returns `true` if the request goes to the verified server of the name: by resolving the
    /// name, by its fake-IP address, or by an address that our own resolver returned for it.
    /// Returns `false` if the server is only claimed by a client.
    pub fn is_named(&self) -> bool {
        let shared = &self.0;
        let Some(named) = shared.to.named.as_ref().filter(|_| shared.to.site.is_none()) else {
            return shared.to.site.is_some();
        };
        let meant = shared.uplink.by_name(shared.meant().clone());
        let agrees = match (&named.host, &meant.host) {
            (Host::Name(name), Host::Ip(address)) => {
                name.parse().is_ok_and(|name| shared.uplink.classes.agrees(&name, *address))
            }
            (named, meant) => named == meant,
        };
        agrees && named.port == meant.port
    }

    /// Sends a request whose response is not stored, on its own flow; its body is sent only once.
    pub async fn send_once(
        &self,
        mut request: Request<Outbound>,
    ) -> Result<Response<Incoming>, OriginError> {
        let shared = &self.0;
        if !shared.uplink.has_link().await {
            return Err(OriginError::Offline);
        }
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if !request.body().is_end_stream() {
            head::name_framing(request.headers_mut());
        }
        let mut interims = shared.interims.clone();
        let request = interims.hold(request);
        let (mut connection, _) = shared.open(shared.meant().clone(), None).await?;
        let response = shared.exchange(&mut connection, request, &interims).await;
        let mut response = response.map_err(|(failure, _)| failure)?;
        framed(response.headers_mut())?;
        Ok(response)
    }
}

impl Origin for OriginClient {
    fn outage_time(&self) -> Duration {
        self.0.uplink.connector.outages().all
    }

    fn send(&self, request: OriginRequest) -> BoxFuture<'static, Result<Answer, OriginError>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let asked = shared.ask(&request);
            let answered = if request.stale_ok {
                tokio::select! {
                    answer = asked => answer,
                    () = shared.out_of_reach() => Err(OriginError::Offline),
                }
            } else if shared.uplink.has_link().await {
                asked.await
            } else {
                Err(OriginError::Offline)
            };
            if answered.as_ref().is_err_and(RequestError::is_limit) {
                release(request.others.as_ref());
            }
            answered
        })
    }
}

impl Shared {
    /// The address that the client means, as far as known.
    fn meant(&self) -> &Target {
        let Destination { named, dialled, site, .. } = &self.to;
        let origin = site.as_ref().map(|site| &site.origin);
        // At least one of them is always set.
        origin
            .or(dialled.as_ref())
            .or(named.as_ref())
            .expect("a destination is an address or a name")
    }

    /// Completes when the ground gateway cannot be reached.
    async fn out_of_reach(&self) {
        wait_for_reach(&*self.uplink.connector, |reach| reach != Reach::Up).await;
    }

    /// Requests by name. If the name cannot be reached, tries the address that the client dialled;
    /// that response is only for this client.
    async fn ask(&self, request: &OriginRequest) -> Result<Answer, OriginError> {
        let named = self.to.named.clone().filter(|_| self.to.site.is_none());
        let named = named.unwrap_or_else(|| self.meant().clone());
        let dialled = self.to.dialled.as_ref().filter(|dialled| **dialled != named);
        let nameless = &self.origins.nameless;
        // The name was unreachable recently, so the ground gateway has no page of it either.
        let dialled_first = dialled.filter(|_| nameless.has(&named));
        if let Some(dialled) = dialled_first {
            match self.ask_dialled(dialled, request).await {
                Err(failure) if leads_nowhere(&failure) => nameless.remove(&named),
                answer => return answer,
            }
        } else if let Some(answer) = self.pushed(request).await {
            return Ok(answer);
        }
        match (self.ask_at(named.clone(), request).await, dialled) {
            (Err(failure), Some(dialled)) if leads_nowhere(&failure) && dialled_first.is_none() => {
                let answer = self.ask_dialled(dialled, request).await?;
                nameless.add(named);
                Ok(answer)
            }
            (answer, _) => answer,
        }
    }

    /// Requests at the address that the client dialled.
    async fn ask_dialled(
        &self,
        dialled: &Target,
        request: &OriginRequest,
    ) -> Result<Answer, OriginError> {
        // Others may have dialled another address, so they must not share this response.
        release(request.others.as_ref());
        let mut answer = self.ask_at(dialled.clone(), request).await?;
        answer.trusted = false;
        Ok(answer)
    }

    /// Returns the response of Split HTTP to the request, if any. The ground gateway requests by
    /// name, with the fields of the page's request. The response may be stored if it has a declared
    /// length and does not depend on the client.
    async fn pushed(&self, request: &OriginRequest) -> Option<Answer> {
        // The preload needs no pushes, because the manifest lists everything.
        let permit = self.requester.permit()?;
        let named = self.to.named.as_ref()?;
        let scheme = match &self.to.site {
            None => Scheme::Http,
            Some(site) if site.split_http => Scheme::Https,
            // The ground gateway must not read requests to this site.
            Some(_) => return None,
        };
        let pages = self.pages.as_ref()?;
        let site = format!("{}://{named}/", scheme.name());
        let path = request.request.uri().path_and_query()?.as_str().strip_prefix('/')?;
        let address = Address::parse(&format!("{site}{path}")).ok()?;
        let condition = if request.revalidating { Condition::OfCache } else { Condition::OfClient };
        let request = &request.request;
        let asked = (request.method(), &address, request.headers(), condition);
        let cached = || self.cache.fresh_hashes(&site, MAX_ENTRIES);
        let came = pages::answer(pages, &self.uplink, permit, asked, cached).await?;
        let pushed = matches!(came, Delivered::Object(_));
        let response = came
            .response()
            .map(|body| body.map_err(|_| flow_error(ResetCode::Aborted)).boxed_unsync());
        let trusted = match response.status() {
            StatusCode::NOT_MODIFIED => is_for_this(response.headers()),
            _ => is_for_all(response.headers()),
        };
        Some(Answer { response, trusted, pushed })
    }

    /// Requests at `target`, on an idle flow if there is one.
    async fn ask_at(&self, target: Target, request: &OriginRequest) -> Result<Answer, OriginError> {
        let bodiless = || {
            request
                .request
                .clone()
                .map(|()| Empty::new().map_err(|never| match never {}).boxed_unsync())
        };
        let place = self.place(&target);
        if let Some(mut connection) = self.origins.take(&place) {
            match self.exchange(&mut connection, bodiless(), &self.interims).await {
                Ok(response) => return self.answer(place, connection, response),
                // The server has closed the flow meanwhile. A new flow is tried, because the
                // request is safe and has no body.
                Err((_, true)) => {}
                Err((failure, false)) => return Err(failure),
            }
        }
        let (mut connection, place) = self.open(target, request.others.as_ref()).await?;
        let response = self.exchange(&mut connection, bodiless(), &self.interims).await;
        self.answer(place, connection, response.map_err(|(failure, _)| failure)?)
    }

    fn answer(
        &self,
        place: PoolKey,
        connection: Connection,
        mut response: Response<Incoming>,
    ) -> Result<Answer, OriginError> {
        let framing = framed(response.headers_mut())?;
        let trusted = match framing {
            Framing::Length | Framing::Chunked => true,
            // Without a length or chunks, the end of the body cannot be distinguished from a broken
            // connection.
            Framing::Close => response.body().is_end_stream(),
            // Passed on unchanged to this client only, because the bytes are an encoding of the
            // object.
            Framing::Coded => false,
        };
        let ending = connection.ending.clone();
        self.origins.keep(place, connection);
        let response = response.map(|body| body.map_err(move |_| failed(&ending)).boxed_unsync());
        Ok(Answer { response, trusted, pushed: false })
    }

    fn place(&self, target: &Target) -> PoolKey {
        let whose = match (&self.requester, &self.to.site) {
            (Requester::Preload(_), site) => {
                PoolOwner::Preload(site.as_ref().map(|site| site.name.clone()))
            }
            (Requester::Passenger(_) | Requester::Stream(_), Some(site)) => {
                PoolOwner::Site(site.name.clone())
            }
            (Requester::Passenger(permit) | Requester::Stream(permit), None) => {
                PoolOwner::Passenger(permit.client)
            }
        };
        PoolKey { target: target.clone(), whose }
    }

    /// A request with the host name, for the class rules.
    fn said(&self) -> Bytes {
        let host = self.to.host.as_bytes();
        [b"GET / HTTP/1.1\r\nHost: ", host, b"\r\n\r\n"].concat().into()
    }

    /// Opens a flow to `target`, with TLS from here if it is a site's origin that uses TLS. `others`
    /// wait for the same response.
    async fn open(
        &self,
        target: Target,
        others: Option<&Waiters>,
    ) -> Result<(Connection, PoolKey), OriginError> {
        let uplink = &self.uplink;
        let place = self.place(&target);
        let further = self.further_ticket(others).await?;
        let (open, meter) = match &self.requester {
            Requester::Passenger(permit) | Requester::Stream(permit) => {
                let mut open = uplink.open(target, permit, Dscp::DF, self.said());
                // The flow must begin with the request itself.
                open.first = Bytes::new();
                let meter = uplink.meter(permit, open.class);
                (open, meter)
            }
            Requester::Preload(class) => (uplink.open_own(target, *class), None),
        };
        let (flow, ending) = LazyFlow::new(uplink.clone(), open, meter);
        let flow = flow.with_permit(further);
        // The TLS handshake with a site's origin has the same time limit as a response.
        ending.set_awaited(true);
        let flow = self.wire(flow, &place.target, &ending).await?;
        let client = http1::Builder::new()
            .max_buf_size(MAX_BUFFER_BYTES)
            .max_headers(MAX_ANSWER_FIELDS)
            .handshake(TokioIo::new(flow));
        let (sender, connection) = client.await.map_err(|_| failed(&ending))?;
        tokio::spawn(async move {
            // The flow's ending has the reason of failure.
            let _ = connection.await;
        });
        Ok((Connection { sender, ending }, place))
    }

    /// Returns a permit for a flow if the connection's own permit does not cover it. Waits a while
    /// if necessary. Meanwhile `others` send their own requests, because the limit is only this
    /// passenger's.
    async fn further_ticket(
        &self,
        others: Option<&Waiters>,
    ) -> Result<Option<FlowPermit>, OriginError> {
        let Requester::Stream(permit) = &self.requester else { return Ok(None) };
        let until = Instant::now() + PERMIT_PATIENCE;
        loop {
            if let Some(further) = permit.another() {
                return Ok(Some(further));
            }
            release(others);
            if Instant::now() >= until {
                permit.refuse_another();
                return Err(RequestError::Busy.into());
            }
            sleep(PERMIT_LOOK).await;
        }
    }

    /// Returns the stream that carries HTTP: the flow, or TLS over it to a site's origin. With TLS,
    /// the ground gateway cannot read requests or responses.
    async fn wire(
        &self,
        flow: LazyFlow,
        target: &Target,
        ending: &CloseWatch,
    ) -> Result<Box<dyn Wire>, OriginError> {
        let Some(site) = &self.to.site else { return Ok(Box::new(flow)) };
        let Some(client) = site.client.clone() else { return Ok(Box::new(flow)) };
        // The idle limit of the flow handles silence; this limit is for an origin that sends very
        // slowly.
        let patience = self.uplink.limits.answer_timeout.duration() + MAX_FORGIVEN;
        match bentpipe_origin::tls::connect(client, (&site.name, target), flow, patience).await {
            Ok(tls) => Ok(Box::new(tls)),
            Err(Failed::Tls(_)) if ending.get().is_some() => Err(failed(ending)),
            Err(Failed::Tls(error)) => {
                self.uplink.log.warn("a site cannot be asked", &error);
                Err(RequestError::Tls.into())
            }
            Err(Failed::Late) => {
                let is_offline = self.uplink.connector.reach() != Reach::Up;
                Err(if is_offline { OriginError::Offline } else { flow_error(ResetCode::Timeout) })
            }
        }
    }

    /// Sends a request and waits for the response. The error tells whether the connection had been
    /// closed before the request. The flow's own idle limit applies.
    async fn exchange(
        &self,
        connection: &mut Connection,
        mut request: Request<Outbound>,
        interims: &Interims,
    ) -> Result<Response<Incoming>, (OriginError, bool)> {
        interims.follow(&mut request);
        connection.ending.set_awaited(true);
        let answered = connection.sender.send_request(request).await;
        connection.ending.set_awaited(false);
        answered.map_err(|error| {
            let is_over = error.is_canceled() || error.is_closed() || error.is_incomplete_message();
            let unheard = connection.ending.get().is_none() && is_over;
            (failed(&connection.ending), unheard)
        })
    }
}

/// Determines the framing of a response body; returns an error if it is invalid.
fn framed(headers: &mut HeaderMap) -> Result<Framing, OriginError> {
    codings::framed(headers).ok_or_else(|| flow_error(ResetCode::Aborted))
}

/// Releases the clients that wait for the same response, if any. They then send their own requests.
fn release(others: Option<&Waiters>) {
    if let Some(others) = others {
        others.release();
    }
}

/// Returns `true` if the ground gateway could not reach the address of a name. The cause may also
/// be a silent resolver.
fn leads_nowhere(error: &OriginError) -> bool {
    use ResetCode::{Forbidden, NameNotFound, Refused, Timeout, Unreachable};
    matches!(
        RequestError::of(error),
        Some(RequestError::Flow(Forbidden | NameNotFound | Refused | Timeout | Unreachable))
    )
}

fn flow_error(code: ResetCode) -> OriginError {
    RequestError::Flow(code).into()
}

/// Returns `true` if a response declares its length, and is the same for every form of the request.
fn is_for_all(headers: &HeaderMap) -> bool {
    let alike = headers.get_all(header::VARY).iter().all(|value| {
        let names = value.to_str().unwrap_or("*").split(',').map(str::trim);
        names
            .into_iter()
            .all(|name| name.is_empty() || name.eq_ignore_ascii_case("accept-encoding"))
    });
    alike && headers.contains_key(header::CONTENT_LENGTH)
}

/// Returns `true` if a 304 depends only on fields that the page's request had too, so that it
/// confirms the stored response. A 304 has no body, so its length does not matter.
fn is_for_this(headers: &HeaderMap) -> bool {
    let mut names = headers
        .get_all(header::VARY)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("*").split(',').map(str::trim));
    let said = |name: &str| FORWARDED.iter().any(|it| it.as_str().eq_ignore_ascii_case(name));
    names.all(|name| name.is_empty() || name.eq_ignore_ascii_case("accept-encoding") || said(name))
}

/// Reason why a flow gave no response.
fn failed(ending: &CloseWatch) -> OriginError {
    match ending.get() {
        Some(ended) if is_the_links_fault(*ended) => OriginError::Offline,
        // A silent origin is not an unreachable one.
        Some(ended) if ended.is_given_up => flow_error(ResetCode::Idle),
        Some(ended) => flow_error(ended.code),
        None => flow_error(ResetCode::Aborted),
    }
}
