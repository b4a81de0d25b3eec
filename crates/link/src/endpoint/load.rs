//! Number of handshakes that a hub answers before it asks for cookies.

use std::time::Duration;

/// Handshakes a second without a cookie. Each costs five curve operations, two to read it and three
/// to answer: 250 a second, whoever asks.
const FREE_HANDSHAKES_PER_S: u32 = 50;

/// Counts handshakes in one-second windows.
#[derive(Debug, Default)]
pub struct Load {
    window_start: Duration,
    count: u32,
}

impl Load {
    /// One more handshake is wanted; `true` when there are too many to do the work unasked.
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
    fn a_flood_is_high_until_a_second_has_passed() {
        let mut load = Load::default();
        let now = Duration::from_secs(9);
        assert!((0..FREE_HANDSHAKES_PER_S).all(|_| !load.is_high(now)));
        assert!(load.is_high(now));
        assert!(!load.is_high(now + Duration::from_secs(1)));
    }
}
