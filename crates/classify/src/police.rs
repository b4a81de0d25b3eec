//! Ceiling of each passenger in the network class.
//!
//! Passengers mark their own packets as urgent, so the marks must not bypass fairness. Datagrams
//! above the ceiling are dropped. Calls, which the class is meant for, stay below it.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_units::BitRate;

/// Burst above the rate: five packets of maximum size, or 50 ms at the default rate.
const BURST_BYTES: u64 = 7_500;

/// Maximum number of passengers with their own bucket, in about 200 KiB. All others share one
/// bucket.
const MAX_COUNTED: usize = 4_096;

/// A token bucket for each passenger. Time is a [`Duration`] since the gateway started.
#[derive(Debug)]
pub struct Policer {
    rate: BitRate,
    buckets: BTreeMap<u32, Bucket>,
    others: Bucket,
}

/// Time at which the bucket is full again. This representation stays exact regardless of the number
/// of requests.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    full_at: Duration,
}

impl Policer {
    /// Creates a policer that allows each passenger `rate`.
    pub fn new(rate: BitRate) -> Self {
        Self { rate, buckets: BTreeMap::new(), others: Bucket::default() }
    }

    /// Returns `true` if this passenger may now send a datagram of `bytes`.
    pub fn admit(&mut self, passenger: u32, bytes: usize, now: Duration) -> bool {
        if !self.buckets.contains_key(&passenger) && self.buckets.len() >= MAX_COUNTED {
            // A full bucket has no state to keep.
            self.buckets.retain(|_, bucket| bucket.full_at > now);
        }
        let counted = self.buckets.contains_key(&passenger) || self.buckets.len() < MAX_COUNTED;
        let bucket = match counted {
            true => self.buckets.entry(passenger).or_default(),
            false => &mut self.others,
        };
        bucket.take(self.rate, bytes as u64, now)
    }
}

impl Bucket {
    fn take(&mut self, rate: BitRate, bytes: u64, now: Duration) -> bool {
        let full_at = self.full_at.max(now).saturating_add(rate.time_for(bytes));
        let admitted = full_at - now <= rate.time_for(BURST_BYTES);
        if admitted {
            self.full_at = full_at;
        }
        admitted
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
        assert_eq!(policer.buckets.len(), MAX_COUNTED);
        // Ten seconds later all buckets are removed, and every passenger is counted separately
        // again.
        assert!(policer.admit(1 << 21, 7_000, Duration::from_secs(10)));
        assert_eq!(policer.buckets.len(), 1);
    }
}
