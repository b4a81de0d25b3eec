//! An aircraft with its resolver and a ground that knows every name, over a link in virtual time.

use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_dns::push::{Pusher, beginning, mark_pushed, read_beginning};
use bentpipe_dns::{Query, Room};
use bentpipe_gateway::air::{self, Resolver};
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::far::datagram::Datagram;
use bentpipe_gateway::far::{FarEnd, link};
use bentpipe_gateway::net::Inherited;
use bentpipe_link::io::{Air, Arrived, DatagramFlow, Flow, Hub, Open};
use bentpipe_link::{Class, Host, SecretKey, Service, Target};
use bytes::{Bytes, BytesMut};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until};

use super::DnsError;
use crate::profile::Profile;
use crate::sim::net::Net;

/// TTLs of names in turn, in seconds: as popular names have them, 20 s to a day.
const TTLS: [u32; 12] = [20, 60, 300, 30, 3600, 60, 120, 300, 600, 14_400, 1800, 86_400];

/// A link that is not up by then will not be.
const PATIENCE: Duration = Duration::from_secs(60);

/// Size of a client's first message: a request, or a ClientHello.
const REQUEST_BYTES: usize = 300;

/// Push rate of the ground, and amount that an aircraft takes.
const PUSH_BYTES_PER_SECOND: f64 = 4000.0;
const WARM_START: &str = "64 KiB";

