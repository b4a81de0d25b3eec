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

/// Names of passengers, by their numbers.
pub type Names = HashMap<u32, Arc<str>>;

/// Gateway that wrote it.
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
    /// The gateway.
    pub gateway: Gateway,
    /// Release that wrote it.
    pub version: String,
    /// Time of writing, since 1970-01-01 00:00 UTC.
    pub written_unix_ms: u64,
    /// Interval of writes; 0 in files of releases that did not tell.
    #[serde(default)]
    pub interval_ms: u64,
    /// Uptime of the gateway.
    pub uptime_us: u64,
    /// Detail of the file.
    pub detail: Detail,
    /// The gateway's own counters, since it started.
    pub counters: BTreeMap<String, u64>,
    /// The sessions of the radio transport, at the air one at most.
    pub sessions: Vec<Session>,
}

/// One session. Its counters begin with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Transport.
    pub transport: String,
    /// At the ground, the aircraft's name in the config.
    pub aircraft: Option<String>,
    /// Age: `total` began then.
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
    /// Number of passengers, counted in each class that they use, including those of the recent
    /// past.
    pub all_passengers: usize,
    /// The busiest flows that are open.
    pub flows: Vec<FlowEntry>,
    /// Number of flows.
    pub all_flows: usize,
}

/// Carried traffic, and its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Moved {
    /// Contents that this gateway sent over the link, each byte once.
    pub sent_bytes: u64,
    /// Contents that came over the link.
    pub received_bytes: u64,
    /// Sent bytes with the headers of their frames.
    pub frame_bytes: u64,
    /// Datagrams, or pieces of a stream, that were sent.
    pub sent_packets: u64,
    /// Datagrams that this gateway dropped before they left.
    pub dropped_packets: u64,
    /// Their bytes, with 64 each for what is kept about them.
    pub dropped_bytes: u64,
    /// Mean delay here of what was sent.
    pub delay_mean_us: u64,
    /// Maximum delay.
    pub delay_max_us: u64,
}

/// A class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassEntry {
    /// Its name.
    pub class: String,
    /// Flows in it now.
    pub open_flows: usize,
    /// Memory of its datagrams now.
    pub queued_bytes: u64,
    /// Overhead in addition to its frames: repairs, retransmissions, control, packet headers.
    pub overhead_bytes: u64,
    /// Since the session began.
    pub total: Moved,
    /// 95 of 100 waited no longer, as the histogram knows it.
    pub total_delay_p95_us: u64,
    /// Histogram of delays: each part ends at twice the end of the one before, the first at 128 µs.
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
    /// Its passenger.
    pub passenger: u32,
    /// At the air, what usage records call the passenger too.
    pub name: Option<String>,
    /// The class that it is of.
    pub class: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or a number.
    pub protocol: String,
    /// Destination.
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
    /// Session of the radio transport in this form.
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
