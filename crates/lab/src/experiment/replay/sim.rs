//! A load in virtual time: the radio transport and the graph of the site, exact and repeatable.
//!
//! Every object uses a new flow, with at most six concurrent flows to each domain. This corresponds
//! to a browser that uses HTTP/1.1 through the gateways, with a connection for each object. The
//! server answers a request as soon as the ground gateway delivers it. The path between those two
//! is added as two round trips, one for the connection and one for the request. Names need no
//! resolution, and computation takes no time.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_link::{Class, Settings};
use time::OffsetDateTime;

use super::{Choice, Loaded};
use crate::loader::{Entry, Load, Protocol, Visit};
use crate::sim::traffic::SimTraffic;
use crate::sim::transfer::NoSession;
use crate::system::roomy;
use crate::traffic::{Carry, DOWN, REQUEST_BYTES, Traffic};

/// The only protocol in which every connection is a separate flow.
pub const PROTOCOL: Protocol = Protocol::Http1Close;
/// Size of a response header, as the lab's servers send it.
const HEADER_BYTES: u64 = 200;
/// Passenger who loads the site.
const READER: u32 = 1;

/// Loads the site once through Bentpipe.
pub fn run(choice: &Choice<'_>, seed: u64) -> Result<Loaded, NoSession> {
    let asked = Load::new(choice.site, PROTOCOL, choice.deadline);
    let visit = load(&asked, choice, seed)?;
    // There is no wall clock here, and two runs must give the same file.
    Ok(Loaded::of(&visit, &asked, OffsetDateTime::UNIX_EPOCH))
}

/// A request in progress.
struct Asked {
    resource: usize,
    stream: usize,
    at: Duration,
    first: Option<Duration>,
    /// Arrival time of the last byte, including the path behind the ground gateway.
    ends: Option<Duration>,
}

pub(super) fn load(load: &Load<'_>, choice: &Choice<'_>, seed: u64) -> Result<Visit, NoSession> {
    let mut cabin = SimTraffic::new(choice.profile, &Settings::default(), &roomy(), seed)?;
    let behind = choice.profile.terrestrial.as_ref().map_or(Duration::ZERO, |path| 2 * path.rtt());
    let began = cabin.now();
    let mut replay = Replay::new(load, began);
    loop {
        replay.ask(&mut cabin);
        if replay.under_way.is_empty() || cabin.now() >= began + load.deadline {
            break;
        }
        let ends = replay.under_way.iter().filter_map(|one| one.ends);
        let next = ends.fold(began + load.deadline, Duration::min);
        cabin.step(next);
        replay.receive(&cabin, behind);
        replay.finish(cabin.now());
    }
    Ok(replay.visit(&cabin))
}

/// State of a load.
struct Replay<'a> {
    load: &'a Load<'a>,
    began: Duration,
    /// Resources of each domain that wait for a connection.
    waiting: Vec<VecDeque<usize>>,
    /// Connections in use to each domain.
    busy: Vec<usize>,
    /// Time at which each resource was found.
    found: Vec<Option<Duration>>,
    entries: Vec<Option<Entry>>,
    under_way: Vec<Asked>,
    connections: u32,
}

impl<'a> Replay<'a> {
    /// A load whose document has been found and nothing else.
    fn new(load: &'a Load<'a>, began: Duration) -> Self {
        let (domains, resources) = (load.site.domains.len(), load.site.resources.len());
        let mut replay = Self {
            load,
            began,
            waiting: vec![VecDeque::new(); domains],
            busy: vec![0; domains],
            found: vec![None; resources],
            entries: vec![None; resources],
            under_way: Vec::new(),
            connections: 0,
        };
        replay.find(0, began);
        replay
    }

    fn find(&mut self, resource: usize, now: Duration) {
        self.found[resource] = Some(now);
        self.waiting[self.load.site.resources[resource].domain].push_back(resource);
    }

    /// Requests waiting resources as long as their domains have free connections.
    fn ask(&mut self, cabin: &mut SimTraffic) {
        for (waiting, busy) in self.waiting.iter_mut().zip(&mut self.busy) {
            while *busy < self.load.connections {
                let Some(resource) = waiting.pop_front() else { break };
                let down = HEADER_BYTES + self.load.site.resources[resource].bytes;
                let (class, passenger) = (Class::BestEffort, READER);
                let carry = Carry { class, passenger, up: REQUEST_BYTES, down };
                let (stream, at) = (cabin.open(carry), cabin.now());
                self.under_way.push(Asked { resource, stream, at, first: None, ends: None });
                *busy += 1;
                self.connections += 1;
            }
        }
    }

    /// Records the first and the last byte of each request, `behind` after their arrival.
    fn receive(&mut self, cabin: &SimTraffic, behind: Duration) {
        let now = cabin.now();
        for one in &mut self.under_way {
            let course = cabin.course(one.stream);
            if one.first.is_none() && course.got[DOWN] > 0 {
                one.first = Some(now + behind);
            }
            if one.ends.is_none() && course.is_done() {
                one.ends = Some(now + behind);
            }
        }
    }

    /// Ends the requests that are complete at `now`, and finds the resources that they name.
    fn finish(&mut self, now: Duration) {
        let is_done = |one: &mut Asked| one.ends.is_some_and(|ends| ends <= now);
        let done: Vec<Asked> = self.under_way.extract_if(.., is_done).collect();
        for one in done {
            let resource = &self.load.site.resources[one.resource];
            self.busy[resource.domain] -= 1;
            let ended = self.entry(&one, one.ends.unwrap_or(now));
            let bytes = resource.bytes;
            self.entries[one.resource] = Some(Entry { status: Some(200), bytes, ..ended });
            for next in self.load.site.found_in(one.resource) {
                self.find(next, now);
            }
        }
    }

    fn entry(&self, one: &Asked, ends: Duration) -> Entry {
        let found = self.found[one.resource].unwrap_or(self.began);
        entry(self.load, one, found, self.began, ends)
    }

    /// The visit, which cuts off the requests in progress.
    fn visit(mut self, cabin: &SimTraffic) -> Visit {
        let end = cabin.now();
        for one in &self.under_way {
            let got = cabin.course(one.stream).got[DOWN].saturating_sub(HEADER_BYTES);
            let failed = Some("the deadline came before its last byte".into());
            let status = one.first.filter(|first| *first <= end).map(|_| 200);
            let cut = self.entry(one, end);
            self.entries[one.resource] = Some(Entry { status, bytes: got, failed, ..cut });
        }
        Visit {
            entries: self.entries.into_iter().flatten().collect(),
            connections: self.connections,
            connections_dropped: 0,
            connections_resumed: 0,
            connections_anew: 0,
            took: end - self.began,
            finished: self.under_way.is_empty(),
            rates: Vec::new(),
            protocol: self.load.protocol,
        }
    }
}

/// Entry of a request that lasts until `ends`, without its result.
fn entry(load: &Load<'_>, one: &Asked, found: Duration, began: Duration, ends: Duration) -> Entry {
    let first = one.first.unwrap_or(ends).min(ends);
    Entry {
        resource: one.resource,
        url: load.site.url(load.scheme(), one.resource),
        connection: Some(one.stream),
        started: found - began,
        block: one.at - found,
        connect: None,
        secure: None,
        send: Duration::ZERO,
        wait: first - one.at,
        receive: ends - first,
        bytes: 0,
        status: None,
        failed: None,
    }
}
