//! Bounds of the scenes.

use std::time::Duration;

use crate::profile::Profile;

/// Number of flows.
pub const FLOWS: u16 = 200;
/// Round trip between a hub and an egress.
pub const INTERNET_RTT: Duration = Duration::from_millis(20);
/// Lengths of the outage in a forced change, in seconds.
pub const OUTAGES_S: [u64; 6] = [0, 1, 5, 15, 30, 60];
/// Tolerance of a gap in a planned change.
const GAP_TOLERANCE: Duration = Duration::from_millis(50);
/// Time within which the flows of a dead egress are reset.
pub const RESET_BOUND: Duration = Duration::from_secs(2);
/// Time for the rest to arrive, after the last piece was written.
pub const REST: Duration = Duration::from_secs(60);
/// Maximum share of further bytes if nothing fails.
pub const MAX_COST: f64 = 0.005;

/// Bounds of a profile.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Round trip of the radio.
    pub rtt: Duration,
}

impl Bounds {
    /// Bounds for the link of `profile`.
    pub fn of(profile: &Profile) -> Self {
        Self { rtt: profile.link.rtt() }
    }

    /// Gap of a planned change: 1 RTT + 50 ms.
    pub fn gap(&self) -> Duration {
        self.rtt + GAP_TOLERANCE
    }

    /// Gap of an orderly restart: 1 s + 1 RTT.
    pub fn restart(&self) -> Duration {
        self.rtt + Duration::from_secs(1)
    }

    /// First byte after an outage: 1.5 RTT.
    pub fn first_byte(&self) -> Duration {
        self.rtt * 3 / 2
    }

    /// Recovery from the death of a hub: max(3 RTT, 2 s) + 2 RTT.
    pub fn recovery(&self) -> Duration {
        (3 * self.rtt).max(Duration::from_secs(2)) + 2 * self.rtt
    }
}
