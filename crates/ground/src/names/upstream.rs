//! Queries to name servers.
//!
//! Protection against spoofed answers:
//!
//! - Each query uses its own socket, connected to the server, and a random ID. An answer counts
//!   only if it matches the query.
//! - The kernel assigns a random port. If all its ephemeral ports are taken, a random port outside
//!   the kernel's range is used. If none of those is free, the query uses TCP.
//! - Names are not spelled in random case (0x20). With port and ID, a guess has one chance in 2^31,
//!   and some servers change the case.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bentpipe_dns::{Answer, AnswerError, Kind, Query};
use bentpipe_metering::rate_limited_log::RateLimitedLog;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep, sleep_until};

use crate::ports::Range;
use bentpipe_dns::io::{MAX_ANSWER_BYTES, read_message, write_message};

/// Time limit for a query, TCP included. A recursive resolver may need this long for names with
/// slow servers.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Time after which an unanswered query is repeated; the second repetition waits twice as long.
const TRY: Duration = Duration::from_millis(1200);

/// Time without an answer after which the next server is queried too.
const PATIENCE: Duration = Duration::from_millis(2400);

/// Maximum number of servers queried for one name, as in resolv.conf; each takes a socket.
pub const MAX_SERVERS: usize = 3;

/// Maximum number of random ports tried if the kernel has none left. About half of all ports are
/// outside its range, so if these are free, all tries fail once in a million times.
const MAX_PORTS_TRIED: usize = 32;

/// Lowest port that needs no privilege.
const FIRST_OPEN_PORT: u16 = 1024;

/// Buffer size: more than a server sends if queried for at most 1232 bytes.
const MAX_BYTES: usize = 4096;

/// Name servers to query.
pub struct Upstream {
    servers: Vec<SocketAddr>,
    /// Servers whose AD flag is passed on, in addition to those on this machine.
    trusted: Vec<IpAddr>,
    /// Source of unpredictable IDs.
    hash: RandomState,
    asked: AtomicU64,
    log: RateLimitedLog,
}

impl Upstream {
    /// Uses the first [`MAX_SERVERS`] of `servers`. The AD flag of servers that are not `trusted`
    /// is cleared, because their answers travel over UDP, which can be modified on the path (RFC
    /// 6840 section 5.8).
    pub fn new(mut servers: Vec<SocketAddr>, trusted: Vec<IpAddr>) -> Self {
        servers.truncate(MAX_SERVERS);
        Self {
            servers,
            trusted,
            hash: RandomState::new(),
            asked: AtomicU64::new(0),
            log: RateLimitedLog::default(),
        }
    }

    fn is_trusted(&self, server: SocketAddr) -> bool {
        let ip = server.ip().to_canonical();
        ip.is_loopback() || self.trusted.iter().any(|trusted| trusted.to_canonical() == ip)
    }

    /// Queries the servers and returns the first answer that is not a failure, or else the last
    /// failure. If a server fails or is slow, the next one is queried as well; a slow server may
    /// still answer first.
    pub async fn ask(&self, query: &Query) -> Option<Answer> {
        let deadline = Instant::now() + DEADLINE;
        let mut servers = self.servers.iter();
        let mut asked = FuturesUnordered::new();
        let (mut failure, mut patience) = (None, deadline);
        loop {
            if let Some(server) = servers.next() {
                asked.push(async move { (server, self.ask_one(query, *server).await) });
                patience = Instant::now() + PATIENCE;
            }
            if asked.is_empty() {
                return failure;
            }
            tokio::select! {
                Some((server, said)) = asked.next() => match said {
                    Ok(answer) if answer.kind != Kind::Failure => return Some(answer),
                    Ok(answer) => failure = Some(answer),
                    Err(error) => self.report(&format_args!("{server}: {error}")),
                },
                () = sleep_until(patience), if servers.len() > 0 => {}
                () = sleep_until(deadline) => {
                    if failure.is_none() {
                        self.report(&format_args!("{DEADLINE:?} without an answer"));
                    }
                    return failure;
                }
            }
        }
    }

    /// Logs a fault of a name server or of the way to it. The name is personal data, and not logged.
    fn report(&self, error: &dyn Display) {
        self.log.warn("a name server does not answer; see servers under [dns]", error);
    }

