//! Pings: values, replies awaited, the choice of method, and packets.
//!
//! | module | contents |
//! |---|---|
//! | `in_flight` | [`InFlight`]: replies awaited for 10 s, later ones counted |
//! | `course` | [`Course`]: the method that is answered |
//! | `echo` | ICMP echo messages |

mod course;
pub mod echo;
mod in_flight;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::target::Method;

pub use course::Course;
pub use in_flight::{Expired, InFlight, Sent, Verdict};

/// Interval between two pings of a target (Mile High WiFi, section 3).
pub const INTERVAL: Duration = Duration::from_secs(2);

/// A reply after this time is late: the next ping has left meanwhile.
pub const LATE_AFTER: Duration = INTERVAL;

/// Wait for a reply before the ping counts as lost.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// One ping with its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ping {
    /// Name of the target.
    pub target: String,
    /// Address of the target.
    pub address: IpAddr,
    /// Method and port.
    #[serde(flatten)]
    pub method: Method,
    /// Number of the ping, counted for each target.
    pub sequence: u32,
    /// Set if the ping tries another method beside the current one. It has no part in loss.
    #[serde(default, skip_serializing_if = "is_false")]
    pub scout: bool,
    /// Delay of the send after its scheduled time, in microseconds.
    pub start_error_us: u64,
    /// Outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Fate of a ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// A reply within [`LATE_AFTER`].
    Reply {
        /// Round-trip time in microseconds.
        rtt_us: u64,
        /// Set if the reply is a refusal: TCP reset or "port unreachable".
        #[serde(default, skip_serializing_if = "is_false")]
        refused: bool,
    },
    /// A reply after [`LATE_AFTER`] and within [`PATIENCE`].
    Late {
        /// Round-trip time in microseconds.
        rtt_us: u64,
        /// As above.
        #[serde(default, skip_serializing_if = "is_false")]
        refused: bool,
    },
    /// No reply within [`PATIENCE`].
    Lost,
    /// The kernel did not send it: no route, no interface, no permission.
    Failed {
        /// The system's error, in OONI's manner: `network_unreachable`.
        failure: String,
    },
}

impl Outcome {
    /// The outcome of a reply.
    pub fn of_reply(rtt: Duration, refused: bool) -> Self {
        let rtt_us = crate::micros(rtt);
        match rtt > LATE_AFTER {
            true => Self::Late { rtt_us, refused },
            false => Self::Reply { rtt_us, refused },
        }
    }

    /// Round-trip time of a reply, late or not.
    pub fn rtt_us(&self) -> Option<u64> {
        match self {
            Self::Reply { rtt_us, .. } | Self::Late { rtt_us, .. } => Some(*rtt_us),
            Self::Lost | Self::Failed { .. } => None,
        }
    }
}

/// A reply that came after its ping had been counted as lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Straggler {
    /// Name of the target.
    pub target: String,
    /// Number of the ping.
    pub sequence: u32,
    /// Round-trip time in microseconds.
    pub rtt_us: u64,
}

fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_every_outcome_through_json() {
        let reply = Outcome::of_reply(Duration::from_millis(761), false);
        let late = Outcome::of_reply(Duration::from_millis(2001), true);
        assert!(matches!(late, Outcome::Late { rtt_us: 2_001_000, refused: true }));
        let failed = Outcome::Failed { failure: "network_unreachable".into() };
        for outcome in [reply, late, Outcome::Lost, failed] {
            let ping = Ping {
                target: "gateway".into(),
                address: "10.0.0.1".parse().unwrap(),
                method: Method::Tcp { port: 443 },
                sequence: 7,
                scout: false,
                start_error_us: 40,
                outcome,
            };
            let text = serde_json::to_string(&ping).unwrap();
            assert_eq!(serde_json::from_str::<Ping>(&text).unwrap(), ping, "{text}");
        }
    }
}
