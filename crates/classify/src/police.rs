//! Ceiling of each passenger in the network class.
//!
//! Passengers mark their own packets as urgent, so the marks must not bypass fairness. Datagrams
//! above the ceiling are dropped. Calls, which the class is meant for, stay below it.

use std::time::Duration;

use bentpipe_units::{BitRate, TokenBuckets, TokenRate};

/// Burst above the rate: five packets of maximum size, or 50 ms at the default rate.
const BURST_BYTES: u64 = 7_500;

/// Maximum number of passengers with their own bucket, in about 200 KiB. All others share one
/// bucket.
const MAX_COUNTED: usize = 4_096;

/// A token bucket for each passenger, in bits. Time is a [`Duration`] since the gateway started.
#[derive(Debug)]
pub struct Policer(TokenBuckets<u32>);

impl Policer {
    /// Creates a policer that allows each passenger `rate`.
    pub fn new(rate: BitRate) -> Self {
        Self(TokenBuckets::new(TokenRate::bits(rate, BURST_BYTES), MAX_COUNTED))
    }

    /// Returns `true` if this passenger may now send a datagram of `bytes`.
    pub fn admit(&mut self, passenger: u32, bytes: usize, now: Duration) -> bool {
        self.0.take(passenger, (bytes as u64).saturating_mul(8), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_passes_and_a_flood_is_cut_to_the_rate() {
        let mut policer = Policer::new(BitRate::from_bps(128_000));
        let mut admitted = [0usize; 2];
        // A call of 50 packets of 200 bytes a second, next to a flood of 1,000 packets of 1,000
        // bytes.
        for ms in 0..10_000 {
            let now = Duration::from_millis(ms);
            if ms % 20 == 0 {
                admitted[0] += usize::from(policer.admit(1, 200, now));
            }
            admitted[1] += usize::from(policer.admit(2, 1_000, now)) * 1_000;
        }
        assert_eq!(admitted[0], 500);
        // Ten seconds at 16,000 bytes a second, and the burst; less than one packet may be left
        // over.
        assert!((166_500..=167_500).contains(&admitted[1]), "{admitted:?}");
    }

    #[test]
    fn asking_often_loses_nothing() {
        let mut policer = Policer::new(BitRate::from_bps(8_000));
        assert!(policer.admit(1, 7_500, Duration::ZERO));
        let bytes = (0..10_000u64).filter(|n| policer.admit(1, 1, Duration::from_micros(n * 300)));
        assert_eq!(bytes.count(), 2_999, "a byte a millisecond for three seconds");
    }

    #[test]
    fn passengers_beyond_the_bound_share_one() {
        let mut policer = Policer::new(BitRate::from_bps(8_000));
        for passenger in 0..MAX_COUNTED as u32 {
            assert!(policer.admit(passenger, 7_000, Duration::ZERO));
        }
        assert!(policer.admit(1 << 20, 7_000, Duration::ZERO), "the others have one too");
        assert!(!policer.admit(1 << 21, 7_000, Duration::ZERO));
        // Ten seconds later every passenger is counted separately again.
        assert!(policer.admit(1 << 20, 7_000, Duration::from_secs(10)));
        assert!(policer.admit(1 << 21, 7_000, Duration::from_secs(10)));
    }
}
