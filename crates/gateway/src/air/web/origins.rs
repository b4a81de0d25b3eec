//! Requests to origins, each over a flow.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::{Host, ResetCode, Target};
use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::ask::CARRIED;
use bentpipe_prefetch::digest::MAX_ENTRIES;
use bentpipe_prefetch::wire::single::End;
use bentpipe_schedule::{Class, Dscp};
use bentpipe_webcache::{Answer, Confirming, Failure, ForOthers, Origin, Scheme, StandIn};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};

use super::codings::{self, Framing};
use super::idle::{Connection, Origins, Place, Whose, Wire};
use super::{Destination, Interims, Outbound};
use crate::air::first::Ending;
use crate::air::http::{MAX_ANSWER_FIELDS, MAX_BUFFER_BYTES, head, is_the_links_fault};
use crate::air::intake::Intake;
use crate::air::pages::{self, Came};
use crate::air::passengers::Ticket;
use crate::air::request::{Attempt, RequestFlow};
use crate::far::Reach;
use crate::origin_tls::{self, Failed, NO_TLS};
use crate::pages::Condition;
use crate::single::AskedPacked;
use crate::still::MAX_FORGIVEN;

/// Polling interval of the link's state, if a stale answer could stand in.
const LOOK: Duration = Duration::from_millis(100);

/// Time that a stream of a site waits for its passenger to have room for another flow.
const TICKET_PATIENCE: Duration = Duration::from_secs(5);

/// Interval at which it tries: opening rates fill up with time alone.
const TICKET_LOOK: Duration = Duration::from_millis(100);

/// The code of a failure for want of room; none of the link's.
pub const BUSY: u8 = 253;

/// Asks for one passenger, or for the preload.
pub struct Asker(Arc<Shared>);

struct Shared {
    intake: Arc<Intake>,
    asks: Asks,
    origins: Arc<Origins>,
    to: Destination,
    interims: Interims,
}

/// Owner of a request.
pub enum Asks {
    /// The passenger with the ticket, whose connection has one request at a time.
    Passenger(Arc<Ticket>),
    /// The passenger with the ticket, whose connection has many: each flow takes a ticket of its own.
    Stream(Arc<Ticket>),
    /// This gateway, before anybody does, in that class.
    Preload(Class),
}

impl Asks {
    fn ticket(&self) -> Option<&Arc<Ticket>> {
        match self {
            Self::Passenger(ticket) | Self::Stream(ticket) => Some(ticket),
            Self::Preload(_) => None,
        }
    }
}

impl Asker {
    pub fn new(intake: Arc<Intake>, asks: Asks, origins: Arc<Origins>, to: Destination) -> Self {
        Self::telling(intake, asks, origins, to, Interims::default())
    }

    /// The same; what origins say before they answer goes by `interims`.
    pub fn telling(
        intake: Arc<Intake>,
        asks: Asks,
        origins: Arc<Origins>,
        to: Destination,
        interims: Interims,
    ) -> Self {
        Self(Arc::new(Shared { intake, asks, origins, to, interims }))
    }

    /// Target that failures name.
    pub fn target(&self) -> Target {
        self.0.meant().clone()
    }

    /// Returns `true` if a request goes to the meaning of the name, to the address that stands for
    /// it, or to one that our own resolver has given for it; not only to the place that a client
    /// claims.
    pub fn is_named(&self) -> bool {
        let shared = &self.0;
        let Some(named) = shared.to.named.as_ref().filter(|_| shared.to.site.is_none()) else {
            return shared.to.site.is_some();
        };
        let meant = shared.intake.by_name(shared.meant().clone());
        let agrees = match (&named.host, &meant.host) {
            (Host::Name(name), Host::Ip(address)) => {
                name.parse().is_ok_and(|name| shared.intake.classes.agrees(&name, *address))
            }
            (named, meant) => named == meant,
        };
        agrees && named.port == meant.port
    }

    /// Sends a request whose answer is stored by nobody, on a flow of its own: its body is sent once.
    pub async fn send_once(
        &self,
        mut request: Request<Outbound>,
    ) -> Result<Response<Incoming>, Failure> {
        let shared = &self.0;
        if !shared.intake.has_link().await {
            return Err(offline());
        }
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if !request.body().is_end_stream() {
            head::name_framing(request.headers_mut());
        }
        let mut interims = shared.interims.clone();
        let request = interims.hold(request);
        let mut attempt = shared.attempt(false);
        let (mut connection, _) = shared.open(shared.meant().clone(), attempt.packed()).await?;
        let response = shared.exchange(&mut connection, request, &interims).await;
        attempt.is_again(&shared.intake, &connection.ending, response.is_ok());
        let mut response = response.map_err(|(failure, _)| failure)?;
        framed(response.headers_mut())?;
        Ok(response)
    }
}

