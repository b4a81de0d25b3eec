//! The resolver service: DNS messages of aircraft are answered from the table of hosts or by the name
//! servers, and go back as they came. Nothing is kept here; the aircraft keeps it.
//!
//! Each question goes out from a socket of its own, which the kernel binds to a random port and
//! connects to the server, with a random id; what comes back counts only if it answers that question.
//! Names are not spelled in random case (0x20): between port and id a guess has one chance in 2^31,
//! and some servers answer in a case of their own.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bentpipe_dns::{Answer, NotAnAnswer, Query, Refusal, Room, rcode};
use bentpipe_link::ResetCode;
use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::resolve::Dns;
use crate::counters::Counters;
use crate::dns::{read_message, write_message};
use crate::far::datagram::Datagram;
use crate::far::{FarDatagrams, FarStream};

/// Questions under way at once over all aircraft: a socket and some 4 KiB each, 4 MiB in all.
const MOST_ASKED: usize = 1024;

/// Of which one flow may have this many; what comes beyond is dropped, and asked again later.
const MOST_OF_A_FLOW: usize = 256;

/// How long a name server may take to answer one packet; each is asked twice before the next is.
const TRY: Duration = Duration::from_millis(1200);

/// A whole question, over TCP too.
const DEADLINE: Duration = Duration::from_secs(8);

/// The TTL of what stands in the table of hosts: a reload shows soon.
const TABLE_TTL_S: u32 = 60;

/// The service.
pub struct Names {
    dns: Arc<Dns>,
    servers: Vec<SocketAddr>,
    room: Semaphore,
    counters: Arc<Counters>,
    /// What ids are made of.
    hash: RandomState,
    asked: AtomicU64,
}

impl Names {
    /// Asks `servers` for what is not in the table of `dns`.
    pub fn new(dns: Arc<Dns>, servers: Vec<SocketAddr>, counters: Arc<Counters>) -> Self {
        let (room, hash) = (Semaphore::new(MOST_ASKED), RandomState::new());
        Self { dns, servers, room, counters, hash, asked: AtomicU64::new(0) }
    }

    /// Answers the messages of a flow until it ends or nothing has come for `idle`.
    pub async fn serve_datagrams(&self, flow: Box<dyn FarDatagrams>, idle: Duration) -> ResetCode {
        flow.connected();
        let mut asked = FuturesUnordered::new();
        loop {
            tokio::select! {
                received = timeout(idle, flow.receive()) => {
                    let datagram = match received {
                        Ok(Ok(datagram)) => datagram,
                        Ok(Err(code)) => return code,
                        Err(_) => {
                            flow.reset(ResetCode::Idle);
                            return ResetCode::Idle;
                        }
                    };
                    let most = flow.most_bytes().saturating_sub(1);
                    let room = Room::Packet(u16::try_from(most).unwrap_or(u16::MAX));
                    match Datagram::parse(&datagram) {
                        Ok(Datagram::Payload(message)) if asked.len() < MOST_OF_A_FLOW => {
                            let message = message.to_vec();
                            asked.push(async move { self.answer(&message, room).await });
                        }
                        _ => self.counters.datagrams_unknown.add(1),
                    }
                }
                Some(answer) = asked.next() => {
                    let Some(answer) = answer else { continue };
                    let mut datagram = BytesMut::new();
                    Datagram::Payload(&answer).encode(&mut datagram);
                    // One that does not go is asked for again.
                    let _ = flow.send(&datagram);
                }
            }
        }
    }

    /// Answers the messages of a stream, one after another.
    pub async fn serve_stream(&self, mut stream: Box<dyn FarStream>, idle: Duration) {
        stream.connected();
        let serving = async {
            while let Some(message) = read_within(idle, &mut stream).await? {
                let Some(answer) = self.answer(&message, Room::Stream).await else { break };
                write_message(&mut stream, &answer).await?;
            }
            stream.shutdown().await
        };
        if let Err(error) = serving.await {
            let idle = error.kind() == io::ErrorKind::TimedOut;
            stream.reset(if idle { ResetCode::Idle } else { ResetCode::Aborted });
        }
    }

