//! The portal's content over a link in virtual time: it takes what passengers leave, and no more.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::far::{FarEnd, Reach, link};
use bentpipe_gateway::preload::{Outcome, Preloader, Report, Settings, Sources, request_file};
use bentpipe_lab::profile::Profile;
use bentpipe_lab::sim::net::Net;
use bentpipe_link::io::{Air, Arrived, Flow, Hub, Open};
use bentpipe_link::{Class, Host, SecretKey, Target};
use bentpipe_prefetch::address::Address;
use bentpipe_webcache::{Answer, Cache, Failure, Origin, Rules};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

const GROUND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const AIRCRAFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Objects of the portal, and the bytes of each.
const OBJECTS: usize = 20;
const OBJECT_BYTES: usize = 200_000;

/// Time for which passengers are busy.
const BUSY: Duration = Duration::from_secs(120);

/// Asks the ground for objects, in the class that yields.
struct Portal(Arc<Air>);

impl Sources for Portal {
    fn origin(&self, _: &Address) -> Option<Arc<dyn Origin>> {
        Some(Arc::new(Self(self.0.clone())))
    }

    fn is_reachable(&self) -> bool {
        FarEnd::reach(&*self.0) == Reach::Up
    }
}

impl Origin for Portal {
    fn send(&self, _: Request<()>) -> BoxFuture<'static, Result<Answer, Failure>> {
        let air = self.0.clone();
        Box::pin(async move {
            let broken = |_| Failure { offline: false, code: 0 };
            let mut flow = open(&air, Class::LowerEffort, 0, OBJECT_BYTES).await;
            let mut bytes = Vec::new();
            flow.read_to_end(&mut bytes).await.map_err(broken)?;
            let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync();
            let mut response = Response::new(body);
            let fresh = HeaderValue::from_static("max-age=86400");
            response.headers_mut().insert(header::CACHE_CONTROL, fresh);
            Ok(Answer { response, trusted: true, pushed: false })
        })
    }
}

/// A flow by which the ground sends so many bytes.
async fn open(air: &Arc<Air>, class: Class, passenger: u32, bytes: usize) -> Flow {
    let target = Target { host: Host::Name("portal.test".to_owned()), port: 80 };
    let first = Bytes::copy_from_slice(&(bytes as u64).to_be_bytes());
    Air::open(air, Open { target, class, passenger, claim: None, first }).await.unwrap()
}

async fn serve(hub: Hub) {
    while let Some(Arrived::Stream(mut incoming)) = hub.accept().await {
        tokio::spawn(async move {
            let mut bytes = [0; 8];
            let flow = &mut incoming.flow;
            if flow.read_exact(&mut bytes).await.is_ok() {
                // Who wants no more closes.
                let _ = flow.write_all(&vec![7; u64::from_be_bytes(bytes) as usize]).await;
                let _ = flow.shutdown().await;
            }
        });
    }
}

fn configs(profile: &Profile, folder: &Path, rng: &mut ChaCha20Rng) -> (AirConfig, GroundConfig) {
    let (air, ground) = (SecretKey::generate(rng), SecretKey::generate(rng));
    std::fs::write(folder.join("air.key"), air.to_base64()).unwrap();
    std::fs::write(folder.join("ground.key"), ground.to_base64()).unwrap();
    let (up, down) = (profile.link.return_.rate().unwrap(), profile.link.forward.rate().unwrap());
    // Without a floor: what lower effort has is what others leave.
    let classes = "[classes.lower-effort]\nrate = \"0 kbit/s\"\n";
    let air_text = format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"{GROUND}:4500\"\npeer-public-key = \"{}\"\n\
         rate = \"{up}\"\n[listen]\nsocks5 = \"127.0.0.1:0\"\n{classes}",
        ground.public()
    );
    let ground_text = format!(
        "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"{GROUND}:4500\"\n[[aircraft]]\n\
         name = \"D-ABCD\"\npublic-key = \"{}\"\nrate = \"{down}\"\n{classes}",
        air.public()
    );
    let air = AirConfig::parse(&folder.join("air.toml"), &air_text).unwrap();
    (air, GroundConfig::parse(&folder.join("ground.toml"), &ground_text).unwrap())
}

