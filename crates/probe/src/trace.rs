//! Traceroutes: values, the place where a path dies, and the machine that makes one.
//!
//! | module | contents |
//! |---|---|
//! | `tracer` | [`Tracer`]: the next probe, the meaning of a reply, the end |
//! | `packet` | ICMP probes with a constant flow, and the errors that quote them |

pub mod packet;
mod tracer;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use tracer::{Arrival, Step, Tracer};

/// Probes to each hop, as traceroute(8) sends.
pub const PROBES: u8 = 3;

/// Largest TTL.
pub const MAX_TTL: u8 = 30;

/// A traceroute with all its replies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Name of the target.
    pub target: String,
    /// Address of the target.
    pub address: IpAddr,
    /// Kind of the probes.
    pub method: TraceMethod,
    /// Identifier of the flow, constant in all probes: the UDP source port, or the ICMP checksum. Routers
    /// that balance load by flow send all probes the same way.
    pub flow: u16,
    /// Hops in order from TTL 1.
    pub hops: Vec<Hop>,
    /// End of the path.
    #[serde(flatten)]
    pub end: TraceEnd,
}

/// Kind of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceMethod {
    /// UDP datagrams; the kernel hands over the errors (IP_RECVERR). It needs no rights.
    Udp,
    /// ICMP echo on a raw socket. It needs CAP_NET_RAW.
    Icmp,
}

/// Replies from one distance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// TTL of the probes.
    pub ttl: u8,
    /// Fate of each probe.
    pub probes: Vec<Probe>,
}

impl Hop {
    /// Fastest reply.
    pub fn fastest(&self) -> Option<(IpAddr, u64)> {
        let replies = self.probes.iter().filter_map(|probe| match probe {
            Probe::Reply { from, rtt_us, .. } => Some((*from, *rtt_us)),
            _ => None,
        });
        replies.min_by_key(|(_, rtt_us)| *rtt_us)
    }
}

/// Fate of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Probe {
    /// A reply.
    Reply {
        /// Address of the router or the target.
        from: IpAddr,
        /// Round-trip time in microseconds.
        rtt_us: u64,
        /// Meaning of the reply.
        kind: ReplyKind,
    },
    /// No reply in time.
    Silent,
    /// The kernel did not send it.
    Failed {
        /// The system's error in OONI's manner.
        failure: String,
    },
}

/// Meaning of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyKind {
    /// The TTL ended at a router.
    TimeExceeded,
    /// The target answered: "port unreachable" or an echo reply.
    Reached,
    /// Another "unreachable": a router refuses to go on.
    Unreachable,
}

/// End of a traceroute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum TraceEnd {
    /// The target answered.
    Reached,
    /// A router refused to go on.
    Refused,
    /// No hop beyond `after_ttl` answered; 0 if none answered at all.
    Died {
        /// Last TTL with a reply.
        after_ttl: u8,
    },
}

/// Side of the radio on which a path dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeathSide {
    /// The last hop that answered is in the aircraft.
    Air,
    /// The last hop that answered is beyond the radio.
    Ground,
}

/// Share of the radio's round-trip time from which a hop is beyond the radio. Cabins stay below some tens of
/// milliseconds, and no hop lies in the middle of the radio.
const BEYOND: f64 = 0.5;

impl Trace {
    /// Side on which the path dies, given the flight's minimum round-trip time to the ground. Returns `None`
    /// if the path does not die or no hop answered.
    pub fn death_side(&self, minimum_rtt_us: u64) -> Option<DeathSide> {
        let TraceEnd::Died { after_ttl } = self.end else { return None };
        let last = self.hops.iter().find(|hop| hop.ttl == after_ttl)?;
        let (_, rtt_us) = last.fastest()?;
        let beyond = rtt_us as f64 >= BEYOND * minimum_rtt_us as f64;
        Some(if beyond { DeathSide::Ground } else { DeathSide::Air })
    }

    /// Cabin latency: all round-trip times to the first hop.
    pub fn cabin_rtts(&self) -> impl Iterator<Item = u64> + '_ {
        let first = self.hops.first().filter(|hop| hop.ttl == 1);
        first.into_iter().flat_map(|hop| &hop.probes).filter_map(|probe| match probe {
            Probe::Reply { rtt_us, kind: ReplyKind::TimeExceeded, .. } => Some(*rtt_us),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(ttl: u8, rtt_us: u64) -> Hop {
        let from = IpAddr::from([10, 0, 0, ttl]);
        Hop {
            ttl,
            probes: vec![
                Probe::Silent,
                Probe::Reply { from, rtt_us, kind: ReplyKind::TimeExceeded },
            ],
        }
    }

    fn silent(ttl: u8) -> Hop {
        Hop { ttl, probes: vec![Probe::Silent; 3] }
    }

    fn trace(hops: Vec<Hop>, end: TraceEnd) -> Trace {
        let address = IpAddr::from([1, 1, 1, 1]);
        Trace { target: "t".into(), address, method: TraceMethod::Udp, flow: 1, hops, end }
    }

    #[test]
    fn the_side_follows_from_the_step_of_the_round_trip_time() {
        let air =
            trace(vec![hop(1, 1500), hop(2, 9000), silent(3)], TraceEnd::Died { after_ttl: 2 });
        assert_eq!(air.death_side(620_000), Some(DeathSide::Air));
        let ground =
            trace(vec![hop(1, 1500), hop(2, 640_000), silent(3)], TraceEnd::Died { after_ttl: 2 });
        assert_eq!(ground.death_side(620_000), Some(DeathSide::Ground));
        assert_eq!(
            trace(vec![silent(1)], TraceEnd::Died { after_ttl: 0 }).death_side(620_000),
            None
        );
        assert_eq!(trace(vec![hop(1, 1)], TraceEnd::Reached).death_side(620_000), None);
        assert_eq!(air.cabin_rtts().collect::<Vec<_>>(), [1500]);
        assert_eq!(trace(vec![silent(1), hop(2, 5)], TraceEnd::Reached).cabin_rtts().count(), 0);
    }
}
