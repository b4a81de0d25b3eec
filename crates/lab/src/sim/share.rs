//! Several senders on one bottleneck in virtual time, and the share that each of them gets.
//!
//! All of them send from one host to another, so that they share the queue of a single
//! [`Direction`]. They are sessions of the radio transport, each with its own key and socket, and
//! flows of an ordinary QUIC library with CUBIC.
//!
//! [`Direction`]: bentpipe_channel::Direction

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::bytes::Bytes;
use bentpipe_channel::{Counters, DirectionSpec, Fate, LinkSpec};
use bentpipe_flow::{Host, Target};
use bentpipe_link::io::{Air, Hub, Open};
use bentpipe_link::{AirConfig, Aircraft, Class, HubConfig, OpenError, SecretKey, Settings};
use bentpipe_masque::{Client, ClientConfig, Server, ServerConfig, Transport, public_key};
use bentpipe_results::statistics::jain;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::sleep;

use super::net::{Net, Node, Socket};
use super::trace::Outcome;

/// Bytes per read or write.
const CHUNK_BYTES: usize = 16 << 10;
const HUB_PORT: u16 = 4500;
const QUIC_PORT: u16 = 443;
/// Port of the first sender. The others' ports follow.
const FIRST_PORT: u16 = 50_000;
/// Drops of one sender within this many round trips of the empty link are one episode. The sender
/// learns of the first drop after one round trip, plus the time in a queue of one bandwidth-delay
/// product.
const EPISODE_RTTS: u32 = 2;

/// Sender on the shared link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A session of the radio transport, with [`Race::settings`].
    Link,
    /// QUIC with CUBIC.
    Quic,
    /// QUIC with [`Race::transport`].
    Tuned,
}

/// Senders that begin one after another.
#[derive(Debug, Clone)]
pub struct Race {
    /// The bottleneck and the reverse path.
    pub link: LinkSpec,
    /// Senders in the order of their starts.
    pub senders: Vec<Sender>,
    /// Delay between two starts.
    pub stagger: Duration,
    /// Measured time after the last start.
    pub length: Duration,
    /// Settings of both ends of every session.
    pub settings: Settings,
    /// Transport of [`Sender::Tuned`].
    pub transport: Transport,
    /// Seed of losses, jitter and keys.
    pub seed: u64,
}

/// Result of the sharing.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    /// Goodput of each sender during the measurement in bit/s, in the order of the race.
    pub goodput_bps: Vec<f64>,
    /// Treatment of each sender's packets in the bottleneck's queue during the measurement.
    pub queue: Vec<AtQueue>,
    /// Counters of the bottleneck since the first start.
    pub bottleneck: Counters,
}

/// Treatment of one sender's packets in a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AtQueue {
    /// Packets that arrived at the queue.
    pub packets: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Episodes of drops. A congestion controller reduces its window once in each.
    pub episodes: u64,
    /// Start of the last episode.
    since: Option<Duration>,
}

impl AtQueue {
    /// Counts a packet that arrived at `now`, and if it was dropped. Drops within `span` are one
    /// episode.
    fn came(&mut self, dropped: bool, now: Duration, span: Duration) {
        self.packets += 1;
        self.dropped += u64::from(dropped);
        if dropped && self.since.is_none_or(|since| now > since + span) {
            self.episodes += 1;
            self.since = Some(now);
        }
    }
}

impl Shares {
    /// Goodput of each sender as a multiple of its fair share.
    pub fn of_fair(&self) -> Vec<f64> {
        of_fair(&self.goodput_bps)
    }

    /// Jain's fairness index of their goodput.
    pub fn jain(&self) -> f64 {
        jain(self.goodput_bps.iter().copied())
    }
}

/// Each part as a multiple of its fair share of the sum.
pub fn of_fair(parts: &[f64]) -> Vec<f64> {
    let fair = parts.iter().sum::<f64>() / parts.len() as f64;
    parts.iter().map(|part| part / fair).collect()
}

/// Runs the race on its own clock.
pub fn run(race: &Race) -> io::Result<Shares> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(play(race))
}

/// A link with the same properties in both directions.
pub fn symmetric(direction: &DirectionSpec) -> LinkSpec {
    LinkSpec { forward: direction.clone(), return_: direction.clone() }
}

async fn play(race: &Race) -> io::Result<Shares> {
    let net = Net::new(race.seed);
    let (ground, air) = (net.node([10, 0, 0, 1].into())?, net.node([10, 0, 0, 2].into())?);
    net.join(&ground, &air, &race.link);
    let counts: Arc<[AtomicU64]> = race.senders.iter().map(|_| AtomicU64::new(0)).collect();
    let mut rng = ChaCha20Rng::seed_from_u64(race.seed);
    let ends = Ends::start(race, &ground, &counts, &mut rng)?;
    let queue = watch_queue(&net, race);
    for (number, sender) in race.senders.iter().enumerate() {
        if number > 0 {
            sleep(race.stagger).await;
        }
        let socket = air.bind(FIRST_PORT + number as u16)?;
        match sender {
            Sender::Link => ends.start_link(race, number, socket, &mut rng)?,
            Sender::Quic => ends.start_quic(number, Transport::default(), socket, &mut rng)?,
            Sender::Tuned => ends.start_quic(number, race.transport.clone(), socket, &mut rng)?,
        }
    }
    queue.lock().fill(AtQueue::default());
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let before: Vec<u64> = counts.iter().map(read).collect();
    sleep(race.length).await;
    let goodput = |(count, before): (&AtomicU64, &u64)| {
        8.0 * (read(count) - before) as f64 / race.length.as_secs_f64()
    };
    let goodput_bps = counts.iter().zip(&before).map(goodput).collect();
    let bottleneck = net.counters(&air, &ground).unwrap_or_default();
    let queue = queue.lock().clone();
    Ok(Shares { goodput_bps, queue, bottleneck })
}

