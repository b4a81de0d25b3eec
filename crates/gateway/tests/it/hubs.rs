//! Flows over two hubs and an egress, on loopback: a hub that restarts, and one that becomes silent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bentpipe_flow::{Class, ResetCode};
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::ground::{Ground, run_over};
use bentpipe_gateway::relay::handover::Store;
use bentpipe_gateway::transport::{Acceptor, Connector, Open};
use bentpipe_gateway::transports;
use bentpipe_link::SecretKey;
use bentpipe_net::{Handover, Inherited};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::bench::{echo, soon, until};

pub const AIR: u8 = 1;
const HUBS: [u8; 2] = [2, 3];
const EGRESS: u8 = 4;
pub const FLOWS: usize = 20;
const STEP: usize = 20_000;

pub fn secret(number: u8) -> SecretKey {
    SecretKey::from_bytes([number; 32])
}

pub fn write_key(folder: &Path, number: u8) -> String {
    let name = format!("{number}.key");
    std::fs::write(folder.join(&name), secret(number).to_base64()).unwrap();
    name
}

/// A ground gateway with key `number`, which serves the aircraft.
pub fn ground(folder: &Path, number: u8, listen: &str, rest: &str) -> GroundConfig {
    let (key, air) = (write_key(folder, number), secret(AIR).public());
    let text = format!(
        "[link]\nprivate-key-file = \"{key}\"\n{listen}\n[dial]\nallow = [\"127.0.0.0/8\"]\n\
         [dns]\nservers = [\"127.0.0.1:9\"]\n[limits]\ndrain-timeout = \"0 s\"\n\
         [[aircraft]]\nname = \"D-{AIR}\"\npublic-key = \"{air}\"\nrate = \"50 Mbit/s\"\n{rest}"
    );
    GroundConfig::parse(&folder.join(format!("{number}.toml")), &text).unwrap()
}

/// Settings of an aircraft that keeps its flows, with the hub of this key and address.
pub fn aircraft(folder: &Path, (hub, address): (u8, SocketAddr), socks: SocketAddr) -> AirConfig {
    let (key, peer) = (write_key(folder, AIR), secret(hub).public());
    let text = format!(
        "[link]\nprivate-key-file = \"{key}\"\npeer = \"{address}\"\npeer-public-key = \"{peer}\"\n\
         rate = \"50 Mbit/s\"\nkeep-flows = true\n[listen]\nsocks5 = \"{socks}\"\n"
    );
    AirConfig::parse(&folder.join("air.toml"), &text).unwrap()
}

/// A running ground gateway.
pub struct Running {
    pub address: SocketAddr,
    pub gateway: Ground,
    pub acceptors: Vec<Arc<dyn Acceptor>>,
    stop: Option<mpsc::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    pub fn start(config: GroundConfig) -> Self {
        Self::start_after(config, None, None)
    }

    /// Starts the next process of a gateway, with what the previous one has left.
    pub fn start_after(
        config: GroundConfig,
        previous: Option<Handover>,
        store: Option<Store>,
    ) -> Self {
        let mut inherited = previous.map(Inherited::from_handover).unwrap_or_default();
        let acceptors = transports::acceptor(&config, &mut inherited).unwrap();
        let address = acceptors[0].local_addr().unwrap();
        let gateway = Ground::new(&config).unwrap();
        let gateway = gateway.with_handover(inherited.take_handover(), store);
        let (stop, mut stopped) = mpsc::channel::<()>(1);
        let (serving, serves) = (gateway.clone(), acceptors.clone());
        let task = tokio::spawn(async move {
            let shutdown = async move { stopped.recv().await.unwrap_or_default() };
            let no_reload = mpsc::channel(1).1;
            run_over(&config, &serving, serves, no_reload, shutdown).await.unwrap();
        });
        Self { address, gateway, acceptors, stop: Some(stop), task }
    }

    /// Stops the gateway in an orderly way.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        soon("the end of a ground", self.task).await.unwrap();
    }
}

/// A path to a hub that can be cut without a word to either end.
pub struct Path1 {
    pub address: SocketAddr,
    pub is_cut: Arc<AtomicBool>,
    /// Destination, which may restart elsewhere.
    pub hub: watch::Sender<SocketAddr>,
}

