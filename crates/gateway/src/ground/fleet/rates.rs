//! The part of an aircraft's opening rate that one passenger may use.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The part of an aircraft's rate that one passenger has: 62 a second of 500. The air gateway lets each
/// have 50 by default.
const PART_OF_ONE: u32 = 8;

/// Seconds of its part that a passenger may open at once: 248 flows, and the air gateway lets 200 pass.
const BURST_SECONDS: u32 = 4;

/// Passengers of one aircraft that are counted by themselves, in some 200 KiB; the others share one part.
const MAX_PASSENGERS: usize = 4_096;

/// The number that the aircraft's gateway uses for what it opens itself, and a standard client for
/// everything: the aircraft's own rate bounds these.
const GATEWAY: u32 = 0;

/// Rates by passenger.
pub struct Rates {
    /// Time that one flow takes of its passenger's part.
    each: Duration,
    state: Mutex<State>,
}

/// Time at which each passenger's part is full again.
#[derive(Default)]
struct State {
    full_at: HashMap<u32, Instant>,
    others: Option<Instant>,
}

impl Rates {
    /// Rates of an aircraft that may open so many flows per second.
    pub fn new(per_second: u32) -> Self {
        let part = (per_second / PART_OF_ONE).max(1);
        Self { each: Duration::from_secs(1) / part, state: Mutex::default() }
    }

    /// Takes one flow of the passenger's part, if there is one.
    pub fn take(&self, passenger: u32) -> bool {
        if passenger == GATEWAY {
            return true;
        }
        let now = Instant::now();
        // Nothing in here panics half-way.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { full_at, others } = &mut *state;
        if full_at.len() >= MAX_PASSENGERS && !full_at.contains_key(&passenger) {
            // A part that is full again needs no memory.
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
        // Those beyond share one part.
        let beyond = (count + 1..count + 9).filter(|passenger| rates.take(*passenger));
        assert_eq!(beyond.count(), 4);
        assert_eq!(rates.state.lock().unwrap().full_at.len(), MAX_PASSENGERS);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(rates.take(count + 3));
        assert_eq!(rates.state.lock().unwrap().full_at.len(), 1);
    }
}
