//! Share of an aircraft's opening rate that one passenger may use.

use std::collections::HashMap;
use std::time::Duration;

use bentpipe_flow::passenger::GATEWAY;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Divisor of the aircraft's rate for one passenger: 62 a second of 500. The air gateway allows
/// each passenger 50 by default.
const PART_OF_ONE: u32 = 8;

/// Burst of a passenger in seconds of its share: 248 flows. The air gateway allows 200.
const BURST_SECONDS: u32 = 4;

/// Maximum number of passengers of one aircraft with their own share, in about 200 KiB. All others
/// have one share together.
const MAX_PASSENGERS: usize = 4_096;

/// Rates by passenger.
pub struct Rates {
    /// Cost of one flow, as time of the passenger's share.
    each: Duration,
    state: Mutex<State>,
}

/// Time at which each passenger's share is full again.
#[derive(Default)]
struct State {
    full_at: HashMap<u32, Instant>,
    others: Option<Instant>,
}

impl Rates {
    /// Creates the rates of an aircraft that may open `per_second` flows per second.
    pub fn new(per_second: u32) -> Self {
        let part = (per_second / PART_OF_ONE).max(1);
        Self { each: Duration::from_secs(1) / part, state: Mutex::default() }
    }

    /// Takes one flow from the passenger's share, if available. Only the aircraft's own rate limits
    /// the flows of its gateway. Sources without a known device share one passenger's share.
    pub fn take(&self, passenger: u32) -> bool {
        if passenger == GATEWAY {
            return true;
        }
        let now = Instant::now();
        let mut state = self.state.lock();
        let State { full_at, others } = &mut *state;
        if full_at.len() >= MAX_PASSENGERS && !full_at.contains_key(&passenger) {
            // A full share has no state to keep.
            full_at.retain(|_, full_at| *full_at > now);
        }
        let is_counted = full_at.len() < MAX_PASSENGERS || full_at.contains_key(&passenger);
        let slot = match is_counted {
            true => full_at.entry(passenger).or_insert(now),
            false => others.get_or_insert(now),
        };
        let after = (*slot).max(now) + self.each;
        let burst = Duration::from_secs(BURST_SECONDS.into()).max(self.each);
        let enough = after - now <= burst;
        if enough {
            *slot = after;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(rates.state.lock().full_at.len(), MAX_PASSENGERS);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(rates.take(count + 3));
        assert_eq!(rates.state.lock().full_at.len(), 1);
    }
}
