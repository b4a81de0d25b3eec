//! Rate at which one aircraft's questions reach the name servers.

use std::collections::HashMap;

use parking_lot::Mutex;

use bentpipe_relay::bucket::RateLimit;

/// Maximum number of questions of one aircraft per second, on average. An honest aircraft does not
/// need it: the air gateway caches answers and joins equal questions. 300 passengers who each open
/// one page of 20 uncached names every 15 s ask 400 a second.
pub const QUESTIONS_PER_SECOND: u32 = 500;

/// Burst in seconds of the rate: 2,000 questions. After an outage, 300 passengers may each ask 6 new
/// names at once.
const BURST_SECONDS: u32 = 4;

/// Token buckets of the aircraft that have asked. The configuration limits their number.
#[derive(Default)]
pub struct QueryRates(Mutex<HashMap<[u8; 32], RateLimit>>);

impl QueryRates {
    /// Takes one question from the rate of `aircraft`, if available.
    pub fn take(&self, aircraft: &[u8; 32]) -> bool {
        let new = || RateLimit::new(QUESTIONS_PER_SECOND, BURST_SECONDS);
        self.0.lock().entry(*aircraft).or_insert_with(new).take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_aircraft_has_a_burst_and_a_rate_of_its_own() {
        let rates = QueryRates::default();
        let taken = |aircraft: u8| (0..10_000).filter(|_| rates.take(&[aircraft; 32])).count();
        assert_eq!(taken(1), 2_000);
        assert_eq!(taken(2), 2_000, "another aircraft pays nothing");
        advance(Duration::from_secs(1)).await;
        assert_eq!(taken(1), 500);
        advance(Duration::from_secs(100)).await;
        assert_eq!(taken(1), 2_000);
    }

    /// 400 questions a second, for a minute.
    #[tokio::test(start_paused = true)]
    async fn a_busy_cabin_is_not_limited() {
        let rates = QueryRates::default();
        for _ in 0..60 {
            assert!((0..400).all(|_| rates.take(&[1; 32])));
            advance(Duration::from_secs(1)).await;
        }
    }
}
