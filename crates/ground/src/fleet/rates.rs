//! Share of an aircraft's opening rate that one passenger may use.

use bentpipe_flow::passenger::GATEWAY;
use bentpipe_units::{TokenBuckets, TokenRate};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Divisor of the aircraft's rate for one passenger: 62 a second of 500. The air gateway allows
/// each passenger 50 by default.
const PART_OF_ONE: u32 = 8;

/// Burst of a passenger in seconds of its share: 248 flows. The air gateway allows 200.
const BURST_SECONDS: u64 = 4;

/// Maximum number of passengers of one aircraft with their own share, in about 200 KiB. All others
/// have one share together.
const MAX_PASSENGERS: usize = 4_096;

/// Rates by passenger.
pub struct Rates {
    buckets: Mutex<TokenBuckets<u32>>,
    per_second: u64,
    began: Instant,
}

impl Rates {
    /// Creates the rates of an aircraft that may open `per_second` flows per second.
    pub fn new(per_second: u32) -> Self {
        let part = u64::from((per_second / PART_OF_ONE).max(1));
        let rate = TokenRate::new(part, part * BURST_SECONDS);
        let buckets = Mutex::new(TokenBuckets::new(rate, MAX_PASSENGERS));
        Self { buckets, per_second: part, began: Instant::now() }
    }

    /// New flows per second of one passenger.
    pub fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Takes one flow from the passenger's share, if available. Only the aircraft's own rate limits
    /// the flows of its gateway. Sources without a known device share one passenger's share.
    pub fn take(&self, passenger: u32) -> bool {
        passenger == GATEWAY || self.buckets.lock().take(passenger, 1, self.began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded() {
        let rates = Rates::new(8);
        let count = MAX_PASSENGERS as u32;
        for passenger in 1..=count {
            assert_eq!((0..9).filter(|_| rates.take(passenger)).count(), 4);
        }
        // Passengers beyond the limit have one share together.
        let beyond = (count + 2..count + 10).filter(|passenger| rates.take(*passenger));
        assert_eq!(beyond.count(), 4);
        tokio::time::advance(Duration::from_secs(4)).await;
        // All shares are full, so that each passenger has its own again.
        for passenger in [count + 3, count + 4] {
            assert_eq!((0..9).filter(|_| rates.take(passenger)).count(), 4);
        }
    }
}
