//! HTTP processing in this gateway: the cache, for port 80 and the proxy.
//!
//! | module | contents |
//! |---|---|
//! | this page | [`Web`], the HTTP cache with its origins |
//! | [`message`] | messages of a proxy |
//! | [`detect`] | protocols, detected from the first bytes |
//! | [`intercept`], [`site`] | intercepted HTTP, and the operator's own sites |
//! | [`pages`] | requests by Split HTTP |
//! | `page` | the passengers' page |
//! | `ahead` | requests of the preload |
//! | `origins`, `idle`, `destination`, `nameless` | requests across the link, and their connections |
//! | `changed`, `counted` | changes by passengers, and counters of the cache |
//! | `prefixed_io` | connections whose first bytes were read |

#![forbid(unsafe_code)]

mod ahead;
mod changed;
mod counted;
mod destination;
pub mod detect;
mod idle;
pub mod intercept;
pub mod message;
mod nameless;
mod origins;
mod page;
pub mod pages;
mod prefixed_io;
pub mod site;

use std::sync::Arc;

use bentpipe_flow::{Host, ResetCode, Target};
use bentpipe_split_http::AirPages;
use bentpipe_webcache::{
    CACHE_STATUS, Cache, Forwarded, Key, OpenError, Origin, OriginError, Scheme, invalidates,
    is_only_if_cached,
};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::message::head;
use crate::message::inflate;
use crate::message::interim::Interims;
use crate::message::respond::{self, Body, BoxError, text};
pub use ahead::{Ahead, unpin_all};
use bentpipe_config::{AirConfig, Site};
use bentpipe_metering::counters::Counters;
use bentpipe_origin::request_error::RequestError;
use bentpipe_origin::via::add_via;
use bentpipe_uplink::Uplink;
use bentpipe_uplink::passengers::FlowPermit;
use changed::Changed;
pub use destination::{Destination, PORT, host_of};
use idle::Origins;
use origins::{OriginClient, Requester, Sources};
pub use page::Page;

/// HTTP cache of the air gateway, if configured.
pub struct Web {
    cache: Cache,
    origins: Arc<Origins>,
    pages: Option<Arc<AirPages>>,
    sites: RwLock<Vec<Arc<Site>>>,
    changed: Changed,
    shows_status: bool,
}

impl Web {
    /// Opens the cache if `config` has one. `pages` is the state of Split HTTP.
    pub fn open(
        config: &AirConfig,
        pages: Option<Arc<AirPages>>,
    ) -> Result<Option<Arc<Self>>, OpenError> {
        let Some(cache) = &config.http_cache else { return Ok(None) };
        let shows_status = cache.cache_status;
        let cache = Cache::open(&cache.settings, cache.rules)?;
        let sites = config.sites.iter().cloned().map(Arc::new).collect();
        Ok(Some(Arc::new(Self {
            cache,
            origins: Arc::default(),
            pages,
            sites: RwLock::new(sites),
            changed: Changed::default(),
            shows_status,
        })))
    }

    /// Returns `true` if TLS is terminated here for any name.
    pub fn has_sites(&self) -> bool {
        !self.sites().is_empty()
    }

    /// Returns the site with this name.
    pub fn site(&self, name: &str) -> Option<Arc<Site>> {
        let sites = self.sites();
        sites.iter().find(|site| site.name.as_str().eq_ignore_ascii_case(name)).cloned()
    }