/// Counts the fates of each sender's packets at the queue from now on.
fn watch_queue(net: &Net, race: &Race) -> Arc<Mutex<Vec<AtQueue>>> {
    let queue = Arc::new(Mutex::new(vec![AtQueue::default(); race.senders.len()]));
    let seen = queue.clone();
    let span = race.link.rtt() * EPISODE_RTTS;
    net.on_event(move |event| {
        let number = event.from.port().checked_sub(FIRST_PORT).map(usize::from);
        let mut seen = seen.lock();
        if let Some(sender) = number.and_then(|number| seen.get_mut(number)) {
            sender.came(event.outcome == Outcome::Link(Fate::QueueDropped), event.at, span);
        }
    });
    queue
}

/// Ends on the ground, and the keys to reach them.
struct Ends {
    hub: SecretKey,
    hub_address: std::net::SocketAddr,
    aircraft: Vec<SecretKey>,
    server_address: std::net::SocketAddr,
    server_key: bentpipe_masque::SecretKey,
    client_key: bentpipe_masque::SecretKey,
}

impl Ends {
    fn start(
        race: &Race,
        ground: &Node,
        counts: &Arc<[AtomicU64]>,
        rng: &mut ChaCha20Rng,
    ) -> io::Result<Self> {
        let hub = SecretKey::generate(rng);
        let aircraft: Vec<_> = race.senders.iter().map(|_| SecretKey::generate(rng)).collect();
        let entry = |key: &SecretKey| Aircraft {
            key: key.public(),
            settings: race.settings.clone(),
            highest_class: Class::BestEffort,
        };
        let config =
            HubConfig { secret: hub.clone(), aircraft: aircraft.iter().map(entry).collect() };
        let socket = ground.bind(HUB_PORT)?;
        let hub_address = socket.local_addr();
        tokio::spawn(serve_link(
            Hub::start_seeded(Box::new(socket), config, rng.random()),
            counts.clone(),
        ));
        let server_key = bentpipe_masque::SecretKey::new(rng.random());
        let client_key = bentpipe_masque::SecretKey::new(rng.random());
        let clients = HashSet::from([public_key(&client_key)]);
        let config = ServerConfig::new(server_key.clone(), clients);
        let socket = ground.bind(QUIC_PORT)?;
        let server_address = socket.local_addr();
        let server = Server::start(config, socket.quic(rng.random())).map_err(io::Error::other)?;
        tokio::spawn(serve_quic(server, counts.clone()));
        Ok(Self { hub, hub_address, aircraft, server_address, server_key, client_key })
    }

    fn start_link(
        &self,
        race: &Race,
        number: usize,
        socket: Socket,
        rng: &mut ChaCha20Rng,
    ) -> io::Result<()> {
        let config = AirConfig {
            secret: self.aircraft[number].clone(),
            hub: self.hub.public(),
            address: self.hub_address,
            settings: race.settings.clone(),
            first_counter: 1,
        };
        let air = Air::start_seeded(Box::new(socket), config, rng.random());
        let target = Target { host: Host::Name("sink.example".into()), port: number as u16 };
        let open = Open {
            target,
            class: Class::BestEffort,
            passenger: 1,
            claim: None,
            first: Bytes::new(),
        };
        tokio::spawn(async move {
            loop {
                match air.open(open.clone()).await {
                    Ok(flow) => return fill(flow).await,
                    Err(OpenError::NotConnected) => sleep(Duration::from_millis(100)).await,
                    Err(_) => return,
                }
            }
        });
        Ok(())
    }

    fn start_quic(
        &self,
        number: usize,
        transport: Transport,
        socket: Socket,
        rng: &mut ChaCha20Rng,
    ) -> io::Result<()> {
        let server = public_key(&self.server_key);
        let key = self.client_key.clone();
        let config =
            ClientConfig { transport, ..ClientConfig::new(self.server_address, server, key) };
        let client =
            Client::connect(config, socket.quic(rng.random())).map_err(io::Error::other)?;
        tokio::spawn(async move {
            client.connected().await;
            fill(client.open(&format!("sink.example:{number}"), 2, 1, Bytes::new())).await;
        });
        Ok(())
    }
}

/// Writes forever.
async fn fill(mut flow: impl AsyncWrite + Unpin) {
    let chunk = [0x5a; CHUNK_BYTES];
    while flow.write_all(&chunk).await.is_ok() {}
}

/// Reads forever, and counts the bytes.
async fn drain(mut flow: impl AsyncRead + Unpin, counts: Arc<[AtomicU64]>, number: usize) {
    let mut chunk = [0; CHUNK_BYTES];
    while let (Ok(bytes @ 1..), Some(count)) = (flow.read(&mut chunk).await, counts.get(number)) {
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

async fn serve_link(hub: Hub, counts: Arc<[AtomicU64]>) {
    while let Some(incoming) = hub.accept().await {
        let Some(incoming) = incoming.stream() else { continue };
        let number = usize::from(incoming.target.port);
        tokio::spawn(drain(incoming.flow, counts.clone(), number));
    }
}

async fn serve_quic(server: Server, counts: Arc<[AtomicU64]>) {
    while let Some(incoming) = server.accept().await {
        let counts = counts.clone();
        tokio::spawn(async move {
            let number = incoming.authority.rsplit(':').next().and_then(|port| port.parse().ok());
            if let (Ok(flow), Some(number)) = (incoming.accept().await, number) {
                drain(flow, counts, number).await;
            }
        });
    }
}
