//! QUIC carried as datagrams by the radio transport, in virtual time. An ordinary library with
//! CUBIC runs on either side. Between them is the link, with a relay at each end as in the
//! gateways.
//!
//! ```text
//! client ── relay ═══ link ═══ relay ── server
//! ```

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_channel::LinkSpec;
use bentpipe_flow::OpenDatagrams;
use bentpipe_link::io::{Air, Arrived, DatagramFlow, Hub};
use bentpipe_link::{AirConfig, Aircraft, Class, HubConfig, SecretKey, Settings};
use bentpipe_masque::{Client, ClientConfig, Server, ServerConfig, public_key};
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::net::{Net, Socket};
use super::pair::rate_of;
use crate::profile::Profile;
use crate::result::Sample;

const HUB_PORT: u16 = 4500;
const QUIC_PORT: u16 = 443;
/// Local port of the client, the relays and the air's end of the link.
const LOCAL_PORT: u16 = 50_000;
/// IANA's protocol number of UDP.
const UDP: u8 = 17;
/// Bytes per read or write.
const CHUNK_BYTES: usize = 16 << 10;
/// Maximum duration of a visit. Longer visits are cut off.
const PATIENCE: Duration = Duration::from_secs(600);

/// Time after which the path's MTU is known and the loss estimate has begun.
const PATH_KNOWN: Duration = Duration::from_secs(5);

/// A visit of one client.
#[derive(Debug, Clone)]
pub struct Visit {
    /// The link, and the path from the ground to the server.
    pub profile: Profile,
    /// `true` if the relays restore the order of the datagrams.
    pub in_order: bool,
    /// Size of the document, which is fetched first.
    pub document_bytes: u64,
    /// Number of objects, which are fetched concurrently after it.
    pub objects: u16,
    /// Size of each object.
    pub object_bytes: u64,
    /// Seed of losses, jitter and keys.
    pub seed: u64,
}

/// Duration of the visit, from the client's first packet to the last byte.
pub fn visit(visit: &Visit) -> io::Result<Sample> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(play(visit))
}

async fn play(visit: &Visit) -> io::Result<Sample> {
    let net = Net::new(visit.seed);
    let node = |number| net.node([10, 0, 0, number].into());
    let (cabin, air, ground, origin) = (node(1)?, node(2)?, node(3)?, node(4)?);
    let clean = Profile::named("clean").map_err(io::Error::other)?.link;
    let profile = &visit.profile;
    net.join(&air, &cabin, &clean);
    net.join(&ground, &air, &profile.link);
    net.join(&origin, &ground, profile.terrestrial.as_ref().unwrap_or(&clean));
    let mut rng = ChaCha20Rng::seed_from_u64(visit.seed);

    let server_key = bentpipe_masque::SecretKey::new(rng.random());
    let client_key = bentpipe_masque::SecretKey::new(rng.random());
    let config = ServerConfig::new(server_key.clone(), HashSet::from([public_key(&client_key)]));
    let socket = origin.bind(QUIC_PORT)?;
    let server_address = socket.local_addr();
    let server = Server::start(config, socket.quic(rng.random())).map_err(io::Error::other)?;
    tokio::spawn(serve(server));

    let (hub_socket, air_socket) = (ground.bind(HUB_PORT)?, air.bind(LOCAL_PORT)?);
    let hub_address = hub_socket.local_addr();
    let (air_end, hub) = ends(&profile.link, hub_socket, air_socket, hub_address, &mut rng);
    let (in_order, outside) = (visit.in_order, ground.bind(LOCAL_PORT)?);
    tokio::spawn(async move {
        while let Some(incoming) = hub.accept().await {
            if let Arrived::Datagrams(incoming) = incoming {
                return relay(outside, incoming.flow, server_address, in_order).await;
            }
        }
    });
    let inside = air.bind(QUIC_PORT)?;
    let relay_address = inside.local_addr();
    let flow = open(&air_end, server_address).await?;
    let local = cabin.bind(LOCAL_PORT)?;
    tokio::spawn(relay(inside, flow, local.local_addr(), in_order));

    let began = Instant::now();
    let config = ClientConfig::new(relay_address, public_key(&server_key), client_key);
    let client = Client::connect(config, local.quic(rng.random())).map_err(io::Error::other)?;
    let came = timeout(PATIENCE, fetch_all(&client, visit)).await;
    let took = began.elapsed().as_secs_f64();
    Ok(match came {
        Ok(fetched) => fetched.map(|()| Sample::Finished(took))?,
        Err(_) => Sample::Cut(took),
    })
}

