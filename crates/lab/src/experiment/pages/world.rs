//! An aircraft that asks for pages and a ground that has them, over a link in virtual time.
//!
//! What joins cache, promises and link is what the air gateway does for each request: the cache first,
//! then what was promised, then the link. The passengers' own connections cost no time here.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_gateway::config::{AirConfig, AirSplitHttp, GroundConfig, GroundSplitHttp};
use bentpipe_gateway::far::{FarEnd, Reach, link};
use bentpipe_gateway::pages::{AirPages, Condition, GroundPages, is_page};
use bentpipe_link::io::{Air, Arrived, Flow, Hub, Open};
use bentpipe_link::{Class, Host, SecretKey, Service, Target};
use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::digest::MAX_ENTRIES;
use bentpipe_webcache::{Answer, Cache, Failure, Key, Origin, Rules, Scheme, Settings};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, TryStreamExt};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use super::PagesError;
use super::site::{HOST, Site, body};
use crate::profile::Profile;
use crate::sim::net::Net;

/// A link that is not up by then will not be.
const PATIENCE: Duration = Duration::from_secs(60);
/// From then on it is quiet.
const QUIET: Duration = Duration::from_secs(5);
/// Size of a browser's request: a short one.
const REQUEST_BYTES: usize = 300;

const GROUND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const AIRCRAFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Both ends, until it is dropped.
pub struct World {
    cabin: Cabin,
    /// `true` if pages use Split HTTP; otherwise each object crosses the link by itself.
    is_split: bool,
    _net: Net,
}

#[derive(Clone)]
struct Cabin {
    far: Arc<Air>,
    pages: Arc<AirPages>,
    cache: Cache,
}

impl World {
    /// Starts both over `profile`'s link; waits until it is up and quiet.
    pub async fn start(profile: &Profile, seed: u64, is_split: bool) -> Result<Self, PagesError> {
        let folder = tempfile::tempdir()?;
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air, ground) = configs(profile, folder.path(), &mut rng)?;
        let net = Net::new(rng.random());
        let (hub_node, air_node) = (net.node(GROUND)?, net.node(AIRCRAFT)?);
        net.join(&hub_node, &air_node, &profile.link);
        let hub_socket = hub_node.bind(4500)?;
        let settings = link::air_config(&air, hub_socket.local_addr(), 1);
        let settings = settings.map_err(PagesError::told)?;
        let hub_settings = link::hub_config(&ground).map_err(PagesError::told)?;
        let hub = Hub::start_seeded(Box::new(hub_socket), hub_settings, rng.random());
        let far = Arc::new(Air::start_seeded(Box::new(air_node.bind(0)?), settings, rng.random()));
        let half = GroundSplitHttp::default().settings(&[], ground.limits.relay().idle);
        tokio::spawn(serve(hub, Arc::new(GroundPages::new(half, Arc::default()))));
        let half = AirSplitHttp::default().settings(air.limits.relay().idle);
        let pages = AirPages::new(half, Arc::default());
        let cache =
            Cache::open(&Settings::default(), Rules::default()).map_err(PagesError::told)?;
        let began = Instant::now();
        while FarEnd::reach(&*far) != Reach::Up {
            if began.elapsed() > PATIENCE {
                return Err(PagesError::told("the link does not come up"));
            }
            sleep(Duration::from_millis(100)).await;
        }
        sleep(QUIET).await;
        Ok(Self { cabin: Cabin { far, pages, cache }, is_split, _net: net })
    }

    /// Gets `path` for `passenger`, and checks every byte of it.
    pub async fn get(&self, passenger: u32, path: &str, accept: &str) -> Result<(), PagesError> {
        let (expected, ..) = body(path).ok_or_else(|| PagesError::told("no such path"))?;
        let came = if self.is_split {
            self.cabin.get(passenger, path, accept).await?
        } else {
            self.cabin.across(passenger, path).await?
        };
        if came == expected { Ok(()) } else { Err(PagesError::told(format!("{path} is damaged"))) }
    }
}

impl Cabin {
    async fn get(&self, passenger: u32, path: &str, accept: &str) -> Result<Bytes, PagesError> {
        let mut request = Request::get(path).body(()).map_err(PagesError::told)?;
        let accept = HeaderValue::from_str(accept).map_err(PagesError::told)?;
        request.headers_mut().insert(header::ACCEPT, accept);
        let key =
            Key::new(Scheme::Http, HOST, 80, path).ok_or_else(|| PagesError::told("no key"))?;
        let address = Address::parse(&format!("http://{HOST}{path}")).map_err(PagesError::told)?;
        let across = Across { cabin: self.clone(), passenger, address };
        let origin: Arc<dyn Origin> = Arc::new(across);
        let served = self.cache.serve(&key, &request, &origin).await;
        let response = served.response.map_err(PagesError::told)?;
        Ok(response.into_body().collect().await.map_err(PagesError::told)?.to_bytes())
    }

    /// A flow of its own, as the gateways carry what they do not look into.
    async fn across(&self, passenger: u32, path: &str) -> Result<Bytes, PagesError> {
        let mut first = format!("{path}\n").into_bytes();
        first.resize(REQUEST_BYTES, b' ');
        let target = Target { host: Host::Name(HOST.to_owned()), port: 80 };
        let mut flow =
            self.open(passenger, target, first.into()).await.map_err(PagesError::told)?;
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
    fn send(&self, request: Request<()>) -> BoxFuture<'static, Result<Answer, Failure>> {
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
            let broken = |_| Failure { offline: false, code: 0 };
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
    let mut page = cabin.pages.ask_for(address_of(passenger), address.clone(), headers, cached)?;
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
    let frames = body.map_ok(Frame::data).map_err(|_| Failure { offline: false, code: 0 });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.headers_mut() = headers;
    response
}

/// The ground: its half of Split HTTP, and an origin that answers at once for all else.
async fn serve(hub: Hub, half: Arc<GroundPages>) {
    while let Some(arrived) = hub.accept().await {
        let Arrived::Stream(incoming) = arrived else { continue };
        let half = half.clone();
        tokio::spawn(async move {
            if matches!(incoming.target.host, Host::Service(Service::Pages)) {
                // What broke shows at the cabin's end.
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

fn configs(
    profile: &Profile,
    folder: &std::path::Path,
    rng: &mut ChaCha20Rng,
) -> Result<(AirConfig, GroundConfig), PagesError> {
    let (air, ground) = (SecretKey::generate(rng), SecretKey::generate(rng));
    std::fs::write(folder.join("air.key"), air.to_base64())?;
    std::fs::write(folder.join("ground.key"), ground.to_base64())?;
    let link = &profile.link;
    let (Some(up), Some(down)) = (link.return_.rate(), link.forward.rate()) else {
        return Err(PagesError::told("the link has no rate"));
    };
    let air_text = format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"{GROUND}:4500\"\n\
         peer-public-key = \"{}\"\nrate = \"{up}\"\n[listen]\nsocks5 = \"127.0.0.1:0\"\n",
        ground.public()
    );
    let ground_text = format!(
        "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"{GROUND}:4500\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{}\"\nrate = \"{down}\"\n",
        air.public()
    );
    let air = AirConfig::parse(&folder.join("air.toml"), &air_text).map_err(PagesError::told)?;
    let ground = GroundConfig::parse(&folder.join("ground.toml"), &ground_text);
    Ok((air, ground.map_err(PagesError::told)?))
}
