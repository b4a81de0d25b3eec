//! Content of the status file: JSON with stable fields, documented in docs/status.md.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bentpipe_flow::{FlowTraffic, LinkState, PathState, RateInUse, Traffic};
use bentpipe_link::{Class, ClassActivity, PassengerActivity};
use bentpipe_net::ip;
use bentpipe_schedule::Counters;
use bentpipe_units::{BitRate, micros};
use serde::{Deserialize, Serialize};

use crate::config::{Detail, Transport};
use crate::experience::ExperienceEntry;
use crate::ground_entry::{EgressEntry, GroundEntry};

/// Version of the format. New fields do not change it; a removed or redefined field does.
pub const SCHEMA: u32 = 1;

/// Names of passengers, by number.
pub type Names = HashMap<u32, Arc<str>>;

/// The gateway that wrote the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gateway {
    /// The air gateway.
    Air,
    /// The ground gateway.
    Ground,
}

/// Content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Format version: [`SCHEMA`].
    pub schema: u32,
    /// The gateway.
    pub gateway: Gateway,
    /// Release that wrote it.
    pub version: String,
    /// Time of writing, since 1970-01-01 00:00 UTC.
    pub written_unix_ms: u64,
    /// Interval of writes; 0 in files of releases that did not report it.
    #[serde(default)]
    pub interval_ms: u64,
    /// Uptime of the gateway.
    pub uptime_us: u64,
    /// Level of detail of the file.
    pub detail: Detail,
    /// Counters of the gateway since it started.
    pub counters: BTreeMap<String, u64>,
    /// Waiting times of passengers by class and rule since the start; empty in older releases' files.
    #[serde(default)]
    pub experience: Vec<ExperienceEntry>,
    /// Sessions of the radio transport; the air gateway has at most one.
    pub sessions: Vec<Session>,
    /// Other grounds of the fleet; empty if the file of the gateway names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grounds: Vec<GroundEntry>,
    /// Egresses of a hub; empty if its file names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egresses: Vec<EgressEntry>,
}

/// A session. Its counters start with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Transport.
    pub transport: String,
    /// In the ground gateway: name of the aircraft in the configuration.
    pub aircraft: Option<String>,
    /// Age of the session, which is the period of `total`.
    pub age_us: u64,
    /// Time since the previous file or the session's start, which is the period of `recent`.
    pub interval_us: u64,
    /// `true` if the packet keys should have been replaced long ago, which may mean that handshakes
    /// are dropped.
    #[serde(default)]
    pub keys_overdue: bool,
    /// Rate at which this gateway sends; `None` in files of releases that did not report it.
    #[serde(default)]
    pub sending: Option<RateEntry>,
    /// Rate at which the peer sends.
    #[serde(default)]
    pub receiving: Option<RateEntry>,
    /// State of the link; `None` in files of releases that did not report it.
    #[serde(default)]
    pub link: Option<LinkEntry>,
    /// State of each path, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathEntry>,
    /// All five classes, highest first.
    pub classes: Vec<ClassEntry>,
    /// The busiest passengers, with one entry for each class they use.
    pub passengers: Vec<PassengerEntry>,
    /// Number of passengers, including recent ones, counted once for each class they use.
    pub all_passengers: usize,
    /// The busiest open flows.
    pub flows: Vec<FlowEntry>,
    /// Number of open flows.
    pub all_flows: usize,
}

/// Rate of one direction, in IP bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateEntry {
    /// Bits per second; `None` if the rate is unknown.
    pub rate_bps: Option<u64>,
    /// Origin of the rate.
    pub source: String,
    /// Maximum that the operator permits; `None` without one.
    pub ceiling_bps: Option<u64>,
}

/// State of the link, and its costs since the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkEntry {
    /// Smoothed round trip.
    pub round_trip_us: u64,
    /// Time since the last packet of the peer.
    pub silence_us: u64,
    /// Length of the present outage; 0 without one.
    pub outage_us: u64,
    /// Length of all outages of the session.
    pub outages_us: u64,
    /// Size of the largest packet that carries data now, with its IP header.
    pub mtu_bytes: u64,
    /// Queueing delay on the path that this gateway sends on.
    pub queue_us: u64,
    /// IP bytes sent, with headers.
    pub sent_bytes: u64,
    /// Bytes of repair packets sent.
    pub repair_bytes: u64,
    /// Bytes sent again.
    pub retransmission_bytes: u64,
    /// Sent packets that the peer's reports are about.
    pub judged_packets: u64,
    /// The lost ones among them.
    pub lost_packets: u64,
    /// Times that the circuit breaker lowered the rate.
    pub breaker_trips: u64,
}

