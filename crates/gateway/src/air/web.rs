//! HTTP that this gateway itself understands: the cache before the link, on port 80 and in the proxy.

mod ahead;
mod changed;
mod codings;
mod counted;
mod framing;
mod idle;
mod intercept;
mod interim;
mod look;
mod nameless;
mod origins;
mod page;
mod site;
mod strict;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bentpipe_link::{Host, ResetCode, Target};
use bentpipe_webcache::{
    CACHE_STATUS, Cache, Failure, Forwarded, Key, OpenError, Origin, Scheme, invalidates,
    is_only_if_cached,
};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::http::{Body, head, text};
use super::intake::Intake;
use super::passengers::Ticket;
use crate::config::{AirConfig, SiteLoaded};
use crate::counters::Counters;
use crate::origin_tls::NO_TLS;
pub use ahead::{Ahead, let_go};
use changed::Changed;
pub use codings::{for_client, framed};
use idle::Origins;
pub use intercept::intercept;
pub use interim::{Interim, Interims};
use origins::{Asker, Asks, BUSY};
pub use page::Page;
pub use site::carry;
pub use strict::{Gate, Strict};

/// The port whose connections are looked into.
pub const PORT: u16 = 80;

/// HTTP cache on board, if the configuration asks for one.
pub struct Web {
    cache: Cache,
    origins: Arc<Origins>,
    sites: RwLock<Vec<Arc<SiteLoaded>>>,
    changed: Changed,
    shows_status: bool,
}

/// Destination of a request.
#[derive(Debug, Clone)]
pub struct Destination {
    /// Name under which its answer is stored, and by which it is then requested. Whoever dials it
    /// gets the meaning of the name: it is resolved at the ground, or is the address itself.
    pub named: Option<Target>,
    /// The address that the client dialled, where that is known: for what is not to be stored.
    pub dialled: Option<Target>,
    /// The Host field.
    pub host: HeaderValue,
    /// The site that it is a request to, if TLS ended here.
    pub site: Option<Arc<SiteLoaded>>,
}

impl Destination {
    /// Destination that `named` means; or, if `dialled` is known, the dialled one for everything
    /// that is not to be stored. The origin sees the name as the key has it. If it saw a client's
    /// own spelling, that spelling could be in everybody's answer.
    pub fn by_name(mut named: Target, dialled: Option<Target>) -> Self {
        if let Host::Name(name) = &mut named.host {
            name.make_ascii_lowercase();
        }
        let shown = match &named.host {
            Host::Ip(std::net::IpAddr::V6(address)) => format!("[{address}]"),
            Host::Ip(address) => address.to_string(),
            Host::Name(name) => name.clone(),
            // No text is one, so that no request names one.
            Host::Service(service) => service.name().to_owned(),
        };
        let shown = if named.port == PORT { shown } else { format!("{shown}:{}", named.port) };
        let host = HeaderValue::from_str(&shown).expect("names and addresses are ASCII");
        Self { named: Some(named), dialled, host, site: None }
    }
}

/// The host that `text` names; a dot at its end says nothing (RFC 3986 §3.2.2, RFC 1034 §3.1).
pub fn host_of(text: &str) -> Option<Host> {
    text.strip_suffix('.').unwrap_or(text).parse().ok()
}

impl Web {
    /// Opens the cache, where `config` has one.
    pub fn open(config: &AirConfig) -> Result<Option<Arc<Self>>, OpenError> {
        let Some(settings) = &config.http_cache else { return Ok(None) };
        let cache = Cache::open(&settings.settings(), settings.rules())?;
        let sites = config.sites.iter().map(|site| Arc::new(site.loaded().clone())).collect();
        Ok(Some(Arc::new(Self {
            cache,
            origins: Arc::default(),
            sites: RwLock::new(sites),
            changed: Changed::default(),
            shows_status: settings.cache_status,
        })))
    }

    /// The site of that name.
    fn site(&self, name: &str) -> Option<Arc<SiteLoaded>> {
        let sites = self.sites();
        sites.iter().find(|site| site.name.as_str().eq_ignore_ascii_case(name)).cloned()
    }

