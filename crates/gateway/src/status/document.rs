//! The file's content: JSON whose fields stay, docs/status.md having each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::{Class, ClassActivity, FlowTraffic, SeatActivity, Traffic};
use bentpipe_schedule::Counters;
use serde::{Deserialize, Serialize};

use crate::config::{Detail, Transport};
use crate::net::ip;

/// The version of the format. Fields may be added to it; one that goes, or means something else,
/// makes another.
pub const SCHEMA: u32 = 1;

/// What passengers are called, by their numbers.
pub type Names = HashMap<u32, Arc<str>>;

/// Which gateway wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gateway {
    /// On board.
    Air,
    /// On the ground.
    Ground,
}

/// All of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Whose it is.
    pub gateway: Gateway,
    /// Which release wrote it.
    pub version: String,
    /// When, since 1970-01-01 00:00 UTC.
    pub written_unix_ms: u64,
    /// How often it is written; 0 in files of releases that did not tell.
    #[serde(default)]
    pub interval_ms: u64,
    /// How long the gateway has run.
    pub uptime_us: u64,
    /// What is told.
    pub detail: Detail,
    /// The gateway's own counters, since it started.
    pub counters: BTreeMap<String, u64>,
    /// The sessions of the radio transport, at the air one at most.
    pub sessions: Vec<Session>,
}

/// One session. Its counters begin with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// What carries it.
    pub transport: String,
    /// At the ground, the aircraft's name in the config.
    pub aircraft: Option<String>,
    /// How long it goes on: `total` began then.
    pub age_us: u64,
    /// Since the file before this one, or the beginning: `recent` began then.
    pub interval_us: u64,
    /// `true` if its packet keys should have been replaced long ago: handshakes may be dropped.
    #[serde(default)]
    pub keys_overdue: bool,
    /// All five, the most favoured first.
    pub classes: Vec<ClassEntry>,
    /// The busiest, each once in every class that it uses.
    pub passengers: Vec<PassengerEntry>,
    /// How many there are, counted like that, those that were here lately included.
    pub all_passengers: usize,
    /// The busiest flows that are open.
    pub flows: Vec<FlowEntry>,
    /// How many there are.
    pub all_flows: usize,
}

/// What was carried, and what it waited for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Moved {
    /// Contents that this gateway sent over the link, each byte once.
    pub sent_bytes: u64,
    /// Contents that came over the link.
    pub received_bytes: u64,
    /// What was sent with the heads of its frames.
    pub frame_bytes: u64,
    /// Datagrams, or pieces of a stream, that were sent.
    pub sent_packets: u64,
    /// Datagrams that this gateway dropped before they left.
    pub dropped_packets: u64,
    /// Their bytes, with 64 each for what is kept about them.
    pub dropped_bytes: u64,
    /// How long what was sent had waited here, on average.
    pub delay_mean_us: u64,
    /// How long at most.
    pub delay_max_us: u64,
}

/// A class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassEntry {
    /// Its name.
    pub class: String,
    /// Flows in it now.
    pub open_flows: usize,
    /// What its datagrams take here now.
    pub queued_bytes: u64,
    /// What it caused beside its frames: repairs, retransmissions, control, packets' heads.
    pub overhead_bytes: u64,
    /// Since the session began.
    pub total: Moved,
    /// 95 of 100 waited no longer, as the histogram knows it.
    pub total_delay_p95_us: u64,
    /// How many waited how long: each part ends at twice the one before, the first at 128 µs.
    pub total_delay_histogram: Vec<u64>,
    /// Since the file before.
    pub recent: Moved,
    /// The same of those.
    pub recent_delay_p95_us: u64,
}