    /// The answer to `message`; nothing where it is no query.
    async fn answer(&self, message: &[u8], room: Room) -> Option<Vec<u8>> {
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(Refusal::Reply(reply)) => return Some(reply),
            Err(Refusal::Silence) => return None,
        };
        self.counters.names_asked.add(1);
        if let Some(known) = query.key.host_name().and_then(|name| self.dns.known(&name)) {
            return Some(query.addresses(&known, TABLE_TTL_S));
        }
        let asked = match self.room.try_acquire() {
            Ok(_permit) => timeout(DEADLINE, self.ask(&query)).await.ok().flatten(),
            Err(_) => None,
        };
        Some(match asked {
            Some(answer) => answer.relay(&query, room),
            None => {
                self.counters.names_failed.add(1);
                // "No Reachable Authority" (RFC 8914).
                query.reply(rcode::SERVFAIL, Some(22))
            }
        })
    }

    /// What the name servers say; of several the first that does not fail, or the last failure.
    async fn ask(&self, query: &Query) -> Option<Answer> {
        let mut failure = None;
        for server in &self.servers {
            match self.ask_one(query, *server).await {
                Ok(answer) if answer.rcode() != rcode::SERVFAIL => return Some(answer),
                Ok(answer) => failure = Some(answer),
                Err(error) => tracing::debug!(%server, %error, key = ?query.key, "no answer"),
            }
        }
        failure
    }

    async fn ask_one(&self, query: &Query, server: SocketAddr) -> io::Result<Answer> {
        for _ in 0..2 {
            match timeout(TRY, self.over_udp(query, server)).await {
                Ok(Ok(Some(answer))) => return Ok(answer),
                Ok(Ok(None)) => return self.over_tcp(query, server).await,
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The answer, or none where it does not fit.
    async fn over_udp(&self, query: &Query, server: SocketAddr) -> io::Result<Option<Answer>> {
        let any = if server.is_ipv4() {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
        } else {
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(server).await?;
        let id = self.id();
        socket.send(&query.key.question(id)).await?;
        let mut buffer = [0; 4096];
        loop {
            let length = socket.recv(&mut buffer).await?;
            match answer_to(query, id, &buffer[..length]) {
                Ok(answer) => return Ok(Some(answer)),
                Err(NotAnAnswer::Truncated) => return Ok(None),
                // Of another question, or somebody's guess: the true one may still come.
                Err(NotAnAnswer::Malformed(_) | NotAnAnswer::Mismatch) => {}
            }
        }
    }

    async fn over_tcp(&self, query: &Query, server: SocketAddr) -> io::Result<Answer> {
        let mut tcp = TcpStream::connect(server).await?;
        let id = self.id();
        write_message(&mut tcp, &query.key.question(id)).await?;
        let message = read_message(&mut tcp).await?;
        let message = message.ok_or(io::ErrorKind::UnexpectedEof)?;
        answer_to(query, id, &message).map_err(io::Error::other)
    }

    /// One that nobody can guess: SipHash under a key of this process.
    fn id(&self) -> u16 {
        self.hash.hash_one(self.asked.fetch_add(1, Relaxed)) as u16
    }
}

fn answer_to(query: &Query, id: u16, message: &[u8]) -> Result<Answer, NotAnAnswer> {
    match message.first_chunk() {
        Some(first) if u16::from_be_bytes(*first) == id => Answer::parse(&query.key, message),
        _ => Err(NotAnAnswer::Mismatch),
    }
}

async fn read_within(
    idle: Duration,
    stream: &mut Box<dyn FarStream>,
) -> io::Result<Option<Vec<u8>>> {
    timeout(idle, read_message(stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
}
