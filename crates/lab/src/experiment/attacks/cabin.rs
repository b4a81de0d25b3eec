//! Attacks of a passenger's device.

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
use tokio::time::{sleep, timeout};

use super::assault::{Tally, paced};
use super::scene::{ECHO_PORT, Scene, server_for};
use super::victim::question;
use crate::emu::{AIR_CABIN, DEVICE, EmuError, SERVER};
use crate::workload::service::Service;

/// Connections that are being opened at once.
const OPENING: usize = 256;
/// A connection that is not there by then is given up.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Life of a connection that is opened only for the sake of opening it.
const SHORT_LIFE: Duration = Duration::from_millis(50);
/// UDP sockets of the attacker: a process here may have 20,000 descriptors, and has other uses for them.
const MAX_SOCKETS: u64 = 12_000;
/// New UDP flows a second of one address: what the gateways allow it.
const FLOWS_PER_ADDRESS: u64 = 45;
/// Flows that are held are used this often, so that none ends for being idle.
const REFRESH: Duration = Duration::from_secs(20);
/// Length of a header of IPv4, and of UDP.
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;

/// Opens `total` connections from all addresses in turn, sends a byte on each and leaves it idle.
pub fn hold_connections(scene: &Scene, total: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let addresses = scene.attacker.addresses.clone();
    Service::start(&scene.attacker.host, move || async move {
        let opening = Arc::new(Semaphore::new(OPENING));
        for number in 0..total {
            let from = addresses[number as usize % addresses.len()];
            let (tally, opening) = (tally.clone(), opening.clone());
            // Nobody closes it.
            let Ok(place) = opening.acquire_owned().await else { return };
            tokio::spawn(async move {
                let opened = timeout(CONNECT_LIMIT, connect(from)).await;
                drop(place);
                tally.made.fetch_add(1, Relaxed);
                if let Ok(Ok(mut tcp)) = opened {
                    // The byte comes back; then nothing does until the end.
                    while tcp.read(&mut [0; 8]).await.is_ok_and(|bytes| bytes > 0) {}
                }
                tally.refused.fetch_add(1, Relaxed);
            });
        }
        let _ = opening.acquire_many(OPENING as u32).await;
        tally.stands.store(true, Relaxed);
        std::future::pending().await
    })
}

/// A connection to the server's echo on which a byte has been sent.
async fn connect(from: IpAddr) -> std::io::Result<TcpStream> {
    let socket = if from.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(from, 0))?;
    let mut tcp = socket.connect(server_for(from, ECHO_PORT)).await?;
    tcp.write_all(b"x").await?;
    Ok(tcp)
}

/// Opens `rate` connections a second and resets each after a moment.
pub fn open(scene: &Scene, rate: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let from = IpAddr::from(DEVICE.v4);
    Service::start(&scene.attacker.host, move || async move {
        paced(rate, &tally, |_| {
            let tally = tally.clone();
            tokio::spawn(async move {
                match timeout(CONNECT_LIMIT, connect(from)).await {
                    Ok(Ok(tcp)) => {
                        sleep(SHORT_LIFE).await;
                        // It ends without a FIN, or with one if the kernel does not know the option.
                        let _ = tcp.set_zero_linger();
                    }
                    Ok(Err(_)) | Err(_) => drop(tally.refused.fetch_add(1, Relaxed)),
                }
            });
        })
        .await;
    })
}

/// Sends `rate` datagrams a second, each from an invented address of the network and an invented port.
pub fn spoof(scene: &Scene, rate: u64, seed: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let raw = scene.attacker.host.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(raw_ip())))?;
    let raw = raw.and_then(|raw| raw.set_nonblocking(true).map(|()| raw));
    let raw = raw.map_err(EmuError::Thread)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let to = SocketAddr::new(SERVER.v4.into(), 0).into();
    Service::start(&scene.attacker.host, move || async move {
        paced(rate, &tally, |_| {
            let packet = spoofed(&mut rng);
            if raw.send_to(&packet, &to).is_err() {
                tally.refused.fetch_add(1, Relaxed);
            }
        })
        .await;
    })
}

/// The sender writes the IP header.
fn raw_ip() -> Protocol {
    Protocol::from(255)
}

/// A datagram to the echo. The kernel fills in the length and the checksum of the IP header; UDP goes
/// without one (RFC 768).
fn spoofed(rng: &mut ChaCha8Rng) -> [u8; IP_BYTES + UDP_BYTES + 1] {
    let [a, b, c, _] = DEVICE.v4.octets();
    let source = Ipv4Addr::new(a, b, c, rng.random_range(2..=254));
    let mut packet = [0; IP_BYTES + UDP_BYTES + 1];
    let (ip, udp) = packet.split_at_mut(IP_BYTES);
    (ip[0], ip[8], ip[9]) = (0x45, 64, UDP);
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&SERVER.v4.octets());
    udp[..2].copy_from_slice(&rng.random_range(1024..=u16::MAX).to_be_bytes());
    udp[2..4].copy_from_slice(&ECHO_PORT.to_be_bytes());
    udp[5] = (UDP_BYTES + 1) as u8;
    packet
}

/// Opens UDP flows from all addresses in turn until `total` have a port of the ground, and uses them.
pub fn take_ports(scene: &Scene, total: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let addresses = scene.attacker.addresses.clone();
    Service::start(&scene.attacker.host, move || async move {
        let gap = Duration::from_secs(1) / (FLOWS_PER_ADDRESS * addresses.len() as u64) as u32;
        let mut held = Vec::new();
        for number in 0..total.min(MAX_SOCKETS) {
            let from = addresses[number as usize % addresses.len()];
            match flow(from).await {
                Ok(socket) => held.push(socket),
                Err(_) => drop(tally.refused.fetch_add(1, Relaxed)),
            }
            tally.made.fetch_add(1, Relaxed);
            sleep(gap).await;
        }
        tally.stands.store(true, Relaxed);
        loop {
            sleep(REFRESH).await;
            for socket in &held {
                // What is refused now may be carried the next time.
                let _ = socket.try_send(b"x");
            }
        }
    })
}

async fn flow(from: IpAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((from, 0)).await?;
    socket.connect(server_for(from, ECHO_PORT)).await?;
    socket.send(b"x").await?;
    Ok(socket)
}

/// Asks the resolver on board for `rate` new names a second, from all addresses of IPv4 in turn.
pub fn ask_names(scene: &Scene, rate: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let addresses: Vec<_> =
        scene.attacker.addresses.iter().copied().filter(IpAddr::is_ipv4).collect();
    Service::start(&scene.attacker.host, move || async move {
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
