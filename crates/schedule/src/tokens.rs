//! Token bucket of a class: its remaining ceiling or its guaranteed rate.

use std::time::Duration;

use bentpipe_units::{BitRate, TokenBucket, TokenRate};

/// Minimum burst of a bucket: four packets of 1500 bytes. A class that waits for packets of other
/// classes still gets its rate. Over a minute at 256 kbit/s the burst adds 0.3 %.
pub const BURST_BYTES: u64 = 6000;

/// Burst at high rates, as a time. The link pulls at timer ticks of 1 ms and its pacer may be
/// equally late.
pub const BURST_TIME: Duration = Duration::from_millis(4);

/// Token bucket that one packet may overdraw. The long-run rate is therefore exact for all packet
/// sizes, up to the burst.
#[derive(Debug, Clone)]
pub(crate) struct ClassBucket {
    /// In bits.
    rate: TokenRate,
    bucket: TokenBucket,
}

impl ClassBucket {
    /// Creates a bucket that is full at `now`.
    pub fn new(rate: BitRate, now: Duration) -> Self {
        let (rate, mut bucket) = (tokens(rate), TokenBucket::default());
        bucket.refill(rate, now);
        Self { rate, bucket }
    }

    /// Changes the rate from `now` on. Tokens earned so far and any debt stay.
    pub fn set_rate(&mut self, rate: BitRate, now: Duration) {
        let rate = tokens(rate);
        self.bucket.change_rate(self.rate, rate, now);
        self.rate = rate;
    }

    /// Returns `true` if the bucket is not empty.
    pub fn is_open(&mut self, now: Duration) -> bool {
        self.bucket.is_open(self.rate, now)
    }

    /// Spends `bytes`; the level may become negative.
    pub fn spend(&mut self, bytes: usize) {
        self.bucket.spend((bytes as u64).saturating_mul(8));
    }

    /// Time at which the bucket is next open; `None` if its rate is zero.
    pub fn opens_at(&self) -> Option<Duration> {
        self.bucket.opens_at(self.rate)
    }

    /// Adds the tokens earned until now.
    pub fn refill(&mut self, now: Duration) {
        self.bucket.refill(self.rate, now);
    }
}

/// Bits of a class at `rate`, with its burst; none at all at a rate of zero.
fn tokens(rate: BitRate) -> TokenRate {
    let burst_bytes = match rate.bps() {
        0 => 0,
        _ => BURST_BYTES.max(rate.bytes_in(BURST_TIME)),
    };
    TokenRate::bits(rate, burst_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn the_rate_is_exact_for_all_packet_sizes(
            kbps in 64u64..100_000, sizes in proptest::collection::vec(40usize..1500, 50..300), start_ms in 0u64..5000,
        ) {
            let rate = BitRate::from_bps(kbps * 1000);
            let start = Duration::from_millis(start_ms);
            let (mut bucket, mut now, mut sent) = (ClassBucket::new(rate, Duration::ZERO), start, 0);
            for size in sizes {
                while !bucket.is_open(now) {
                    now = bucket.opens_at().unwrap();
                    prop_assert!(bucket.clone().is_open(now), "opens later than it said");
                }
                bucket.spend(size);
                sent += size as u64;
            }
            let (earned, saved) = (rate.bytes_in(now - start), rate.bytes_in(BURST_TIME).max(BURST_BYTES));
            prop_assert!(sent <= earned + saved + 1500, "{sent} of {earned}");
            prop_assert!(sent + 1 >= earned, "{sent} of {earned}");
        }
    }

    #[test]
    fn savings_stop_at_the_burst() {
        let mut bucket = ClassBucket::new(BitRate::from_bps(1_000_000), Duration::ZERO);
        let hour = Duration::from_secs(3600);
        assert!(bucket.is_open(hour));
        bucket.spend(6000);
        assert!(!bucket.is_open(hour));
        bucket.set_rate(BitRate::from_bps(8_000_000), hour);
        assert_eq!(bucket.opens_at(), Some(hour + Duration::from_nanos(1)));
        assert!(!ClassBucket::new(BitRate::from_bps(0), Duration::ZERO).is_open(hour));
        assert_eq!(ClassBucket::new(BitRate::from_bps(0), Duration::ZERO).opens_at(), None);
    }
}
