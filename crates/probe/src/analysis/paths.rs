//! Hops, the ends of paths, and cabin latency.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::trace::{DeathSide, Probe, Trace, TraceEnd};

/// Traceroutes of all targets.
#[derive(Debug, Default)]
pub struct Paths {
    /// Figures by target and TTL.
    pub hops: BTreeMap<(String, u8), HopFigures>,
    /// Round-trip times to the first hop in microseconds.
    pub cabin_us: Vec<u64>,
    /// Traceroutes that died, kept until the minimum round-trip time is known.
    died: Vec<Trace>,
    reached: u64,
    refused: u64,
}

/// Figures of one distance.
#[derive(Debug, Default)]
pub struct HopFigures {
    /// Replies by sender.
    pub senders: BTreeMap<IpAddr, u64>,
    /// Round-trip times in microseconds.
    pub rtts_us: Vec<u64>,
    /// Probes.
    pub probes: u64,
}

/// Ends of traceroutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Those that reached their target.
    pub reached: u64,
    /// Those that a router refused.
    pub refused: u64,
    /// Those that died in the aircraft.
    pub died_in_air: u64,
    /// Those that died beyond the radio.
    pub died_on_ground: u64,
    /// Those that died without telling where.
    pub died: u64,
}

impl Paths {
    pub(super) fn add(&mut self, trace: &Trace) {
        self.cabin_us.extend(trace.cabin_rtts());
        for hop in &trace.hops {
            let figures = self.hops.entry((trace.target.clone(), hop.ttl)).or_default();
            for probe in &hop.probes {
                figures.probes += 1;
                if let Probe::Reply { from, rtt_us, .. } = probe {
                    *figures.senders.entry(*from).or_default() += 1;
                    figures.rtts_us.push(*rtt_us);
                }
            }
        }
        match trace.end {
            TraceEnd::Reached => self.reached += 1,
            TraceEnd::Refused => self.refused += 1,
            TraceEnd::Died { .. } => self.died.push(trace.clone()),
        }
    }

    /// Traceroutes that died.
    pub fn deaths(&self) -> impl Iterator<Item = &Trace> + Clone {
        self.died.iter()
    }

    /// Number of traceroutes that reached their target.
    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// Ends of all traceroutes, given the minimum round-trip time to the ground.
    pub fn ends(&self, minimum_rtt_us: Option<u64>) -> Ends {
        let mut ends = Ends { reached: self.reached, refused: self.refused, ..Ends::default() };
        for trace in &self.died {
            match minimum_rtt_us.and_then(|minimum| trace.death_side(minimum)) {
                Some(DeathSide::Air) => ends.died_in_air += 1,
                Some(DeathSide::Ground) => ends.died_on_ground += 1,
                None => ends.died += 1,
            }
        }
        ends
    }
}
