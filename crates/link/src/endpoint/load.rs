//! LoadMeter meter: the number of handshakes that a hub answers before it requires cookies.

use std::time::Duration;

/// Handshakes a second without a cookie. Each costs five curve operations, two to read it and three
/// to answer: 250 a second for everybody.
const FREE_HANDSHAKES_PER_S: u32 = 50;

/// Counter of handshakes in one-second windows.
#[derive(Debug, Default)]
pub struct LoadMeter {
    window_start: Duration,
    count: u32,
}

impl LoadMeter {
    /// Counts a handshake. Returns `true` if there are too many to answer without a cookie.
    pub fn is_high(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.window_start) >= Duration::from_secs(1) {
            *self = Self { window_start: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count > FREE_HANDSHAKES_PER_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_high_until_a_second_has_passed() {
        let mut load = LoadMeter::default();
        let now = Duration::from_secs(9);
        assert!((0..FREE_HANDSHAKES_PER_S).all(|_| !load.is_high(now)));
        assert!(load.is_high(now));
        assert!(!load.is_high(now + Duration::from_secs(1)));
    }
}
