//! Backoff between connection attempts.

use std::time::Duration;

/// Doubling pauses between attempts, from [`Backoff::MIN`] to [`Backoff::MAX`].
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Pause after the first failure.
    pub const MIN: Duration = Duration::from_secs(1);

    /// Maximum pause. A modem that returns after an hour is found within this time.
    pub const MAX: Duration = Duration::from_secs(30);

    /// Returns the pause after another failure.
    pub fn pause(&mut self) -> Duration {
        let pause = Self::MIN.saturating_mul(1 << self.failures.min(16)).min(Self::MAX);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// Resets the pauses after a successful attempt.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..7).map(|_| backoff.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!(backoff.pause(), Backoff::MIN);
        backoff.failures = u32::MAX;
        assert_eq!(backoff.pause(), Backoff::MAX);
    }
}
