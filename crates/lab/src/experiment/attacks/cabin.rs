//! Attacks by a passenger's device.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::scene::{ECHO_PORT, Scene, server_for};
use super::tally::{self, Tally, paced};
use super::victim::question;
use crate::emu::Service;
use crate::emu::{AIR_CABIN, DEVICE, EmuError, SERVER};

/// Timeout for opening a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Lifetime of a connection in an attack that only opens connections.
const SHORT_LIFE: Duration = Duration::from_millis(50);
/// Maximum sockets of the attacker. A process here may have 20,000 descriptors, some of which
/// have other uses.
const MAX_SOCKETS: u64 = 12_000;
/// New UDP flows per second from one address, which the gateways allow.
const FLOWS_PER_ADDRESS: u64 = 45;
/// Interval at which held flows are used, so that none of them becomes idle.
const REFRESH: Duration = Duration::from_secs(20);
/// Length of an IPv4 header.
const IP_BYTES: usize = 20;
/// Length of a UDP header.
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;
/// First source port of datagrams from the raw socket.
const FIRST_PORT: u16 = 1024;

/// Opens `total` connections from all addresses in turn, `at_once` of them concurrently. Sends a
/// byte on each and leaves it idle.
pub fn hold_connections(
    scene: &Scene,
    total: u64,
    at_once: usize,
    tally: Arc<Tally>,
) -> Result<Service, EmuError> {
    let addresses = scene.attacker.addresses.clone();
    tally::start(&scene.attacker.host, move || async move {
        let opening = Arc::new(Semaphore::new(at_once));
        for number in 0..total {
            let from = addresses[number as usize % addresses.len()];
            let (tally, opening) = (tally.clone(), opening.clone());
            // The semaphore is never closed.
            let Ok(place) = opening.acquire_owned().await else { return };
            tokio::spawn(async move {
                let opened = timeout(CONNECT_LIMIT, connect(from)).await;
                tally.made.fetch_add(1, Relaxed);
                tally.tried.fetch_add(1, Relaxed);
                drop(place);
                if let Ok(Ok(mut tcp)) = opened {
                    // The byte is echoed; then nothing arrives until the connection ends.
                    while tcp.read(&mut [0; 8]).await.is_ok_and(|bytes| bytes > 0) {}
                }
                tally.refused.fetch_add(1, Relaxed);
            });
        }
        let _ = opening.acquire_many(at_once as u32).await;
        tally.stands.store(true, Relaxed);
        std::future::pending().await
    })
}

/// Opens a connection to the server's echo and sends a byte on it.
async fn connect(from: IpAddr) -> std::io::Result<TcpStream> {
    let mut tcp = connect_to(from, ECHO_PORT).await?;
    tcp.write_all(b"x").await?;
    Ok(tcp)
}

/// Opens a connection to a port of the server.
pub async fn connect_to(from: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    let socket = if from.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(server_for(from, port)).await
}

/// Opens `rate` connections per second and resets each after a short time.
pub fn open(scene: &Scene, rate: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let from = IpAddr::from(DEVICE.v4);
    tally::start(&scene.attacker.host, move || async move {
        let sockets = Arc::new(Semaphore::new(MAX_SOCKETS as usize));
        paced(rate, &tally, |_| {
            let Ok(socket) = sockets.clone().try_acquire_owned() else { return false };
            let tally = tally.clone();
            tokio::spawn(async move {
                let _socket = socket;
                match timeout(CONNECT_LIMIT, connect(from)).await {
                    Ok(Ok(tcp)) => {
                        sleep(SHORT_LIFE).await;
                        // The connection ends with a reset, or with a FIN if the kernel does not
                        // support the option.
                        let _ = tcp.set_zero_linger();
                    }
                    Ok(Err(_)) | Err(_) => drop(tally.refused.fetch_add(1, Relaxed)),
                }
            });
            true
        })
        .await;
    })
}

/// Sends `rate` datagrams per second, each with a forged source address in the network and a forged
/// source port.
pub fn spoof(scene: &Scene, rate: u64, seed: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let spoofer = Spoofer::new(scene, seed)?;
    tally::start(&scene.attacker.host, move || spoofer.send(rate, tally))
}

/// Sender of datagrams with forged sources.
pub struct Spoofer {
    raw: Socket,
    rng: ChaCha8Rng,
}

impl Spoofer {
    /// A sender on the attacker's device. `seed` decides the forged sources.
    pub fn new(scene: &Scene, seed: u64) -> Result<Self, EmuError> {
        let raw = raw_socket(scene)?;
        Ok(Self { raw, rng: ChaCha8Rng::seed_from_u64(seed) })
    }

    /// Sends `rate` datagrams per second.
    pub async fn send(mut self, rate: u64, tally: Arc<Tally>) {
        let to = SocketAddr::new(SERVER.v4.into(), 0).into();
        paced(rate, &tally, |_| {
            if self.raw.send_to(&spoofed(&mut self.rng), &to).is_err() {
                tally.refused.fetch_add(1, Relaxed);
            }
            true
        })
        .await;
    }
}

