//! Lateness of the emulator during a run, and the decision whether the run is still valid.

use std::time::Duration;

use super::testbed::LinkCounters;
use super::wire::STALL;

/// Maximum mean lateness of a run's packets, equal to the tolerance in the measurement of a link.
/// It lengthens a round trip by twice this value: 1.5 % of the shortest round trip here, 131 ms.
pub const MAX_MEAN: Duration = Duration::from_millis(1);

/// Counts of deliveries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lateness {
    /// All deliveries.
    pub delivered: u64,
    /// Deliveries more than a millisecond late.
    pub late: u64,
    /// Deliveries so late that a TCP timer may have expired.
    pub stalled: u64,
    /// Sum of the lateness of all deliveries.
    pub sum: Duration,
    /// Largest lateness of a delivery since the beginning.
    pub worst: Duration,
}

/// The emulator was too late to attribute the results to the link.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "the emulator was late: {mean_ms:.2} ms for each packet ({most} ms may be), and {stalled} of \
     {delivered} by more than {stall} ms (none may be): this machine is too busy; run fewer testbeds at \
     once (--jobs)",
    most = MAX_MEAN.as_millis(),
    stall = STALL.as_millis()
)]
pub struct TooLate {
    /// Mean over all packets, in milliseconds.
    pub mean_ms: f64,
    /// Packets delayed by a stall of the emulator.
    pub stalled: u64,
    /// All packets.
    pub delivered: u64,
}

impl Lateness {
    /// Lateness so far on these links, in both directions.
    pub fn of<'a>(links: impl IntoIterator<Item = &'a LinkCounters>) -> Self {
        let mut all = Self::default();
        for way in links.into_iter().flat_map(|link| [&link.forward, &link.return_]) {
            all.delivered += way.model.delivered.packets;
            all.late += way.late;
            all.stalled += way.stalled;
            all.sum += way.lateness;
            all.worst = all.worst.max(way.worst_lateness);
        }
        all
    }

    /// Counts since `before` was taken.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            delivered: self.delivered - before.delivered,
            late: self.late - before.late,
            stalled: self.stalled - before.stalled,
            sum: self.sum - before.sum,
            worst: self.worst,
        }
    }

    /// Sum of both.
    pub fn and(self, other: Self) -> Self {
        Self {
            delivered: self.delivered + other.delivered,
            late: self.late + other.late,
            stalled: self.stalled + other.stalled,
            sum: self.sum + other.sum,
            worst: self.worst.max(other.worst),
        }
    }

    /// Mean lateness of a packet.
    pub fn mean(&self) -> Duration {
        self.sum.div_f64(self.delivered.max(1) as f64)
    }

    /// Returns an error if a run with this lateness is not valid.
    pub fn judge(&self) -> Result<(), TooLate> {
        if self.mean() <= MAX_MEAN && self.stalled == 0 {
            return Ok(());
        }
        let mean_ms = 1e3 * self.mean().as_secs_f64();
        Err(TooLate { mean_ms, stalled: self.stalled, delivered: self.delivered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(delivered: u64, stalled: u64, sum_ms: u64) -> Lateness {
        let sum = Duration::from_millis(sum_ms);
        Lateness { delivered, late: stalled, stalled, sum, worst: Duration::ZERO }
    }

    #[test]
    fn a_millisecond_on_average_is_allowed_and_no_outage() {
        assert_eq!(late(1000, 0, 1000).judge(), Ok(()));
        assert!(late(1000, 0, 1001).judge().is_err());
        let error = late(1000, 2, 250).judge().unwrap_err().to_string();
        assert!(error.contains("0.25 ms") && error.contains("2 of 1000"), "{error}");
        assert_eq!(late(0, 0, 0).judge(), Ok(()));
    }

    #[test]
    fn a_run_is_judged_by_what_happened_in_it() {
        let (before, after) = (late(1000, 3, 5000), late(3000, 3, 6000));
        assert!(after.judge().is_err());
        assert_eq!(after.since(&before), late(2000, 0, 1000));
        assert_eq!(after.since(&before).judge(), Ok(()));
    }

    #[test]
    fn both_ways_of_all_links_count() {
        let mut link = LinkCounters::default();
        link.forward.model.delivered.packets = 5;
        link.return_.model.delivered.packets = 7;
        link.return_.stalled = 1;
        link.forward.lateness = Duration::from_millis(2);
        let all = Lateness::of([&link, &link]);
        assert_eq!((all.delivered, all.stalled, all.sum), (24, 2, Duration::from_millis(4)));
    }
}
