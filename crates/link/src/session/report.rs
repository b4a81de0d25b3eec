//! When to report: coarse and paced in steady state, at once when a gap appears after quiet.

use std::time::Duration;

/// Reports in steady state are this part of a round trip apart.
const PER_ROUND_TRIP: u32 = 8;
/// But never closer than the clock's tick.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);
/// So many packets are never left unreported, however short the path: at 1,500 bytes they are
/// 375 KiB, of which a report of 60 bytes is 0.02 %.
const MOST_UNREPORTED: u32 = 256;
/// The last report is repeated once, so long after, because it may be lost.
const REPEAT_AFTER: Duration = Duration::from_millis(25);

/// The timer of one path's reports.
#[derive(Debug)]
pub struct ReportTimer {
    due: Option<Duration>,
    last: Option<Duration>,
    unreported: u32,
}

impl ReportTimer {
    pub fn new() -> Self {
        Self { due: None, last: None, unreported: 0 }
    }

    /// A packet that asks for a report came; `gap` when it showed one that was not known.
    pub fn came(&mut self, gap: bool, rtt: Duration, now: Duration) {
        let interval = (rtt / PER_ROUND_TRIP).max(LEAST_INTERVAL);
        let earliest = self.last.map_or(now, |last| last + interval);
        self.unreported += 1;
        let due = if (gap && earliest <= now) || self.unreported >= MOST_UNREPORTED {
            now
        } else {
            earliest.max(now + interval / 4)
        };
        // A repeat that was planned is overtaken by news.
        self.due =
            Some(if self.unreported == 1 { due } else { self.due.map_or(due, |at| at.min(due)) });
    }

    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    pub fn is_due(&self, now: Duration) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// A report leaves. The last one is repeated once.
    pub fn sent(&mut self, rtt: Duration, now: Duration) {
        let news = self.unreported > 0;
        self.due = news.then(|| now + REPEAT_AFTER.max(rtt / PER_ROUND_TRIP));
        self.last = Some(now);
        self.unreported = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(800);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn steady_arrivals_are_reported_eight_times_a_round_trip() {
        let (mut timer, mut reports) = (ReportTimer::new(), 0);
        for at in 0..8000 {
            if at % 6 == 0 {
                timer.came(false, RTT, ms(at));
            }
            if timer.is_due(ms(at)) {
                timer.sent(RTT, ms(at));
                reports += 1;
            }
        }
        assert!((78..=82).contains(&reports), "{reports} reports in 10 round trips");
    }

    #[test]
    fn a_gap_after_quiet_is_reported_at_once_and_repeated_once() {
        let mut timer = ReportTimer::new();
        timer.came(false, RTT, ms(0));
        assert!(!timer.is_due(ms(0)));
        timer.came(true, RTT, ms(10));
        assert!(timer.is_due(ms(10)));
        timer.sent(RTT, ms(10));
        assert_eq!(timer.due(), Some(ms(110)));
        timer.sent(RTT, ms(110));
        assert_eq!(timer.due(), None);
        timer.came(true, RTT, ms(120));
        assert_eq!(timer.due(), Some(ms(210)), "gaps in a row are paced too");
    }
}
