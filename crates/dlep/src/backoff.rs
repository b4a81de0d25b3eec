//! Delay before the next attempt.

use std::time::Duration;

/// Doubling pauses between attempts, from [`Backoff::FIRST`] to [`Backoff::LONGEST`].
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after the first failure.
    pub const FIRST: Duration = Duration::from_secs(1);

    /// No pause is longer: a modem that is back after an hour is found within this.
    pub const LONGEST: Duration = Duration::from_secs(30);

    /// The pause after one more failure.
    pub fn pause(&mut self) -> Duration {
        let pause = Self::FIRST.saturating_mul(1 << self.failures.min(16)).min(Self::LONGEST);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// After an attempt that came to something.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..7).map(|_| backoff.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!(backoff.pause(), Backoff::FIRST);
        backoff.failures = u32::MAX;
        assert_eq!(backoff.pause(), Backoff::LONGEST);
    }
}
