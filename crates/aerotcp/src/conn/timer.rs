//! The retransmission timer.

use std::time::Duration;

/// Granularity of the timer. Section V.D only says that it "has a finer granularity" than TCP's,
/// which had ticks of half a second and a minimum timeout of one second (RFC 6298, 2.4).
pub const GRAIN: Duration = Duration::from_millis(10);

/// Divisor of the round trip that gives a timeout's minimum slack. After a long steady time, the
/// queue of another connection's retransmissions would otherwise look like a loss, and the copies
/// would lengthen it.
const SLACK_PART: u32 = 4;

/// Maximum timeout. An outage is probed at least this often.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of doublings of the timeout.
const MAX_DOUBLINGS: u32 = 8;

/// Measured round trip and the timeout derived from it, as in RFC 6298 but without its minimum.
#[derive(Debug, Clone)]
pub struct Timer {
    smoothed: Duration,
    variation: Duration,
    measured: bool,
    doublings: u32,
}

impl Timer {
    /// Creates a timer for an assumed round trip of `rtt`.
    pub fn new(rtt: Duration) -> Self {
        // As the first sample in RFC 6298 (2.2).
        Self { smoothed: rtt, variation: rtt / 2, measured: false, doublings: 0 }
    }

    /// Adds a sample: the time until a packet that was sent once was acknowledged.
    pub fn sample(&mut self, sample: Duration) {
        if self.measured {
            self.variation = (self.variation * 3 + self.smoothed.abs_diff(sample)) / 4;
            self.smoothed = (self.smoothed * 7 + sample) / 8;
        } else {
            (self.smoothed, self.variation, self.measured) = (sample, sample / 2, true);
        }
    }

    /// Retransmission timeout.
    pub fn timeout(&self) -> Duration {
        let slack = (self.variation * 4).max(self.smoothed / SLACK_PART).max(GRAIN);
        let base = self.smoothed + slack;
        (base * (1 << self.doublings)).min(MAX_TIMEOUT.max(base))
    }

    /// Smoothed round trip.
    pub fn round_trip(&self) -> Duration {
        self.smoothed
    }

    /// Doubles the timeout after it has expired.
    pub fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
    }

    /// Resets the doubling after an acknowledgement.
    pub fn reset_back_off(&mut self) {
        self.doublings = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_doubles_only_during_silence() {
        let rtt = Duration::from_millis(480);
        let mut timer = Timer::new(rtt);
        assert_eq!(timer.timeout(), rtt * 3);
        for _ in 0..60 {
            timer.sample(rtt);
        }
        let steady = timer.timeout();
        assert_eq!(steady, rtt + rtt / SLACK_PART);
        timer.back_off();
        assert_eq!(timer.timeout(), steady * 2);
        for _ in 0..20 {
            timer.back_off();
        }
        assert_eq!(timer.timeout(), MAX_TIMEOUT);
        timer.reset_back_off();
        assert_eq!(timer.timeout(), steady);
    }
}
