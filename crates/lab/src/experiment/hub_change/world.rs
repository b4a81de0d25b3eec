//! An aircraft, its hubs and egresses in virtual time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use bentpipe_anchor::acceptor::AnchorAcceptor;
use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::forward::{Egresses, OtherEgress, egress_id};
use bentpipe_anchor::hubs::Hubs;
use bentpipe_anchor::keeper::{self, Calls, answered};
use bentpipe_anchor::leg::Leg;
use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_flow::Class;
use bentpipe_gateway::config::{AirConfig, EgressKind, GroundConfig};
use bentpipe_gateway::transport::{Acceptor, Carried, Connector, Open};
use bentpipe_gateway::transports::{link, masque};
use bentpipe_link::io::{Air, Hub};
use bentpipe_masque::{Client, Server};
use bentpipe_units::{BitRate, Ratio};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tempfile::TempDir;
use tokio::sync::watch;

use super::files::{self, Files, Keys, Roles};
use super::script::Event;
use super::traffic::Log;
use crate::profile::Profile;
use crate::sim::net::{Net, Node};

/// Handshake counters of one call.
const COUNTERS: u64 = 1 << 32;

const AIRCRAFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// Another address of the aircraft.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const HUBS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2))];
const EGRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2))];
const HUB_PORT: u16 = 4500;
const EGRESS_PORT: u16 = 4433;

/// Path between a hub and an egress: 1 Gbit/s, 20 ms.
fn internet() -> LinkSpec {
    let rate = BitRate::from_bps(1_000_000_000);
    let way = DirectionSpec::fixed(Some(rate), super::bounds::INTERNET_RTT / 2, Ratio::ZERO);
    LinkSpec { forward: way.clone(), return_: way }
}

/// The world; it runs until dropped.
pub struct World {
    /// The network.
    pub net: Net,
    /// Host of the air gateway.
    pub air: Node,
    /// Hosts of the hubs.
    pub hubs: [Node; 2],
    /// Hosts of the egresses.
    pub egresses: [Node; 2],
    /// Link between the aircraft and a hub.
    pub radio: LinkSpec,
    /// The air's hubs.
    pub connector: Arc<dyn Connector>,
    /// Acceptors of the hubs.
    pub acceptors: Vec<Arc<AnchorAcceptor>>,
    /// Configurations of the hubs, and of the egresses.
    pub configs: [Vec<GroundConfig>; 2],
    _folder: TempDir,
}

impl World {
    /// Starts everything over `profile`'s link. The destinations play `log`'s flows.
    pub fn start(
        profile: &Profile,
        seed: u64,
        roles: Roles,
        log: &Arc<Log>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let keys = Keys::generate(1, &mut rng);
        let net = Net::new(rng.random());
        let air = net.node(AIRCRAFT)?;
        let [a, b] = HUBS.map(|ip| net.node(ip));
        let hubs = [a?, b?];
        let [a, b] = EGRESSES.map(|ip| net.node(ip));
        let egresses = [a?, b?];
        let radio = profile.link.clone();
        for hub in &hubs {
            net.join(hub, &air, &radio);
            for egress in &egresses {
                net.join(hub, egress, &internet());
            }
        }
        let addresses = [HUBS.map(|ip| (ip, HUB_PORT)), EGRESSES.map(|ip| (ip, EGRESS_PORT))]
            .map(|all| all.map(SocketAddr::from));
        let [at_hubs, at_egresses] = addresses;
        let files = Files {
            profile,
            roles,
            hubs: at_hubs,
            egresses: at_egresses,
            socks5: ([127, 0, 0, 1], 1080).into(),
            allow: "10.0.0.0/8",
        };
        files.write(folder.path(), &keys)?;
        let air_config = AirConfig::load(&folder.path().join("air-0.toml"), None)?;
        let load = |name: String| GroundConfig::load(&folder.path().join(name));
        let [at_hub, at_egress] = ["hub", "egress"].map(|role| {
            (0..2).map(|which| load(format!("{role}-{which}.toml"))).collect::<Result<Vec<_>, _>>()
        });
        let configs = [at_hub?, at_egress?];
        for (egress, config) in egresses.iter().zip(&configs[1]) {
            start_egress(egress, config, rng.random(), log)?;
        }
        let mut acceptors = Vec::new();
        for (hub, config) in hubs.iter().zip(&configs[0]) {
            acceptors.push(start_hub(hub, config, &addresses[1], &mut rng, log)?);
        }
        let calls = Simulated {
            air: air.clone(),
            hubs: files::of_each_hub(&air_config).into_iter().zip(addresses[0]).collect(),
            counter: AtomicU64::new(1),
            rng: Mutex::new(ChaCha20Rng::seed_from_u64(rng.random())),
        };
        let first: Arc<dyn Connector> = Arc::new(calls.begin(0)?);
        let connector: Arc<dyn Connector> = match roles {
            Roles::One => first,
            Roles::Kept => Arc::new(Hubs::new(first)),
            Roles::Anchored | Roles::Apart => {
                let all = Hubs::new(first);
                keeper::keep(&all, calls);
                Arc::new(all)
            }
        };
        let _folder = folder;
        Ok(Self { net, air, hubs, egresses, radio, connector, acceptors, configs, _folder })
    }

