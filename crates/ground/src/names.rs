//! Resolver service: answers DNS messages of aircraft from the table of hosts or by the name
//! servers, without caching. The aircraft cache the answers.

mod dialled;
mod lookups;
mod private;
mod pushes;
mod quota;
mod rates;
mod upstream;

use std::collections::HashSet;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dns::push::{read_start, start};
use bentpipe_dns::{Key, Kind, Query, Refusal, ResponseCode, Room};
use bentpipe_flow::ResetCode;
use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::resolve::{KnownNames, servers};
use crate::error::StartError;
use bentpipe_dns::io::{MAX_QUERY_BYTES, read_message, write_message};
use bentpipe_metering::counters::Counters;
use bentpipe_metering::refusals::{Holding, Limit};
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::{FlowDatagrams, FlowStream};
use ipnet::IpNet;
use private::PrivateFilter;
use pushes::Pushes;
pub use quota::{DESCRIPTORS_OF_QUERY, MAX_ASKED};
use quota::{QueryQuota, QuerySlot};
use rates::{QUESTIONS_PER_SECOND, QueryRates};
use upstream::Upstream;

/// TTL of entries in the table of hosts: short, so that a reload takes effect soon.
const TABLE_TTL_S: u32 = 60;

/// Extended errors (RFC 8914): "Other", for a lack of room, and "No Reachable Authority".
const OTHER_ERROR: u16 = 0;
const UNREACHABLE: u16 = 22;

/// Extended error "Blocked" (RFC 8914), for the operator's policy.
const BLOCKED: u16 = 15;

/// Resolver service.
pub struct Names {
    known: Arc<KnownNames>,
    /// Results of lookups for dials.
    dialled: dialled::Cache,
    upstream: Upstream,
    quota: QueryQuota,
    rates: QueryRates,
    private: PrivateFilter,
    /// Pushes of frequent answers to aircraft, if configured.
    pushes: Option<Pushes>,
    counters: Arc<Counters>,
}

/// Result of handling a message.
enum Taken<'a> {
    /// The answer is known.
    Answered(Vec<u8>),
    /// The name servers must be queried.
    Open(Query, QuerySlot<'a>),
    /// The message is not a query, or is a duplicate.
    Nothing,
}

impl Names {
    /// Creates a service that queries the servers of `config` for names that are not in the table
    /// of `known`. Answers may contain private addresses that `allow` permits to dial.
    pub fn new(
        known: Arc<KnownNames>,
        config: &bentpipe_config::Dns,
        allow: &[IpNet],
        counters: Arc<Counters>,
    ) -> Result<Self, StartError> {
        let upstream = Upstream::new(servers(config)?, config.trusted.clone());
        let private = PrivateFilter::new(config, allow);
        let pushes = config.push_rate.map(Pushes::new);
        let (dialled, quota, rates) = Default::default();
        Ok(Self { known, dialled, upstream, quota, rates, private, pushes, counters })
    }

    /// Limits the pending queries to `most`.
    pub fn with_most(self, most: usize) -> Self {
        Self { quota: QueryQuota::of(most), ..self }
    }

