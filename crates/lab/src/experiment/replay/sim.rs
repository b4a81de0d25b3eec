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
use crate::contender::roomy;
use crate::loader::{Entry, Load, Protocol, Visit};
use crate::sim::traffic::SimTraffic;
use crate::sim::transfer::NoSession;
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
    let (site, began) = (load.site, cabin.now());
    let deadline = began + load.deadline;
    let mut waiting = vec![VecDeque::new(); site.domains.len()];
    let mut busy = vec![0; site.domains.len()];
    let mut found: Vec<Option<Duration>> = vec![None; site.resources.len()];
    let mut entries: Vec<Option<Entry>> = vec![None; site.resources.len()];
    let mut under_way: Vec<Asked> = Vec::new();
    let mut connections = 0;
    found[0] = Some(began);
    waiting[site.resources[0].domain].push_back(0);
    loop {
        for (waiting, busy) in waiting.iter_mut().zip(&mut busy) {
            while *busy < load.connections {
                let Some(resource) = waiting.pop_front() else { break };
                let down = HEADER_BYTES + site.resources[resource].bytes;
                let (class, passenger) = (Class::BestEffort, READER);
                let carry = Carry { class, passenger, up: REQUEST_BYTES, down };
                let (stream, at) = (cabin.open(carry), cabin.now());
                under_way.push(Asked { resource, stream, at, first: None, ends: None });
                *busy += 1;
                connections += 1;
            }
        }
        if under_way.is_empty() || cabin.now() >= deadline {
            break;
        }
        let next = under_way.iter().filter_map(|one| one.ends).fold(deadline, Duration::min);
        cabin.step(next);
        let now = cabin.now();
        for one in &mut under_way {
            let course = cabin.course(one.stream);
            if one.first.is_none() && course.got[DOWN] > 0 {
                one.first = Some(now + behind);
            }
            if one.ends.is_none() && course.is_done() {
                one.ends = Some(now + behind);
            }
        }
        under_way.retain(|one| {
            let Some(ends) = one.ends.filter(|ends| *ends <= now) else { return true };
            let domain = site.resources[one.resource].domain;
            busy[domain] -= 1;
            let since = found[one.resource].unwrap_or(began);
            let bytes = site.resources[one.resource].bytes;
            entries[one.resource] =
                Some(Entry { status: Some(200), bytes, ..entry(load, one, since, began, ends) });
            for next in site.found_in(one.resource) {
                found[next] = Some(now);
                waiting[site.resources[next].domain].push_back(next);
            }
            false
        });
    }
    let (end, finished) = (cabin.now(), under_way.is_empty());
    for one in &under_way {
        let since = found[one.resource].unwrap_or(began);
        let got = cabin.course(one.stream).got[DOWN].saturating_sub(HEADER_BYTES);
        let failed = Some("the deadline came before its last byte".into());
        let status = one.first.filter(|first| *first <= end).map(|_| 200);
        let cut = entry(load, one, since, began, end);
        entries[one.resource] = Some(Entry { status, bytes: got, failed, ..cut });
    }
    Ok(Visit {
        entries: entries.into_iter().flatten().collect(),
        connections,
        connections_dropped: 0,
        connections_resumed: 0,
        connections_anew: 0,
        took: end - began,
        finished,
        rates: Vec::new(),
        protocol: load.protocol,
    })
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