    /// Opens flow `number` and plays its end at the passenger.
    pub fn open(&self, number: u16, log: &Arc<Log>) {
        let (connector, log) = (self.connector.clone(), log.clone());
        tokio::spawn(async move {
            let open = Open {
                target: format!("{}:80", files::SERVER_NAME).parse().expect("it is well formed"),
                class: Class::BestEffort,
                passenger: u32::from(number),
                claim: None,
                first: Bytes::new(),
            };
            match connector.open(open).await {
                Ok(flow) => log.play_client(number, flow).await,
                Err(error) => log.failed(number, error.to_string()),
            }
        });
    }

    /// Makes an event happen.
    pub fn happen(&self, event: Event) -> anyhow::Result<()> {
        let [hub, second] = &self.hubs;
        match event {
            Event::HubLeaves => {
                let leaving = self.acceptors[0].clone();
                tokio::spawn(async move {
                    leaving.leave().await;
                    leaving.close().await;
                });
            }
            Event::HubDies => self.silence(hub),
            Event::EgressDies => self.silence(&self.egresses[0]),
            Event::EgressComes => {
                for hub in &self.hubs {
                    self.net.join(hub, &self.egresses[0], &internet());
                }
            }
            Event::SecondHubOut => self.net.part(&self.air, second),
            Event::RadioOut => self.net.part(&self.air, hub),
            Event::RadioElsewhere => {
                self.air.move_to(ELSEWHERE)?;
                self.net.join(second, &self.air, &self.radio);
            }
            Event::HubRestarts | Event::AirRestarts => bail!("there are no sockets to hand over"),
        }
        Ok(())
    }

    /// Makes a host silent towards everybody, as if its programs had been killed.
    fn silence(&self, host: &Node) {
        for other in self.hubs.iter().chain(&self.egresses).chain([&self.air]) {
            self.net.part(host, other);
        }
    }

    /// Bytes offered to the radio in both directions, of all hubs.
    pub fn radio_bytes(&self) -> u64 {
        let both = self.hubs.iter().flat_map(|hub| [(hub, &self.air), (&self.air, hub)]);
        both.filter_map(|(from, to)| self.net.counters(from, to)).map(|it| it.offered.bytes).sum()
    }
}

/// Calls of the air gateway over the network.
struct Simulated {
    air: Node,
    hubs: Vec<(AirConfig, SocketAddr)>,
    counter: AtomicU64,
    rng: Mutex<ChaCha20Rng>,
}

impl Simulated {
    fn begin(&self, number: usize) -> anyhow::Result<Air> {
        let (config, address) = &self.hubs[number];
        let counter = self.counter.fetch_add(COUNTERS, Ordering::Relaxed);
        let settings = link::air_config(config, *address, counter)?;
        let seed = self.rng.lock().random();
        Ok(Air::start_seeded(Box::new(self.air.bind(0)?), settings, seed))
    }
}

impl Calls for Simulated {
    fn hubs(&self) -> usize {
        self.hubs.len()
    }

    fn call(&self, number: usize, patience: Duration) -> BoxFuture<'_, Option<Arc<dyn Connector>>> {
        Box::pin(async move { answered(self.begin(number).ok()?, patience).await })
    }
}

fn start_hub(
    node: &Node,
    config: &GroundConfig,
    egresses: &[SocketAddr; 2],
    rng: &mut ChaCha20Rng,
    log: &Arc<Log>,
) -> anyhow::Result<Arc<AnchorAcceptor>> {
    let hub =
        Hub::start_seeded(Box::new(node.bind(HUB_PORT)?), link::hub_config(config)?, rng.random());
    let mut others = Vec::new();
    for (egress, address) in config.egresses.iter().zip(egresses) {
        let EgressKind::Gateway { public_key, .. } = &egress.kind else { continue };
        let settings = masque::egress_config(config, public_key, *address);
        let client = Client::connect(settings, node.bind(0)?.quic(rng.random()))?;
        let (_, client) = watch::channel(Some(Arc::new(client) as Arc<dyn Leg>));
        let other = OtherEgress::new(public_key.as_bytes(), client);
        others.push(other.with_sites(egress.sites.clone()));
    }
    let others = Egresses::new(others, config.link.quic_in_order);
    Ok(serve(Arc::new(hub), config, others, log)?)
}

fn start_egress(
    node: &Node,
    config: &GroundConfig,
    seed: u64,
    log: &Arc<Log>,
) -> anyhow::Result<()> {
    let server = Server::start(masque::server_config(config), node.bind(EGRESS_PORT)?.quic(seed))?;
    serve(Arc::new(server), config, Egresses::default(), log)?;
    Ok(())
}

/// Plays the flows that `inner` accepts and that are dialled there.
fn serve(
    inner: Arc<dyn Acceptor>,
    config: &GroundConfig,
    others: Egresses,
    log: &Arc<Log>,
) -> std::io::Result<Arc<AnchorAcceptor>> {
    let id = egress_id(config.link.private_key.public().as_bytes());
    let egress = Egress::new(id, config.limits.orphan_timeout.into())?;
    let acceptor = Arc::new(AnchorAcceptor::new(inner, egress, Arc::new(others)));
    let (accepting, log) = (acceptor.clone(), log.clone());
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            let Carried::Stream(mut flow) = incoming.carries else { continue };
            flow.connected();
            let log = log.clone();
            tokio::spawn(async move { log.play_server(flow).await });
        }
    });
    Ok(acceptor)
}
