//! Round-trip time, smoothed as in RFC 6298, with another first variation: a quarter of the first
//! sample instead of a half. A radio's round trip varies little, so an answer is overdue after two
//! round trips instead of three.

use std::time::Duration;

/// The smoothed round trip and its variation.
#[derive(Debug, Clone)]
pub struct Rtt {
    smoothed: Duration,
    variation: Duration,
    measured: bool,
}

impl Rtt {
    /// Creates an estimate that uses `guess` until the first sample.
    pub fn guess(guess: Duration) -> Self {
        Self { smoothed: guess, variation: guess / 4, measured: false }
    }

    /// Adds a sample.
    pub fn sample(&mut self, sample: Duration) {
        if !self.measured {
            *self = Self { smoothed: sample, variation: sample / 4, measured: true };
            return;
        }
        self.variation = (self.variation * 3 + self.smoothed.abs_diff(sample)) / 4;
        self.smoothed = (self.smoothed * 7 + sample) / 8;
    }

    /// The smoothed round trip.
    pub fn get(&self) -> Duration {
        self.smoothed
    }

    /// Time after which a missing answer is overdue.
    pub fn overdue_after(&self) -> Duration {
        self.smoothed + (self.variation * 4).max(self.smoothed / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_converges_to_a_constant_round_trip() {
        let (guess, steady) = (Duration::from_secs(1), Duration::from_millis(761));
        let mut rtt = Rtt::guess(guess);
        assert_eq!(rtt.get(), guess);
        for _ in 0..40 {
            rtt.sample(steady);
        }
        assert!(rtt.get().abs_diff(steady) < Duration::from_micros(1));
        assert!(rtt.overdue_after() < steady * 13 / 10);
    }
}
