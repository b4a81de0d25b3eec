//! An aircraft that requests pages and a ground that serves them, over a link in virtual time.
//!
//! Cache, promises and link are combined as in the air gateway: each request looks in the cache
//! first, then among the promised objects, then uses the link. The passengers' own connections take
//! no time here.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use bentpipe_flow::{Host, Service, Target};
use bentpipe_gateway::config::{AirSplitHttp, GroundSplitHttp};
use bentpipe_gateway::pages::{AirPages, Condition, GroundPages, Reader, is_page};
use bentpipe_link::Class;
use bentpipe_link::io::{Air, Arrived, Flow, Hub, Open};
use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::digest::MAX_ENTRIES;
use bentpipe_webcache::{
    Answer, Cache, Key, Origin, OriginError, OriginRequest, Rules, Scheme, Settings,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, TryStreamExt};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use super::site::{HOST, Site, body};
use crate::experiment::virtual_link::VirtualLink;
use crate::profile::Profile;
use crate::traffic::emu::FurtherRates;

/// Time after which the link is quiet.
const QUIET: Duration = Duration::from_secs(5);
/// Size of a short request of a browser.
const REQUEST_BYTES: usize = 300;

/// Both ends; they run until dropped.
pub struct Testbed {
    cabin: Cabin,
    /// `true` if pages use Split HTTP. Otherwise each object crosses the link separately.
    is_split: bool,
    _link: VirtualLink,
}

#[derive(Clone)]
struct Cabin {
    far: Arc<Air>,
    pages: Arc<AirPages>,
    cache: Cache,
}

impl Testbed {
    /// Starts both ends over `links`, which one session uses at once, and waits until it is up and
    /// quiet.
    pub async fn start(
        links: &[Profile],
        rates: FurtherRates,
        seed: u64,
        is_split: bool,
    ) -> anyhow::Result<Self> {
        let link = VirtualLink::over(links, rates, seed, ["", ""])?;
        let half = GroundSplitHttp::default().settings(&[], link.ground.limits.relay().idle);
        tokio::spawn(serve(link.hub.clone(), Arc::new(GroundPages::new(half, Arc::default()))));
        let half = AirSplitHttp::default().settings(link.air.limits.relay().idle);
        let pages = AirPages::new(half, Arc::default());
        let cache = Cache::open(&Settings::default(), Rules::default())?;
        link.up().await?;
        sleep(QUIET).await;
        let cabin = Cabin { far: link.far.clone(), pages, cache };
        Ok(Self { cabin, is_split, _link: link })
    }

    /// Gets `path` for `passenger`, and verifies every byte.
    pub async fn get(&self, passenger: u32, path: &str, accept: &str) -> anyhow::Result<()> {
        let (expected, ..) = body(path).ok_or_else(|| anyhow!("no such path"))?;
        let came = if self.is_split {
            self.cabin.get(passenger, path, accept).await?
        } else {
            self.cabin.across(passenger, path).await?
        };
        if came == expected { Ok(()) } else { Err(anyhow!("{path} is damaged")) }
    }
}

impl Cabin {
    async fn get(&self, passenger: u32, path: &str, accept: &str) -> anyhow::Result<Bytes> {
        let mut request = Request::get(path).body(())?;
        let accept = HeaderValue::from_str(accept)?;
        request.headers_mut().insert(header::ACCEPT, accept);
        let key = Key::new(Scheme::Http, HOST, 80, path).ok_or_else(|| anyhow!("no key"))?;
        let address = Address::parse(&format!("http://{HOST}{path}"))?;
        let across = Across { cabin: self.clone(), passenger, address };
        let origin: Arc<dyn Origin> = Arc::new(across);
        let served = self.cache.serve(&key, &request, &origin).await;
        let response = served.response.map_err(|error| anyhow!("{error}"))?;
        Ok(response.into_body().collect().await.map_err(|error| anyhow!("{error}"))?.to_bytes())
    }

