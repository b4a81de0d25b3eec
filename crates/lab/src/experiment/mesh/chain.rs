//! A passenger's flows through a hub, and through an egress, to a server, in virtual time.
//!
//! ```text
//! passenger ── AIR ══ radio ══ HUB ══ leg ══ EGRESS ── server
//! ```
//!
//! Radio and leg are sessions of the radio transport. The server sends by QUIC with CUBIC, on a new
//! connection for each flow. The gateways copy bytes, and read no faster than they can write.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use bentpipe_channel::LinkSpec;
use bentpipe_flow::{Host, Target};
use bentpipe_link::io::{Air, Flow as LinkFlow, Hub, Open};
use bentpipe_link::{
    AirConfig, Aircraft, Class, HubConfig, LeaseMode, OpenError, SecretKey, Settings,
};
use bentpipe_masque::{Client, ClientConfig, Flow, Server, ServerConfig, Transport, public_key};
use bentpipe_units::BitRate;
use bytes::Bytes;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional_with_sizes,
};
use tokio::time::{sleep, timeout};

use super::leg::CEILING;
use crate::sim::net::{Net, Node};

/// Bytes per read or write, and memory of a gateway for one direction of a flow.
const CHUNK_BYTES: usize = 16 << 10;
/// Size of a request, which travels with the opening of the flow.
const REQUEST_BYTES: usize = 400;
/// Port of all servers and gateways.
const PORT: u16 = 443;
/// Time for sessions to begin, and for the others to fill the queue.
const SETTLING: Duration = Duration::from_secs(20);
/// Interval of attempts to open a flow before there is a session.
const RETRY: Duration = Duration::from_millis(100);

/// Hosts of a chain.
#[derive(Debug, Clone, Copy)]
enum Role {
    Air,
    Hub,
    Egress,
    Server,
}

/// Links of a chain.
#[derive(Debug, Clone)]
pub struct Links {
    /// Radio. Forward is towards the aircraft.
    pub radio: LinkSpec,
    /// Rates that the gateways may send at on the radio: up and down.
    pub granted: [BitRate; 2],
    /// Leg between hub and egress. Without one the hub dials.
    pub leg: Option<LinkSpec>,
    /// Path between the gateway that dials and the server.
    pub dial: LinkSpec,
    /// Endless transfers of others with CUBIC over the radio.
    pub others: Option<Others>,
}

/// Transfers of others.
#[derive(Debug, Clone, Copy)]
pub struct Others {
    /// Number of them.
    pub count: u16,
    /// `true` for the direction from the aircraft.
    pub up: bool,
}

/// A task: bytes to the server, and then bytes from it.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Bytes to the server.
    pub up: u64,
    /// Bytes from the server.
    pub down: u64,
}

/// Arrivals of a flow's bytes: times since the flow was opened, and numbers of bytes.
pub type Arrivals = Vec<(Duration, u64)>;

/// Arrivals at a server.
type AtServer = Arc<Mutex<Vec<(Duration, u64)>>>;

/// A running chain.
pub struct Chain {
    net: Net,
    hosts: [Node; 4],
    air: Arc<Air>,
    at_server: AtServer,
    leg: Option<LinkSpec>,
}

