//! Random numbers from a seed: for the jitter of the schedule and the names of lookups.

/// SplitMix64, a generator of 64-bit numbers with a 64-bit state (Steele, Lea and Flood, 2014). It is not
/// for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        // 53 bits are the precision of an f64.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_published_sequence() {
        // First outputs of the reference implementation for seed 1234567.
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn units_fill_the_interval() {
        let mut random = Random::new(1);
        let drawn: Vec<f64> = (0..100_000).map(|_| random.unit()).collect();
        let mean = drawn.iter().sum::<f64>() / 100_000.0;
        assert!(drawn.iter().all(|unit| (0.0..1.0).contains(unit)));
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }
}
