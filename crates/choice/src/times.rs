//! The last dials to a site.

use std::time::Duration;

/// Number of dials that count.
const KEPT: usize = 8;
/// Failures in a row after which an egress does not reach a site.
const MAX_FAILURES: u32 = 3;
/// Time after the last failure for which it is not used there. It doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of times that the pause doubles: to an hour.
const MAX_DOUBLINGS: u32 = 6;
/// Maximum time of a dial in the mean over all sites.
const MAX_IN_MEAN: Duration = Duration::from_secs(3);

/// The last dials of one egress to one site, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recent {
    times: [u16; KEPT],
    dials: usize,
    /// Failures in a row.
    failures: u32,
    /// Time of the last one.
    failed_at: Duration,
}

impl Recent {
    /// Adds a dial at `now`; `took` is `None` if it failed.
    pub fn add(&mut self, took: Option<Duration>, now: Duration) {
        let Some(took) = took else {
            self.failures = self.failures.saturating_add(1);
            self.failed_at = now;
            return;
        };
        self.failures = 0;
        self.times[self.dials % KEPT] = u16::try_from(took.as_millis()).unwrap_or(u16::MAX);
        // A multiple of the length counts like the length.
        self.dials = if self.dials == 2 * KEPT - 1 { KEPT } else { self.dials + 1 };
    }

    /// Returns `true` if the last dials failed, and it is too early to try again.
    pub fn fails(&self, now: Duration) -> bool {
        let Some(further) = self.failures.checked_sub(MAX_FAILURES) else { return false };
        now.saturating_sub(self.failed_at) < FIRST_PAUSE * (1 << further.min(MAX_DOUBLINGS))
    }

    /// Number of dials that count.
    pub fn len(&self) -> usize {
        self.dials.min(KEPT)
    }

    /// Their mean without outliers, which are less than half of the median or more than 1.5 medians;
    /// `None` without any dial. It varies less than the median, and a lost SYN, which costs a second,
    /// does not move it.
    pub fn typical(&self) -> Option<Duration> {
        let mut times = self.times;
        let times = &mut times[..self.len()];
        times.sort_unstable();
        let median = u32::from(*times.get((times.len().max(1) - 1) / 2)?);
        let usual = times.iter().copied().map(u32::from);
        let usual = usual.filter(|it| (median..=3 * median).contains(&(it * 2)));
        let (sum, count) = usual.fold((0, 0), |(sum, count), it| (sum + it, count + 1));
        Some(Duration::from_millis(sum.into()) / count)
    }
}

/// Mean over the dials of an egress to all sites.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mean(Option<Duration>);

/// Weight of a dial in the mean, as one part of so many.
const PARTS: u32 = 16;

impl Mean {
    /// Adds a dial that succeeded.
    pub fn add(&mut self, took: Duration) {
        let took = took.min(MAX_IN_MEAN);
        self.0 = Some(match self.0 {
            None => took,
            Some(before) => (before * (PARTS - 1) + took) / PARTS,
        });
    }

    /// The mean; `None` without any dial.
    pub fn get(&self) -> Option<Duration> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_eight_count_without_outliers() {
        let mut recent = Recent::default();
        assert_eq!((recent.len(), recent.typical()), (0, None));
        for took in 1..=100 {
            recent.add(Some(Duration::from_millis(took)), Duration::ZERO);
        }
        assert_eq!((recent.len(), recent.typical()), (8, Some(Duration::from_micros(96_500))));
        (0..3).for_each(|_| recent.add(Some(Duration::from_secs(4)), Duration::ZERO));
        assert_eq!(recent.typical(), Some(Duration::from_millis(98)));
    }

    #[test]
    fn failures_are_forgotten_after_a_pause_that_doubles() {
        let (mut recent, seconds) = (Recent::default(), Duration::from_secs);
        (0..2).for_each(|_| recent.add(None, seconds(10)));
        assert!(!recent.fails(seconds(10)));
        recent.add(None, seconds(10));
        assert!(recent.fails(seconds(69)) && !recent.fails(seconds(70)));
        recent.add(None, seconds(70));
        assert!(recent.fails(seconds(189)) && !recent.fails(seconds(190)));
        (0..100).for_each(|_| recent.add(None, seconds(190)));
        assert!(!recent.fails(seconds(190 + 3840)));
        recent.add(Some(seconds(1)), seconds(190));
        assert!(!recent.fails(seconds(190)));
    }
}