impl Chain {
    /// Starts all hosts, and waits until they and the others have settled.
    pub async fn start(links: &Links, seed: u64) -> anyhow::Result<Self> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let net = Net::new(rng.random());
        let host = |role: Role| net.node(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + role as u8)));
        let [air, hub] = [host(Role::Air)?, host(Role::Hub)?];
        let [egress, server] = [host(Role::Egress)?, host(Role::Server)?];
        net.join(&hub, &air, &links.radio);
        let dials = if links.leg.is_some() { &egress } else { &hub };
        net.join(&server, dials, &links.dial);
        let at_server = AtServer::default();
        let dialler = Dialler::start(&server, dials, Some(net.clone()), &at_server, &mut rng)?;
        let next = match &links.leg {
            None => Next::Server(dialler),
            Some(leg) => {
                net.join(&egress, &hub, leg);
                let learned =
                    Settings { rate: CEILING, lease: LeaseMode::Learned, ..Settings::default() };
                let (near, far) = pair([&hub, &egress], [&learned, &learned], &mut rng)?;
                tokio::spawn(forward(far, Next::Server(dialler)));
                Next::Leg(Arc::new(near))
            }
        };
        let rates = links.granted.map(|rate| Settings { rate, ..Settings::default() });
        let (near, far) = pair([&air, &hub], [&rates[0], &rates[1]], &mut rng)?;
        tokio::spawn(forward(far, next));
        if let Some(others) = links.others {
            start_others(others, [&air, &hub], &mut rng)?;
        }
        sleep(SETTLING).await;
        let (hosts, air) = ([air, hub, egress, server], Arc::new(near));
        Ok(Self { net, hosts, air, at_server, leg: links.leg.clone() })
    }

    /// Performs a task of a passenger. Returns the arrivals at the receiver of most bytes; those until
    /// then if it takes longer than `limit`.
    pub async fn perform(&self, request: Request, limit: Duration) -> anyhow::Result<Arrivals> {
        let began = self.net.elapsed();
        self.at_server.lock().clear();
        let at_air = Mutex::new(Vec::new());
        let all = async {
            let flow = open(&self.air, request.head()).await?;
            let note = |bytes| at_air.lock().push((self.net.elapsed(), bytes));
            ask(flow, request, note).await
        };
        // A transfer that is cut is reported as such by its bytes.
        if let Ok(Err(error)) = timeout(limit, all).await {
            bail!("the flow has ended: {error}");
        }
        let arrivals = match request.up > request.down {
            true => self.at_server.lock().clone(),
            false => at_air.into_inner(),
        };
        Ok(arrivals.into_iter().map(|(at, bytes)| (at - began, bytes)).collect())
    }

    /// Replaces the leg between hub and egress. Packets on the old one arrive.
    pub fn replace_leg(&self, leg: &LinkSpec) {
        if self.leg.is_some() {
            let [_, hub, egress, _] = &self.hosts;
            self.net.join(egress, hub, leg);
        }
    }
}

impl Request {
    fn head(self) -> Bytes {
        let mut head = [0; REQUEST_BYTES];
        head[..8].copy_from_slice(&self.up.to_be_bytes());
        head[8..16].copy_from_slice(&self.down.to_be_bytes());
        Bytes::copy_from_slice(&head)
    }

    async fn read(flow: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let (up, down) = (flow.read_u64().await?, flow.read_u64().await?);
        flow.read_exact(&mut [0; REQUEST_BYTES - 16]).await?;
        Ok(Self { up, down })
    }
}

/// Opens a flow as soon as there is a session.
async fn open(air: &Air, first: Bytes) -> io::Result<LinkFlow> {
    let target = Target { host: Host::Name("server.example".into()), port: PORT };
    let class = Class::BestEffort;
    let wanted = Open { target, class, passenger: 1, claim: None, first };
    loop {
        match air.open(wanted.clone()).await {
            Err(OpenError::NotConnected) => sleep(RETRY).await,
            opened => return opened.map_err(io::Error::other),
        }
    }
}

/// The client's part of a task whose request is on its way.
async fn ask(
    mut flow: impl AsyncRead + AsyncWrite + Unpin,
    request: Request,
    note: impl Fn(u64),
) -> io::Result<()> {
    write(&mut flow, request.up).await?;
    read(&mut flow, request.down, note).await
}

async fn write(flow: &mut (impl AsyncWrite + Unpin), mut rest: u64) -> io::Result<()> {
    let chunk = [0x5a; CHUNK_BYTES];
    while rest > 0 {
        let bytes = rest.min(CHUNK_BYTES as u64);
        flow.write_all(&chunk[..bytes as usize]).await?;
        rest -= bytes;
    }
    flow.flush().await
}

async fn read(
    flow: &mut (impl AsyncRead + Unpin),
    mut rest: u64,
    note: impl Fn(u64),
) -> io::Result<()> {
    let mut chunk = [0; CHUNK_BYTES];
    while rest > 0 {
        let bytes = flow.read(&mut chunk).await? as u64;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        note(bytes);
        rest = rest.saturating_sub(bytes);
    }
    Ok(())
}

/// Both ends of a session of the radio transport: the one that calls, and the one that is called.
fn pair(
    [calling, called]: [&Node; 2],
    [near, far]: [&Settings; 2],
    rng: &mut ChaCha20Rng,
) -> io::Result<(Air, Hub)> {
    let [own, other] = [SecretKey::generate(rng), SecretKey::generate(rng)];
    let aircraft =
        Aircraft { key: own.public(), settings: far.clone(), highest_class: Class::BestEffort };
    let config = HubConfig { secret: other.clone(), aircraft: vec![aircraft] };
    let socket = called.bind(PORT)?;
    let address = socket.local_addr();
    let hub = Hub::start_seeded(Box::new(socket), config, rng.random());
    let config = AirConfig {
        secret: own,
        hub: other.public(),
        address,
        settings: near.clone(),
        first_counter: 1,
    };
    Ok((Air::start_seeded(Box::new(calling.bind(0)?), config, rng.random()), hub))
}