/// State of one path of several, and its traffic since the session began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEntry {
    /// Number of the path.
    pub number: u8,
    /// Name in this gateway's configuration; empty without one.
    pub name: String,
    /// Address of the peer on it.
    pub peer: String,
    /// Its present use: `all`, `bulk`, `standby`, `doubted`, `silent`, `unproven` or `spent`.
    pub use_now: String,
    /// Rate at which this gateway sends on it.
    pub sending: RateEntry,
    /// Smoothed round trip.
    pub round_trip_us: u64,
    /// Queueing delay of what this gateway sends.
    pub queue_us: u64,
    /// Size of the largest packet that carries data now, with its IP header.
    pub mtu_bytes: u64,
    /// Lost packets of a thousand, as estimated.
    pub loss_permille: u64,
    /// IP bytes sent.
    pub sent_bytes: u64,
    /// IP bytes received.
    pub received_bytes: u64,
    /// Sent packets that the peer's reports are about.
    pub judged_packets: u64,
    /// The lost ones among them.
    pub lost_packets: u64,
    /// Maximum bytes in a day of UTC, if there is one.
    pub daily_limit_bytes: Option<u64>,
    /// Bytes of it used, with those that the peer may still send.
    pub daily_used_bytes: Option<u64>,
    /// Number of another path that loses at the same times, if there is one.
    #[serde(default)]
    pub loses_with: Option<u8>,
}

impl PathEntry {
    /// Name of the path, or its number.
    pub fn label(&self) -> String {
        if self.name.is_empty() { self.number.to_string() } else { self.name.clone() }
    }
}

/// Traffic and its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Moved {
    /// Payload bytes that this gateway sent over the link, without retransmissions.
    pub sent_bytes: u64,
    /// Payload bytes received over the link.
    pub received_bytes: u64,
    /// Sent payload bytes with the headers of their frames.
    pub frame_bytes: u64,
    /// Datagrams, or pieces of a stream, sent.
    pub sent_packets: u64,
    /// Datagrams dropped by this gateway before sending.
    pub dropped_packets: u64,
    /// Bytes of dropped datagrams, plus 64 for the bookkeeping of each.
    pub dropped_bytes: u64,
    /// Mean queueing delay of sent traffic in this gateway.
    pub delay_mean_us: u64,
    /// Maximum queueing delay.
    pub delay_max_us: u64,
}

/// A class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassEntry {
    /// Name of the class.
    pub class: String,
    /// Flows open in the class now.
    pub open_flows: usize,
    /// Memory that queued datagrams take now.
    pub queued_bytes: u64,
    /// Overhead in addition to frames: repair packets (FEC), retransmissions, control, packet
    /// headers.
    pub overhead_bytes: u64,
    /// Traffic since the session began.
    pub total: Moved,
    /// 95th percentile of the delay, estimated from the histogram.
    pub total_delay_p95_us: u64,
    /// Histogram of delays. The first bucket ends at 128 µs, and each following one ends at twice
    /// the previous end.
    pub total_delay_histogram: Vec<u64>,
    /// Traffic since the previous file.
    pub recent: Moved,
    /// 95th percentile of the delay since the previous file.
    pub recent_delay_p95_us: u64,
}

/// A passenger in a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassengerEntry {
    /// Number that the air gateway assigned to the passenger.
    pub passenger: u32,
    /// In the air gateway: name of the passenger, as in usage records.
    pub name: Option<String>,
    /// The class.
    pub class: String,
    /// Flows of the passenger open in the class now.
    pub open_flows: usize,
    /// Traffic since the passenger first used the class in this session.
    pub total: Moved,
    /// Traffic since the previous file.
    pub recent: Moved,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEntry {
    /// Number of the flow in the session.
    pub flow: u64,
    /// Number of its passenger.
    pub passenger: u32,
    /// In the air gateway: name of the passenger, as in usage records.
    pub name: Option<String>,
    /// Class of the flow.
    pub class: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or a number.
    pub protocol: String,
    /// Destination.
    pub target: String,
    /// Traffic since the flow entered this class.
    pub total: Moved,
    /// Traffic since the previous file.
    pub recent: Moved,
}

impl Document {
    /// Creates the document of a gateway that has just started.
    pub fn empty(gateway: Gateway) -> Self {
        Self {
            schema: SCHEMA,
            gateway,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            written_unix_ms: 0,
            interval_ms: 0,
            uptime_us: 0,
            detail: Detail::Classes,
            counters: BTreeMap::new(),
            experience: Vec::new(),
            sessions: Vec::new(),
            grounds: Vec::new(),
            egresses: Vec::new(),
        }
    }