/// Both ends of the radio transport over `link`.
fn ends(
    link: &LinkSpec,
    hub_socket: Socket,
    air_socket: Socket,
    hub_address: SocketAddr,
    rng: &mut ChaCha20Rng,
) -> (Air, Hub) {
    let (hub, aircraft) = (SecretKey::generate(rng), SecretKey::generate(rng));
    let settings = |rate| Settings { rate, ..Settings::default() };
    let config = AirConfig {
        secret: aircraft.clone(),
        hub: hub.public(),
        address: hub_address,
        settings: settings(rate_of(&link.return_)),
        first_counter: 1,
    };
    let air = Air::start_seeded(Box::new(air_socket), config, rng.random());
    let entry = Aircraft {
        key: aircraft.public(),
        settings: settings(rate_of(&link.forward)),
        highest_class: Class::BestEffort,
    };
    let config = HubConfig { secret: hub, aircraft: vec![entry] };
    (air, Hub::start_seeded(Box::new(hub_socket), config, rng.random()))
}

/// Opens a datagram flow over the link as soon as the link is up.
async fn open(air: &Air, target: SocketAddr) -> io::Result<DatagramFlow> {
    let open = OpenDatagrams {
        target: target.into(),
        protocol: UDP,
        source: LOCAL_PORT,
        class: Class::BestEffort,
        passenger: 1,
    };
    let flow = air.open_datagrams(open).await.map_err(io::Error::other)?;
    sleep(PATH_KNOWN).await;
    Ok(flow)
}

/// Carries datagrams between a socket and the link until the flow ends.
async fn relay(socket: Socket, flow: DatagramFlow, peer: SocketAddr, in_order: bool) {
    if in_order {
        flow.keep_order();
    }
    loop {
        tokio::select! {
            // A datagram that the link refuses counts as lost.
            (datagram, _) = socket.recv_from() => drop(flow.send(&datagram)),
            received = flow.receive() => match received {
                Ok(datagram) => drop(socket.send_to(&datagram, peer)),
                Err(_) => return,
            },
        }
    }
}

async fn fetch_all(client: &Client, visit: &Visit) -> io::Result<()> {
    client.connected().await;
    fetch(client, visit.document_bytes).await?;
    let mut objects = JoinSet::new();
    for _ in 0..visit.objects {
        let request = begin(client, visit.object_bytes);
        objects.spawn(read(request, visit.object_bytes));
    }
    while let Some(object) = objects.join_next().await {
        object.map_err(io::Error::other)??;
    }
    Ok(())
}

async fn fetch(client: &Client, bytes: u64) -> io::Result<()> {
    read(begin(client, bytes), bytes).await
}

/// Requests an object of this size.
fn begin(client: &Client, bytes: u64) -> bentpipe_masque::Flow {
    client.open("origin.example:80", 2, 1, Bytes::copy_from_slice(&bytes.to_be_bytes()))
}

async fn read(mut flow: bentpipe_masque::Flow, bytes: u64) -> io::Result<()> {
    let (mut chunk, mut left) = (vec![0; CHUNK_BYTES], bytes);
    while left > 0 {
        match flow.read(&mut chunk).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left = left.saturating_sub(read as u64),
        }
    }
    Ok(())
}

/// Answers each request with the requested number of bytes.
async fn serve(server: Server) {
    while let Some(incoming) = server.accept().await {
        tokio::spawn(async move {
            let mut flow = incoming.accept().await?;
            let (chunk, mut left) = (vec![0x5a; CHUNK_BYTES], flow.read_u64().await?);
            while left > 0 {
                let next = left.min(CHUNK_BYTES as u64);
                flow.write_all(&chunk[..next as usize]).await?;
                left -= next;
            }
            flow.shutdown().await
        });
    }
}
