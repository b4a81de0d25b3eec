//! The rate of a direction, and what limits it: a slow link, a shaper or a policer.
//!
//! Trains of small packets are sent faster and faster until one is delayed or dropped in part. A last train, a little
//! faster than that, measures the rate. A policer drops packets and delays none. A shaper and a slow link delay
//! them. A shaper has a bucket of tokens, so it delays none at first.
//!
//! | module | contents |
//! |---|---|
//! | `plan` | trains to send |
//! | `reading` | delays and losses of one train |
//! | `search` | the order of trains, and the finding |
//! | [`wire`] | messages between probe and origin |

mod plan;
mod reading;
mod search;
pub mod wire;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use plan::{MAX_TRAFFIC, MAX_TRAIN_BYTES, MAX_TRAIN_PACKETS, MIN_PACKET_BYTES, Part, Plan};
pub use search::{Next, Search};

/// A packet of a train.
///
/// Records have it as an array, because a measurement has hundreds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u16, Option<u32>)", into = "(u32, u16, Option<u32>)")]
pub struct Packet {
    /// Time of sending since the first packet, on the sender's clock, in microseconds.
    pub sent_us: u32,
    /// Bytes with the IP header.
    pub bytes: u16,
    /// Time of arrival on the receiver's clock in microseconds. It starts anywhere.
    pub arrived_us: Option<u32>,
}

impl From<(u32, u16, Option<u32>)> for Packet {
    fn from((sent_us, bytes, arrived_us): (u32, u16, Option<u32>)) -> Self {
        Self { sent_us, bytes, arrived_us }
    }
}

impl From<Packet> for (u32, u16, Option<u32>) {
    fn from(packet: Packet) -> Self {
        (packet.sent_us, packet.bytes, packet.arrived_us)
    }
}

/// Limit of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "limit")]
pub enum Limit {
    /// The fastest train arrived as it was sent.
    None {
        /// Rate at which it arrived.
        at_least_bps: u64,
    },
    /// Packets wait from the first one on.
    SlowLink {
        /// Rate in IP bits per second.
        rate_bps: u64,
    },
    /// Packets wait when the bucket is empty.
    Shaper {
        /// Rate in IP bits per second.
        rate_bps: u64,
        /// Bytes that passed without waiting.
        burst_bytes: u64,
    },
    /// Packets are dropped when the bucket is empty.
    Policer {
        /// Rate in IP bits per second.
        rate_bps: u64,
        /// Bytes that passed before the first drop.
        burst_bytes: u64,
    },
    /// The trains contradict each other, or too little of them arrived.
    Unknown,
}

impl Limit {
    /// Rate in bits per second, if it is known.
    pub fn rate_bps(self) -> Option<u64> {
        match self {
            Self::None { at_least_bps: rate_bps }
            | Self::SlowLink { rate_bps }
            | Self::Shaper { rate_bps, .. }
            | Self::Policer { rate_bps, .. } => Some(rate_bps),
            Self::Unknown => None,
        }
    }

    /// Bytes that pass at once, of a bucket.
    pub fn burst_bytes(self) -> Option<u64> {
        match self {
            Self::Shaper { burst_bytes, .. } | Self::Policer { burst_bytes, .. } => {
                Some(burst_bytes)
            }
            _ => None,
        }
    }

    /// Name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::None { .. } => "no limit found",
            Self::SlowLink { .. } => "slow link",
            Self::Shaper { .. } => "shaper",
            Self::Policer { .. } => "policer",
            Self::Unknown => "unknown",
        }
    }

    /// Rate, kind and burst.
    pub fn text(self) -> String {
        let Some(rate) = self.rate_bps() else { return self.name().into() };
        let at_least = if matches!(self, Self::None { .. }) { "at least " } else { "" };
        let mut text = format!("{at_least}{}bit/s, {}", short(rate), self.name());
        if let Some(burst) = self.burst_bytes() {
            text.push_str(&format!(", burst {}B", short(burst)));
        }
        text
    }
}

/// A number with three digits and the prefix of its unit.
pub(crate) fn short(value: u64) -> String {
    let value = value as f64;
    let (scaled, prefix) = match value {
        value if value < 1e3 => (value, ""),
        value if value < 1e6 => (value / 1e3, "k"),
        value if value < 1e9 => (value / 1e6, "M"),
        value => (value / 1e9, "G"),
    };
    match scaled {
        scaled if scaled < 10.0 => format!("{scaled:.2} {prefix}"),
        scaled if scaled < 100.0 => format!("{scaled:.1} {prefix}"),
        scaled => format!("{scaled:.0} {prefix}"),
    }
}

/// Direction of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the aircraft.
    Down,
    /// From the aircraft.
    Up,
}

impl Direction {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// A measurement of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateCheck {
    /// Origin.
    pub server: Option<IpAddr>,
    /// Direction.
    pub direction: Direction,
    /// Finding; absent after a failure.
    pub limit: Option<Limit>,
    /// Trains, in the order of sending.
    pub trains: Vec<Vec<Packet>>,
    /// The failure in OONI's manner.
    pub failure: Option<String>,
}

#[cfg(test)]
mod tests;
