//! Loss in windows of 100 s, as in Mile High WiFi, section 4.2: 50 pings each.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ping::Outcome;

/// Length of a window in seconds.
pub const WINDOW_S: u64 = 100;

/// Pings of one window, counted by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Pings that left.
    pub sent: u32,
    /// Pings without a reply within 10 s.
    pub lost: u32,
    /// Pings with a reply after 2 s and within 10 s. They are not lost.
    pub late: u32,
    /// Pings that the kernel refused to send. They are not part of `sent`.
    pub failed: u32,
}

impl Window {
    /// Share of lost pings, if any left.
    pub fn loss(&self) -> Option<f64> {
        (self.sent > 0).then(|| f64::from(self.lost) / f64::from(self.sent))
    }

    /// Counts one ping.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Failed { .. } => {
                self.failed += 1;
                return;
            }
            Outcome::Lost => self.lost += 1,
            Outcome::Late { .. } => self.late += 1,
            Outcome::Reply { .. } => {}
        }
        self.sent += 1;
    }
}

/// Windows of one target.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    windows: BTreeMap<u64, Window>,
}

impl Windows {
    /// Counts a ping that left `since_start_us` after the start of the session.
    pub fn count(&mut self, since_start_us: u64, outcome: &Outcome) {
        self.windows.entry(since_start_us / (WINDOW_S * 1_000_000)).or_default().count(outcome);
    }

    /// All windows with pings, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Window)> + '_ {
        self.windows.iter().map(|(number, window)| (*number, *window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_replies_are_not_losses_and_failures_are_not_pings() {
        let mut windows = Windows::default();
        for k in 0..100u64 {
            let outcome = match k {
                3 | 60 | 61 => Outcome::Lost,
                4 => Outcome::Late { rtt_us: 3_000_000, refused: false },
                99 => Outcome::Failed { failure: "network_unreachable".into() },
                _ => Outcome::Reply { rtt_us: 700_000, refused: false },
            };
            windows.count(k * 2_000_000, &outcome);
        }
        let all: Vec<_> = windows.iter().collect();
        assert_eq!(all[0], (0, Window { sent: 50, lost: 1, late: 1, failed: 0 }));
        assert_eq!(all[1], (1, Window { sent: 49, lost: 2, late: 0, failed: 1 }));
        assert_eq!(all[0].1.loss(), Some(0.02));
        assert_eq!(Window { failed: 3, ..Window::default() }.loss(), None);
    }
}