impl Path1 {
    pub async fn to(hub: SocketAddr) -> Self {
        let near = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (address, is_cut) = (near.local_addr().unwrap(), Arc::<AtomicBool>::default());
        let (hub, hubs) = watch::channel(hub);
        let cut = is_cut.clone();
        tokio::spawn(async move {
            let (mut airs, mut one) = (HashMap::new(), vec![0; 2_000]);
            loop {
                let (count, from) = near.recv_from(&mut one).await.unwrap();
                if cut.load(Ordering::Relaxed) {
                    continue;
                }
                if let Entry::Vacant(new) = airs.entry(from) {
                    let far = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
                    tokio::spawn(back(far.clone(), near.clone(), from, cut.clone()));
                    new.insert(far);
                }
                let hub = *hubs.borrow();
                let _ = airs[&from].send_to(&one[..count], hub).await;
            }
        });
        Self { address, is_cut, hub }
    }
}

/// Passes on what comes for the aircraft, which may have several radios.
async fn back(from: Arc<UdpSocket>, near: Arc<UdpSocket>, air: SocketAddr, cut: Arc<AtomicBool>) {
    let mut bytes = vec![0; 2_000];
    while let Ok(count) = from.recv(&mut bytes).await {
        if !cut.load(Ordering::Relaxed) {
            let _ = near.send_to(&bytes[..count], air).await;
        }
    }
}

/// Sends steps, and compares what comes back, until `is_over` and once more.
pub async fn transfer(
    connector: Arc<dyn Connector>,
    target: SocketAddr,
    is_over: Arc<AtomicBool>,
    steps: Arc<AtomicU64>,
) {
    let target = target.to_string().parse().unwrap();
    let (class, first) = (Class::BestEffort, Bytes::new());
    let open = Open { target, class, passenger: 1, claim: None, first };
    let mut flow = connector.open(open).await.unwrap();
    let mut seed = 1_u8;
    loop {
        let is_last = is_over.load(Ordering::Relaxed);
        let body: Vec<u8> = (0..STEP).map(|at| (at % 251) as u8 ^ seed).collect();
        flow.write_all(&body).await.expect("no reset");
        let mut back = vec![0; STEP];
        flow.read_exact(&mut back).await.expect("no reset");
        assert!(back == body, "other bytes than were sent");
        seed = seed.wrapping_add(1);
        steps.fetch_add(1, Ordering::Relaxed);
        if is_last {
            break;
        }
    }
    flow.shutdown().await.unwrap();
    let mut rest = Vec::new();
    flow.read_to_end(&mut rest).await.expect("no reset");
    assert!(rest.is_empty());
}

/// Transport between hubs and egress.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leg {
    Http,
    Radio,
}

impl Leg {
    /// Setting of the egress with its address.
    fn listen(self, address: &str) -> String {
        match self {
            Self::Http => format!("masque-listen = \"{address}\""),
            Self::Radio => format!("listen = \"{address}\""),
        }
    }

    /// Name in the file of the hub.
    fn name(self) -> &'static str {
        match self {
            Self::Http => "masque",
            Self::Radio => "link",
        }
    }
}

/// An aircraft, two hubs and an egress.
pub struct World {
    folder: tempfile::TempDir,
    pub egress: Running,
    pub hubs: Vec<Running>,
    pub paths: Vec<Path1>,
    pub connector: Arc<dyn Connector>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(Leg::Http, "").await
    }

    /// The same over `leg`, with further tables in the file of the air.
    pub async fn with(leg: Leg, tables: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let egress = Running::start(egress(folder.path(), leg));
        let (mut hubs, mut paths) = (Vec::new(), Vec::new());
        for number in HUBS {
            let hub = Running::start(hub(folder.path(), number, (leg, egress.address)));
            paths.push(Path1::to(hub.address).await);
            hubs.push(hub);
        }
        let key = write_key(folder.path(), AIR);
        let [first, second] = [0, 1].map(|at| {
            let (address, key) = (paths[at].address, secret(HUBS[at]).public());
            format!("peer = \"{address}\"\npeer-public-key = \"{key}\"\n")
        });
        let text = format!(
            "[link]\nprivate-key-file = \"{key}\"\n{first}rate = \"50 Mbit/s\"\n\
             [[hub]]\n{second}[listen]\nsocks5 = \"127.0.0.1:0\"\n{tables}"
        );
        let air = AirConfig::parse(&folder.path().join("air.toml"), &text).unwrap();
        let connector = transports::connector(&air, &mut Inherited::default()).unwrap();
        Self { folder, egress, hubs, paths, connector }
    }

    pub fn transfers(
        &self,
        target: SocketAddr,
        is_over: &Arc<AtomicBool>,
        steps: &Arc<AtomicU64>,
    ) -> JoinSet<()> {
        let mut flows = JoinSet::new();
        for _ in 0..FLOWS {
            let transfer = transfer(self.connector.clone(), target, is_over.clone(), steps.clone());
            flows.spawn(transfer);
        }
        flows
    }
}

