//! Traffic statistics of a session.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_schedule::{Activity, Class, ClassActivity, PassengerActivity, PerClass};
use bentpipe_units::BitRate;

use crate::target::Target;

/// Traffic of a session, in total and since the last request.
///
/// Counts are contents, without the link's overhead. Sent contents count when they are first sent,
/// received contents when they are read.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    /// Age of the session, which is the period of the totals.
    pub age: Duration,
    /// Time since the last request, or since the beginning: the period of the recent counts.
    pub interval: Duration,
    /// `true` if its packet keys should have been replaced long ago: handshakes may be dropped.
    pub keys_overdue: bool,
    /// Rate at which this end sends.
    pub sending: RateInUse,
    /// Rate at which the peer sends, as far as this end knows.
    pub receiving: RateInUse,
    /// State of the link.
    pub link: LinkState,
    /// State of each path.
    pub paths: Vec<PathState>,
    /// Activity of each class.
    pub classes: PerClass<ClassActivity>,
    /// The busiest passengers, the busiest first, each once in every class that it uses.
    pub passengers: Vec<PassengerActivity>,
    /// Number of passengers, including those of the recent past. A passenger counts once in every
    /// class that it uses.
    pub all_passengers: usize,
    /// The busiest flows, the busiest first.
    pub flows: Vec<FlowTraffic>,
    /// Number of flows that have carried data or have data to send.
    pub all_flows: usize,
}

/// State of the link under a session, and what it has cost since the session began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Time since the last packet of the peer.
    pub silence: Duration,
    /// Length of the present outage; zero without one.
    pub outage: Duration,
    /// Length of all outages.
    pub outages: Duration,
    /// Size of the largest packet that carries data now, with its IP header.
    pub mtu_bytes: u64,
    /// Queueing delay on the path, as the last reports show it.
    pub queue: Duration,
    /// IP bytes sent.
    pub sent_bytes: u64,
    /// Bytes of repair packets sent.
    pub repair_bytes: u64,
    /// Bytes sent again.
    pub retransmission_bytes: u64,
    /// Sent packets that the peer's reports are about, and the lost ones among them.
    pub judged_packets: u64,
    /// Sent packets that the peer's reports count as lost.
    pub lost_packets: u64,
    /// Times that the circuit breaker lowered the rate.
    pub breaker_trips: u64,
}

/// State of a path of a session, and its traffic since the session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathState {
    /// Number of the path.
    pub number: u8,
    /// Name of the path at this end; empty without one.
    pub name: String,
    /// Address of the peer there.
    pub peer: SocketAddr,
    /// Its present use.
    pub use_now: PathUse,
    /// Rate at which this end sends on it.
    pub sending: RateInUse,
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Queueing delay, as the last reports show it.
    pub queue: Duration,
    /// Size of the largest packet that carries data now, with its IP header.
    pub mtu_bytes: u64,
    /// Lost packets of a thousand towards the peer, as estimated.
    pub loss_permille: u64,
    /// IP bytes sent.
    pub sent_bytes: u64,
    /// IP bytes received.
    pub received_bytes: u64,
    /// Sent packets that the peer's reports are about.
    pub judged_packets: u64,
    /// The lost ones among them.
    pub lost_packets: u64,
    /// Use of its daily limit, if it has one.
    pub day: Option<DayUse>,
    /// Another path that loses at the same times, if there is one.
    pub loses_with: Option<u8>,
}

/// Use of a path's daily limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayUse {
    /// Limit of the bytes in a day, both directions together.
    pub limit_bytes: u64,
    /// Bytes of it used, with those that the peer may still send.
    pub used_bytes: u64,
}

/// Use of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathUse {
    /// Everything.
    All,
    /// Long downloads: short ones end earlier without it.
    Bulk,
    /// Nothing while another path carries data, because its bytes cost money.
    Standby,
    /// Nothing, because nothing is heard of it for longer than usual.
    Doubted,
    /// Probes, because it is silent.
    Silent,
    /// Nothing, because the peer has not answered there yet.
    Unproven,
    /// Nothing until the next day, because its daily limit is used up.
    Spent,
}

impl PathUse {
    /// Name in the status file.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Bulk => "bulk",
            Self::Standby => "standby",
            Self::Doubted => "doubted",
            Self::Silent => "silent",
            Self::Unproven => "unproven",
            Self::Spent => "spent",
        }
    }
}

/// Rate of one direction of a session, in IP bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateInUse {
    /// The rate; `None` if it is unknown.
    pub rate: Option<BitRate>,
    /// Origin of the rate.
    pub source: RateSource,
    /// Maximum that the operator permits; `None` without one.
    pub ceiling: Option<BitRate>,
}

/// Origin of a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RateSource {
    /// The operator's setting.
    #[default]
    Setting,
    /// The modem's report.
    Modem,
    /// The ground's grant, or a part of its beam.
    Grant,
    /// Nothing yet: the minimum until the ground or the modem names a rate.
    Minimum,
    /// Measurements of the path.
    Learned,
    /// The congestion window of a learned rate, while others keep a queue.
    Competing,
    /// A congestion window, because the lease is `"none"`.
    Window,
    /// The peer's announcement of its setting.
    Announced,
    /// The highest rate at which the peer's packets arrived, because the peer learns its rate.
    Arrivals,
}

impl RateSource {
    /// Name in the status file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Modem => "modem",
            Self::Grant => "grant",
            Self::Minimum => "minimum",
            Self::Learned => "learned",
            Self::Competing => "competing",
            Self::Window => "window",
            Self::Announced => "announced",
            Self::Arrivals => "arrivals",
        }
    }
}

/// Traffic of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowTraffic {
    /// Its number in this session.
    pub id: u64,
    /// Number of its passenger.
    pub passenger: u32,
    /// Its present class.
    pub class: Class,
    /// Its IP protocol: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// Destination.
    pub target: Target,
    /// Activity since the flow has this class.
    pub activity: Activity,
}
