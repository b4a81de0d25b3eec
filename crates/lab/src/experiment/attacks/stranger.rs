//! Attacks without a key: datagrams to the link sockets of either gateway.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{anyhow, bail};
use bentpipe_link::secure::{DATA, INIT, INIT_BYTES, MacKey, RESPONSE};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::scene::Scene;
use super::tally::{self, Tally, paced};
use crate::emu::Service;
use crate::emu::{AIR_CABIN, DEVICE, EmuError, GROUND, Host, SERVER};

/// Length of a RESPONSE.
pub const RESPONSE_BYTES: usize = 116;
/// Length of a junk datagram.
pub const JUNK_BYTES: usize = 61;
/// Source ports of one thread's INITs. A cookie is valid for one port.
const PORTS: usize = 8;
/// Port of the ground gateway.
const LINK_PORT: u16 = 4500;
/// UDP ports of the air gateway that do not belong to the link: DNS and interception.
const OTHER_PORTS: [u16; 2] = [53, 1081];

/// Sends the air `rate` datagrams per second with the beginning of a RESPONSE, from the cabin.
pub fn responses(
    scene: &Scene,
    rate: u64,
    seed: u64,
    tally: Arc<Tally>,
) -> anyhow::Result<Service> {
    let read = || fs::read_to_string("/proc/thread-self/net/udp");
    let table = scene.testbed.air.run(read)?;
    let table = table.map_err(|error| anyhow!("the air's ports: {error}"))?;
    let ports: Vec<u16> = ports(&table).filter(|port| !OTHER_PORTS.contains(port)).collect();
    if ports.is_empty() {
        bail!("the air has no link socket");
    }
    let at = ports.into_iter().map(|port| SocketAddr::new(AIR_CABIN.v4.into(), port)).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let make = move || {
        let mut datagram = [0; RESPONSE_BYTES];
        rng.fill_bytes(&mut datagram);
        datagram[0] = RESPONSE;
        datagram.to_vec()
    };
    Ok(flood(&scene.attacker.host, (DEVICE.v4.into(), 1), at, rate, make, tally)?)
}

/// Sends the ground `rate` datagrams per second with the beginning of a data packet, from the
/// Internet.
pub fn junk(scene: &Scene, rate: u64, seed: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let make = move || {
        let mut datagram = [0; JUNK_BYTES];
        rng.fill_bytes(&mut datagram);
        datagram[0] = DATA;
        datagram.to_vec()
    };
    flood(&scene.testbed.server, (SERVER.v4.into(), 1), vec![ground()], rate, make, tally)
}

/// Sends the ground `rate` INITs per second in which only mac1 is valid, from the Internet.
pub fn inits(scene: &Scene, rate: u64, seed: u64, tally: Arc<Tally>) -> Result<Service, EmuError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let key = MacKey::new(&scene.ground);
    let make = move || init(&key, &mut rng);
    flood(&scene.testbed.server, (SERVER.v4.into(), PORTS), vec![ground()], rate, make, tally)
}

/// An INIT in which only mac1 is valid, for `key`.
pub fn init(key: &MacKey, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut message = vec![0; INIT_BYTES];
    rng.fill_bytes(&mut message[4..]);
    message[0] = INIT;
    key.sign(&mut message, None);
    message
}

fn ground() -> SocketAddr {
    SocketAddr::new(GROUND.v4.into(), LINK_PORT)
}

/// Sends the datagrams of `make` from several ports of `from` to all of `at`, at a total of `rate`
/// per second.
fn flood(
    host: &Host,
    (from, ports): (IpAddr, usize),
    at: Vec<SocketAddr>,
    rate: u64,
    mut make: impl FnMut() -> Vec<u8> + Send + 'static,
    tally: Arc<Tally>,
) -> Result<Service, EmuError> {
    let mut sockets: Vec<UdpSocket> = Vec::new();
    for _ in 0..ports {
        let socket = host.udp_socket(SocketAddr::new(from, 0))?;
        socket.set_nonblocking(true).map_err(EmuError::Thread)?;
        sockets.push(socket);
    }
    tally::start(host, move || async move {
        let mut answer = [0; 256];
        paced(rate, &tally, |number| {
            let number = number as usize;
            let socket = &sockets[number % sockets.len()];
            while socket.recv(&mut answer).is_ok() {}
            if socket.send_to(&make(), at[number % at.len()]).is_err() {
                tally.refused.fetch_add(1, Relaxed);
            }
            true
        })
        .await;
    })
}

/// Local ports in a table of sockets: udp(7), `/proc/net/udp`.
fn ports(table: &str) -> impl Iterator<Item = u16> + '_ {
    table.lines().skip(1).filter_map(|line| {
        let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::SecretKey;

    #[test]
    fn an_init_passes_the_first_check_and_no_other_key_takes_it() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let keys = [SecretKey::generate(&mut rng), SecretKey::generate(&mut rng)];
        let [own, other] = keys.map(|key| MacKey::new(&key.public()));
        let message = init(&own, &mut rng);
        assert!(own.accepts(&message) && !other.accepts(&message));
    }

    #[test]
    fn ports_are_those_of_the_kernels_table() {
        let table = "   sl  local_address rem_address   st\n  \
                     12: 00000000:0035 00000000:0000 07\n  14: 0112C6C6:9C40 00000000:0000 07\n";
        assert_eq!(ports(table).collect::<Vec<_>>(), [53, 40_000]);
    }
}
