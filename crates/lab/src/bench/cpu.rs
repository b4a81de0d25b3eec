//! Processor time of the calling thread. Other work of the machine does not count, so the figures
//! are for a whole core.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Processor time so far. Every Linux has this clock; without it the result is zero.
pub fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Processor time since an earlier [`now`].
pub fn since(began: Duration) -> Duration {
    now().saturating_sub(began)
}