    /// Fetches `path` on a new flow, like traffic that the gateways do not inspect.
    async fn across(&self, passenger: u32, path: &str) -> anyhow::Result<Bytes> {
        let mut first = format!("{path}\n").into_bytes();
        first.resize(REQUEST_BYTES, b' ');
        let target = Target { host: Host::Name(HOST.to_owned()), port: 80 };
        let mut flow = self.open(passenger, target, first.into()).await?;
        let mut bytes = Vec::new();
        flow.read_to_end(&mut bytes).await?;
        Ok(bytes.into())
    }

    async fn open(
        &self,
        passenger: u32,
        target: Target,
        first: Bytes,
    ) -> Result<Flow, impl std::error::Error + use<>> {
        let open = Open { target, class: Class::BestEffort, passenger, claim: None, first };
        Air::open(&self.far, open).await
    }
}

/// One request that the cache does not answer.
struct Across {
    cabin: Cabin,
    passenger: u32,
    address: Address,
}

impl Origin for Across {
    fn send(
        &self,
        OriginRequest { request, .. }: OriginRequest,
    ) -> BoxFuture<'static, Result<Answer, OriginError>> {
        let (cabin, passenger, address) =
            (self.cabin.clone(), self.passenger, self.address.clone());
        Box::pin(async move {
            let is_page = is_page(&Method::GET, request.headers(), Condition::OfClient);
            let response = if is_page {
                page(&cabin, passenger, &address, request.headers()).await
            } else {
                object(&cabin, passenger, &address, request.headers()).await
            };
            if let Some(response) = response {
                return Ok(Answer { response, trusted: true, pushed: !is_page });
            }
            let path = address.path_and_query().to_owned();
            let broken = |_| OriginError::Stalled;
            let bytes = cabin.across(passenger, &path).await.map_err(broken)?;
            let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
            Ok(Answer { response: Response::new(body), trusted: true, pushed: false })
        })
    }
}

type Pushed = Response<bentpipe_webcache::OriginBody>;

/// Address of the passenger with this number in the cabin's network.
fn address_of(passenger: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + passenger))
}

async fn page(
    cabin: &Cabin,
    passenger: u32,
    address: &Address,
    headers: &HeaderMap,
) -> Option<Pushed> {
    let cached = cabin.cache.fresh_hashes(&format!("http://{HOST}:80/"), MAX_ENTRIES);
    let at = address_of(passenger);
    let reader = Reader { address: at, label: at.to_string().into() };
    let mut page = cabin.pages.ask_for(reader, address.clone(), headers, cached)?;
    let target = Target { host: Host::Service(Service::Pages), port: 80 };
    let flow = cabin.open(passenger, target, Bytes::new()).await.ok()?;
    tokio::spawn(page.carry(flow));
    let (head, body) = page.answer().await?;
    Some(pushed(head.headers, body))
}

async fn object(
    cabin: &Cabin,
    passenger: u32,
    address: &Address,
    headers: &HeaderMap,
) -> Option<Pushed> {
    let (head, body) = cabin.pages.object(address_of(passenger), address, headers).await?;
    Some(pushed(head.headers, body))
}

fn pushed<S, E>(headers: HeaderMap, body: S) -> Pushed
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
{
    let frames = body.map_ok(Frame::data).map_err(|_| OriginError::Stalled);
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.headers_mut() = headers;
    response
}

/// Serves the ground: its half of Split HTTP, and an origin that answers all other flows at once.
async fn serve(hub: Hub, half: Arc<GroundPages>) {
    while let Some(arrived) = hub.accept().await {
        let Arrived::Stream(incoming) = arrived else { continue };
        let half = half.clone();
        tokio::spawn(async move {
            if matches!(incoming.target.host, Host::Service(Service::Pages)) {
                // A failure shows up at the cabin's end.
                let _ = half.serve(&Site, "lab", incoming.flow).await;
            } else {
                let _ = origin(incoming.flow).await;
            }
        });
    }
}

async fn origin(mut flow: Flow) -> std::io::Result<()> {
    let mut request = [0; REQUEST_BYTES];
    flow.read_exact(&mut request).await?;
    let path = String::from_utf8_lossy(&request);
    if let Some((bytes, ..)) = path.split('\n').next().and_then(body) {
        flow.write_all(&bytes).await?;
    }
    flow.shutdown().await
}