impl Origin for Asker {
    fn unheard(&self) -> Duration {
        self.0.intake.far.outages().all
    }

    fn send(&self, request: Request<()>) -> BoxFuture<'static, Result<Answer, Failure>> {
        let shared = self.0.clone();
        Box::pin(async move {
            if request.extensions().get::<StandIn>().is_some() {
                return tokio::select! {
                    answer = shared.ask(&request) => answer,
                    () = shared.out_of_reach() => Err(offline()),
                };
            }
            if !shared.intake.has_link().await {
                return Err(offline());
            }
            shared.ask(&request).await
        })
    }
}

impl Shared {
    /// The address that the client means, as well as that is known.
    fn meant(&self) -> &Target {
        let Destination { named, dialled, site, .. } = &self.to;
        let origin = site.as_ref().map(|site| &site.origin);
        // One of them is always there.
        origin
            .or(dialled.as_ref())
            .or(named.as_ref())
            .expect("a destination is an address or a name")
    }

    /// Done when the ground is not heard.
    async fn out_of_reach(&self) {
        while self.intake.far.reach() == Reach::Up {
            sleep(LOOK).await;
        }
    }

    /// Asks by name. Where the name leads nowhere, the address that the client dialled may still: what
    /// it says is for that client.
    async fn ask(&self, request: &Request<()>) -> Result<Answer, Failure> {
        let named = self.to.named.clone().filter(|_| self.to.site.is_none());
        let named = named.unwrap_or_else(|| self.meant().clone());
        let dialled = self.to.dialled.as_ref().filter(|dialled| **dialled != named);
        let nameless = &self.origins.nameless;
        // A moment ago the name led nowhere: the ground has no page of it either.
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

    /// Asks at the address that the client dialled.
    async fn ask_dialled(
        &self,
        dialled: &Target,
        request: &Request<()>,
    ) -> Result<Answer, Failure> {
        // Others may have dialled another.
        if let Some(others) = request.extensions().get::<ForOthers>() {
            others.release();
        }
        let mut answer = self.ask_at(dialled.clone(), request).await?;
        answer.trusted = false;
        Ok(answer)
    }

    /// Answer of Split HTTP for the request, if any. The ground asks by name. Its answer may be
    /// stored if the origin has announced its length, and it does not depend on the client: it was
    /// requested with the fields of the page's request.
    async fn pushed(&self, request: &Request<()>) -> Option<Answer> {
        // Of a page that is fetched ahead all that is wanted stands in the manifest.
        let ticket = self.asks.ticket()?;
        let named = self.to.named.as_ref()?;
        let scheme = match &self.to.site {
            None => Scheme::Http,
            Some(site) if site.split_http => Scheme::Https,
            // The ground is to see nothing of it.
            Some(_) => return None,
        };
        let pages = self.intake.pages.as_ref()?;
        let site = format!("{}://{named}/", scheme.name());
        let path = request.uri().path_and_query()?.as_str().strip_prefix('/')?;
        let address = Address::parse(&format!("{site}{path}")).ok()?;
        let condition = match request.extensions().get::<Confirming>() {
            Some(Confirming) => Condition::OfCache,
            None => Condition::OfClient,
        };
        let asked = (request.method(), &address, request.headers(), condition);
        let cached = || {
            let web = self.intake.web.as_ref();
            web.map(|web| web.cache.fresh_hashes(&site, MAX_ENTRIES)).unwrap_or_default()
        };
        let came = pages::answer(pages, &self.intake, ticket, asked, cached).await?;
        let broken = Failure { offline: false, code: ResetCode::Aborted.to_u8() };
        let pushed = matches!(came, Came::Object(_));
        let response =
            came.response().map(|body| body.map_err(move |_| broken.clone()).boxed_unsync());
        let trusted = match response.status() {
            StatusCode::NOT_MODIFIED => is_for_this(response.headers()),
            _ => is_for_all(response.headers()),
        };
        Some(Answer { response, trusted, pushed })
    }

    /// Asks at `target`, on a kept flow if there is one.
    async fn ask_at(&self, target: Target, request: &Request<()>) -> Result<Answer, Failure> {
        let bodiless = || {
            request.clone().map(|()| Empty::new().map_err(|never| match never {}).boxed_unsync())
        };
        let place = self.place(&target);
        if let Some(mut connection) = self.origins.take(&place) {
            match self.exchange(&mut connection, bodiless(), &self.interims).await {
                Ok(response) => return self.answer(place, connection, response),
                // The server has closed it meanwhile: on a new flow, then. It has no body, and is safe.
                Err((_, true)) => {}
                Err((failure, false)) => return Err(failure),
            }
        }
        let mut attempt = self.attempt(true);
        loop {
            let (mut connection, place) = self.open(target.clone(), attempt.packed()).await?;
            let response = self.exchange(&mut connection, bodiless(), &self.interims).await;
            if !attempt.is_again(&self.intake, &connection.ending, response.is_ok()) {
                return self.answer(place, connection, response.map_err(|(failure, _)| failure)?);
            }
        }
    }

    /// Form of a request that may or may not be repeated: the ground sees requests to an origin in
    /// clear, and those to a site that allows it.
    fn attempt(&self, may_repeat: bool) -> Attempt {
        match self.to.site.as_ref().filter(|site| site.client.is_some()) {
            None => Attempt::new(&self.intake, None, may_repeat),
            Some(site) if site.split_http => {
                Attempt::new(&self.intake, Some(&site.name), may_repeat)
            }
            Some(_) => Attempt::plain(),
        }
    }

    fn answer(
        &self,
        place: Place,
        connection: Connection,
        mut response: Response<Incoming>,
    ) -> Result<Answer, Failure> {
        let framing = framed(response.headers_mut())?;
        let trusted = match framing {
            Framing::Length | Framing::Chunked => true,
            // Without either, the end of a body cannot be told from a connection that breaks.
            Framing::Close => response.body().is_end_stream(),
            // It is given on as it is, to the one who asked: the bytes are not those of the object.
            Framing::Coded => false,
        };
        let ending = connection.ending.clone();
        self.origins.keep(place, connection);
        let response = response.map(|body| body.map_err(move |_| failed(&ending)).boxed_unsync());
        Ok(Answer { response, trusted, pushed: false })
    }

    fn place(&self, target: &Target) -> Place {
        let whose = match (&self.asks, &self.to.site) {
            (Asks::Preload(_), site) => Whose::Preload(site.as_ref().map(|site| site.name.clone())),
            (Asks::Passenger(_) | Asks::Stream(_), Some(site)) => Whose::Site(site.name.clone()),
            (Asks::Passenger(ticket) | Asks::Stream(ticket), None) => {
                Whose::Passenger(ticket.client)
            }
        };
        Place { target: target.clone(), whose }
    }

    /// The name that rules for classes see.
    fn said(&self) -> Bytes {
        let host = self.to.host.as_bytes();
        [b"GET / HTTP/1.1\r\nHost: ", host, b"\r\n\r\n"].concat().into()
    }

    /// A flow to `target`, which is `packed` or has TLS from here where it is to a site.
    async fn open(
        &self,
        target: Target,
        packed: Option<AskedPacked>,
    ) -> Result<(Connection, Place), Failure> {
        let intake = &self.intake;
        let place = self.place(&target);
        let further = self.further_ticket().await?;
        let (open, meter) = match &self.asks {
            Asks::Passenger(ticket) | Asks::Stream(ticket) => {
                let mut open = intake.open(target, ticket, Dscp::DF, self.said());
                // What the flow begins with is the request itself.
                open.first = Bytes::new();
                let meter = intake.meter(ticket, open.class);
                (open, meter)
            }
            Asks::Preload(class) => (intake.open_own(target, *class), None),
        };
        let (flow, ending, packed) = intake.request_flow(open, meter, packed, further);
        // TLS with a site's origin may take no longer than an answer either.
        ending.set_awaited(true);
        let flow: Box<dyn Wire> = match &packed {
            Some(_) => Box::new(flow),
            None => self.wire(flow, &place.target, &ending).await?,
        };
        let client = http1::Builder::new()
            .max_buf_size(MAX_BUFFER_BYTES)
            .max_headers(MAX_ANSWER_FIELDS)
            .handshake(TokioIo::new(flow));
        let (sender, connection) = client.await.map_err(|_| failed(&ending))?;
        tokio::spawn(async move {
            // Why it ended is in the flow's ending.
            let _ = connection.await;
        });
        Ok((Connection { sender, ending, packed }, place))
    }

    /// A ticket for a flow, if the connection's own does not cover it. Waits for one a while.
    async fn further_ticket(&self) -> Result<Option<Ticket>, Failure> {
        let Asks::Stream(ticket) = &self.asks else { return Ok(None) };
        let until = Instant::now() + TICKET_PATIENCE;
        loop {
            if let Some(further) = ticket.another() {
                return Ok(Some(further));
            }
            if Instant::now() >= until {
                ticket.refuse_another();
                return Err(Failure { offline: false, code: BUSY });
            }
            sleep(TICKET_LOOK).await;
        }
    }

    /// Stream on which HTTP is spoken: the flow, or TLS over it to the origin of a site. The ground
    /// then sees neither requests nor answers.
    async fn wire(
        &self,
        flow: RequestFlow,
        target: &Target,
        ending: &Ending,
    ) -> Result<Box<dyn Wire>, Failure> {
        let Some(site) = &self.to.site else { return Ok(Box::new(flow)) };
        let Some(client) = site.client.clone() else { return Ok(Box::new(flow)) };
        // The flow itself ends when it is silent for too long; this is for an origin that dribbles.
        let patience = self.intake.limits.answer_timeout.duration() + MAX_FORGIVEN;
        match origin_tls::connect(client, (&site.name, target), flow, patience).await {
            Ok(tls) => Ok(Box::new(tls)),
            Err(Failed::Tls(_)) if ending.get().is_some() => Err(failed(ending)),
            Err(Failed::Tls(error)) => {
                self.intake.quiet.warn("a site cannot be asked", &error);
                Err(Failure { offline: false, code: NO_TLS })
            }
            Err(Failed::Late) => {
                let offline = self.intake.far.reach() != Reach::Up;
                Err(Failure { offline, code: ResetCode::Timeout.to_u8() })
            }
        }
    }

    /// The failure comes with whether the connection had been closed before the request. The flow itself ends
    /// when it is silent for too long.
    async fn exchange(
        &self,
        connection: &mut Connection,
        mut request: Request<Outbound>,
        interims: &Interims,
    ) -> Result<Response<Incoming>, (Failure, bool)> {
        interims.follow(&mut request);
        connection.ending.set_awaited(true);
        let answered = connection.sender.send_request(request).await;
        connection.ending.set_awaited(false);
        answered.map_err(|error| {
            let told = connection.packed.as_ref().and_then(AskedPacked::told);
            let is_over = error.is_canceled() || error.is_closed() || error.is_incomplete_message();
            let unheard = connection.ending.get().is_none() && (is_over || told == Some(End::Cut));
            let failure = match told {
                Some(End::Tls) => Failure { offline: false, code: NO_TLS },
                Some(End::NoSite) => Failure { offline: false, code: ResetCode::Forbidden.to_u8() },
                Some(End::Whole | End::Cut) | None => failed(&connection.ending),
            };
            (failure, unheard)
        })
    }
}

/// Reads the framing of an answer's body; an error if it cannot be read.
fn framed(headers: &mut HeaderMap) -> Result<Framing, Failure> {
    codings::framed(headers).ok_or(Failure { offline: false, code: ResetCode::Aborted.to_u8() })
}

/// Tells if the ground did not get to where a name leads. Its resolver may have been silent too.
fn leads_nowhere(failure: &Failure) -> bool {
    use ResetCode::{Forbidden, NameNotFound, Refused, Timeout, Unreachable};
    let codes = [Forbidden, NameNotFound, Refused, Timeout, Unreachable];
    !failure.offline && codes.iter().any(|code| code.to_u8() == failure.code)
}

fn offline() -> Failure {
    Failure { offline: true, code: ResetCode::Unreachable.to_u8() }
}

/// Returns `true` if an answer announces its length, and is the same for every form of the request.
fn is_for_all(headers: &HeaderMap) -> bool {
    let alike = headers.get_all(header::VARY).iter().all(|value| {
        let names = value.to_str().unwrap_or("*").split(',').map(str::trim);
        names
            .into_iter()
            .all(|name| name.is_empty() || name.eq_ignore_ascii_case("accept-encoding"))
    });
    alike && headers.contains_key(header::CONTENT_LENGTH)
}

/// Returns `true` if a 304 depends only on fields that the page's request had too: then it confirms
/// the stored answer. It has no body whose length could be missing.
fn is_for_this(headers: &HeaderMap) -> bool {
    let mut names = headers
        .get_all(header::VARY)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("*").split(',').map(str::trim));
    let said = |name: &str| CARRIED.iter().any(|it| it.as_str().eq_ignore_ascii_case(name));
    names.all(|name| name.is_empty() || name.eq_ignore_ascii_case("accept-encoding") || said(name))
}

/// Reason for which a flow gave no answer.
fn failed(ending: &Ending) -> Failure {
    match ending.get() {
        Some(ended) => {
            // That the origin says nothing is another thing than that nobody gets to it.
            let code = if ended.is_given_up { ResetCode::Idle } else { ended.code };
            Failure { offline: is_the_links_fault(*ended), code: code.to_u8() }
        }
        None => Failure { offline: false, code: ResetCode::Aborted.to_u8() },
    }
}