/// A passenger in a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassengerEntry {
    /// The passenger's number on board.
    pub passenger: u32,
    /// At the air, what usage records call it too.
    pub name: Option<String>,
    /// The class.
    pub class: String,
    /// The passenger's flows in it now.
    pub open_flows: usize,
    /// Since the passenger used it first in this session.
    pub total: Moved,
    /// Since the file before.
    pub recent: Moved,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEntry {
    /// Its number in the session.
    pub flow: u64,
    /// Whose it is.
    pub passenger: u32,
    /// At the air, what usage records call the passenger too.
    pub name: Option<String>,
    /// The class that it is of.
    pub class: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or a number.
    pub protocol: String,
    /// Where it leads.
    pub target: String,
    /// Since it is of this class.
    pub total: Moved,
    /// Since the file before.
    pub recent: Moved,
}

impl Document {
    /// As it is written.
    pub fn to_json(&self) -> Vec<u8> {
        // Neither maps with other keys than text nor numbers without an end are in it.
        let mut json = serde_json::to_vec(self).expect("the document is JSON");
        json.push(b'\n');
        json
    }
}

impl Session {
    /// What a session of the radio transport told.
    pub fn of(traffic: Traffic, aircraft: Option<&str>, names: &Names) -> Self {
        let Traffic {
            age,
            interval,
            keys_overdue,
            classes,
            passengers,
            all_passengers,
            flows,
            all_flows,
        } = traffic;
        let class = |(class, of): (Class, &ClassActivity)| class_entry(class, of);
        Self {
            transport: Transport::Link.name().to_owned(),
            aircraft: aircraft.map(str::to_owned),
            age_us: micros(age),
            interval_us: micros(interval),
            keys_overdue,
            classes: classes.iter().map(class).collect(),
            passengers: passengers.iter().map(|seat| passenger_entry(seat, names)).collect(),
            all_passengers,
            flows: flows.iter().map(|flow| flow_entry(flow, names)).collect(),
            all_flows,
        }
    }
}

fn class_entry(class: Class, of: &ClassActivity) -> ClassEntry {
    let total = &of.total;
    let p95 =
        |waits: &bentpipe_link::Waits, of: &Counters| micros(waits.quantile(0.95, of.delay.max));
    ClassEntry {
        class: class.name().to_owned(),
        open_flows: total.flows,
        queued_bytes: total.queued_bytes,
        overhead_bytes: total.charged_bytes,
        total: moved(&total.sent),
        total_delay_p95_us: p95(&of.total_waits, &total.sent),
        total_delay_histogram: of.total_waits.counts().to_vec(),
        recent: moved(&of.recent),
        recent_delay_p95_us: p95(&of.recent_waits, &of.recent),
    }
}

fn passenger_entry(seat: &SeatActivity, names: &Names) -> PassengerEntry {
    PassengerEntry {
        passenger: seat.passenger,
        name: names.get(&seat.passenger).map(|name| name.to_string()),
        class: seat.class.name().to_owned(),
        open_flows: seat.flows,
        total: moved(&seat.activity.total),
        recent: moved(&seat.activity.recent),
    }
}

fn flow_entry(flow: &FlowTraffic, names: &Names) -> FlowEntry {
    FlowEntry {
        flow: flow.id,
        passenger: flow.passenger,
        name: names.get(&flow.passenger).map(|name| name.to_string()),
        class: flow.class.name().to_owned(),
        protocol: match flow.protocol {
            ip::TCP => "tcp".to_owned(),
            ip::UDP => "udp".to_owned(),
            ip::ICMP => "icmp".to_owned(),
            ip::ICMPV6 => "icmpv6".to_owned(),
            other => other.to_string(),
        },
        target: match flow.target.port {
            // A protocol without ports.
            0 => flow.target.host.to_string(),
            _ => flow.target.to_string(),
        },
        total: moved(&flow.activity.total),
        recent: moved(&flow.activity.recent),
    }
}

fn moved(counters: &Counters) -> Moved {
    Moved {
        sent_bytes: counters.carried.sent_bytes,
        received_bytes: counters.carried.received_bytes,
        frame_bytes: counters.bytes,
        sent_packets: counters.packets,
        dropped_packets: counters.dropped_packets,
        dropped_bytes: counters.dropped_bytes,
        delay_mean_us: micros(counters.delay.mean()),
        delay_max_us: micros(counters.delay.max),
    }
}

/// In microseconds; of what is longer than 500,000 years, that.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
