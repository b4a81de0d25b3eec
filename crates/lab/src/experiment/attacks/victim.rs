//! The victim: loads a page, and beside it asks for names, sends datagrams and opens connections.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_dns::{Answer, Query};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::{Instant, sleep, timeout};

use super::Attack;
use super::scene::{ECHO_PORT, Scene, server_for, stands_for_a_name};
use crate::emu::{AIR_CABIN, CLIENT};
use crate::experiment::ExperimentError;
use crate::loader::{Load, Protocol, Tickets, load};
use crate::result::{Sample, Samples};

/// A page that is not complete by then has failed.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// A small exchange that is not over by then has failed.
const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// A datagram is sent again after this, as resolvers and calls' set-ups do.
const AGAIN: Duration = Duration::from_millis(2500);
/// Small exchanges of each kind beside a page, and their distance.
const PROBES: u64 = 4;
const PROBE_GAP: Duration = Duration::from_millis(500);
/// Bytes that a small connection carries each way.
const SMALL_BYTES: usize = 100;
const MAX_MESSAGE_BYTES: usize = 1500;
/// Pause before the next attempt while the gateways shake hands.
const PAUSE: Duration = Duration::from_millis(200);
/// The gateways must be ready within this.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Result of the victim's browsing.
#[derive(Debug, Default)]
pub struct Seen {
    /// Seconds that its pages took.
    pub pages: Samples,
    /// Small exchanges.
    pub probes: u64,
    /// Each page and exchange that failed, and why.
    pub failures: Vec<String>,
}

/// Waits until something comes through.
pub async fn wait() -> Result<(), ExperimentError> {
    let began = Instant::now();
    loop {
        match timeout(PROBE_LIMIT, connection()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(_)) | Err(_) if began.elapsed() < START_LIMIT => sleep(PAUSE).await,
            other => {
                let why = format!(": {other:?}");
                let (contender, seconds) = ("bentpipe", START_LIMIT.as_secs());
                return Err(ExperimentError::Silent { contender, seconds, why });
            }
        }
    }
}

/// Loads a page for each of `visits`, one after the other, with small exchanges beside each.
pub async fn browse(
    scene: &Scene,
    attack: Attack,
    visits: std::ops::Range<u64>,
    seen: &RefCell<Seen>,
) -> Result<(), ExperimentError> {
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

/// Seconds that the page took; if it failed, seconds until then and why.
async fn page(scene: &Scene, visit: u64) -> Result<Result<f64, (f64, String)>, ExperimentError> {
    let site = scene.page.visited(visit);
    let mut tickets =
        Tickets::new(&scene.authority).map_err(|error| ExperimentError::Lab(error.to_string()))?;
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
        let (name, datagram, connection) = tokio::join!(
            timeout(PROBE_LIMIT, name(number, attack == Attack::InstantPool)),
            timeout(PROBE_LIMIT, datagram()),
            timeout(PROBE_LIMIT, connection()),
        );
        one("name", name);
        one("datagram", datagram);
        one("connection", connection);
        sleep(PROBE_GAP).await;
    }
}

/// A name that nobody has asked for has an address; one that stands for it, if `instant`. No address
/// stands for a name of `.test`, which is never one of the Internet.
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

/// A query for the IPv4 address of `name`, whose labels are short.
pub fn question(name: &str) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.extend([0, 0, 1, 0, 1]);
    out
}

/// A datagram of a new flow comes back.
async fn datagram() -> Result<(), String> {
    exchange(server_for(CLIENT.v4.into(), ECHO_PORT), b"probe").await.map(drop)
}

/// Sends `message` from a new port, again after [`AGAIN`]; gives the answer.
async fn exchange(to: SocketAddr, message: &[u8]) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    let socket = UdpSocket::bind((IpAddr::from(CLIENT.v4), 0)).await.map_err(text)?;
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

/// A small exchange on a connection of its own.
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
