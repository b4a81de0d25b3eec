//! Token bucket of a class: its remaining ceiling or its guaranteed rate.

use std::time::Duration;

use bentpipe_units::BitRate;

/// Minimum burst of a bucket: four packets of 1500 bytes. A class that waits for packets of other
/// classes still gets its rate. Over a minute at 256 kbit/s the burst adds 0.3 %.
pub const BURST_BYTES: u64 = 6000;

/// Burst at high rates, as a time. The link pulls at timer ticks of 1 ms and its pacer may be
/// equally late.
pub const BURST_TIME: Duration = Duration::from_millis(4);

const NANOS: i128 = 1_000_000_000;

/// Token bucket that one packet may overdraw. The long-run rate is therefore exact for all packet
/// sizes, up to the burst.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    rate: BitRate,
    /// Level in 10⁻⁹ bits, so that no fraction of a bit is lost between updates.
    level: i128,
    max: i128,
    updated: Duration,
}

impl Bucket {
    /// Creates a bucket that is full at `now`.
    pub fn new(rate: BitRate, now: Duration) -> Self {
        let max = burst(rate);
        Self { rate, level: max, max, updated: now }
    }

    /// Changes the rate from `now` on. Tokens earned so far and any debt stay.
    pub fn set_rate(&mut self, rate: BitRate, now: Duration) {
        self.refill(now);
        (self.rate, self.max) = (rate, burst(rate));
        self.level = self.level.min(self.max);
    }

    /// Returns `true` if the bucket is not empty.
    pub fn is_open(&mut self, now: Duration) -> bool {
        self.refill(now);
        self.level > 0
    }

    /// Spends `bytes`; the level may become negative.
    pub fn spend(&mut self, bytes: usize) {
        self.level -= i128::try_from(bytes).unwrap_or(i128::MAX >> 40) * 8 * NANOS;
    }

    /// Time at which the bucket is next open; `None` if its rate is zero.
    pub fn opens_at(&self) -> Option<Duration> {
        if self.level > 0 {
            return Some(self.updated);
        }
        let rate = i128::from(self.rate.bps());
        let wait = (1 - self.level + rate - 1).checked_div(rate)?;
        let wait = Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX));
        Some(self.updated.saturating_add(wait))
    }

    /// Adds the tokens earned until now.
    pub fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.updated).as_nanos();
        if passed == 0 {
            return;
        }
        let earned =
            i128::try_from(passed).unwrap_or(i128::MAX).saturating_mul(self.rate.bps().into());
        self.level = self.level.saturating_add(earned).min(self.max);
        self.updated = now;
    }
}

fn burst(rate: BitRate) -> i128 {
    if rate.bps() == 0 {
        return 0;
    }
    i128::from(BURST_BYTES.max(rate.bytes_in(BURST_TIME))) * 8 * NANOS
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
            let (mut bucket, mut now, mut sent) = (Bucket::new(rate, Duration::ZERO), start, 0);
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
        let mut bucket = Bucket::new(BitRate::from_bps(1_000_000), Duration::ZERO);
        let hour = Duration::from_secs(3600);
        assert!(bucket.is_open(hour));
        bucket.spend(6000);
        assert!(!bucket.is_open(hour));
        bucket.set_rate(BitRate::from_bps(8_000_000), hour);
        assert_eq!(bucket.opens_at(), Some(hour + Duration::from_nanos(1)));
        assert!(!Bucket::new(BitRate::from_bps(0), Duration::ZERO).is_open(hour));
        assert_eq!(Bucket::new(BitRate::from_bps(0), Duration::ZERO).opens_at(), None);
    }
}
