//! The last dials to a site.

use std::time::Duration;

/// Number of dials that count.
const KEPT: usize = 8;
/// Time that stands for a dial that failed without an answer. Such a destination may answer elsewhere.
const FAILED: Duration = Duration::from_secs(3);

/// Failures in a row after which an egress does not reach a site.
const FAILURES: u8 = 3;

/// The last dials of one egress to one site, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recent {
    times: [u16; KEPT],
    dials: usize,
    /// Failures in a row.
    failures: u8,
}

impl Recent {
    /// Adds a dial; `None` if it failed.
    pub fn add(&mut self, took: Option<Duration>) {
        self.failures = if took.is_some() { 0 } else { self.failures.saturating_add(1) };
        let took = took.unwrap_or(FAILED).as_millis();
        self.times[self.dials % KEPT] = u16::try_from(took).unwrap_or(u16::MAX);
        // A multiple of the length counts like the length.
        self.dials = if self.dials == 2 * KEPT - 1 { KEPT } else { self.dials + 1 };
    }

    /// Returns `true` if the last dials failed.
    pub fn fails(&self) -> bool {
        self.failures >= FAILURES
    }

    /// Number of dials that count.
    pub fn len(&self) -> usize {
        self.dials.min(KEPT)
    }

    /// Their mean without outliers, which are less than half of the median or more than 1.5 medians; `None` without any dial. It
    /// varies less than the median, and a lost SYN, which costs a second, does not move it.
    pub fn typical(&self) -> Option<Duration> {
        let mut times = self.times;
        let times = &mut times[..self.len()];
        times.sort_unstable();
        let median = u32::from(*times.get((times.len().max(1) - 1) / 2)?);
        let usual = times
            .iter()
            .copied()
            .map(u32::from)
            .filter(|it| (median..=3 * median).contains(&(it * 2)));
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
        let took = took.min(FAILED);
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
            recent.add(Some(Duration::from_millis(took)));
        }
        assert_eq!((recent.len(), recent.typical()), (8, Some(Duration::from_micros(96_500))));
        (0..3).for_each(|_| recent.add(None));
        assert_eq!(recent.typical(), Some(Duration::from_millis(98)));
        assert!(recent.fails());
        (0..3).for_each(|_| recent.add(None));
        assert_eq!(recent.typical(), Some(FAILED));
        recent.add(Some(Duration::ZERO));
        assert!(!recent.fails());
    }
}
