//! The operator's page as data: the newest document and the last day, with the rates of now.
//!
//! Names of aircraft come from the configuration. Everything of passengers is hostile: the page shows
//! it as text. Their names are shortened here, so that they do not leave the process in full.

use std::collections::BTreeMap;

use serde::Serialize;

use super::document::{Document, Gateway, Moved, Session};
use super::experience::ExperienceEntry;
use super::history::{CELL_MS, Cell, History};
use crate::config::Detail;

/// Maximum number of aircraft in the table: those in trouble first, then the busiest. 1,000 rows
/// have about 250 kB.
pub const MAX_FLEET: usize = 1_000;

/// Maximum number of passengers: the busiest of all sessions.
pub const MAX_USERS: usize = 20;

/// Maximum number of rows of waiting times: the groups with the most exchanges.
pub const MAX_GROUPS: usize = 20;

/// Maximum number of alarms; the page says how many there are.
pub const MAX_ALARMS: usize = 50;

/// The page's data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct View {
    gateway: Gateway,
    version: String,
    written_unix_ms: u64,
    interval_ms: u64,
    uptime_us: u64,
    alarms: Vec<String>,
    all_alarms: usize,
    /// The air's only session.
    link: Option<Link>,
    fleet: Vec<Link>,
    all_sessions: usize,
    silent_sessions: usize,
    classes: Vec<Class>,
    /// `None` if the configuration keeps passengers out of the status.
    users: Option<Vec<User>>,
    caches: Vec<Cache>,
    /// Waiting times of passengers; empty at the ground.
    experience: Vec<Experience>,
    cell_ms: u64,
    history: Vec<Cell>,
}

/// A session's link now.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Link {
    aircraft: String,
    /// Rate at which this gateway sends, and its origin.
    rate_bps: Option<u64>,
    source: String,
    /// Rate at which the peer sends.
    peer_rate_bps: Option<u64>,
    sent_bps: u64,
    received_bps: u64,
    round_trip_us: u64,
    queue_us: u64,
    loss: Option<f64>,
    /// Bytes of repair packets, and of retransmissions, of all bytes sent.
    repairs: Option<f64>,
    retransmissions: Option<f64>,
    silence_us: u64,
    outage_us: u64,
    outages_us: u64,
    mtu_bytes: u64,
    flows: usize,
    age_us: u64,
}

/// A class in all sessions.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Class {
    class: String,
    flows: usize,
    sent_bps: u64,
    received_bps: u64,
    /// Maximum of the sessions' percentiles.
    delay_p95_us: u64,
    dropped_packets: u64,
}

/// A passenger.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct User {
    name: String,
    aircraft: String,
    flows: usize,
    sent_bps: u64,
    received_bps: u64,
    bytes: u64,
}

/// A cache and what it saved.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Cache {
    name: &'static str,
    hits: u64,
    requests: u64,
    saved_bytes: u64,
    saved_round_trips: u64,
    /// Those round trips at the present one.
    saved_us: u64,
}

/// Waiting times of a class and a rule. Times are ends of buckets; `None` is beyond the last.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Experience {
    class: String,
    rule: String,
    exchanges: u64,
    failed: u64,
    first_byte_p50_s: Option<f64>,
    completion_p95_s: Option<f64>,
    index_permille: Option<u64>,
}