/// Raw socket of the attacker's device, for which the sender writes the IP header.
fn raw_socket(scene: &Scene) -> Result<Socket, EmuError> {
    let raw_ip = Protocol::from(255);
    let raw = scene.attacker.host.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(raw_ip)))?;
    raw.and_then(|raw| raw.set_nonblocking(true).map(|()| raw)).map_err(EmuError::Thread)
}

/// A datagram to the echo with a forged source.
fn spoofed(rng: &mut ChaCha8Rng) -> Datagram {
    let [a, b, c, _] = DEVICE.v4.octets();
    let source = Ipv4Addr::new(a, b, c, rng.random_range(2..=254));
    datagram(source, rng.random_range(FIRST_PORT..=u16::MAX))
}

/// IPv4 packet with a UDP datagram of one byte.
type Datagram = [u8; IP_BYTES + UDP_BYTES + 1];

/// A datagram to the echo. The kernel fills in the length and the checksum of the IP header. The
/// UDP header has no checksum (RFC 768).
fn datagram(source: Ipv4Addr, port: u16) -> Datagram {
    let mut packet = [0; IP_BYTES + UDP_BYTES + 1];
    let (ip, udp) = packet.split_at_mut(IP_BYTES);
    (ip[0], ip[8], ip[9]) = (0x45, 64, UDP);
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&SERVER.v4.octets());
    udp[..2].copy_from_slice(&port.to_be_bytes());
    udp[2..4].copy_from_slice(&ECHO_PORT.to_be_bytes());
    udp[5] = (UDP_BYTES + 1) as u8;
    packet
}

/// Opens `total` UDP flows from all IPv4 addresses in turn, each of which takes a port of the ground, and
/// keeps them in use. One raw socket sends for all flows, so they need no descriptors.
pub fn take_ports(scene: &Scene, total: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let raw = raw_socket(scene)?;
    let sources: Vec<_> = scene.attacker.addresses.iter().filter_map(only_v4).collect();
    tally::start(&scene.attacker.host, move || async move {
        let to = SocketAddr::new(SERVER.v4.into(), 0).into();
        let use_flow = |number: u64| {
            let source = sources[number as usize % sources.len()];
            let turn = number / sources.len() as u64 % u64::from(u16::MAX - FIRST_PORT);
            let port = FIRST_PORT + turn as u16;
            raw.send_to(&datagram(source, port), &to).is_ok()
        };
        let rate = (FLOWS_PER_ADDRESS * sources.len() as u64) as f64;
        let began = Instant::now();
        for number in 0..total {
            sleep_until(began + Duration::from_secs_f64(number as f64 / rate)).await;
            if !use_flow(number) {
                tally.refused.fetch_add(1, Relaxed);
            }
            tally.made.fetch_add(1, Relaxed);
            tally.tried.fetch_add(1, Relaxed);
        }
        tally.stands.store(true, Relaxed);
        loop {
            sleep(REFRESH).await;
            // A datagram that is refused now may be carried next time.
            for number in 0..total {
                use_flow(number);
            }
        }
    })
}

fn only_v4(address: &IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(v4) => Some(*v4),
        IpAddr::V6(_) => None,
    }
}

/// Queries the on-board resolver for `rate` new names per second, from all IPv4 addresses in turn.
pub fn ask_names(scene: &Scene, rate: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let addresses: Vec<_> =
        scene.attacker.addresses.iter().copied().filter(IpAddr::is_ipv4).collect();
    tally::start(&scene.attacker.host, move || async move {
        let mut sockets = Vec::new();
        for from in addresses {
            let Ok(socket) = UdpSocket::bind((from, 0)).await else { continue };
            if socket.connect((AIR_CABIN.v4, 53)).await.is_ok() {
                sockets.push(socket);
            }
        }
        let mut answer = [0; 512];
        paced(rate, &tally, |number| {
            let socket = &sockets[number as usize % sockets.len()];
            while socket.try_recv(&mut answer).is_ok() {}
            if socket.try_send(&question(&format!("n{number}.attack.example"))).is_err() {
                tally.refused.fetch_add(1, Relaxed);
            }
            true
        })
        .await;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spoofed_datagram_is_one_of_the_cabins_network() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let packets = [(); 2].map(|()| spoofed(&mut rng));
        for packet in &packets {
            assert_eq!((packet[0], packet[9]), (0x45, UDP));
            assert_eq!(packet[12..15], DEVICE.v4.octets()[..3]);
            assert_eq!(packet[16..20], SERVER.v4.octets());
            assert_eq!(packet[22..26], [0, ECHO_PORT as u8, 0, 9]);
        }
        assert_ne!(packets[0][12..22], packets[1][12..22], "address and port are invented anew");
    }
}
