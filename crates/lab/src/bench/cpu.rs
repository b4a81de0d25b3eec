//! The time that this thread has spent on a processor. What else the machine does meanwhile does not
//! count, so that the figures are those of a core and not of a share of one.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// So far. There is such a clock on every Linux; nothing without one.
pub fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Since an earlier [`now`].
pub fn since(began: Duration) -> Duration {
    now().saturating_sub(began)
}