    async fn ask_one(&self, query: &Query, server: SocketAddr) -> io::Result<Answer> {
        let answer = match self.over_udp(query, server).await {
            Ok(Some(answer)) => answer,
            Ok(None) => self.over_tcp(query, server).await?,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                self.over_tcp(query, server).await?
            }
            Err(error) => return Err(error),
        };
        Ok(if self.is_trusted(server) { answer } else { answer.without_authentic() })
    }

    /// Returns the answer, or `None` if it was truncated.
    async fn over_udp(&self, query: &Query, server: SocketAddr) -> io::Result<Option<Answer>> {
        let socket = self.socket(server).await?;
        socket.connect(server).await?;
        let id = self.id();
        let question = query.key.question(id);
        tokio::select! {
            answer = answer_by(&socket, query, id) => answer,
            failed = ask_again(&socket, &question) => failed.map(|never| match never {}),
        }
    }

    /// Opens a socket at an unpredictable port. Returns [`io::ErrorKind::AddrInUse`] if none is
    /// free.
    async fn socket(&self, server: SocketAddr) -> io::Result<UdpSocket> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let taken = match UdpSocket::bind((any, 0)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
            bound => return bound,
        };
        let given_away = Range::of_kernel();
        for port in (0..MAX_PORTS_TRIED).map(|_| self.id()) {
            let is_reserve = port >= FIRST_OPEN_PORT && !given_away.contains(port);
            if is_reserve && let Ok(socket) = UdpSocket::bind((any, port)).await {
                return Ok(socket);
            }
        }
        Err(taken)
    }

    async fn over_tcp(&self, query: &Query, server: SocketAddr) -> io::Result<Answer> {
        let mut tcp = TcpStream::connect(server).await?;
        let id = self.id();
        write_message(&mut tcp, &query.key.question(id)).await?;
        let message = read_message(&mut tcp, MAX_ANSWER_BYTES).await?;
        let message = message.ok_or(io::ErrorKind::UnexpectedEof)?;
        answer_to(query, id, &message).map_err(io::Error::other)
    }

    /// Returns an unpredictable number: SipHash with a key of this process.
    fn id(&self) -> u16 {
        self.hash.hash_one(self.asked.fetch_add(1, Relaxed)) as u16
    }
}

/// Sends `question` three times in total. Returns only if sending fails.
async fn ask_again(socket: &UdpSocket, question: &[u8]) -> io::Result<Infallible> {
    socket.send(question).await?;
    for wait in [TRY, 2 * TRY] {
        sleep(wait).await;
        socket.send(question).await?;
    }
    pending().await
}

async fn answer_by(socket: &UdpSocket, query: &Query, id: u16) -> io::Result<Option<Answer>> {
    loop {
        socket.readable().await?;
        // The buffer is on the stack, so it takes no memory while waiting.
        let mut buffer = [0; MAX_BYTES];
        let length = match socket.try_recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        match answer_to(query, id, &buffer[..length]) {
            Ok(answer) => return Ok(Some(answer)),
            Err(AnswerError::Truncated) => return Ok(None),
            // An answer to another query, or a spoofed one: the right answer may still arrive.
            Err(AnswerError::Malformed(_) | AnswerError::Mismatch) => {}
        }
    }
}

fn answer_to(query: &Query, id: u16, message: &[u8]) -> Result<Answer, AnswerError> {
    match message.first_chunk() {
        Some(first) if u16::from_be_bytes(*first) == id => Answer::parse(&query.key, message),
        _ => Err(AnswerError::Mismatch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_on_this_machine_and_named_ones_are_trusted() {
        let trusted = vec!["10.0.0.53".parse().unwrap()];
        let upstream = Upstream::new(Vec::new(), trusted);
        let is_trusted = |server: &str| upstream.is_trusted(server.parse().unwrap());
        for server in ["127.0.0.1:53", "[::1]:5353", "10.0.0.53:53", "[::ffff:10.0.0.53]:53"] {
            assert!(is_trusted(server), "{server}");
        }
        assert!(!is_trusted("9.9.9.9:53") && !is_trusted("10.0.0.54:53"));
    }
}
