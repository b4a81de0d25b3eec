//! Other sessions of this end that share the bottleneck. They drain together and divide what they
//! learned.

use std::time::Duration;

use super::packets::bytes_in;
use super::trains::{GAIN, GAIN_AFTER_SUCCESS};

/// Share of the capacity from which on it is used.
const BUSY: f64 = 0.5;

/// Knowledge about siblings, and what they need.
#[derive(Debug, Default)]
pub struct Siblings {
    pub are_there: bool,
    /// Number of active members of the group, if it is this one's turn to send trains.
    pub turn: Option<u32>,
    /// A drain began that they do not know of.
    pub drain_began: bool,
    /// Bytes sent since then.
    used_bytes: u64,
    used_since: Duration,
}

impl Siblings {
    /// Returns `true` unless it is a sibling's turn to send trains.
    pub fn is_turn(&self) -> bool {
        !self.are_there || self.turn.is_some()
    }

    /// Minimum gain of a train. With it, up to four equal members together send as much as one session
    /// with [`GAIN`]. Larger groups send less, because the gain ends at [`GAIN_AFTER_SUCCESS`]: eight
    /// send 1.125 times their rates.
    pub fn train_gain(&self) -> f64 {
        let members = self.turn.unwrap_or(1);
        (1.0 + (GAIN - 1.0) * f64::from(members)).min(GAIN_AFTER_SUCCESS)
    }

    /// Counts a packet.
    pub fn sent(&mut self, bytes: usize) {
        self.used_bytes += bytes as u64;
    }

    /// Returns `true` if most of `capacity_bps` was used since the last call.
    pub fn take_use(&mut self, capacity_bps: f64, now: Duration) -> bool {
        let used = std::mem::take(&mut self.used_bytes);
        let since = std::mem::replace(&mut self.used_since, now);
        used as f64 >= BUSY * bytes_in(capacity_bps, now.saturating_sub(since)) as f64
    }
}
