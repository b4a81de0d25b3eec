//! One-way delay of a path on the peer's clock. Only differences between paths mean anything, since
//! every path is measured with the same two clocks.

use std::time::Duration;

/// Round trips over which the minimum is taken: one half of them may be over.
const WINDOW_ROUND_TRIPS: u32 = 10;

/// Minimum of the last one to two windows.
#[derive(Debug, Default)]
pub struct OneWay {
    before: Option<f64>,
    lately: Option<f64>,
    /// Beginning of the present window.
    since: Duration,
}

impl OneWay {
    /// Adds a packet that was on its way from `sent` on our clock to `arrived` on the peer's.
    pub fn sample(&mut self, sent: Duration, arrived: Duration, rtt: Duration, now: Duration) {
        if now.saturating_sub(self.since) > rtt * WINDOW_ROUND_TRIPS {
            (self.before, self.since) = (self.lately.take(), now);
        }
        let delay = arrived.as_secs_f64() - sent.as_secs_f64();
        self.lately = Some(self.lately.map_or(delay, |least| least.min(delay)));
    }

    /// The delay in seconds plus a constant; `None` before the first report.
    pub fn min_s(&self) -> Option<f64> {
        match (self.lately, self.before) {
            (Some(lately), Some(before)) => Some(lately.min(before)),
            (lately, before) => lately.or(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_follows_a_longer_path_after_two_windows() {
        let (mut one_way, rtt) = (OneWay::default(), Duration::from_millis(100));
        let clock = Duration::from_secs(1000);
        let at = Duration::from_millis;
        for ms in 0..5000 {
            let delay = if ms < 1000 { 30 } else { 90 };
            one_way.sample(at(ms), clock + at(ms + delay), rtt, at(ms));
        }
        let found = one_way.min_s().expect("it was measured");
        assert!((found - 1000.09).abs() < 1e-6, "{found}");
    }
}
