//! The resolver service: DNS messages of aircraft are answered from the table of hosts or by the name
//! servers, and go back as they came. Nothing is kept here; the aircraft keeps it.

mod places;
mod upstream;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dns::{Key, Query, Refusal, Room, rcode};
use bentpipe_link::ResetCode;
use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::resolve::Dns;
use crate::counters::Counters;
use crate::dns::{read_message, write_message};
use crate::far::datagram::Datagram;
use crate::far::{FarDatagrams, FarStream};
use places::{Place, Places};
use upstream::Upstream;

/// The TTL of what stands in the table of hosts: a reload shows soon.
const TABLE_TTL_S: u32 = 60;

/// Extended errors (RFC 8914): "Other", there is no room; "No Reachable Authority".
const OTHER_ERROR: u16 = 0;
const UNREACHABLE: u16 = 22;

/// The service.
pub struct Names {
    dns: Arc<Dns>,
    upstream: Upstream,
    places: Places,
    counters: Arc<Counters>,
}

/// What becomes of a message.
enum Taken<'a> {
    /// This is the answer.
    Answered(Vec<u8>),
    /// The name servers have to be asked.
    Open(Query, Place<'a>),
    /// It is no query.
    Nothing,
}

impl Names {
    /// Asks `servers` for what is not in the table of `dns`.
    pub fn new(dns: Arc<Dns>, servers: Vec<SocketAddr>, counters: Arc<Counters>) -> Self {
        Self { dns, upstream: Upstream::new(servers), places: Places::default(), counters }
    }

    /// Answers the messages of a flow of `aircraft` until it ends or nothing has come for `idle`. What
    /// comes again while its answer is being found out is answered once.
    pub async fn serve_datagrams(
        &self,
        aircraft: &[u8; 32],
        flow: Box<dyn FarDatagrams>,
        idle: Duration,
    ) -> ResetCode {
        flow.connected();
        let mut asked = FuturesUnordered::new();
        let mut open: HashSet<(u16, Key)> = HashSet::new();
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
                    let Ok(Datagram::Payload(message)) = Datagram::parse(&datagram) else {
                        self.counters.datagrams_unknown.add(1);
                        continue;
                    };
                    let is_open = |query: &Query| open.contains(&(query.id, query.key.clone()));
                    match self.take(aircraft, message, is_open) {
                        Taken::Nothing => {}
                        Taken::Answered(answer) => send(&*flow, &answer),
                        Taken::Open(query, place) => {
                            open.insert((query.id, query.key.clone()));
                            let room = room(&*flow);
                            asked.push(async move {
                                let answer = self.forward(&query, place, room).await;
                                ((query.id, query.key), answer)
                            });
                        }
                    }
                }
                Some((question, answer)) = asked.next() => {
                    open.remove(&question);
                    send(&*flow, &answer);
                }
            }
        }
    }

    /// Answers the messages of a stream of `aircraft`, one after another.
    pub async fn serve_stream(
        &self,
        aircraft: &[u8; 32],
        mut stream: Box<dyn FarStream>,
        idle: Duration,
    ) {
        stream.connected();
        let serving = async {
            while let Some(message) = read_within(idle, &mut stream).await? {
                let answer = match self.take(aircraft, &message, |_| false) {
                    Taken::Nothing => break,
                    Taken::Answered(answer) => answer,
                    Taken::Open(query, place) => self.forward(&query, place, Room::Stream).await,
                };
                write_message(&mut stream, &answer).await?;
            }
            stream.shutdown().await
        };
        if let Err(error) = serving.await {
            let idle = error.kind() == io::ErrorKind::TimedOut;
            stream.reset(if idle { ResetCode::Idle } else { ResetCode::Aborted });
        }
    }

    /// What becomes of `message`, unless it `is_open` already.
    fn take(
        &self,
        aircraft: &[u8; 32],
        message: &[u8],
        is_open: impl Fn(&Query) -> bool,
    ) -> Taken<'_> {
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(Refusal::Reply(reply)) => return Taken::Answered(reply),
            Err(Refusal::Silence) => {
                self.counters.datagrams_unknown.add(1);
                return Taken::Nothing;
            }
        };
        if is_open(&query) {
            return Taken::Nothing;
        }
        self.counters.names_asked.add(1);
        if let Some(known) = query.key.host_name().and_then(|name| self.dns.known(&name)) {
            return Taken::Answered(query.addresses(&known, TABLE_TTL_S));
        }
        match self.places.take(aircraft) {
            Some(place) => Taken::Open(query, place),
            None => {
                self.counters.names_failed.add(1);
                Taken::Answered(query.reply(rcode::SERVFAIL, Some(OTHER_ERROR)))
            }
        }
    }

    /// What the name servers say.
    async fn forward(&self, query: &Query, _place: Place<'_>, room: Room) -> Vec<u8> {
        match self.upstream.ask(query).await {
            Some(answer) => answer.relay(query, room),
            None => {
                self.counters.names_failed.add(1);
                query.reply(rcode::SERVFAIL, Some(UNREACHABLE))
            }
        }
    }
}

/// What an answer by `flow` may take now.
fn room(flow: &dyn FarDatagrams) -> Room {
    let most = flow.most_bytes().saturating_sub(1);
    Room::Packet(u16::try_from(most).unwrap_or(u16::MAX))
}

/// One that does not go is asked for again.
fn send(flow: &dyn FarDatagrams, answer: &[u8]) {
    let mut datagram = BytesMut::new();
    Datagram::Payload(answer).encode(&mut datagram);
    let _ = flow.send(&datagram);
}

async fn read_within(
    idle: Duration,
    stream: &mut Box<dyn FarStream>,
) -> io::Result<Option<Vec<u8>>> {
    timeout(idle, read_message(stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
}
