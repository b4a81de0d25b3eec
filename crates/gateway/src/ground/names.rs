//! The resolver service: DNS messages of aircraft are answered from the table of hosts or by the name
//! servers, and go back as they came. Nothing is kept here; the aircraft keeps it.

mod places;
mod private;
mod pushes;
mod upstream;

use std::collections::HashSet;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dns::push::{beginning, read_beginning};
use bentpipe_dns::{Key, Kind, Query, Refusal, ResponseCode, Room};
use bentpipe_link::ResetCode;
use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::resolve::{Dns, servers};
use crate::config;
use crate::counters::Counters;
use crate::dns::{read_message, write_message};
use crate::far::datagram::Datagram;
use crate::far::{FarDatagrams, FarStream};
use crate::net::StartError;
use crate::refusals::Limit;
use ipnet::IpNet;
use places::{Place, Places};
use private::PrivateFilter;
use pushes::Pushes;
use upstream::Upstream;

/// The TTL of what stands in the table of hosts: a reload shows soon.
const TABLE_TTL_S: u32 = 60;

/// Extended errors (RFC 8914): "Other", there is no room; "No Reachable Authority".
const OTHER_ERROR: u16 = 0;
const UNREACHABLE: u16 = 22;

/// Extended error "Blocked" (RFC 8914): the operator's policy.
const BLOCKED: u16 = 15;

/// The service.
pub struct Names {
    dns: Arc<Dns>,
    upstream: Upstream,
    places: Places,
    private: PrivateFilter,
    /// Unasked pushes to aircraft, if there are any.
    pushes: Option<Pushes>,
    counters: Arc<Counters>,
}

/// Handling of a message.
enum Taken<'a> {
    /// This is the answer.
    Answered(Vec<u8>),
    /// The name servers have to be asked.
    Open(Query, Place<'a>),
    /// It is no query.
    Nothing,
}

impl Names {
    /// Asks the servers of `config` for what is not in the table of `dns`. Names may lead to what the ground
    /// may dial by `allow`.
    pub fn new(
        dns: Arc<Dns>,
        config: &config::Dns,
        allow: &[IpNet],
        counters: Arc<Counters>,
    ) -> Result<Self, StartError> {
        let upstream = Upstream::new(servers(config)?, config.trusted.clone());
        let private = PrivateFilter::new(config, allow);
        let pushes = config.push_rate.map(Pushes::new);
        Ok(Self { dns, upstream, places: Places::default(), private, pushes, counters })
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
        let mut work = Work::new(self, aircraft, &*flow);
        loop {
            let push_at = work.push_at();
            let due = async {
                match push_at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // What is over first: a question that has ended for another's lets its sockets go before
                // the next is taken.
                biased;
                Some((question, answer)) = work.asked.next() => work.answer(&question, &answer),
                Some(answer) = work.looked_up.next() => work.push(answer),
                received = timeout(idle, flow.receive()) => match received {
                    Ok(Ok(datagram)) => work.take(&datagram),
                    Ok(Err(code)) => return code,
                    Err(_) => {
                        flow.reset(ResetCode::Idle);
                        return ResetCode::Idle;
                    }
                },
                () = due => work.look_up_next(),
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

    /// Handles `message`, unless it `is_open` already.
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
        if let Some(pushes) = &self.pushes {
            pushes.asked(aircraft, &query.key);
        }
        match self.places.take(aircraft) {
            Some(place) => Taken::Open(query, place),
            None => {
                self.counters.names_failed.add(1);
                let who = || self.places.holding(aircraft);
                self.counters.refusals.refused(Limit::DnsQuestions, who);
                Taken::Answered(query.reply(ResponseCode::ServFail, Some(OTHER_ERROR)))
            }
        }
    }

    /// An answer to `key` that is worth to be sent unasked and fits into a datagram.
    async fn look_up(&self, key: &Key, mut place: Place<'_>, room: Room) -> Option<Vec<u8>> {
        let query = Query::parse(&key.question(0)).ok()?;
        let answer = tokio::select! {
            answer = self.upstream.ask(&query) => answer?,
            () = place.taken() => return None,
        };
        let is_useful = answer.kind != Kind::Failure
            && answer.lifetime_s > 0
            && !self.private.withholds(key, &answer);
        (is_useful && answer.fits(&query, room)).then(|| answer.relay(&query, room))
    }

    /// Answer of the name servers, or a refusal because a newer question has the place.
    async fn forward(&self, query: &Query, mut place: Place<'_>, room: Room) -> Vec<u8> {
        let error = tokio::select! {
            answer = self.upstream.ask(query) => match answer {
                Some(answer) if self.private.withholds(&query.key, &answer) => {
                    self.counters.names_private.add(1);
                    return query.reply(ResponseCode::NoError, Some(BLOCKED));
                }
                // That error is this resolver's own word for a want of room.
                Some(answer) => return answer.without_other_error().relay(query, room),
                None => UNREACHABLE,
            },
            () = place.taken() => {
                let who = || self.places.holding(place.aircraft());
                self.counters.refusals.evicted(Limit::DnsQuestions, who);
                OTHER_ERROR
            }
        };
        self.counters.names_failed.add(1);
        query.reply(ResponseCode::ServFail, Some(error))
    }
}

/// A question by its id, which the aircraft has chosen.
type Question = (u16, Key);

/// Work for one flow of datagrams.
struct Work<'a> {
    names: &'a Names,
    aircraft: &'a [u8; 32],
    flow: &'a dyn FarDatagrams,
    /// Questions under way; those of one aircraft have places.
    open: HashSet<Question>,
    asked: FuturesUnordered<BoxFuture<'a, (Question, Vec<u8>)>>,
    /// Answers to be sent unasked.
    looked_up: FuturesUnordered<BoxFuture<'a, Option<Vec<u8>>>>,
}

impl<'a> Work<'a> {
    fn new(names: &'a Names, aircraft: &'a [u8; 32], flow: &'a dyn FarDatagrams) -> Self {
        let (open, asked, looked_up) = Default::default();
        Self { names, aircraft, flow, open, asked, looked_up }
    }