/// An egress for the hubs.
fn egress(folder: &Path, leg: Leg) -> GroundConfig {
    let key = |hub: &u8| format!("[[hub]]\npublic-key = \"{}\"\n", secret(*hub).public());
    let hubs: String = HUBS.iter().map(key).collect();
    ground(folder, EGRESS, &leg.listen("127.0.0.1:0"), &hubs)
}

/// A hub whose flows are dialled at the egress with this address.
fn hub(folder: &Path, number: u8, (leg, egress): (Leg, SocketAddr)) -> GroundConfig {
    let (key, transport) = (secret(EGRESS).public(), leg.name());
    let rest = format!(
        "[[egress]]\npeer = \"{egress}\"\ntransport = \"{transport}\"\npublic-key = \"{key}\"\n"
    );
    ground(folder, number, "listen = \"127.0.0.1:0\"", &rest)
}

/// Waits until every flow has moved on, on average.
pub async fn progress(steps: &AtomicU64) {
    let goal = steps.load(Ordering::Relaxed) + 2 * FLOWS as u64;
    until("the flows go on", || steps.load(Ordering::Relaxed) >= goal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_outlive_hubs_that_restart_and_become_silent() {
    flows_outlive_hubs(Leg::Http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_over_the_radio_transport_outlive_hubs_that_restart_and_become_silent() {
    flows_outlive_hubs(Leg::Radio).await;
}

async fn flows_outlive_hubs(leg: Leg) {
    let mut world = World::with(leg, "").await;
    let target = echo("127.0.0.1:0").await;
    let (is_over, steps) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let mut flows = world.transfers(target, &is_over, &steps);
    progress(&steps).await;
    assert_eq!(world.egress.gateway.open_flows(), FLOWS, "the egress dials");
    assert_eq!(world.hubs[0].gateway.open_flows(), 0, "the hub only forwards");

    // The first hub restarts: its sessions end, and the aircraft calls it again.
    world.hubs.remove(0).stop().await;
    let egress = (leg, world.egress.address);
    let again = Running::start(hub(world.folder.path(), HUBS[0], egress));
    world.paths[0].hub.send_replace(again.address);
    world.hubs.insert(0, again);
    progress(&steps).await;

    // It becomes silent, as if it were killed: the flows go on at the second one.
    world.paths[0].is_cut.store(true, Ordering::Relaxed);
    progress(&steps).await;
    assert_eq!(world.egress.gateway.open_flows(), FLOWS);

    is_over.store(true, Ordering::Relaxed);
    while let Some(flow) = soon("the end of all flows", flows.join_next()).await {
        flow.unwrap();
    }
    until("the egress is idle", || world.egress.gateway.open_flows() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_of_an_egress_that_is_gone_end() {
    let world = World::new().await;
    let target = echo("127.0.0.1:0").await.to_string().parse().unwrap();
    let (class, first) = (Class::BestEffort, Bytes::from_static(b"here"));
    let open = Open { target, class, passenger: 1, claim: None, first };
    let mut flow = world.connector.open(open).await.unwrap();
    soon("an echo", flow.read_exact(&mut [0; 4])).await.unwrap();
    world.egress.stop().await;
    let ended = soon("its end", flow.read(&mut [0; 4])).await;
    assert!(ended.is_err(), "{ended:?}");
    // The egress resets its flows and closes its connection. If the hub sees the close first, it waits
    // for another process of the egress, and says then that there is none.
    let code = flow.reset_code();
    assert!(matches!(code, Some(ResetCode::Aborted | ResetCode::Unreachable)), "{code:?}");
}
