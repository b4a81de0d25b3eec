//! Figures of a store, from its records alone.
//!
//! | module | contents |
//! |---|---|
//! | `addresses` | public networks and their providers |
//! | `access` | the kind of access in the course of each session |
//! | `along` | latency and loss along flight tracks |
//! | `pings` | latency and loss of each target |
//! | `paths` | hops, the ends of paths, cabin latency |
//! | `lookups` | DNS pairs of each resolver |
//! | `rates` | rates of each direction and their limits |

mod access;
mod addresses;
mod along;
mod lookups;
mod paths;
mod pings;
mod rates;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::gps::{GpsCheck, GpsFix};
use crate::objects::{ObjectKind, ObjectPair};
use crate::orbit::Segment;
use crate::portal::{PortalCheck, PortalState};
use crate::record::{Gap, Measurement, Record, Session};
use crate::target::{Method, Side};
use crate::track::{MAX_FIXES, Track};

pub use access::Access;
pub use addresses::{Addresses, Stay};
pub use along::{PhaseFigures, Place};
pub use lookups::{Lookups, Resolver};
pub use paths::{Ends, HopFigures, Paths};
pub use pings::{Pings, TargetFigures, TargetKey, WindowFigures};
pub use rates::Rates;

/// Maximum number of pairs of fetches kept: 25 each 15 minutes for a month. 72,000 × 1 kB = 72 MB.
const MAX_OBJECTS: usize = 72_000;

/// Figures of all sessions added.
#[derive(Debug, Default)]
pub struct Analysis {
    /// Sessions, in the order of their begin.
    pub sessions: Vec<Session>,
    /// Records of each kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Pings.
    pub pings: Pings,
    /// Kinds of access.
    pub access: Access,
    /// Public networks and their providers.
    pub addresses: Addresses,
    /// Traceroutes.
    pub paths: Paths,
    /// DNS pairs.
    pub lookups: Lookups,
    /// Pairs of HTTP fetches, the first ones of a store.
    pub objects: Vec<Fetched>,
    /// Rates and their limits.
    pub rates: Rates,
    /// Checks that found a portal, found none, or learned nothing.
    pub portals: [u64; 3],
    /// Answers of networks' own APIs that reported a portal, of none, and failures.
    pub portal_apis: [u64; 3],
    /// Records that are missing, with their causes.
    pub gaps: Vec<Gap>,
    /// Positions of a receiver, with the time and whether they are the first of a session.
    positions: Vec<(i64, GpsFix, bool)>,
    /// Flight tracks.
    pub tracks: Vec<Track>,
    /// Steps of the clock and suspensions.
    pub clock_events: u64,
    /// The last check of the present session found a portal.
    is_captive: bool,
    /// The present session has a position.
    is_located: bool,
}

/// A pair of HTTP fetches.
#[derive(Debug)]
pub struct Fetched {
    /// Number of its session.
    pub session: usize,
    /// The pair.
    pub pair: ObjectPair,
}

/// Evidence for the minimum round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minimum {
    /// Round-trip time in microseconds.
    pub rtt_us: u64,
    /// Set if it is of pings in quiet windows.
    pub quiet: bool,
}

impl Analysis {
    /// Adds a session. Add it before its records.
    pub fn begin(&mut self, session: Session) {
        self.sessions.push(session);
        self.is_captive = false;
        self.is_located = false;
    }

    /// Adds the track of the receiver's positions, if there is one. Call it after the last record.
    pub fn end(&mut self) {
        let positions = std::mem::take(&mut self.positions);
        let track = positions.iter().map(|(wall_us, fix, first)| (*wall_us, fix, *first));
        self.tracks.extend(Track::of_receiver(track));
    }

    /// Adds a record of the session added last.
    pub fn add(&mut self, record: &Record) {
        let Some(session) = self.sessions.last() else { return };
        *self.kinds.entry(record.measurement.name()).or_default() += 1;
        let number = self.sessions.len() - 1;
        match &record.measurement {
            Measurement::Ping(ping) => {
                let since_us = record.began.boot_us.saturating_sub(session.began.boot_us);
                let side = side_of(session, ping.address);
                self.pings.add(number, since_us, side, record.quiet, record.began, ping);
                let tells =
                    side == Side::Far && !ping.scout && !matches!(ping.method, Method::Tcp { .. });
                if let Some(rtt_us) = ping.outcome.rtt_us().filter(|_| tells) {
                    self.access.add(number, since_us, &ping.target, rtt_us);
                }
            }
            Measurement::Straggler(_) => self.pings.stragglers += 1,
            Measurement::Trace(trace) => self.paths.add(trace),
            Measurement::Dns(pair) => self.lookups.add(pair),
            Measurement::Objects(pair) => {
                // A portal answers for every site.
                let is_of_portal = self.is_captive && pair.kind == ObjectKind::Listed;
                if self.objects.len() < MAX_OBJECTS && !is_of_portal {
                    self.objects.push(Fetched { session: number, pair: (**pair).clone() });
                }
            }
            Measurement::Rate(check) => self.rates.add(check),
            Measurement::Ndt7(test) => self.rates.add_test(test),
            Measurement::Epb(test) => self.rates.add_epb(test),
            Measurement::Portal(check) => self.add_portal(check),
            Measurement::Address(check) => {
                let since_us = record.began.boot_us.saturating_sub(session.began.boot_us);
                self.addresses.add(number, since_us, record.began.wall_us, check);
            }
            Measurement::Gps(check) => self.add_position(record.began.wall_us, check),
            Measurement::Gap(gap) => self.gaps.push(gap.clone()),
            Measurement::Clock(_) => self.clock_events += 1,
            Measurement::Network(_) => {}
        }
    }

    fn add_portal(&mut self, check: &PortalCheck) {
        self.is_captive = matches!(check.state, PortalState::Captive { .. });
        let index = match check.state {
            PortalState::Captive { .. } => 0,
            PortalState::Open => 1,
            PortalState::Unknown => 2,
        };
        self.portals[index] += 1;
        match (&check.api_answer, &check.api_failure) {
            (Some(api), _) => self.portal_apis[usize::from(!api.captive)] += 1,
            (None, Some(_)) => self.portal_apis[2] += 1,
            (None, None) => {}
        }
    }

    fn add_position(&mut self, wall_us: i64, check: &GpsCheck) {
        let Some(fix) = &check.fix else { return };
        if self.positions.len() < MAX_FIXES {
            let is_first = !std::mem::replace(&mut self.is_located, true);
            self.positions.push((wall_us, fix.clone(), is_first));
        }
    }

    /// Kinds of access in the course of a session.
    pub fn segments(&self, session: usize) -> Vec<Segment> {
        self.access.segments(session, &self.addresses)
    }

    /// The flight's own minimum round-trip time to the ground: of quiet pings if there are any, else of all.
    /// Pings of targets that may be in the cabin, and handshakes that a proxy there may answer, do not count.
    pub fn minimum_rtt(&self) -> Option<Minimum> {
        let quiet = self.pings.quiet_minimum_us.map(|rtt_us| Minimum { rtt_us, quiet: true });
        quiet.or(self.pings.minimum_us.map(|rtt_us| Minimum { rtt_us, quiet: false }))
    }
}

fn side_of(session: &Session, address: IpAddr) -> Side {
    let target = session.targets.iter().find(|target| target.address == address);
    target.map_or_else(|| crate::target::side(address), |target| target.side)
}

#[cfg(test)]
mod tests;
