//! A token bucket in exact arithmetic.
//!
//! A bucket stores only its state; each call names the [`TokenRate`], which many buckets share and
//! which may change. A token is whatever the caller counts: a bit, a packet, a query.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::BitRate;

/// Parts of a token. Levels are whole numbers of them, so that nothing is lost between two refills
/// at any whole rate.
const NANOS: i128 = 1_000_000_000;

/// Rate and size of a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRate {
    per_second: u64,
    burst: u64,
}

/// Token bucket. The default is full, whatever its size. Time is a [`Duration`] since a start that
/// the caller chooses; time that runs backwards adds nothing.
///
/// ```
/// use std::time::Duration;
/// use bentpipe_units::{TokenBucket, TokenRate};
///
/// let (rate, mut bucket) = (TokenRate::new(10, 3), TokenBucket::default());
/// assert!((0..3).all(|_| bucket.take(rate, 1, Duration::ZERO)));
/// assert!(!bucket.take(rate, 1, Duration::from_millis(99)));
/// assert!(bucket.take(rate, 1, Duration::from_millis(100)));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenBucket {
    /// Missing tokens × 10⁹; more than the burst if the bucket is overdrawn.
    missing: i128,
    updated: Duration,
}

/// A token bucket for each of a bounded number of owners. The owners beyond it share one.
#[derive(Debug)]
pub struct TokenBuckets<K> {
    rate: TokenRate,
    max_owners: usize,
    buckets: BTreeMap<K, TokenBucket>,
    others: TokenBucket,
}

impl TokenRate {
    /// Tokens per second, and the most that a bucket stores.
    pub const fn new(per_second: u64, burst: u64) -> Self {
        Self { per_second, burst }
    }

    /// Bits at `rate`, with a burst of `burst_bytes`.
    pub const fn bits(rate: BitRate, burst_bytes: u64) -> Self {
        Self::new(rate.bps(), burst_bytes.saturating_mul(8))
    }

    /// Rate and burst of `count` owners together.
    pub const fn times(self, count: u64) -> Self {
        Self::new(self.per_second.saturating_mul(count), self.burst.saturating_mul(count))
    }

    /// Maximum number of stored tokens.
    pub const fn burst(self) -> u64 {
        self.burst
    }
}

impl TokenBucket {
    /// Takes `tokens` if the bucket holds them.
    pub fn take(&mut self, rate: TokenRate, tokens: u64, now: Duration) -> bool {
        let holds = self.holds(rate, tokens, now);
        if holds {
            self.spend(tokens);
        }
        holds
    }

    /// Returns `true` if the bucket holds `tokens`.
    pub fn holds(&mut self, rate: TokenRate, tokens: u64, now: Duration) -> bool {
        self.refill(rate, now);
        self.level(rate) >= nanos(tokens)
    }

    /// Returns `true` if the bucket holds anything, even a fraction of a token.
    pub fn is_open(&mut self, rate: TokenRate, now: Duration) -> bool {
        self.refill(rate, now);
        self.level(rate) > 0
    }

    /// Returns `true` if no token is missing. A full bucket equals a new one.
    pub fn is_full(&mut self, rate: TokenRate, now: Duration) -> bool {
        self.refill(rate, now);
        self.missing == 0
    }

    /// Spends `tokens`, even if the bucket holds fewer. Refill it first, because tokens earned
    /// since then could otherwise exceed the burst.
    pub fn spend(&mut self, tokens: u64) {
        self.missing = self.missing.saturating_add(nanos(tokens));
    }

    /// Returns `tokens` that were spent for nothing.
    pub fn refund(&mut self, tokens: u64) {
        self.missing = self.missing.saturating_sub(nanos(tokens)).max(0);
    }

    /// First time from the last refill on at which the bucket holds `tokens`; `None` if never.
    pub fn holds_at(&self, rate: TokenRate, tokens: u64) -> Option<Duration> {
        if tokens > rate.burst { None } else { self.reaches_at(rate, nanos(tokens)) }
    }

    /// First time from the last refill on at which the bucket [is open](Self::is_open); `None` if
    /// never.
    pub fn opens_at(&self, rate: TokenRate) -> Option<Duration> {
        self.reaches_at(rate, 1)
    }

    /// Changes the rate from `now` on. Tokens and debt stay, as far as the new burst permits.
    pub fn change_rate(&mut self, from: TokenRate, to: TokenRate, now: Duration) {
        self.refill(from, now);
        self.missing = (nanos(to.burst) - self.level(from)).max(0);
    }

    /// Adds the tokens earned until `now`.
    pub fn refill(&mut self, rate: TokenRate, now: Duration) {
        let passed = now.saturating_sub(self.updated).as_nanos();
        let earned = i128::try_from(passed).unwrap_or(i128::MAX);
        let earned = earned.saturating_mul(rate.per_second.into());
        self.missing = self.missing.saturating_sub(earned).max(0);
        self.updated = self.updated.max(now);
    }

    fn level(&self, rate: TokenRate) -> i128 {
        nanos(rate.burst).saturating_sub(self.missing)
    }

    fn reaches_at(&self, rate: TokenRate, level: i128) -> Option<Duration> {
        let lacks = level.saturating_sub(self.level(rate));
        if lacks <= 0 {
            return Some(self.updated);
        }
        let per_second = i128::from(rate.per_second);
        let wait = lacks.saturating_add(per_second - 1).checked_div(per_second)?;
        let wait = Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX));
        Some(self.updated.saturating_add(wait))
    }
}