    /// Serializes the document as written to the file.
    pub fn to_json(&self) -> Vec<u8> {
        // Cannot fail: all map keys are strings, and all numbers are finite.
        let mut json = serde_json::to_vec(self).expect("the document is JSON");
        json.push(b'\n');
        json
    }
}

impl Session {
    /// Converts the traffic of a session of the radio transport.
    pub fn of(traffic: Traffic, aircraft: Option<&str>, names: &Names) -> Self {
        let Traffic {
            age,
            interval,
            keys_overdue,
            sending,
            receiving,
            link,
            paths,
            classes,
            passengers,
            all_passengers,
            flows,
            all_flows,
        } = traffic;
        let paths = if paths.len() > 1 { paths } else { Vec::new() };
        let class = |(class, of): (Class, &ClassActivity)| class_entry(class, of);
        Self {
            transport: Transport::Link.name().to_owned(),
            aircraft: aircraft.map(str::to_owned),
            age_us: micros(age),
            interval_us: micros(interval),
            keys_overdue,
            sending: Some(rate_entry(sending)),
            receiving: Some(rate_entry(receiving)),
            link: Some(link_entry(link)),
            paths: paths.into_iter().map(path_entry).collect(),
            classes: classes.iter().map(class).collect(),
            passengers: passengers.iter().map(|seat| passenger_entry(seat, names)).collect(),
            all_passengers,
            flows: flows.iter().map(|flow| flow_entry(flow, names)).collect(),
            all_flows,
        }
    }
}

fn rate_entry(of: RateInUse) -> RateEntry {
    RateEntry {
        rate_bps: of.rate.map(BitRate::bps),
        source: of.source.name().to_owned(),
        ceiling_bps: of.ceiling.map(BitRate::bps),
    }
}

fn link_entry(of: LinkState) -> LinkEntry {
    LinkEntry {
        round_trip_us: micros(of.round_trip),
        silence_us: micros(of.silence),
        outage_us: micros(of.outage),
        outages_us: micros(of.outages),
        mtu_bytes: of.mtu_bytes,
        queue_us: micros(of.queue),
        sent_bytes: of.sent_bytes,
        repair_bytes: of.repair_bytes,
        retransmission_bytes: of.retransmission_bytes,
        judged_packets: of.judged_packets,
        lost_packets: of.lost_packets,
        breaker_trips: of.breaker_trips,
    }
}

fn path_entry(of: PathState) -> PathEntry {
    PathEntry {
        number: of.number,
        name: of.name,
        peer: of.peer.to_string(),
        use_now: of.use_now.name().to_owned(),
        sending: rate_entry(of.sending),
        round_trip_us: micros(of.round_trip),
        queue_us: micros(of.queue),
        mtu_bytes: of.mtu_bytes,
        loss_permille: of.loss_permille,
        sent_bytes: of.sent_bytes,
        received_bytes: of.received_bytes,
        judged_packets: of.judged_packets,
        lost_packets: of.lost_packets,
        daily_limit_bytes: of.day.map(|day| day.limit_bytes),
        daily_used_bytes: of.day.map(|day| day.used_bytes),
        loses_with: of.loses_with,
    }
}

fn class_entry(class: Class, of: &ClassActivity) -> ClassEntry {
    let total = &of.total;
    let p95 = |waits: &bentpipe_link::DelayHistogram, of: &Counters| {
        micros(waits.quantile(0.95, of.delay.max))
    };
    ClassEntry {
        class: class.name().to_owned(),
        open_flows: total.flows,
        queued_bytes: total.queued_bytes,
        overhead_bytes: total.charged_bytes,
        total: moved(&total.sent),
        total_delay_p95_us: p95(&of.total_delays, &total.sent),
        total_delay_histogram: of.total_delays.counts().to_vec(),
        recent: moved(&of.recent),
        recent_delay_p95_us: p95(&of.recent_delays, &of.recent),
    }
}

fn passenger_entry(seat: &PassengerActivity, names: &Names) -> PassengerEntry {
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
            // The protocol has no ports.
            0 => flow.target.host.to_string(),
            _ => flow.target.to_string(),
        },
        total: moved(&flow.activity.total),
        recent: moved(&flow.activity.recent),
    }
}

fn moved(counters: &Counters) -> Moved {
    Moved {
        sent_bytes: counters.payload.sent_bytes,
        received_bytes: counters.payload.received_bytes,
        frame_bytes: counters.bytes,
        sent_packets: counters.packets,
        dropped_packets: counters.dropped_packets,
        dropped_bytes: counters.dropped_bytes,
        delay_mean_us: micros(counters.delay.mean()),
        delay_max_us: micros(counters.delay.max),
    }
}