/// The next hop of a gateway.
#[derive(Clone)]
enum Next {
    Leg(Arc<Air>),
    Server(Dialler),
}

/// Forwards the flows that a gateway accepts.
async fn forward(hub: Hub, next: Next) {
    while let Some(incoming) = hub.accept().await {
        let Some(incoming) = incoming.stream() else { continue };
        let next = next.clone();
        tokio::spawn(async move {
            match next {
                Next::Leg(air) => {
                    if let Ok(flow) = open(&air, Bytes::new()).await {
                        join(incoming.flow, flow).await;
                    }
                }
                Next::Server(dialler) => {
                    if let Ok((client, flow)) = dialler.dial(Bytes::new()) {
                        join(incoming.flow, flow).await;
                        drop(client);
                    }
                }
            }
        });
    }
}

/// Copies both directions. A flow that fails ends the other one.
async fn join(
    mut one: impl AsyncRead + AsyncWrite + Unpin,
    mut other: impl AsyncRead + AsyncWrite + Unpin,
) {
    let _ = copy_bidirectional_with_sizes(&mut one, &mut other, CHUNK_BYTES, CHUNK_BYTES).await;
}

/// A host that connects to a server.
#[derive(Clone)]
struct Dialler {
    node: Node,
    server: SocketAddr,
    server_key: bentpipe_masque::PublicKey,
    key: bentpipe_masque::SecretKey,
    rng: Arc<Mutex<ChaCha20Rng>>,
}

impl Dialler {
    /// Starts a server at `server` for the flows of `node`. With a clock, it notes arrivals.
    fn start(
        server: &Node,
        node: &Node,
        clock: Option<Net>,
        arrivals: &AtServer,
        rng: &mut ChaCha20Rng,
    ) -> io::Result<Self> {
        let server_key = bentpipe_masque::SecretKey::new(rng.random());
        let key = bentpipe_masque::SecretKey::new(rng.random());
        let clients = HashSet::from([public_key(&key)]);
        let config = ServerConfig::new(server_key.clone(), clients);
        let socket = server.bind(PORT)?;
        let address = socket.local_addr();
        let served = Server::start(config, socket.quic(rng.random())).map_err(io::Error::other)?;
        tokio::spawn(serve(served, clock, arrivals.clone()));
        let rng = Arc::new(Mutex::new(ChaCha20Rng::seed_from_u64(rng.random())));
        let server_key = public_key(&server_key);
        Ok(Self { node: node.clone(), server: address, server_key, key, rng })
    }

    /// Opens a flow on a new connection, which lives as long as the client.
    fn dial(&self, first: Bytes) -> io::Result<(Client, Flow)> {
        let config = ClientConfig {
            transport: Transport::default(),
            ..ClientConfig::new(self.server, self.server_key, self.key.clone())
        };
        let socket = self.node.bind(0)?.quic(self.rng.lock().random());
        let client = Client::connect(config, socket).map_err(io::Error::other)?;
        let flow = client.open("server.example:443", Class::BestEffort as u8, 1, first);
        Ok((client, flow))
    }
}

/// A server: does what is requested.
async fn serve(server: Server, clock: Option<Net>, arrivals: AtServer) {
    while let Some(incoming) = server.accept().await {
        let (clock, arrivals) = (clock.clone(), arrivals.clone());
        tokio::spawn(async move {
            let mut flow = incoming.accept().await?;
            let request = Request::read(&mut flow).await?;
            let note = |bytes| {
                if let Some(clock) = &clock {
                    arrivals.lock().push((clock.elapsed(), bytes));
                }
            };
            read(&mut flow, request.up, note).await?;
            write(&mut flow, request.down).await?;
            // The client ends the flow.
            flow.read(&mut [0]).await
        });
    }
}

/// Starts the transfers of others over the radio.
fn start_others(
    others: Others,
    [air, hub]: [&Node; 2],
    rng: &mut ChaCha20Rng,
) -> anyhow::Result<()> {
    // Their server is beside the aircraft, whose port is free.
    let request = match others.up {
        true => Request { up: 0, down: u64::MAX },
        false => Request { up: u64::MAX, down: 0 },
    };
    let dialler = Dialler::start(air, hub, None, &AtServer::default(), rng)?;
    for _ in 0..others.count {
        let (client, flow) = dialler.dial(request.head())?;
        tokio::spawn(async move {
            let ended = ask(flow, request, |_| {}).await;
            drop(client);
            ended
        });
    }
    Ok(())
}
