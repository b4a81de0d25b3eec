//! The name servers that the ground asks.
//!
//! Each question goes out from a socket of its own, which the kernel binds to a random port and
//! connects to the server, with a random id; what comes back counts only if it answers that question.
//! If passengers or other programs have taken all ports that the kernel gives away, the socket is bound to a
//! random port that the kernel does not give away, and if there is none of those the question goes by TCP.
//! Names are not spelled in random case (0x20): between port and id a guess has one chance in 2^31,
//! and some servers answer in a case of their own.

use std::convert::Infallible;
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bentpipe_dns::{Answer, Kind, NotAnAnswer, Query};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep, sleep_until};

use crate::dns::{read_message, write_message};
use crate::ground::ports::Range;

/// A whole question, over TCP too. Names whose servers are slow take a recursive resolver so long.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// A server that says nothing is asked again after this, and after twice as long once more.
const TRY: Duration = Duration::from_millis(1200);

/// A server that has said nothing for this long is not asked alone any more.
const PATIENCE: Duration = Duration::from_millis(2400);

/// Servers asked about one name, as many as resolv.conf may have: a socket each.
pub const MOST_SERVERS: usize = 3;

/// Random ports that are tried when the kernel has none to give: half of all ports are not its to give, so
/// that this fails once in a million times if they are free.
const MAX_PORTS_TRIED: usize = 32;

/// Ports below need a privilege.
const FIRST_OPEN_PORT: u16 = 1024;

/// More than a server sends that is asked for at most 1232 bytes.
const MOST_BYTES: usize = 4096;

/// The servers.
pub struct Upstream {
    servers: Vec<SocketAddr>,
    /// Those whose flag AD is passed on, beside those on this machine.
    trusted: Vec<IpAddr>,
    /// Source of the ids.
    hash: RandomState,
    asked: AtomicU64,
}

impl Upstream {
    /// The first [`MOST_SERVERS`] of `servers`, by turns. What those that are not `trusted` call authentic is
    /// not called so here: it comes over UDP, which anybody on the path may change (RFC 6840 section 5.8).
    pub fn new(mut servers: Vec<SocketAddr>, trusted: Vec<IpAddr>) -> Self {
        servers.truncate(MOST_SERVERS);
        Self { servers, trusted, hash: RandomState::new(), asked: AtomicU64::new(0) }
    }

    fn is_trusted(&self, server: SocketAddr) -> bool {
        let ip = server.ip().to_canonical();
        ip.is_loopback() || self.trusted.iter().any(|trusted| trusted.to_canonical() == ip)
    }

    /// Answer of the servers to `query`: the first that is not a failure, or else the last failure.
    /// A server that fails or is slow is joined by the next, and may still be the one that answers.
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
                    Err(error) => tracing::debug!(%server, %error, key = ?query.key, "no answer"),
                },
                () = sleep_until(patience), if servers.len() > 0 => {}
                () = sleep_until(deadline) => return failure,
            }
        }
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

    /// The answer, or none where it does not fit.
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

    /// A socket at a port that nobody can guess; [`io::ErrorKind::AddrInUse`] if there is none.
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
        let message = read_message(&mut tcp).await?;
        let message = message.ok_or(io::ErrorKind::UnexpectedEof)?;
        answer_to(query, id, &message).map_err(io::Error::other)
    }

    /// A number that nobody can guess: SipHash under a key of this process.
    fn id(&self) -> u16 {
        self.hash.hash_one(self.asked.fetch_add(1, Relaxed)) as u16
    }
}

/// Sends `question`, three times in all; ends only where that fails.
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
        // On the stack, and not kept while nothing comes.
        let mut buffer = [0; MOST_BYTES];
        let length = match socket.try_recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        match answer_to(query, id, &buffer[..length]) {
            Ok(answer) => return Ok(Some(answer)),
            Err(NotAnAnswer::Truncated) => return Ok(None),
            // Of another question, or somebody's guess: the true one may still come.
            Err(NotAnAnswer::Malformed(_) | NotAnAnswer::Mismatch) => {}
        }
    }
}

fn answer_to(query: &Query, id: u16, message: &[u8]) -> Result<Answer, NotAnAnswer> {
    match message.first_chunk() {
        Some(first) if u16::from_be_bytes(*first) == id => Answer::parse(&query.key, message),
        _ => Err(NotAnAnswer::Mismatch),
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
