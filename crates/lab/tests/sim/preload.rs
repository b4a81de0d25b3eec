//! The portal's content over a link in virtual time: it takes only the capacity that passengers
//! leave.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::{Host, Target};
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::preload::{Event, Preloader, Settings, Sources, Summary};
use bentpipe_gateway::transport::{Reach, wait_for_reach};
use bentpipe_gateway::transports::link;
use bentpipe_lab::profile::Profile;
use bentpipe_lab::sim::net::Net;
use bentpipe_link::io::{Air, Arrived, Flow, Hub, Open};
use bentpipe_link::{Class, SecretKey};
use bentpipe_prefetch::address::Address;
use bentpipe_webcache::{Answer, Cache, Origin, OriginError, OriginRequest, Rules};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, Full};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::sleep;

const GROUND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const AIRCRAFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Number of the portal's objects. Below it, the bytes of each.
const OBJECTS: usize = 20;
const OBJECT_BYTES: usize = 200_000;

/// Time for which passengers are busy.
const BUSY: Duration = Duration::from_secs(120);

/// Fetches objects from the ground, in the lowest class.
struct Portal(Arc<Air>);

impl Sources for Portal {
    fn origin(&self, _: &Address) -> Option<Arc<dyn Origin>> {
        Some(Arc::new(Self(self.0.clone())))
    }

    fn reachable(&self) -> BoxFuture<'_, ()> {
        Box::pin(wait_for_reach(&*self.0, |reach| reach == Reach::Up))
    }
}

impl Origin for Portal {
    fn send(&self, _: OriginRequest) -> BoxFuture<'static, Result<Answer, OriginError>> {
        let air = self.0.clone();
        Box::pin(async move {
            let broken = |_| OriginError::Stalled;
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

/// Opens a flow on which the ground sends `bytes` bytes.
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
                // A client that needs no more data closes the flow.
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
    // There is no floor, so lower effort gets only what others leave.
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

/// Starts the aircraft's end over `profile`.
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
    wait_for_reach(&*far, |reach| reach == Reach::Up).await;
    sleep(Duration::from_secs(5)).await;
    far
}

/// Bytes that three constantly downloading passengers have received after [`BUSY`].
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
        max_bytes_per_run: 1 << 30,
        concurrency: 4,
        sites: Vec::new(),
    };
    let counters = Arc::<Counters>::default();
    let sources = Arc::new(Portal(air.clone()));
    let preloader = Preloader::new(settings, cache.clone(), sources, counters.clone());
    let busy = tokio::spawn({
        let air = air.clone();
        async move { download(&air).await }
    });
    // The passengers use the link before the preload begins.
    sleep(Duration::from_secs(5)).await;
    let (events, mut run) = mpsc::channel(1);
    tokio::spawn(async move { preloader.run(events).await });
    let events = tokio::spawn(async move {
        let mut events = Vec::new();
        while let Some(event) = run.recv().await {
            events.push(event);
        }
        events
    });
    let disturbed = busy.await.unwrap();
    let ahead_while_busy = counters.preload_bytes.get();
    assert!(
        disturbed as f64 >= 0.97 * undisturbed as f64,
        "{undisturbed} bytes without a preload, {disturbed} beside one"
    );
    let all = (OBJECTS * OBJECT_BYTES) as u64;
    assert!(ahead_while_busy < all / 4, "{ahead_while_busy} of {all} bytes while all was wanted");
    // Now the preload has the link alone: 4 MB at 8 Mbit/s take 4 s, and each of five rounds takes
    // a round trip.
    sleep(Duration::from_secs(30)).await;
    assert_eq!(counters.preload_bytes.get(), all);
    let events = events.await.unwrap();
    let expected = Summary { stored: OBJECTS as u64, bytes: all, ..Summary::default() };
    assert_eq!(events.last(), Some(&Event::Ended(expected)));
    assert_eq!(cache.pinned().len(), OBJECTS);
}