    /// The aircraft has sent `datagram`.
    fn take(&mut self, datagram: &[u8]) {
        let Ok(Datagram::Payload(message)) = Datagram::parse(datagram) else {
            self.names.counters.datagrams_unknown.add(1);
            return;
        };
        if let Some(bytes) = read_beginning(message) {
            if let Some(pushes) = &self.names.pushes {
                pushes.begins(self.aircraft, bytes);
            }
            return self.send(&beginning(bytes, true));
        }
        let is_open = |query: &Query| self.open.contains(&(query.metadata.id, query.key.clone()));
        match self.names.take(self.aircraft, message, is_open) {
            Taken::Nothing => {}
            Taken::Answered(answer) => self.send(&answer),
            Taken::Open(query, place) => {
                self.open.insert((query.metadata.id, query.key.clone()));
                let (names, room) = (self.names, self.room());
                self.asked.push(Box::pin(async move {
                    let answer = names.forward(&query, place, room).await;
                    ((query.metadata.id, query.key), answer)
                }));
            }
        }
    }

    fn answer(&mut self, question: &Question, answer: &[u8]) {
        self.open.remove(question);
        self.send(answer);
    }

    /// Time of the next unasked answer.
    fn push_at(&self) -> Option<Instant> {
        let has_room = self.looked_up.len() < pushes::MOST_AT_ONCE;
        self.names.pushes.as_ref().filter(|_| has_room)?.next_at(self.aircraft)
    }

    fn look_up_next(&mut self) {
        let key = self.names.pushes.as_ref().and_then(|pushes| pushes.next(self.aircraft));
        // What passengers ask for goes first: without a place this name is left out.
        let place = self.names.places.take_free(self.aircraft);
        if let (Some(key), Some(place)) = (key, place) {
            let (names, room) = (self.names, self.room());
            self.looked_up.push(Box::pin(async move { names.look_up(&key, place, room).await }));
        }
    }

    fn push(&mut self, answer: Option<Vec<u8>>) {
        let names = self.names;
        let (Some(pushes), Some(answer)) = (&names.pushes, answer) else { return };
        if let Some(answer) = pushes.ready(self.aircraft, answer, &names.counters) {
            self.send(&answer);
        }
    }

    /// Maximum size of an answer now.
    fn room(&self) -> Room {
        let most = self.flow.most_bytes().saturating_sub(1);
        Room::Packet(u16::try_from(most).unwrap_or(u16::MAX))
    }

    /// One that does not go is asked for again.
    fn send(&self, message: &[u8]) {
        let mut datagram = BytesMut::new();
        Datagram::Payload(message).encode(&mut datagram);
        let _ = self.flow.send(&datagram);
    }
}

async fn read_within(
    idle: Duration,
    stream: &mut Box<dyn FarStream>,
) -> io::Result<Option<Vec<u8>>> {
    timeout(idle, read_message(stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

#[cfg(test)]
mod tests;
