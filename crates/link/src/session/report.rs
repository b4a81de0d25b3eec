//! Times of reports: paced in steady state, at once if a gap appears after a pause.

use std::time::Duration;

use bentpipe_units::BitRate;

/// Number of reports in a round trip in steady state …
const PER_ROUND_TRIP: u32 = 8;
/// … unless they would take more than one part in this many of our rate …
const OF_OUR_RATE: u64 = 10;
/// … or of the peer's rate. A little less than a fiftieth, because a report may be longer than the
/// last one, from which its cost is computed.
const OF_PEERS_RATE: u64 = 53;
/// Minimum interval: the clock's tick.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum interval, whatever rate the peer claims.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of unreported packets on a path of any length, if reports can be afforded: at
/// 1,500 bytes they are 375 KiB, of which a report of 60 bytes is 0.02 %.
const MAX_UNREPORTED: u32 = 256;
/// Delay after which the last report is repeated once, because it may be lost.
const REPEAT_AFTER: Duration = Duration::from_millis(25);

/// Timer of one path's reports.
#[derive(Debug)]
pub struct ReportTimer {
    due: Option<Duration>,
    last: Option<Duration>,
    unreported: u32,
    /// Size of the last report.
    bytes: u64,
    /// Number of reports sent.
    count: u64,
}

/// Inputs of the interval between reports.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub rtt: Duration,
    pub our_rate: BitRate,
    pub peers_rate: BitRate,
}

impl ReportTimer {
    pub fn new() -> Self {
        Self { due: None, last: None, unreported: 0, bytes: 0, count: 0 }
    }

    /// Notes a packet that requests a report; `gap` says that it showed a new gap.
    pub fn came(&mut self, gap: bool, pace: Pace, now: Duration) {
        let interval = self.interval(pace);
        let earliest = |after: Duration| self.last.map_or(now, |last| now.max(last + after));
        self.unreported += 1;
        let due = if self.unreported >= MAX_UNREPORTED {
            earliest(self.affordable(pace))
        } else if gap && earliest(interval) == now {
            now
        } else {
            earliest(interval).max(now + interval / 4)
        };
        // News replaces a planned repetition.
        self.due =
            Some(if self.unreported == 1 { due } else { self.due.map_or(due, |at| at.min(due)) });
    }

    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Number of reports sent so far.
    pub fn sent_count(&self) -> u64 {
        self.count
    }

    pub fn is_due(&self, now: Duration) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Notes that a report was sent in `bytes`. The last one is repeated once.
    pub fn sent(&mut self, bytes: u64, pace: Pace, now: Duration) {
        self.bytes = bytes;
        self.count += 1;
        let news = self.unreported > 0;
        self.due = news.then(|| now + REPEAT_AFTER.max(self.interval(pace)));
        self.last = Some(now);
        self.unreported = 0;
    }

    /// Repeats the last report at once, because it may be lost.
    pub fn repeat(&mut self, now: Duration) {
        if self.count > 0 {
            self.due = Some(now);
        }
    }

    fn interval(&self, pace: Pace) -> Duration {
        (pace.rtt / PER_ROUND_TRIP).max(MIN_INTERVAL).max(self.affordable(pace))
    }

    /// Interval of reports, as large as the last one, that both directions can afford.
    fn affordable(&self, pace: Pace) -> Duration {
        let ours = pace.our_rate.bps() / OF_OUR_RATE;
        let budget = BitRate::from_bps(ours.min(pace.peers_rate.bps() / OF_PEERS_RATE).max(1));
        budget.time_for(self.bytes).min(MAX_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: BitRate = BitRate::from_bps(2_000_000);
    const PACE: Pace = Pace { rtt: Duration::from_millis(800), our_rate: FAST, peers_rate: FAST };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn steady_arrivals_are_reported_eight_times_a_round_trip() {
        let (mut timer, mut reports) = (ReportTimer::new(), 0);
        for at in 0..8000 {
            if at % 6 == 0 {
                timer.came(false, PACE, ms(at));
            }
            if timer.is_due(ms(at)) {
                timer.sent(100, PACE, ms(at));
                reports += 1;
            }
        }
        assert!((78..=82).contains(&reports), "{reports} reports in 10 round trips");
    }

    #[test]
    fn a_gap_after_a_pause_is_reported_at_once_and_repeated_once() {
        let mut timer = ReportTimer::new();
        timer.came(false, PACE, ms(0));
        assert!(!timer.is_due(ms(0)));
        timer.came(true, PACE, ms(10));
        assert!(timer.is_due(ms(10)));
        timer.sent(100, PACE, ms(10));
        assert_eq!(timer.due(), Some(ms(110)));
        timer.sent(100, PACE, ms(110));
        assert_eq!(timer.due(), None);
        timer.came(true, PACE, ms(120));
        assert_eq!(timer.due(), Some(ms(210)), "gaps in a row are paced too");
    }

    #[test]
    fn reports_take_a_fiftieth_of_one_direction_and_a_tenth_of_the_other() {
        for (our_bps, peers_bps) in [(256_000, 8_000_000), (32_000, 20_000_000), (64_000, 400_000)]
        {
            let (our_rate, peers_rate) = (BitRate::from_bps(our_bps), BitRate::from_bps(peers_bps));
            let pace = Pace { our_rate, peers_rate, ..PACE };
            let (mut timer, mut sent_bytes) = (ReportTimer::new(), 0);
            for at in 0..100_000 {
                timer.came(at % 7 == 0, pace, ms(at));
                if timer.is_due(ms(at)) {
                    timer.sent(400, pace, ms(at));
                    sent_bytes += 400;
                }
            }
            let max = f64::min(our_bps as f64 / 10.0, peers_bps as f64 / 50.0) * 100.0 / 8.0;
            let share = sent_bytes as f64 / max;
            assert!((0.9..=1.0).contains(&share), "{our_bps}: {sent_bytes} of {max}");
        }
    }
}