    fn sites(&self) -> RwLockReadGuard<'_, Vec<Arc<SiteLoaded>>> {
        // Nothing in there panics half-way.
        self.sites.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on connections to come are shown the certificates that `config` has for the sites; those
    /// that are open go on, and all else of a site stays as it was.
    pub fn set_certificates(&self, config: &AirConfig) {
        let mut sites = self.sites.write().unwrap_or_else(PoisonError::into_inner);
        for site in sites.iter_mut() {
            let now = config.sites.iter().map(|site| site.loaded()).find(|it| it.name == site.name);
            if let Some(now) = now {
                *site = Arc::new(SiteLoaded { server: now.server.clone(), ..(**site).clone() });
            }
        }
    }

    /// Counts of the cache itself.
    pub fn tell(&self, counters: &Counters) {
        let counts = self.cache.counts();
        counters.http_stored.follow(counts.stored);
        counters.http_evicted.follow(counts.evicted);
        counters.http_unwritten.follow(self.cache.unwritten());
    }

    /// Ends the flows that wait for a next request.
    pub fn close(&self) {
        self.origins.close();
    }

    /// Answers `request` of the passenger with `ticket`: from the cache, or from where it goes. What is said
    /// before the answer goes by `interims`.
    pub async fn exchange(
        &self,
        intake: &Arc<Intake>,
        ticket: &Arc<Ticket>,
        to: Destination,
        mut request: Request<Incoming>,
        interims: Interims,
    ) -> Response<Body> {
        intake.counters.http_requests.add(1);
        let version = request.version();
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path.clone());
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        head::strip(headers);
        headers.insert(header::HOST, to.host.clone());
        head::add_via(headers, version);
        let key = to.named.as_ref().and_then(|named| {
            let scheme = if to.site.is_some() { Scheme::Https } else { Scheme::Http };
            key_of(scheme, named, path.as_str())
        });
        let asks = match version {
            Version::HTTP_2 => Asks::Stream(ticket.clone()),
            _ => Asks::Passenger(ticket.clone()),
        };
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let asker = Asker::telling(intake.clone(), asks, self.origins.clone(), to, interims);
        let answered = match key {
            // Who asks for what is here, and for nothing else, asks what others have read.
            Some(_) if !self.shows_status && is_only_if_cached(request.headers()) => {
                intake.counters.http_failed.add(1);
                return text(StatusCode::GATEWAY_TIMEOUT, "What is stored here is told to nobody.");
            }
            Some(key) if is_read && request.body().is_end_stream() => {
                let mut request = request.map(|_| ());
                if self.changed.take(ticket.client, &key) {
                    let no_cache = HeaderValue::from_static("no-cache");
                    request.headers_mut().insert(header::CACHE_CONTROL, no_cache);
                }
                let shown = asker.target();
                let origin: Arc<dyn Origin> = Arc::new(asker);
                let served = self.cache.serve(&key, &request, &origin).await;
                (shown, counted::count(served, &intake.counters))
            }
            key => self.pass(intake, ticket, asker, key, request).await,
        };
        let mut response = outbound(answered, version);
        if !self.shows_status {
            hide_status(response.headers_mut());
        }
        response
    }

    /// Sends on what no cache answers, once.
    async fn pass(
        &self,
        intake: &Arc<Intake>,
        ticket: &Ticket,
        asker: Asker,
        key: Option<Key>,
        request: Request<Incoming>,
    ) -> Answered {
        intake.counters.http_passed.add(1);
        let method = request.method().clone();
        let shown = asker.target();
        let is_named = asker.is_named();
        let mut sent =
            asker.send_once(request.map(|body| body.map_err(Into::into).boxed_unsync())).await;
        if let Ok(response) = &mut sent {
            if let Some(key) = &key {
                let said = (response.status(), response.headers());
                self.note_changed(is_named, ticket, key, &method, said);
            }
            let why = if key.is_some() { Forwarded::Method } else { Forwarded::Bypass };
            response.headers_mut().append(CACHE_STATUS, why.field());
        }
        (shown, sent.map(|response| response.map(|body| body.map_err(Into::into).boxed_unsync())))
    }

    /// Marks a resource that a request may have changed as one to be confirmed: for everybody, if
    /// it `is_named` who answered it, else for the passenger who sent it.
    fn note_changed(
        &self,
        is_named: bool,
        ticket: &Ticket,
        key: &Key,
        method: &Method,
        (status, headers): (StatusCode, &HeaderMap),
    ) {
        if is_named {
            return self.cache.changed(key, method, (status, headers));
        }
        if !invalidates(method, status) {
            return;
        }
        self.changed.note(ticket.client, key);
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let reference = headers.get(&name).and_then(|value| value.to_str().ok());
            if let Some(other) = reference.and_then(|reference| key.same_origin(reference)) {
                self.changed.note(ticket.client, &other);
            }
        }
    }
}

