//! The victim. It loads a page, and at the same time queries names, sends datagrams and pings, and
//! opens connections.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{anyhow, bail};
use bentpipe_dns::{Answer, Query};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::{Instant, sleep, timeout};

use super::Attack;
use super::scene::{ECHO_PORT, Scene, server_for, stands_for_a_name};
use crate::emu::{AIR_CABIN, CLIENT};
use crate::loader::{Load, Protocol, Tickets, load};
use crate::result::{Sample, Samples};

/// Time after which an incomplete page counts as failed.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// Time after which an incomplete small exchange counts as failed.
const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// Time after which a datagram is sent again, like resolvers and call set-ups do.
const AGAIN: Duration = Duration::from_millis(2500);
/// Small exchanges of each kind during a page.
const PROBES: u64 = 4;
/// Interval between two small exchanges of a kind.
const PROBE_GAP: Duration = Duration::from_millis(500);
/// Bytes that a small connection carries in each direction.
const SMALL_BYTES: usize = 100;
/// ICMP echo request: type 8, code 0. The kernel fills in checksum and identifier.
const ECHO_REQUEST: [u8; 12] = [8, 0, 0, 0, 0, 0, 0, 1, b'p', b'i', b'n', b'g'];
const MAX_MESSAGE_BYTES: usize = 1500;
/// Pause before the next attempt during the gateways' handshake.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum time until the gateways are ready.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Result of the victim's browsing.
#[derive(Debug, Default)]
pub struct Seen {
    /// Load times of its pages in seconds.
    pub pages: Samples,
    /// Number of small exchanges.
    pub probes: u64,
    /// Descriptions of failed pages and exchanges.
    pub failures: Vec<String>,
}

/// Waits until an exchange succeeds.
pub async fn wait() -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match timeout(PROBE_LIMIT, connection()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(_)) | Err(_) if began.elapsed() < START_LIMIT => sleep(PAUSE).await,
            other => {
                let why = format!(": {other:?}");
                let (system, seconds) = ("bentpipe", START_LIMIT.as_secs());
                bail!("{system}: nothing came through within {seconds} s{why}");
            }
        }
    }
}

/// Loads a page for each of `visits`, one after the other, with small exchanges during each.
pub async fn browse(
    scene: &Scene,
    attack: Attack,
    visits: std::ops::Range<u64>,
    seen: &RefCell<Seen>,
) -> anyhow::Result<()> {
    for visit in visits {
        let (page, ()) =
            tokio::join!(page(scene, visit), small_exchanges(attack, visit * PROBES, seen));
        let mut seen = seen.borrow_mut();
        match page? {
            Ok(seconds) => seen.pages.push(seconds),
            Err((seconds, why)) => {
                seen.pages.0.push(Sample::Cut(seconds));
                seen.failures.push(format!("page: {why}"));
            }
        }
    }
    Ok(())
}

/// Load time of the page in seconds. If it failed, the seconds until then, and the reason.
async fn page(scene: &Scene, visit: u64) -> anyhow::Result<Result<f64, (f64, String)>> {
    let site = scene.page.visited(visit);
    let mut tickets = Tickets::new(&scene.authority).map_err(|error| anyhow!("{error}"))?;
    let visit = load(&Load::new(&site, Protocol::Http1, PAGE_LIMIT), &mut tickets).await;
    let seconds = visit.took.as_secs_f64();
    if !visit.failed() {
        return Ok(Ok(seconds));
    }
    let why = visit.entries.iter().find_map(|entry| entry.failed.clone());
    Ok(Err((PAGE_LIMIT.as_secs_f64(), why.unwrap_or_else(|| "it was not complete".into()))))
}

async fn small_exchanges(attack: Attack, first: u64, seen: &RefCell<Seen>) {
    let one = |kind: &'static str, exchange: Result<Result<(), String>, _>| {
        let mut seen = seen.borrow_mut();
        seen.probes += 1;
        match exchange {
            Ok(Ok(())) => {}
            Ok(Err(why)) => seen.failures.push(format!("{kind}: {why}")),
            Err(tokio::time::error::Elapsed { .. }) => {
                seen.failures.push(format!("{kind}: no answer"));
            }
        }
    };
    for number in first..first + PROBES {
        let (name, datagram, connection, ping) = tokio::join!(
            timeout(PROBE_LIMIT, name(number, attack == Attack::InstantPool)),
            timeout(PROBE_LIMIT, datagram()),
            timeout(PROBE_LIMIT, connection()),
            timeout(PROBE_LIMIT, ping()),
        );
        one("name", name);
        one("datagram", datagram);
        one("connection", connection);
        one("ping", ping);
        sleep(PROBE_GAP).await;
    }
}