const GROUND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const AIRCRAFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Ground's memory of an aircraft's flights.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Pusher>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Pusher> {
        // Nothing in there panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flight.
#[derive(Clone, Default)]
pub struct Flight {
    /// Addresses stand for names.
    pub instant: bool,
    /// The ground is asked for what it remembers.
    pub warm_start: bool,
    /// That memory.
    pub memory: Memory,
    /// Start of the flight, since the first began.
    pub at: Duration,
}

/// Both ends, until it is dropped.
pub struct World {
    /// The resolver on board.
    pub resolver: Resolver,
    far: Arc<Air>,
    _net: Net,
    _folder: tempfile::TempDir,
}

impl World {
    /// Starts both over `profile`'s link; waits until it is up.
    pub async fn start(profile: &Profile, seed: u64, flight: &Flight) -> Result<Self, DnsError> {
        let folder = tempfile::tempdir()?;
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air, ground) = configs(profile, folder.path(), &mut rng, flight)?;
        let net = Net::new(rng.random());
        let (hub_node, air_node) = (net.node(GROUND)?, net.node(AIRCRAFT)?);
        net.join(&hub_node, &air_node, &profile.link);
        let hub_socket = hub_node.bind(4500)?;
        let settings = link::air_config(&air, hub_socket.local_addr(), 1);
        let settings = settings.map_err(DnsError::told)?;
        let hub_settings = link::hub_config(&ground).map_err(DnsError::told)?;
        let hub = Hub::start_seeded(Box::new(hub_socket), hub_settings, rng.random());
        let far = Air::start_seeded(Box::new(air_node.bind(0)?), settings, rng.random());
        tokio::spawn(serve(hub, flight.clone()));
        let far = Arc::new(far);
        let gateway = air::Air::bind(&air, &mut Inherited::default(), far.clone());
        let gateway = gateway.map_err(DnsError::told)?;
        let resolver = gateway.resolver().ok_or_else(|| DnsError::told("no resolver"))?;
        tokio::spawn(gateway.serve(std::future::pending()));
        let began = Instant::now();
        while FarEnd::reach(&*far) != bentpipe_gateway::far::Reach::Up {
            if began.elapsed() > PATIENCE {
                return Err(DnsError::told("the link does not come up"));
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(Self { resolver, far, _net: net, _folder: folder })
    }

    /// The address of `name` as the passenger `from` is told, and how long that took.
    pub async fn ask(&self, from: IpAddr, name: &str) -> Result<(Ipv4Addr, Duration), DnsError> {
        let began = Instant::now();
        let answer = self.resolver.ask(from, &question(name)).await;
        // The only record is an address, and the last thing in the message.
        let ip = answer.as_deref().filter(|it| it[3] & 0xf == 0 && it[7] == 1);
        let ip = ip.and_then(|it| it.last_chunk::<4>()).copied();
        let ip = ip.ok_or_else(|| DnsError::told(format!("{name} has not been answered")))?;
        Ok((ip.into(), began.elapsed()))
    }

    /// Time from the question for `name` to the first byte of its server.
    pub async fn first_byte(&self, name: &str) -> Result<Duration, DnsError> {
        let began = Instant::now();
        let (ip, _) = self.ask([10, 1, 0, 1].into(), name).await?;
        let target = self.resolver.destination(SocketAddr::from((ip, 443)).into());
        let first = Bytes::from_static(&[7; REQUEST_BYTES]);
        let open = Open { target, class: Class::BestEffort, passenger: 1, claim: None, first };
        let mut flow = Air::open(&self.far, open).await.map_err(DnsError::told)?;
        flow.read_exact(&mut [0]).await?;
        Ok(began.elapsed())
    }
}

fn configs(
    profile: &Profile,
    folder: &std::path::Path,
    rng: &mut ChaCha20Rng,
    flight: &Flight,
) -> Result<(AirConfig, GroundConfig), DnsError> {
    let (air, ground) = (SecretKey::generate(rng), SecretKey::generate(rng));
    std::fs::write(folder.join("air.key"), air.to_base64())?;
    std::fs::write(folder.join("ground.key"), ground.to_base64())?;
    let link = &profile.link;
    let rates = (link.return_.rate(), link.forward.rate());
    let (Some(up), Some(down)) = rates else { return Err(DnsError::told("the link has no rate")) };
    let warm_start = if flight.warm_start { WARM_START } else { "0 B" };
    let pool = match flight.instant {
        true => "cache-file = \"dns.cache\"\n[dns.instant-names]\nv4 = \"100.64.0.0/10\"\n",
        false => "",
    };
    let air_text = format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"{GROUND}:4500\"\n\
         peer-public-key = \"{}\"\nrate = \"{up}\"\n\
         [listen]\nsocks5 = \"127.0.0.1:0\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\n\
         warm-start = \"{warm_start}\"\n{pool}",
        ground.public()
    );
    let ground_text = format!(
        "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"{GROUND}:4500\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{}\"\nrate = \"{down}\"\n\
         highest-class = \"network\"\n",
        air.public()
    );
    let air = AirConfig::parse(&folder.join("air.toml"), &air_text).map_err(DnsError::told)?;
    let ground = GroundConfig::parse(&folder.join("ground.toml"), &ground_text);
    Ok((air, ground.map_err(DnsError::told)?))
}

/// The ground: names are known, and servers answer at once.
async fn serve(hub: Hub, flight: Flight) {
    while let Some(arrived) = hub.accept().await {
        match arrived {
            Arrived::Stream(incoming) => drop(tokio::spawn(page(incoming.flow))),
            Arrived::Datagrams(incoming) => {
                let is_resolver = matches!(
                    incoming.open.target,
                    Target { host: Host::Service(Service::Resolver), .. }
                );
                if is_resolver {
                    tokio::spawn(resolve(incoming.flow, flight.clone()));
                }
            }
        }
    }
}

async fn page(mut flow: Flow) {
    let mut request = [0; REQUEST_BYTES];
    if flow.read_exact(&mut request).await.is_ok() && flow.write_all(&[1; 1000]).await.is_ok() {
        // Fails only when the session is over.
        let _ = flow.shutdown().await;
    }
}

async fn resolve(flow: DatagramFlow, flight: Flight) {
    let began = Instant::now() - flight.at;
    loop {
        let next = flight.memory.lock().next_at();
        let due = async {
            match next {
                Some(at) => sleep_until(began + at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            received = flow.receive() => {
                let Ok(datagram) = received else { return };
                if let Ok(Datagram::Payload(message)) = Datagram::parse(&datagram) {
                    hear(&flow, message, &flight, began);
                }
            }
            () = due => push(&flow, &flight, began),
        }
    }
}

fn hear(flow: &DatagramFlow, message: &[u8], flight: &Flight, began: Instant) {
    if let Some(bytes) = read_beginning(message) {
        flight.memory.lock().begins(bytes as usize, began.elapsed());
        return send(flow, &beginning(bytes, true));
    }
    let Ok(query) = Query::parse(message) else { return };
    flight.memory.lock().asked(&query.key, began.elapsed());
    send(flow, &answer(&query));
}

fn push(flow: &DatagramFlow, flight: &Flight, began: Instant) {
    let (mut memory, now) = (flight.memory.lock(), began.elapsed());
    let Some(query) = memory.next(now).and_then(|key| Query::parse(&key.question(0)).ok()) else {
        return;
    };
    let mut answer = answer(&query);
    if memory.may_push(answer.len(), PUSH_BYTES_PER_SECOND, now) {
        mark_pushed(&mut answer);
        send(flow, &answer);
    }
}

fn answer(query: &Query) -> Vec<u8> {
    let name = query.key.host_name().unwrap_or_default();
    let answer = query.addresses(&[address(&name).into()], ttl(&name));
    debug_assert!(answer.len() <= query.room(Room::Packet(1232)));
    answer
}

/// One that is lost is asked for again.
fn send(flow: &DatagramFlow, message: &[u8]) {
    let mut out = BytesMut::new();
    Datagram::Payload(message).encode(&mut out);
    let _ = flow.send(&out);
}

/// The number that a name ends its first label with.
fn number(name: &str) -> u32 {
    let label = name.split('.').next().unwrap_or_default();
    label.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0)
}

/// The address of `name`.
pub fn address(name: &str) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xc633_6400 + number(name))
}

fn ttl(name: &str) -> u32 {
    TTLS[number(name) as usize % TTLS.len()]
}

/// A query for the address of `name`.
fn question(name: &str) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        // Names of the experiment have short labels.
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.extend([0, 0, 1, 0, 1]);
    out
}
