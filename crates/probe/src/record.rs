//! Records: a measurement with its time and circumstances, and the envelope in which it is exported.
//!
//! The envelope follows OONI's base data format 0.2.0: start time, software, `test_name`, `test_keys`,
//! runtime. Network and country are `AS0` and `ZZ`, which there means "not shared".

use serde::{Deserialize, Serialize};

use crate::address::AddressCheck;
use crate::clock::{ClockEvent, Moment};
use crate::dns::DnsPair;
use crate::epb::Epb;
use crate::gps::GpsCheck;
use crate::ndt7::Ndt7;
use crate::objects::ObjectPair;
use crate::ping::{Ping, Straggler};
use crate::portal::PortalCheck;
use crate::rate::RateCheck;
use crate::target::Side;
use crate::trace::Trace;

/// Version of the test keys. It increases with every change that a reader could misunderstand.
pub const TEST_VERSION: &str = "1.0";

/// Version of OONI's base data format that the envelope follows.
pub const DATA_FORMAT_VERSION: &str = "0.2.0";

/// A measurement with its time and circumstances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number within the session, from 1 and without gaps.
    pub number: u64,
    /// Begin.
    #[serde(flatten)]
    pub began: Moment,
    /// Seconds since the wall clock was set by a source of time; −1 if unknown.
    pub clock_age_s: i64,
    /// Duration in microseconds.
    pub runtime_us: u64,
    /// Set for a ping of a quiet window beside which nothing else ran.
    pub quiet: bool,
    /// Run of the job that the record belongs to.
    pub activity: Option<String>,
    /// Everything else that ran meanwhile.
    pub concurrent: Vec<String>,
    /// The measurement.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// A measured value, by kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "test_name", content = "test_keys")]
pub enum Measurement {
    /// A ping.
    Ping(Ping),
    /// A reply to a ping that had been counted as lost.
    Straggler(Straggler),
    /// A traceroute.
    Trace(Trace),
    /// Two lookups of one name.
    Dns(DnsPair),
    /// Two fetches of one HTTP object.
    Objects(Box<ObjectPair>),
    /// The rate of a direction, and its limit.
    Rate(Box<RateCheck>),
    /// An ndt7 test of one direction.
    Ndt7(Box<Ndt7>),
    /// An EPB test of one direction.
    Epb(Box<Epb>),
    /// A check for a captive portal.
    Portal(Box<PortalCheck>),
    /// A check of the public address.
    Address(AddressCheck),
    /// The position of a receiver.
    Gps(GpsCheck),
    /// A change of the machine's network.
    Network(Network),
    /// A step of the wall clock, or a suspension.
    Clock(ClockEvent),
    /// Records that could not be stored.
    Gap(Gap),
}

impl Measurement {
    /// Name of the kind.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ping(_) => "ping",
            Self::Straggler(_) => "straggler",
            Self::Trace(_) => "trace",
            Self::Dns(_) => "dns",
            Self::Objects(_) => "objects",
            Self::Rate(_) => "rate",
            Self::Ndt7(_) => "ndt7",
            Self::Epb(_) => "epb",
            Self::Portal(_) => "portal",
            Self::Address(_) => "address",
            Self::Gps(_) => "gps",
            Self::Network(_) => "network",
            Self::Clock(_) => "clock",
            Self::Gap(_) => "gap",
        }
    }
}

/// The machine's access at a time. Names of networks and hardware addresses are not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Default gateways.
    pub gateways: Vec<std::net::IpAddr>,
    /// Interface of the default route.
    pub interface: Option<String>,
    /// Resolvers, in the order of their use.
    pub resolvers: Vec<std::net::IpAddr>,
    /// Source of the resolvers: a file.
    pub resolver_source: String,
    /// IPv4 has a route.
    pub ipv4: bool,
    /// IPv6 has a route.
    pub ipv6: bool,
}

/// Records that are missing from the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Number of the records.
    pub records: u64,
    /// Cause.
    pub failure: String,
}

/// Facts common to all records of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Random identifier, OONI's `report_id`.
    pub id: String,
    /// Start.
    #[serde(flatten)]
    pub began: Moment,
    /// Version of the software.
    pub software_version: String,
    /// Operating system and architecture.
    pub platform: String,
    /// Targets of pings.
    pub targets: Vec<SessionTarget>,
    /// Identifier of the list of names for DNS.
    pub name_list: String,
}

