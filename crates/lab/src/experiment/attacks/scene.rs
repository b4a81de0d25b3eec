//! The scene of an attack: the gateways as programs, a victim, and a device of the attacker.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use bentpipe_dns::Query;
use bentpipe_link::{PublicKey, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::{self, Runtime};

use super::Attack;
use super::files::{self, Keys, ORIGIN_PORT, SITE_NAME};
use crate::emu::Service;
use crate::emu::{Device, EmuError, Host, SERVER, Testbed};
use crate::profile::Profile;
use crate::scratch::no_folder;
use crate::site::{Authority, ServerSettings, Site, SiteServer};
use crate::system::pair::{Pair, PairError, new_key, write_private};
use crate::system::process::Process;
use crate::workload::secure::Identity;

/// Port of the echo server over TCP and UDP.
pub const ECHO_PORT: u16 = 7;
/// Port of the server that sends endlessly (RFC 864).
pub const CHARGEN_PORT: u16 = 19;
/// Path at the origin that never gets a response.
pub const SLOW_PATH: &str = "/slow";
/// Path at the origin of a large object.
pub const BIG_PATH: &str = "/big";
/// Size of the large object: 64 MiB.
const BIG_BYTES: usize = 64 << 20;
const CHUNK_BYTES: usize = 64 << 10;
const MAX_DATAGRAM_BYTES: usize = 1500;

/// Number of objects of the victim's page.
const PAGE_OBJECTS: u32 = 35;
/// Size of each of these objects.
const PAGE_OBJECT_BYTES: u64 = 10_000;
/// TTL of all names in seconds. It hardly matters, because each query is for a new name.
const TTL_S: u32 = 60;

/// UDP port range of the ground in the attack on its ports.
const FEW_PORTS: &str = "32768 33767";

/// A running scene, until it is dropped.
pub struct Scene {
    // Fields drop in order: the servers, the gateways, their links.
    _servers: [Service; 2],
    _site: SiteServer,
    /// Both gateways.
    pub pair: Pair,
    /// Device of the attacker.
    pub attacker: Device,
    /// Certificate and key of the operator's own site, as its clients need them.
    pub identity: Identity,
    /// Public key of the ground gateway.
    pub ground: PublicKey,
    /// Page that the victim loads.
    pub page: Site,
    /// Authority that signs the page's certificates.
    pub authority: Authority,
    /// Runtime of the victim.
    pub runtime: Runtime,
    /// Hosts and links.
    pub testbed: Testbed,
}

impl Scene {
    /// Brings up the link of `profile`, measures it, and starts everything that `attack` needs. The
    /// gateways are the program `program`; their files are in `folder`.
    pub fn start(
        (profile, seed): (&Profile, u64),
        attack: Attack,
        program: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let testbed = Testbed::new(&profile.link, profile.terrestrial.as_ref(), seed)?;
        testbed.measure()?;
        let (v4, v6) = attack.more_addresses();
        let attacker = testbed.add_device(v4, v6)?;
        if attack == Attack::HubPorts {
            few_ports(&testbed.ground)?;
        }
        let authority = Authority::new().map_err(|error| anyhow!("{error}"))?;
        let page = Site::page(PAGE_OBJECTS, PAGE_OBJECT_BYTES, 0);
        let settings = ServerSettings::new(authority.clone());
        let _site = SiteServer::start(&testbed.server, &page, &settings)?;
        let _servers = [echo_and_names(&testbed.server)?, origin(&testbed.server)?];
        let identity = Identity::new(&testbed.air, &[SITE_NAME])?;
        let keys = Keys { air: key()?, ground: key()? };
        let ground = keys.ground.public();
        write_files(attack, profile, &keys, &identity, folder)?;
        let path = program.to_string_lossy();
        let pair = Pair::launch(folder, testbed.air.command(&path), testbed.ground.command(&path));
        let pair = pair.map_err(failed)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(EmuError::Thread)?;
        Ok(Self {
            _servers,
            _site,
            pair,
            attacker,
            identity,
            ground,
            page,
            authority,
            runtime,
            testbed,
        })
    }

    /// Resident memory of the air and of the ground, in bytes. 0 for a gateway that has ended.
    pub fn resident_bytes(&self) -> [u64; 2] {
        let of = |process: &Process| process.resident_bytes().unwrap_or(0);
        [of(&self.pair.air), of(&self.pair.ground)]
    }
}

fn key() -> anyhow::Result<SecretKey> {
    new_key().map_err(failed)
}

fn failed(error: PairError) -> anyhow::Error {
    anyhow!("bentpipe: {error}")
}

fn few_ports(ground: &Host) -> anyhow::Result<()> {
    let write = || fs::write("/proc/sys/net/ipv4/ip_local_port_range", FEW_PORTS);
    ground
        .run(write)?
        .map_err(|error| anyhow!("cannot shrink the ground's range of ports: {error}"))
}

fn write_files(
    attack: Attack,
    profile: &Profile,
    keys: &Keys,
    identity: &Identity,
    folder: &Path,
) -> anyhow::Result<()> {
    for (name, text) in [
        ("air.key", keys.air.to_base64()),
        ("ground.key", keys.ground.to_base64()),
        ("site.pem", identity.certificate_pem.clone()),
        ("site.key", identity.key_pem.clone()),
        ("air.toml", files::air(attack, profile, keys)),
        ("ground.toml", files::ground(profile, keys)),
    ] {
        write_private(&folder.join(name), &text).map_err(no_folder)?;
    }
    Ok(())
}

/// Starts the echo over both protocols and families, the endless server, and a name server that
/// resolves every name.
fn echo_and_names(server: &Host) -> Result<Service, EmuError> {
    let mut sockets = Vec::new();
    for ip in SERVER.both() {
        let address = SocketAddr::new(ip, ECHO_PORT);
        let endless = server.tcp_listener(SocketAddr::new(ip, CHARGEN_PORT))?;
        sockets.push((server.tcp_listener(address)?, server.udp_socket(address)?, endless));
    }
    let names = server.udp_socket(SocketAddr::new(SERVER.v4.into(), 53))?;
    Service::start(server, move || async move {
        for (tcp, udp, endless) in sockets {
            tokio::spawn(accept(endless, |tcp| async move { drop(send_forever(tcp).await) }));
            tokio::spawn(accept(tcp, |tcp| async move { drop(echo_stream(tcp).await) }));
            tokio::spawn(answer(udp, |datagram| Some(datagram.to_vec())));
        }
        answer(names, name).await;
    })
}

async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: std::net::TcpListener,
    serve: impl Fn(TcpStream) -> F,
) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => drop(tokio::spawn(serve(tcp))),
            // There are temporarily no descriptors.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn answer(socket: std::net::UdpSocket, answer: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    if socket.set_nonblocking(true).is_err() {
        return;
    }
    let Ok(socket) = UdpSocket::from_std(socket) else { return };
    let mut datagram = [0; MAX_DATAGRAM_BYTES];
    loop {
        let Ok((bytes, from)) = socket.recv_from(&mut datagram).await else { continue };
        if let Some(answer) = answer(&datagram[..bytes]) {
            // The datagram is lost if the buffer is full, as on any network.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

async fn echo_stream(mut tcp: TcpStream) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    let (mut read, mut write) = tcp.split();
    tokio::io::copy(&mut read, &mut write).await?;
    write.shutdown().await
}

async fn send_forever(mut tcp: TcpStream) -> std::io::Result<()> {
    let chunk = vec![b'x'; CHUNK_BYTES];
    loop {
        tcp.write_all(&chunk).await?;
    }
}

fn name(message: &[u8]) -> Option<Vec<u8>> {
    let ips = [IpAddr::from(SERVER.v4)];
    Query::parse(message).ok().map(|query| query.addresses(&ips, TTL_S))
}

/// Starts the origin of the operator's own site, without TLS.
fn origin(server: &Host) -> Result<Service, EmuError> {
    let listener = server.tcp_listener(SocketAddr::new(SERVER.v4.into(), ORIGIN_PORT))?;
    Service::start(server, move || {
        accept(listener, |tcp| async move { drop(serve_origin(tcp).await) })
    })
}

async fn serve_origin(mut tcp: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        if request.len() > MAX_DATAGRAM_BYTES || tcp.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    if !request.starts_with(format!("GET {BIG_PATH}").as_bytes()) {
        // Only the end of the connection can arrive.
        while tcp.read(&mut [0; 64]).await? > 0 {}
        return Ok(());
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {BIG_BYTES}\r\nCache-Control: max-age=600\r\n\
         Connection: close\r\n\r\n"
    );
    tcp.write_all(head.as_bytes()).await?;
    let chunk = vec![b'x'; CHUNK_BYTES];
    for _ in 0..BIG_BYTES / CHUNK_BYTES {
        tcp.write_all(&chunk).await?;
    }
    tcp.shutdown().await
}

/// Address of the server for clients with the address family of `from`.
pub fn server_for(from: IpAddr, port: u16) -> SocketAddr {
    let [v4, v6] = SERVER.both();
    SocketAddr::new(if from.is_ipv4() { v4 } else { v6 }, port)
}

/// Returns `true` if `address` is a fake-IP address.
pub fn stands_for_a_name(address: IpAddr) -> bool {
    let [a, b, ..] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => return false,
    };
    Ipv4Addr::new(a, b & 0xfe, 0, 0) == files::INSTANT_NETWORK
}
