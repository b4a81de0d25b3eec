//! An aircraft with its resolver, and a ground that resolves every name, over a link in virtual
//! time.

use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bentpipe_dns::push::{Pusher, mark_pushed, read_start, start};
use bentpipe_dns::{Query, Room};
use bentpipe_flow::{Host, Service, Target};
use bentpipe_gateway::air::{self, ResolverHandle};
use bentpipe_gateway::transport::datagram::Datagram;
use bentpipe_link::Class;
use bentpipe_link::io::{Air, Arrived, DatagramFlow, Flow, Hub, Open};
use bentpipe_net::Inherited;
use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use crate::experiment::virtual_link::VirtualLink;
use crate::profile::Profile;

/// TTLs of consecutive names in seconds, in the range of popular names: 20 s to a day.
const TTLS: [u32; 12] = [20, 60, 300, 30, 3600, 60, 120, 300, 600, 14_400, 1800, 86_400];

/// Size of a client's first message: a request, or a ClientHello.
const REQUEST_BYTES: usize = 300;

/// Push rate of the ground.
const PUSH_BYTES_PER_SECOND: f64 = 4000.0;
/// Maximum amount that an aircraft accepts.
const WARM_START: &str = "64 KiB";

/// The ground's memory of an aircraft's flights.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Pusher>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Pusher> {
        self.0.lock()
    }
}

/// Description of a flight.
#[derive(Clone, Default)]
pub struct Flight {
    /// `true` if the resolver uses fake-IP addresses.
    pub instant: bool,
    /// `true` if the ground pushes the names that it remembers.
    pub warm_start: bool,
    /// Memory of the ground.
    pub memory: Memory,
    /// Start of the flight, since the first began.
    pub at: Duration,
}

/// Both ends; they run until dropped.
pub struct Testbed {
    /// The on-board resolver.
    pub resolver: ResolverHandle,
    link: VirtualLink,
}

impl Testbed {
    /// Starts both ends over `profile`'s link and waits until it is up.
    pub async fn start(profile: &Profile, seed: u64, flight: &Flight) -> anyhow::Result<Self> {
        let warm_start = if flight.warm_start { WARM_START } else { "0 B" };
        let pool = match flight.instant {
            true => "cache-file = \"dns.cache\"\n[dns.instant-names]\nv4 = \"100.64.0.0/10\"\n",
            false => "",
        };
        let dns =
            format!("[dns]\nlisten = [\"127.0.0.1:0\"]\nwarm-start = \"{warm_start}\"\n{pool}");
        let link = VirtualLink::start(profile, seed, [&dns, "highest-class = \"network\"\n"])?;
        tokio::spawn(serve(link.hub.clone(), flight.clone()));
        let gateway = air::Air::bind(&link.air, &mut Inherited::default(), link.far.clone())?;
        let resolver = gateway.resolver().context("no resolver")?;
        tokio::spawn(gateway.serve(std::future::pending()));
        link.up().await?;
        Ok(Self { resolver, link })
    }

    /// Address of `name` in the answer for the passenger `from`, and the duration of the question.
    pub async fn ask(&self, from: IpAddr, name: &str) -> anyhow::Result<(Ipv4Addr, Duration)> {
        let began = Instant::now();
        let answer = self.resolver.ask(from, &question(name)).await;
        // The only record is an address, at the end of the message.
        let ip = answer.as_deref().filter(|it| it[3] & 0xf == 0 && it[7] == 1);
        let ip = ip.and_then(|it| it.last_chunk::<4>()).copied();
        let ip = ip.ok_or_else(|| anyhow!("{name} has not been answered"))?;
        Ok((ip.into(), began.elapsed()))
    }

    /// Time from the question for `name` to the first byte of its server.
    pub async fn first_byte(&self, name: &str) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let (ip, _) = self.ask([10, 1, 0, 1].into(), name).await?;
        let target = self.resolver.destination(SocketAddr::from((ip, 443)).into());
        let first = Bytes::from_static(&[7; REQUEST_BYTES]);
        let open = Open { target, class: Class::BestEffort, passenger: 1, claim: None, first };
        let mut flow = Air::open(&self.link.far, open).await?;
        flow.read_exact(&mut [0]).await?;
        Ok(began.elapsed())
    }
}

/// Serves the ground: every name resolves, and servers answer at once.
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
        // Fails only if the session has ended.
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
    if let Some(bytes) = read_start(message) {
        flight.memory.lock().start_push(bytes as usize, began.elapsed());
        return send(flow, &start(bytes, true));
    }
    let Ok(query) = Query::parse(message) else { return };
    flight.memory.lock().count_query(&query.key, began.elapsed());
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

/// Sends a message. If it is lost, the resolver repeats its query.
fn send(flow: &DatagramFlow, message: &[u8]) {
    let mut out = BytesMut::new();
    Datagram::Payload(message).encode(&mut out);
    let _ = flow.send(&out);
}

/// Number at the end of a name's first label.
fn number(name: &str) -> u32 {
    let label = name.split('.').next().unwrap_or_default();
    label.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0)
}

/// Address of `name`.
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
        // The experiment's names have short labels.
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.extend([0, 0, 1, 0, 1]);
    out
}