impl View {
    /// Creates the data of `document`, which `history` has noted.
    pub fn of(document: &Document, history: &History) -> Self {
        let sessions = &document.sessions;
        let mut fleet: Vec<Link> = sessions.iter().map(|one| link(one, history)).collect();
        fleet.sort_by_key(|link| {
            let busy = link.sent_bps + link.received_bps;
            (link.outage_us == 0, std::cmp::Reverse(busy), link.aircraft.clone())
        });
        let round_trip_us = fleet.iter().map(|link| link.round_trip_us).max().unwrap_or(0);
        let silent_sessions = fleet.iter().filter(|link| link.outage_us > 0).count();
        let mut alarms = alarms(document, &fleet, history);
        let (all_alarms, all_sessions) = (alarms.len(), fleet.len());
        alarms.truncate(MAX_ALARMS);
        fleet.truncate(MAX_FLEET);
        let is_air = document.gateway == Gateway::Air;
        let link = fleet.first().filter(|_| is_air).cloned();
        let fleet = if is_air { Vec::new() } else { fleet };
        Self {
            gateway: document.gateway,
            version: document.version.clone(),
            written_unix_ms: document.written_unix_ms,
            interval_ms: document.interval_ms,
            uptime_us: document.uptime_us,
            alarms,
            all_alarms,
            link,
            fleet,
            all_sessions,
            silent_sessions,
            classes: classes(sessions),
            users: (document.detail != Detail::Classes).then(|| users(sessions)),
            caches: caches(&document.counters, round_trip_us),
            experience: experience(&document.experience),
            cell_ms: CELL_MS,
            history: history.cells(),
        }
    }

    /// The data as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        // Cannot fail: all numbers are finite.
        serde_json::to_vec(self).expect("the data are JSON")
    }
}

fn link(session: &Session, history: &History) -> Link {
    let (state, costs) = (session.link.unwrap_or_default(), history.costs(session));
    let moved = |of: fn(&Moved) -> u64| {
        bps(session.classes.iter().map(|class| of(&class.recent)).sum(), session.interval_us)
    };
    let rate = |entry: &Option<super::RateEntry>| entry.as_ref().and_then(|it| it.rate_bps);
    Link {
        aircraft: session.aircraft.clone().unwrap_or_default(),
        rate_bps: rate(&session.sending),
        source: session.sending.as_ref().map(|it| it.source.clone()).unwrap_or_default(),
        peer_rate_bps: rate(&session.receiving),
        sent_bps: moved(|it| it.sent_bytes),
        received_bps: moved(|it| it.received_bytes),
        round_trip_us: state.round_trip_us,
        queue_us: state.queue_us,
        loss: part(costs.lost_packets, costs.judged_packets),
        repairs: part(costs.repair_bytes, costs.sent_bytes),
        retransmissions: part(costs.retransmission_bytes, costs.sent_bytes),
        silence_us: state.silence_us,
        outage_us: state.outage_us,
        outages_us: state.outages_us,
        mtu_bytes: state.mtu_bytes,
        flows: session.all_flows,
        age_us: session.age_us,
    }
}

fn classes(sessions: &[Session]) -> Vec<Class> {
    let mut all: Vec<Class> = Vec::new();
    for session in sessions {
        for entry in &session.classes {
            let at = all.iter().position(|class| class.class == entry.class);
            let at = at.unwrap_or_else(|| {
                all.push(Class { class: entry.class.clone(), ..Class::default() });
                all.len() - 1
            });
            let class = &mut all[at];
            class.flows += entry.open_flows;
            class.sent_bps += bps(entry.recent.sent_bytes, session.interval_us);
            class.received_bps += bps(entry.recent.received_bytes, session.interval_us);
            class.delay_p95_us = class.delay_p95_us.max(entry.recent_delay_p95_us);
            class.dropped_packets += entry.total.dropped_packets;
        }
    }
    all
}

/// The busiest passengers, with all their classes.
fn users(sessions: &[Session]) -> Vec<User> {
    let mut all: BTreeMap<(usize, u32), User> = BTreeMap::new();
    for (number, session) in sessions.iter().enumerate() {
        for entry in &session.passengers {
            let user = all.entry((number, entry.passenger)).or_insert_with(|| User {
                name: label(entry.passenger, entry.name.as_deref()),
                aircraft: session.aircraft.clone().unwrap_or_default(),
                flows: 0,
                sent_bps: 0,
                received_bps: 0,
                bytes: 0,
            });
            user.flows += entry.open_flows;
            user.sent_bps += bps(entry.recent.sent_bytes, session.interval_us);
            user.received_bps += bps(entry.recent.received_bytes, session.interval_us);
            user.bytes += entry.total.sent_bytes + entry.total.received_bytes;
        }
    }
    let mut users: Vec<User> = all.into_values().collect();
    users.sort_by_key(|user| std::cmp::Reverse((user.sent_bps + user.received_bps, user.bytes)));
    users.truncate(MAX_USERS);
    users
}