    fn sites(&self) -> RwLockReadGuard<'_, Vec<Arc<Site>>> {
        self.sites.read()
    }

    /// Uses the sites' certificates in `config` for new connections. Open connections continue, and
    /// all other settings of a site stay.
    pub fn set_certificates(&self, config: &AirConfig) {
        let mut sites = self.sites.write();
        for site in sites.iter_mut() {
            if let Some(now) = config.sites.iter().find(|it| it.name == site.name) {
                *site = Arc::new(Site { server: now.server.clone(), ..(**site).clone() });
            }
        }
    }

    fn sources(&self) -> Sources {
        (self.origins.clone(), self.cache.clone(), self.pages.clone())
    }

    /// Copies the cache's own counts to `counters`.
    pub fn tell(&self, counters: &Counters) {
        let counts = self.cache.counts();
        counters.http_stored.follow(counts.stored);
        counters.http_evicted.follow(counts.evicted);
        counters.http_unwritten.follow(self.cache.unwritten());
    }

    /// Closes the flows that wait for another request.
    pub fn close(&self) {
        self.origins.close();
    }

    /// Answers `request` of the passenger with `permit` from the cache or the origin. Interim
    /// responses go to `interims`.
    pub async fn exchange<B: RequestBody>(
        &self,
        uplink: &Arc<Uplink>,
        permit: &Arc<FlowPermit>,
        to: Destination,
        mut request: Request<B>,
        interims: Interims,
    ) -> Response<Body> {
        uplink.counters.http_requests.add(1);
        let version = request.version();
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path.clone());
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        head::strip(headers);
        headers.insert(header::HOST, to.host.clone());
        add_via(headers, version);
        let key = to.named.as_ref().and_then(|named| {
            let scheme = if to.site.is_some() { Scheme::Https } else { Scheme::Http };
            key_of(scheme, named, path.as_str())
        });
        let requester = match version {
            Version::HTTP_2 => Requester::Stream(permit.clone()),
            _ => Requester::Passenger(permit.clone()),
        };
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let client = OriginClient::telling(uplink.clone(), requester, self.sources(), to, interims);
        let answered = match key {
            // With `only-if-cached`, a client could find out what others have read.
            Some(_) if !self.shows_status && is_only_if_cached(request.headers()) => {
                uplink.counters.http_failed.add(1);
                return text(StatusCode::GATEWAY_TIMEOUT, "What is stored here is told to nobody.");
            }
            Some(key) if is_read && request.body().is_end_stream() => {
                let mut request = request.map(|_| ());
                if self.changed.take(permit.client, &key) {
                    let no_cache = HeaderValue::from_static("no-cache");
                    request.headers_mut().insert(header::CACHE_CONTROL, no_cache);
                }
                let shown = client.target();
                let origin: Arc<dyn Origin> = Arc::new(client);
                let served = self.cache.serve(&key, &request, &origin).await;
                (shown, counted::count(served, &uplink.counters))
            }
            key => self.pass(uplink, permit, client, key, request).await,
        };
        let mut response = outbound(answered, version);
        if !self.shows_status {
            hide_status(response.headers_mut());
        }
        response
    }

    /// Forwards a request that no cache may answer, exactly once.
    async fn pass<B: RequestBody>(
        &self,
        uplink: &Arc<Uplink>,
        permit: &FlowPermit,
        client: OriginClient,
        key: Option<Key>,
        request: Request<B>,
    ) -> Answered {
        uplink.counters.http_passed.add(1);
        let method = request.method().clone();
        let shown = client.target();
        let is_named = client.is_named();
        let mut sent =
            client.send_once(request.map(|body| body.map_err(Into::into).boxed_unsync())).await;
        if let Ok(response) = &mut sent {
            if let Some(key) = &key {
                let said = (response.status(), response.headers());
                self.note_changed(is_named, permit, key, &method, said);
            }
            let why = if key.is_some() { Forwarded::Method } else { Forwarded::Bypass };
            response.headers_mut().append(CACHE_STATUS, why.field());
        }
        (shown, sent.map(|response| response.map(|body| body.map_err(Into::into).boxed_unsync())))
    }

    /// Marks a resource that a request may have changed for revalidation. If the answering server
    /// `is_named`, this applies to everyone, otherwise only to the passenger who sent the request.
    fn note_changed(
        &self,
        is_named: bool,
        permit: &FlowPermit,
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
        self.changed.note(permit.client, key);
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let reference = headers.get(&name).and_then(|value| value.to_str().ok());
            if let Some(other) = reference.and_then(|reference| key.same_origin(reference)) {
                self.changed.note(permit.client, &other);
            }
        }
    }
}

/// Body of a client's request.
pub trait RequestBody: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static {}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static> RequestBody for B {}

fn key_of(scheme: Scheme, named: &Target, path: &str) -> Option<Key> {
    let host = match &named.host {
        Host::Name(name) => name.clone(),
        Host::Ip(std::net::IpAddr::V6(address)) => format!("[{address}]"),
        Host::Ip(address) => address.to_string(),
        // Service requests are not cacheable.
        Host::Service(_) => return None,
    };
    Key::new(scheme, &host, named.port, path)
}

/// Target of a request, and its response.
type Answered = (Target, Result<Response<Body>, OriginError>);

/// Converts the response for a client that speaks `spoken`.
fn outbound((target, answered): Answered, spoken: Version) -> Response<Body> {
    let target = &target;
    match answered {
        // We did not request an upgrade (RFC 9110 §15.2.2), and other interim responses are not
        // final.
        Ok(response) if response.status().is_informational() => {
            respond::failure(target, ResetCode::Aborted)
        }
        Ok(response) => {
            let Some((mut response, coded)) = inflate::for_client(response, spoken) else {
                return respond::failure(target, ResetCode::Aborted);
            };
            let version = response.version();
            head::strip(response.headers_mut());
            add_via(response.headers_mut(), version);
            if let Some(coded) = coded {
                response.headers_mut().insert(header::TRANSFER_ENCODING, coded);
            }
            *response.version_mut() = Version::HTTP_11;
            response
        }
        Err(OriginError::Offline) => respond::no_link(),
        Err(OriginError::Stalled) => respond::failure(target, ResetCode::Timeout),
        Err(error @ OriginError::Failed(_)) => match RequestError::of(&error) {
            Some(RequestError::Tls) => respond::no_tls(target),
            Some(RequestError::Busy) => respond::busy(),
            Some(RequestError::Flow(code)) => respond::failure(target, code),
            None => respond::failure(target, ResetCode::Internal),
        },
    }
}

/// Removes this cache's own status from `headers`, and keeps the status of other caches.
fn hide_status(headers: &mut HeaderMap) {
    let of_others = |value: &&HeaderValue| !value.as_bytes().starts_with(b"bentpipe;");
    let others: Vec<_> = headers.get_all(CACHE_STATUS).iter().filter(of_others).cloned().collect();
    headers.remove(CACHE_STATUS);
    for value in others {
        headers.append(CACHE_STATUS, value);
    }
}
