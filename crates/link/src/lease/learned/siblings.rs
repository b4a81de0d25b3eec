//! Other sessions of this end that share the bottleneck. They drain together and divide what they
//! learned.

use std::time::Duration;

use super::packets::bytes_in;

/// Share of the capacity from which on it is used.
const BUSY: f64 = 0.5;

/// Knowledge about siblings, and what they need.
#[derive(Debug, Default)]
pub struct Siblings {
    pub are_there: bool,
    /// A drain began that they do not know of.
    pub drain_began: bool,
    /// Bytes sent since then.
    used_bytes: u64,
    used_since: Duration,
}

impl Siblings {
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