impl<K: Ord> TokenBuckets<K> {
    /// Creates full buckets of `rate`, up to `max_owners` of them. An entry takes about 50 bytes.
    pub fn new(rate: TokenRate, max_owners: usize) -> Self {
        Self { rate, max_owners, buckets: BTreeMap::new(), others: TokenBucket::default() }
    }

    /// Takes `tokens` of `owner` if its bucket holds them.
    pub fn take(&mut self, owner: K, tokens: u64, now: Duration) -> bool {
        if self.buckets.len() >= self.max_owners && !self.buckets.contains_key(&owner) {
            // A full bucket has no state to keep.
            self.buckets.retain(|_, bucket| !bucket.is_full(self.rate, now));
        }
        let has_own = self.buckets.len() < self.max_owners || self.buckets.contains_key(&owner);
        let bucket =
            if has_own { self.buckets.entry(owner).or_default() } else { &mut self.others };
        bucket.take(self.rate, tokens, now)
    }
}

fn nanos(tokens: u64) -> i128 {
    i128::from(tokens) * NANOS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: TokenRate = TokenRate::new(10, 40);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::default();
        let mut taken = |at| (0..100).filter(|_| bucket.take(RATE, 1, at)).count();
        assert_eq!([taken(ms(5_000)), taken(ms(5_099)), taken(ms(5_100))], [40, 0, 1]);
        assert_eq!(taken(ms(4_000)), 0, "time never runs backwards");
        assert_eq!(taken(ms(3_600_000)), 40, "savings end at the burst");
    }

    #[test]
    fn an_overdrawn_bucket_opens_when_its_debt_is_paid() {
        let mut bucket = TokenBucket::default();
        bucket.refill(RATE, ms(1_000));
        bucket.spend(60);
        assert_eq!(bucket.opens_at(RATE), Some(ms(3_000) + Duration::from_nanos(1)));
        assert_eq!(bucket.holds_at(RATE, 1), Some(ms(3_100)));
        assert!(!bucket.is_open(RATE, ms(3_000)) && bucket.is_open(RATE, ms(3_001)));
    }

    #[test]
    fn an_amount_above_the_burst_is_never_due() {
        let bucket = TokenBucket::default();
        assert_eq!(bucket.holds_at(RATE, 41), None);
        assert_eq!(bucket.opens_at(TokenRate::new(0, 0)), None);
        assert_eq!(bucket.holds_at(TokenRate::new(0, 5), 5), Some(Duration::ZERO));
    }

    #[test]
    fn a_refund_never_exceeds_the_burst() {
        let mut bucket = TokenBucket::default();
        assert!(bucket.take(RATE, 3, ms(0)) && !bucket.is_full(RATE, ms(0)));
        bucket.refund(5);
        assert!(bucket.is_full(RATE, ms(0)));
    }

    #[test]
    fn a_new_rate_keeps_tokens_and_debt() {
        let (mut bucket, larger) = (TokenBucket::default(), TokenRate::new(1, 100));
        bucket.change_rate(RATE, larger, ms(0));
        assert!(bucket.holds(larger, 40, ms(0)) && !bucket.holds(larger, 41, ms(0)));
        bucket.spend(50);
        bucket.change_rate(larger, RATE, ms(1_000));
        assert_eq!(bucket.holds_at(RATE, 1), Some(ms(2_000)), "its debt is nine, its rate ten");
        bucket.change_rate(RATE, TokenRate::new(1, 2), ms(60_000));
        assert!(bucket.is_full(TokenRate::new(1, 2), ms(60_000)), "the rest exceeds the burst");
    }

    #[test]
    fn owners_beyond_the_bound_share_one_bucket() {
        let mut buckets = TokenBuckets::new(TokenRate::new(1, 4), 100);
        assert!((0..100).all(|owner| buckets.take(owner, 3, ms(0))));
        assert!(buckets.take(100, 3, ms(0)), "the others have one too");
        assert!(!buckets.take(101, 3, ms(0)) && !buckets.take(99, 3, ms(0)));
        assert_eq!(buckets.buckets.len(), 100);
        // All buckets are full again and removed, so that every owner has its own.
        assert!(buckets.take(101, 3, ms(3_000)) && buckets.take(102, 3, ms(3_000)));
        assert_eq!(buckets.buckets.len(), 2);
    }

    proptest! {
        #[test]
        fn taken_amounts_never_exceed_burst_and_rate(
            per_second in 1u64..1_000_000_000,
            burst in 1u64..100_000,
            steps in prop::collection::vec((0u64..3_000_000, 1u64..2_000), 1..200),
        ) {
            let (rate, mut bucket) = (TokenRate::new(per_second, burst), TokenBucket::default());
            let (mut now, mut passed) = (Duration::ZERO, 0u128);
            for (gap_ns, tokens) in steps {
                now += Duration::from_nanos(gap_ns);
                let at = bucket.holds_at(rate, tokens);
                let taken = bucket.take(rate, tokens, now);
                prop_assert_eq!(taken, at.is_some_and(|at| at <= now));
                passed += if taken { u128::from(tokens) } else { 0 };
                let earned = now.as_nanos() * u128::from(per_second) / 1_000_000_000;
                prop_assert!(passed <= u128::from(burst) + earned);
            }
        }
    }
}