/// A target of pings, as its session began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTarget {
    /// Name.
    pub name: String,
    /// Address.
    pub address: std::net::IpAddr,
    /// Position.
    pub side: Side,
}

/// Writes a record in its envelope: one JSON object without line breaks.
pub fn envelope(session: &Session, record: &Record) -> serde_json::Value {
    let mut test = serde_json::to_value(&record.measurement).unwrap_or_default();
    let keys = test["test_keys"].take();
    let resolver = match &record.measurement {
        Measurement::Dns(pair) => Some(pair.resolver),
        _ => None,
    };
    serde_json::json!({
        "data_format_version": DATA_FORMAT_VERSION,
        "software_name": "bentpipe-probe",
        "software_version": session.software_version,
        "report_id": session.id,
        "id": format!("{}-{}", session.id, record.number),
        "test_name": format!("inflight_{}", record.measurement.name()),
        "test_version": TEST_VERSION,
        "test_start_time": session.began.utc(),
        "measurement_start_time": record.began.utc(),
        "test_runtime": record.runtime_us as f64 / 1e6,
        "probe_asn": "AS0",
        "probe_cc": "ZZ",
        "probe_ip": "127.0.0.1",
        "resolver_asn": "AS0",
        "resolver_ip": resolver,
        "annotations": {
            "platform": session.platform,
            "name_list": session.name_list,
            "number": record.number,
            "boot_us": record.began.boot_us,
            "wall_us": record.began.wall_us,
            "clock_age_s": record.clock_age_s,
            "quiet": record.quiet,
            "activity": record.activity,
            "concurrent": record.concurrent,
        },
        "test_keys": keys,
    })
}

/// Reads a line that [`envelope`] wrote: the identifier of the session, and the record.
pub fn opened(line: &str) -> Option<(String, Record)> {
    let mut value: serde_json::Value = serde_json::from_str(line).ok()?;
    let session = value["report_id"].as_str()?.to_owned();
    let kind = value["test_name"].as_str()?.strip_prefix("inflight_")?.to_owned();
    let runtime_s = value["test_runtime"].as_f64()?;
    let keys = value["test_keys"].take();
    let test = serde_json::json!({ "test_name": kind, "test_keys": keys });
    let annotations = Annotations::deserialize(&value["annotations"]).ok()?;
    let record = Record {
        number: annotations.number,
        began: annotations.began,
        clock_age_s: annotations.clock_age_s,
        runtime_us: (runtime_s * 1e6).round() as u64,
        quiet: annotations.quiet,
        activity: annotations.activity,
        concurrent: annotations.concurrent,
        measurement: serde_json::from_value(test).ok()?,
    };
    Some((session, record))
}

/// The annotations that [`opened`] reads.
#[derive(Deserialize)]
struct Annotations {
    number: u64,
    #[serde(flatten)]
    began: Moment,
    clock_age_s: i64,
    quiet: bool,
    activity: Option<String>,
    concurrent: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_has_oonis_fields_and_shares_no_place() {
        let began = Moment { boot_us: 5_000_000, wall_us: 1_795_756_816_250_000 };
        let session = Session {
            id: "0f".into(),
            began,
            software_version: "0.1.0".into(),
            platform: "linux-x86_64".into(),
            targets: Vec::new(),
            name_list: "list".into(),
        };
        let record = Record {
            number: 3,
            began,
            clock_age_s: -1,
            runtime_us: 1_500_000,
            quiet: false,
            activity: None,
            concurrent: vec!["dns:7".into()],
            measurement: Measurement::Gap(Gap { records: 2, failure: "disk_full".into() }),
        };
        let value = envelope(&session, &record);
        assert_eq!(value["measurement_start_time"], "2026-11-27 05:20:16");
        assert_eq!(value["test_name"], "inflight_gap");
        assert_eq!(value["test_keys"]["records"], 2);
        assert_eq!(value["probe_asn"], "AS0");
        assert_eq!(value["test_runtime"], 1.5);
        assert_eq!(value["annotations"]["concurrent"][0], "dns:7");
        assert_eq!(opened(&value.to_string()), Some(("0f".to_owned(), record.clone())));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record, "{text}");
    }
}
