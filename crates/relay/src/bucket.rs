//! A token bucket on tokio's clock.

use bentpipe_units::{TokenBucket, TokenRate};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Limits events to an average rate per second, with a burst.
pub struct RateLimit {
    rate: TokenRate,
    /// State, and the time of its first use.
    state: Mutex<(TokenBucket, Option<Instant>)>,
}

impl RateLimit {
    /// Creates a limit of `per_second` events a second. Its bucket stores up to `seconds` worth of
    /// them, and is full.
    pub fn new(per_second: u32, seconds: u32) -> Self {
        let burst = u64::from(per_second) * u64::from(seconds);
        Self { rate: TokenRate::new(per_second.into(), burst), state: Mutex::default() }
    }

    /// Counts an event, if the limit permits it.
    pub fn take(&self) -> bool {
        let mut state = self.state.lock();
        let (bucket, began) = &mut *state;
        let now = Instant::now();
        bucket.take(self.rate, 1, now - *began.get_or_insert(now))
    }
}
