//! The retransmission timer.

use std::time::Duration;

/// The grain of the timer. Section V.D only says that it "has a finer granularity" than TCP's,
/// whose ticks were half a second and whose least timeout is one (RFC 6298, 2.4).
pub const GRAIN: Duration = Duration::from_millis(10);

/// A timeout leaves room for so large a part of the round trip: where it has been steady for long,
/// the queue that another connection's retransmissions make would look like a loss, and the copies
/// that follow would make it longer.
const SLACK_PART: u32 = 4;

/// The longest timeout, however often it was doubled: an outage is probed at least this often.
pub const LONGEST: Duration = Duration::from_secs(10);

/// Maximum number of doublings of the timeout.
const MOST_DOUBLINGS: u32 = 8;

/// The measured round trip and the timeout that follows from it, after RFC 6298 without its
/// minimum.
#[derive(Debug, Clone)]
pub struct Timer {
    smoothed: Duration,
    variation: Duration,
    measured: bool,
    doublings: u32,
}

impl Timer {
    /// A timer for a round trip that is believed to be `rtt`.
    pub fn new(rtt: Duration) -> Self {
        // As RFC 6298 (2.2) takes a first sample.
        Self { smoothed: rtt, variation: rtt / 2, measured: false, doublings: 0 }
    }

    /// A packet that was sent once was acknowledged `sample` later.
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
        (base * (1 << self.doublings)).min(LONGEST.max(base))
    }

    /// The round trip.
    pub fn round_trip(&self) -> Duration {
        self.smoothed
    }

    /// A timeout has passed: the next one is twice as long.
    pub fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    /// An acknowledgement has come.
    pub fn relax(&mut self) {
        self.doublings = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fine_and_doubles_only_in_silence() {
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
        assert_eq!(timer.timeout(), LONGEST);
        timer.relax();
        assert_eq!(timer.timeout(), steady);
    }
}