/// Queries a new name, which must have an address: a fake-IP address if `instant`. No fake-IP
/// address stands for a name in `.test`, which never exists on the Internet.
async fn name(number: u64, instant: bool) -> Result<(), String> {
    let question = question(&format!("v{number}.victim.example"));
    let message = exchange(SocketAddr::new(AIR_CABIN.v4.into(), 53), &question).await?;
    let query = Query::parse(&question).map_err(|_| "the question is wrong".to_owned())?;
    let answer = Answer::parse(&query.key, &message).map_err(|error| error.to_string())?;
    match answer.addresses().first() {
        Some(address) if instant && !stands_for_a_name(*address) => {
            Err(format!("{address} does not stand for the name"))
        }
        Some(_) => Ok(()),
        None => Err(format!("response code {}", message.get(3).map_or(0, |byte| byte & 0xf))),
    }
}

/// A query for the IPv4 address of `name`, which must have short labels.
pub fn question(name: &str) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.extend([0, 0, 1, 0, 1]);
    out
}

/// Sends a datagram of a new flow, which must be echoed.
async fn datagram() -> Result<(), String> {
    exchange(server_for(CLIENT.v4.into(), ECHO_PORT), b"probe").await.map(drop)
}

/// Sends `message` from a new port, and again after [`AGAIN`]. Returns the response.
async fn exchange(to: SocketAddr, message: &[u8]) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    let socket = UdpSocket::bind((IpAddr::from(CLIENT.v4), 0)).await.map_err(text)?;
    exchange_by(socket, to, message).await
}

/// Like [`exchange`], from `socket`.
async fn exchange_by(socket: UdpSocket, to: SocketAddr, message: &[u8]) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    socket.connect(to).await.map_err(text)?;
    let mut answer = vec![0; MAX_MESSAGE_BYTES];
    loop {
        socket.send(message).await.map_err(text)?;
        if let Ok(came) = timeout(AGAIN, socket.recv(&mut answer)).await {
            answer.truncate(came.map_err(text)?);
            return Ok(answer);
        }
    }
}

/// Sends an ICMP echo request, which must be answered. The kernel chooses its identifier.
async fn ping() -> Result<(), String> {
    let open = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(socket2::Protocol::ICMPV4))?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddr::new(CLIENT.v4.into(), 0).into())?;
        UdpSocket::from_std(socket.into())
    };
    let socket = open().map_err(|error| error.to_string())?;
    let to = server_for(CLIENT.v4.into(), 0);
    let answer = exchange_by(socket, to, &ECHO_REQUEST).await?;
    if answer.first() == Some(&0) {
        Ok(())
    } else {
        Err("the answer is not an echo reply".to_owned())
    }
}

/// A small exchange on a new connection.
async fn connection() -> Result<(), String> {
    let exchange = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(CLIENT.v4.into(), 0))?;
        let mut tcp = socket.connect(server_for(CLIENT.v4.into(), ECHO_PORT)).await?;
        tcp.write_all(&[7; SMALL_BYTES]).await?;
        tcp.read_exact(&mut [0; SMALL_BYTES]).await.map(drop)
    };
    exchange.await.map_err(|error: std::io::Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_one_that_the_name_server_answers() {
        let question = question("v7.victim.example");
        let query = Query::parse(&question).unwrap();
        assert_eq!(query.key.host_name().as_deref(), Some("v7.victim.example"));
        let answer = query.addresses(&[IpAddr::from([100, 65, 3, 4])], 60);
        let addresses = Answer::parse(&query.key, &answer).unwrap().addresses();
        assert_eq!(addresses, [IpAddr::from([100, 65, 3, 4])]);
        assert!(stands_for_a_name(addresses[0]));
        assert!(!stands_for_a_name(IpAddr::from([100, 66, 0, 1])));
    }
}