fn experience(entries: &[ExperienceEntry]) -> Vec<Experience> {
    let row = |entry: &ExperienceEntry| Experience {
        class: entry.class.clone(),
        rule: entry.rule.clone(),
        exchanges: entry.exchanges(),
        failed: entry.failed,
        first_byte_p50_s: entry.first_byte_p50_s(),
        completion_p95_s: entry.completion_p95_s(),
        index_permille: entry.index_permille,
    };
    let mut rows: Vec<_> = entries.iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.exchanges));
    rows.truncate(MAX_GROUPS);
    rows
}

/// Number of a passenger, and the first half of its name: a vendor or a network, and no device.
fn label(number: u32, name: Option<&str>) -> String {
    let Some(name) = name else { return format!("#{number}") };
    let half: String = name.chars().take(name.chars().count() / 2).collect();
    format!("#{number} {half}…")
}

/// Caches that were asked, from the counters of docs/status.md.
fn caches(counters: &BTreeMap<String, u64>, round_trip_us: u64) -> Vec<Cache> {
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    let sum = |names: &[&str]| names.iter().map(|name| count(name)).sum();
    let cache = |name, hits, requests, saved_bytes, trips: &str| {
        let saved_round_trips = count(trips);
        let saved_us = saved_round_trips.saturating_mul(round_trip_us);
        Cache { name, hits, requests, saved_bytes, saved_round_trips, saved_us }
    };
    let http = sum(&["http_hits", "http_stale_hits", "http_validated", "http_collapsed"]);
    let dns = sum(&["dns_hits", "dns_stale", "dns_failed", "dns_instant", "dns_collapsed"]);
    let all = [
        cache(
            "HTTP cache",
            http,
            count("http_requests"),
            count("http_bytes_saved"),
            "http_round_trips_saved",
        ),
        cache(
            "DNS cache",
            dns,
            count("dns_queries"),
            count("dns_bytes_saved"),
            "dns_round_trips_saved",
        ),
        cache(
            "Split HTTP pushes",
            count("objects_used"),
            count("objects_promised"),
            0,
            "objects_used",
        ),
    ];
    all.into_iter().filter(|cache| cache.requests > 0).collect()
}

/// Things that somebody should look at, worst first.
fn alarms(document: &Document, fleet: &[Link], history: &History) -> Vec<String> {
    let mut alarms = Vec::new();
    if document.gateway == Gateway::Air && fleet.is_empty() {
        alarms.push("There is no session with the ground.".to_owned());
    }
    let of = |name: &str| if name.is_empty() { String::new() } else { format!("{name}: ") };
    for link in fleet.iter().filter(|link| link.outage_us > 0) {
        let seconds = link.outage_us / 1_000_000;
        alarms.push(format!("{}nothing heard for {seconds} s.", of(&link.aircraft)));
    }
    for session in document.sessions.iter().filter(|session| session.keys_overdue) {
        let name = session.aircraft.as_deref().unwrap_or_default();
        let what = "packet keys are old; something may drop handshakes.";
        alarms.push(format!("{}{what}", of(name)));
    }
    for link in fleet.iter().filter(|link| link.source == "minimum") {
        let what = "no modem and no ground reports a rate, so it sends at the minimum.";
        alarms.push(format!("{}{what}", of(&link.aircraft)));
    }
    for (limit, count) in history.refusing(document.written_unix_ms) {
        let limit = limit.replace('_', " ");
        alarms.push(format!("A limit was reached: {limit} (refused {count} times)."));
    }
    alarms
}

fn bps(bytes: u64, us: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 8_000_000 / u128::from(us.max(1))).unwrap_or(u64::MAX)
}

fn part(of: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| of as f64 / all as f64)
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