fn key_of(scheme: Scheme, named: &Target, path: &str) -> Option<Key> {
    let host = match &named.host {
        Host::Name(name) => name.clone(),
        Host::Ip(std::net::IpAddr::V6(address)) => format!("[{address}]"),
        Host::Ip(address) => address.to_string(),
        // What is asked of the ground itself is nobody's page.
        Host::Service(_) => return None,
    };
    Key::new(scheme, &host, named.port, path)
}

/// Target of a request, and its answer.
type Answered = (Target, Result<Response<Body>, Failure>);

/// The answer as it goes to a client that speaks `spoken`.
fn outbound((target, answered): Answered, spoken: Version) -> Response<Body> {
    let target = &target;
    match answered {
        // Nobody was asked to speak something else (RFC 9110 §15.2.2), and others are not final.
        Ok(response) if response.status().is_informational() => {
            super::http::failure(target, ResetCode::Aborted)
        }
        Ok(mut response) => {
            let coded = codings::for_client(response.headers());
            if coded.is_some() && spoken != Version::HTTP_11 {
                // Only HTTP/1.1 can say how the body is coded.
                return super::http::failure(target, ResetCode::Aborted);
            }
            let version = response.version();
            head::strip(response.headers_mut());
            head::add_via(response.headers_mut(), version);
            if let Some(coded) = coded {
                response.headers_mut().insert(header::TRANSFER_ENCODING, coded);
            }
            *response.version_mut() = Version::HTTP_11;
            response
        }
        Err(failure) if failure.offline => super::http::no_link(),
        Err(failure) if failure.code == NO_TLS => super::http::no_tls(target),
        Err(failure) if failure.code == BUSY => super::http::busy(),
        Err(failure) => {
            let stalled = failure.code == bentpipe_webcache::STALLED;
            let code = if stalled { ResetCode::Timeout } else { ResetCode::from_u8(failure.code) };
            super::http::failure(target, code)
        }
    }
}

/// Takes what this cache says of itself out of `headers`. What caches before it say stays.
fn hide_status(headers: &mut HeaderMap) {
    let of_others = |value: &&HeaderValue| !value.as_bytes().starts_with(b"bentpipe;");
    let others: Vec<_> = headers.get_all(CACHE_STATUS).iter().filter(of_others).cloned().collect();
    headers.remove(CACHE_STATUS);
    for value in others {
        headers.append(CACHE_STATUS, value);
    }
}

/// The answer to a request that has more than one meaning.
pub fn refusal(intake: &Intake, ticket: &Ticket, refused: framing::Refusal) -> Response<Body> {
    intake.counters.http_requests.add(1);
    intake.counters.http_refused.add(1);
    intake.garbage(ticket, refused.why());
    let mut response =
        text(refused.status(), &format!("This request is refused: {}.", refused.why()));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// `answer`, unless the body of the request turned out to be malformed: that is why it is what it is.
pub fn unless_broken(
    gate: &Gate,
    (intake, ticket): (&Intake, &Ticket),
    answer: Response<Body>,
) -> Response<Body> {
    match gate.broken() {
        // An origin that answers before it has all of the body has said what it thinks of it.
        Some(broken) if answer.status().is_server_error() => refusal(intake, ticket, broken),
        _ => answer,
    }
}

/// A short answer after which the connection is closed.
fn closing(status: StatusCode, why: &str, version: Version) -> Response<Body> {
    let mut response = text(status, why);
    // HTTP/2 has no such field.
    if version != Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Body type of a passenger's own bytes.
type Outbound = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// Whatever breaks a body off.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