/// The aircraft's end, over `profile`.
async fn start(profile: &Profile, folder: &Path, net: &Net) -> Arc<Air> {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let (air, ground) = configs(profile, folder, &mut rng);
    let (hub_node, air_node) = (net.node(GROUND).unwrap(), net.node(AIRCRAFT).unwrap());
    net.join(&hub_node, &air_node, &profile.link);
    let socket = hub_node.bind(4500).unwrap();
    let settings = link::air_config(&air, socket.local_addr(), 1).unwrap();
    let hub_settings = link::hub_config(&ground).unwrap();
    let hub = Hub::start_seeded(Box::new(socket), hub_settings, rng.random());
    let socket = Box::new(air_node.bind(0).unwrap());
    let far = Arc::new(Air::start_seeded(socket, settings, rng.random()));
    tokio::spawn(serve(hub));
    while FarEnd::reach(&*far) != Reach::Up {
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_secs(5)).await;
    far
}

/// Bytes that three passengers who download all the time have received after [`BUSY`].
async fn download(air: &Arc<Air>) -> u64 {
    let downloads = (1..=3).map(|passenger| {
        let air = air.clone();
        tokio::spawn(async move {
            let mut flow = open(&air, Class::BestEffort, passenger, 100_000_000).await;
            let (mut space, mut got) = (vec![0; 65_536], 0);
            let end = sleep(BUSY);
            tokio::pin!(end);
            loop {
                tokio::select! {
                    biased;
                    () = &mut end => return got,
                    read = flow.read(&mut space) => got += read.unwrap() as u64,
                }
            }
        })
    });
    let mut all = 0;
    for download in downloads.collect::<Vec<_>>() {
        all += download.await.unwrap();
    }
    all
}

async fn alone(profile: &Profile) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let net = Net::new(7);
    download(&start(profile, folder.path(), &net).await).await
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_preload_takes_what_passengers_leave() {
    let profile = Profile::named("geo-rural-8").unwrap();
    let undisturbed = alone(&profile).await;

    let folder = tempfile::tempdir().unwrap();
    let net = Net::new(7);
    let air = start(&profile, folder.path(), &net).await;
    let cache = Cache::open(&Default::default(), Rules::default()).unwrap();
    let lines = (0..OBJECTS).map(|n| format!("http://portal.test/{n}\n"));
    std::fs::write(folder.path().join("portal.txt"), lines.collect::<String>()).unwrap();
    let settings = Settings {
        manifest: folder.path().join("portal.txt"),
        report: folder.path().join("preload.json"),
        window: None,
        run_bytes: 1 << 30,
        at_once: 4,
        sites: Vec::new(),
    };
    std::fs::write(request_file(&settings.report), "").unwrap();
    let (counters, report) = (Arc::<Counters>::default(), settings.report.clone());
    let (sources, clock) = (Arc::new(Portal(air.clone())), cache.clock());
    let preloader = Preloader::new(settings, cache.clone(), sources, clock, counters.clone());
    let busy = tokio::spawn({
        let air = air.clone();
        async move { download(&air).await }
    });
    // The passengers have the link before the preload begins.
    sleep(Duration::from_secs(5)).await;
    tokio::spawn(preloader.keep());
    let disturbed = busy.await.unwrap();
    let ahead_while_busy = counters.preload_bytes.get();
    assert!(
        disturbed as f64 >= 0.97 * undisturbed as f64,
        "{undisturbed} bytes without a preload, {disturbed} beside one"
    );
    let all = (OBJECTS * OBJECT_BYTES) as u64;
    assert!(ahead_while_busy < all / 4, "{ahead_while_busy} of {all} bytes while all was wanted");
    // Then the link is its own: 4 MB at 8 Mbit/s take 4 s, and each of five rounds a round trip.
    sleep(Duration::from_secs(30)).await;
    assert_eq!(counters.preload_bytes.get(), all);
    let report = Report::read(&report).unwrap();
    assert_eq!(report.count(Outcome::Stored), OBJECTS);
    assert_eq!(cache.pinned().len(), OBJECTS);
}