    /// Answers the messages of a flow of `aircraft` until it ends or has been idle for `idle`. A
    /// repetition of a pending query is ignored.
    pub async fn serve_datagrams(
        &self,
        aircraft: &[u8; 32],
        flow: Box<dyn FlowDatagrams>,
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
                // Completed work comes first: an evicted query must release its sockets before the
                // next query starts.
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

    /// Answers the messages of a stream of `aircraft` one after another.
    pub async fn serve_stream(
        &self,
        aircraft: &[u8; 32],
        mut stream: Box<dyn FlowStream>,
        idle: Duration,
    ) {
        stream.connected();
        let serving = async {
            while let Some(message) = read_within(idle, &mut stream).await? {
                let answer = match self.take(aircraft, &message, |_| false) {
                    Taken::Nothing => break,
                    Taken::Answered(answer) => answer,
                    Taken::Open(query, slot) => self.forward(&query, slot, Room::Stream).await,
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

    /// Handles `message`, unless it repeats a query that `is_open`.
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
        if let Some(known) = query.key.host_name().and_then(|name| self.known.in_table(&name)) {
            return Taken::Answered(query.addresses(&known, TABLE_TTL_S));
        }
        if !self.rates.take(aircraft) {
            return self.refuse(&query, || self.too_many(aircraft));
        }
        if let Some(pushes) = &self.pushes {
            pushes.asked(aircraft, &query.key);
        }
        match self.quota.take(aircraft) {
            Some(slot) => Taken::Open(query, slot),
            None => self.refuse(&query, || self.quota.holding(aircraft)),
        }
    }

    /// Queries of an aircraft beyond its rate, for the log.
    fn too_many(&self, aircraft: &[u8; 32]) -> Holding {
        let pending = self.quota.holding(aircraft);
        let newcomer = format!("{} (too many questions per second)", pending.newcomer);
        Holding { newcomer, most: QUESTIONS_PER_SECOND as usize, ..pending }
    }

    /// Answers `query` of an aircraft that is at a limit.
    fn refuse(&self, query: &Query, who: impl FnOnce() -> Holding) -> Taken<'_> {
        self.counters.names_failed.add(1);
        self.counters.refusals.refused(Limit::DnsQuestions, who);
        Taken::Answered(query.reply(ResponseCode::ServFail, Some(OTHER_ERROR)))
    }

    /// Returns an answer to `key` to push, if it is useful and fits into a datagram.
    async fn look_up(&self, key: &Key, mut slot: QuerySlot<'_>, room: Room) -> Option<Vec<u8>> {
        let query = Query::parse(&key.question(0)).ok()?;
        let answer = tokio::select! {
            answer = self.upstream.ask(&query) => answer?,
            () = slot.taken() => return None,
        };
        let is_useful = answer.kind != Kind::Failure
            && answer.lifetime_s > 0
            && !self.private.withholds(key, &answer);
        (is_useful && answer.fits(&query, room)).then(|| answer.relay(&query, room))
    }

    /// Returns the answer of the name servers, or a failure if a newer query takes the slot.
    async fn forward(&self, query: &Query, mut slot: QuerySlot<'_>, room: Room) -> Vec<u8> {
        let error = tokio::select! {
            answer = self.upstream.ask(query) => match answer {
                Some(answer) if self.private.withholds(&query.key, &answer) => {
                    self.counters.names_private.add(1);
                    return query.reply(ResponseCode::NoError, Some(BLOCKED));
                }
                // This resolver uses the extended error "Other" only for its own lack of room.
                Some(answer) => return answer.without_other_error().relay(query, room),
                None => UNREACHABLE,
            },
            () = slot.taken() => {
                let who = || self.quota.holding(slot.aircraft());
                self.counters.refusals.evicted(Limit::DnsQuestions, who);
                OTHER_ERROR
            }
        };
        self.counters.names_failed.add(1);
        query.reply(ResponseCode::ServFail, Some(error))
    }
}

/// A query, with the ID that the aircraft chose.
type Question = (u16, Key);

/// Pending work of one datagram flow.
struct Work<'a> {
    names: &'a Names,
    aircraft: &'a [u8; 32],
    flow: &'a dyn FlowDatagrams,
    /// Pending queries; [`QueryQuota`] limits their number per aircraft.
    open: HashSet<Question>,
    asked: FuturesUnordered<BoxFuture<'a, (Question, Vec<u8>)>>,
    /// Lookups of answers to push.
    looked_up: FuturesUnordered<BoxFuture<'a, Option<Vec<u8>>>>,
}

impl<'a> Work<'a> {
    fn new(names: &'a Names, aircraft: &'a [u8; 32], flow: &'a dyn FlowDatagrams) -> Self {
        let (open, asked, looked_up) = Default::default();
        Self { names, aircraft, flow, open, asked, looked_up }
    }

    /// Handles `datagram` from the aircraft.
    fn take(&mut self, datagram: &[u8]) {
        let Ok(Datagram::Payload(message)) = Datagram::parse(datagram) else {
            self.names.counters.datagrams_unknown.add(1);
            return;
        };
        if let Some(bytes) = read_start(message) {
            if let Some(pushes) = &self.names.pushes {
                pushes.begins(self.aircraft, bytes);
            }
            return self.send(&start(bytes, true));
        }
        let is_open = |query: &Query| self.open.contains(&(query.metadata.id, query.key.clone()));
        match self.names.take(self.aircraft, message, is_open) {
            Taken::Nothing => {}
            Taken::Answered(answer) => self.send(&answer),
            Taken::Open(query, slot) => {
                self.open.insert((query.metadata.id, query.key.clone()));
                let (names, room) = (self.names, self.room());
                self.asked.push(Box::pin(async move {
                    let answer = names.forward(&query, slot, room).await;
                    ((query.metadata.id, query.key), answer)
                }));
            }
        }
    }

    fn answer(&mut self, question: &Question, answer: &[u8]) {
        self.open.remove(question);
        self.send(answer);
    }

    /// Time of the next push.
    fn push_at(&self) -> Option<Instant> {
        let has_room = self.looked_up.len() < pushes::MAX_AT_ONCE;
        self.names.pushes.as_ref().filter(|_| has_room)?.next_at(self.aircraft)
    }

    fn look_up_next(&mut self) {
        let key = self.names.pushes.as_ref().and_then(|pushes| pushes.next(self.aircraft));
        // Queries of passengers have priority: without a free slot, this name is skipped.
        let slot = self.names.quota.take_free(self.aircraft);
        if let (Some(key), Some(slot)) = (key, slot) {
            let (names, room) = (self.names, self.room());
            self.looked_up.push(Box::pin(async move { names.look_up(&key, slot, room).await }));
        }
    }

    fn push(&mut self, answer: Option<Vec<u8>>) {
        let names = self.names;
        let (Some(pushes), Some(answer)) = (&names.pushes, answer) else { return };
        if let Some(answer) = pushes.ready(self.aircraft, answer, &names.counters) {
            self.send(&answer);
        }
    }

    /// Maximum size of an answer at present.
    fn room(&self) -> Room {
        let most = self.flow.max_bytes().saturating_sub(1);
        Room::Packet(u16::try_from(most).unwrap_or(u16::MAX))
    }

    /// Sends a message. Failures are ignored, because the aircraft repeats its query.
    fn send(&self, message: &[u8]) {
        let mut datagram = BytesMut::new();
        Datagram::Payload(message).encode(&mut datagram);
        let _ = self.flow.send(&datagram);
    }
}

async fn read_within(
    idle: Duration,
    stream: &mut Box<dyn FlowStream>,
) -> io::Result<Option<Vec<u8>>> {
    timeout(idle, read_message(stream, MAX_QUERY_BYTES))
        .await
        .map_err(|_| io::ErrorKind::TimedOut)?
}

#[cfg(test)]
mod tests;
