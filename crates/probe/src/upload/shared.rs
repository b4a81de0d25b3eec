//! Summary of the records of an upload, shown before anything is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::record::{Measurement, Record, Session, envelope};

/// Summary of records.
#[derive(Debug, Default)]
pub struct Shared {
    sessions: u64,
    /// Records and their bytes by kind.
    kinds: BTreeMap<&'static str, (u64, u64, &'static str)>,
    wall_us: Option<(i64, i64)>,
}

impl Shared {
    /// Begins a session with records to share.
    pub fn begin(&mut self) {
        self.sessions += 1;
    }

    /// Adds a record.
    pub fn add(&mut self, session: &Session, record: &Record) {
        let measurement = &record.measurement;
        let kind = self.kinds.entry(measurement.name()).or_insert((0, 0, identifying(measurement)));
        kind.0 += 1;
        kind.1 += envelope(session, record).to_string().len() as u64 + 1;
        let at = record.began.wall_us;
        let (from, to) = self.wall_us.unwrap_or((at, at));
        self.wall_us = Some((from.min(at), to.max(at)));
    }

    /// Kinds of the records.
    pub fn kinds(&self) -> BTreeSet<&str> {
        self.kinds.keys().copied().collect()
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.kinds.values().map(|kind| kind.0).sum()
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:10} {:>9} {:>12}  identifying contents", "kind", "records", "bytes")?;
        for (kind, (records, bytes, contents)) in &self.kinds {
            writeln!(f, "{kind:10} {records:>9} {bytes:>12}  {contents}")?;
        }
        let bytes: u64 = self.kinds.values().map(|kind| kind.1).sum();
        writeln!(f, "{:10} {:>9} {bytes:>12}  before compression", "all", self.records())?;
        let (from, to) = self.wall_us.unwrap_or_default();
        write!(
            f,
            "Each record has its time and the random identifier of its session. There are {} sessions,\nfrom {} to {} \
             UTC. The receiver also sees the address that you upload from.",
            self.sessions,
            crate::clock::utc(from),
            crate::clock::utc(to)
        )
    }
}

/// Contents of a kind that may identify a person, a flight or a place.
fn identifying(measurement: &Measurement) -> &'static str {
    match measurement {
        Measurement::Ping(_) | Measurement::Straggler(_) => {
            "addresses of targets, gateways and resolvers"
        }
        Measurement::Trace(_) => "addresses of hops",
        Measurement::Dns(_) => "names of the list, addresses of resolvers",
        Measurement::Objects(_) => "names of the list and of the origin, fields of proxies",
        Measurement::Rate(_) | Measurement::Epb(_) => "address of the origin",
        Measurement::Ndt7(_) => "name and address of the server",
        Measurement::Portal(_) => "address of the login page, maybe with your session",
        Measurement::Address(_) => "network of the public address (/24 or /48), provider",
        Measurement::Gps(_) => "your positions",
        Measurement::Network(_) => "addresses of gateways and resolvers, name of the interface",
        Measurement::Clock(_) => "times of suspensions",
        Measurement::Gap(_) => "-",
    }
}
