//! Counters of the scheduler's work, for a metrics page.

use std::time::Duration;

/// Waiting time of what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// Number of waits.
    pub count: u64,
    /// All of them together.
    pub sum: Duration,
    /// The longest.
    pub max: Duration,
}

impl Delay {
    /// The average wait.
    pub fn mean(&self) -> Duration {
        let nanos = self.sum.as_nanos().checked_div(self.count.into()).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn add(&mut self, wait: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(wait);
        self.max = self.max.max(wait);
    }
}

/// Contents, without what the link adds to them: what whoever uses a flow counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Carried {
    /// That left for the first time.
    pub sent_bytes: u64,
    /// That came and were taken by their reader.
    pub received_bytes: u64,
}

impl Carried {
    /// Both ways together.
    pub const fn both(&self) -> u64 {
        self.sent_bytes + self.received_bytes
    }

    fn add(&mut self, other: Self) {
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }
}

/// Counters of a class, of a passenger in a class, or of a flow, since its first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Contents carried, both ways.
    pub carried: Carried,
    /// Number of sends: datagrams, or pieces of a stream.
    pub packets: u64,
    /// Bytes sent, with the headers of their frames.
    pub bytes: u64,
    /// Datagrams that were dropped.
    pub dropped_packets: u64,
    /// Bytes for which they counted.
    pub dropped_bytes: u64,
    /// Waiting time here of what was sent: a datagram since it was queued, a stream for its turn.
    pub delay: Delay,
}

impl Counters {
    pub(crate) fn sent(&mut self, bytes: u64, waited: Duration) {
        self.packets += 1;
        self.bytes += bytes;
        self.delay.add(waited);
    }

    pub(crate) fn dropped(&mut self, bytes: u64) {
        self.dropped_packets += 1;
        self.dropped_bytes += bytes;
    }
}

/// From the beginning, and since somebody looked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// From the beginning.
    pub total: Counters,
    /// Since the last look.
    pub recent: Counters,
}

impl Activity {
    pub(crate) fn sent(&mut self, bytes: u64, waited: Duration) {
        self.both(|counters| counters.sent(bytes, waited));
    }

    pub(crate) fn dropped(&mut self, bytes: u64) {
        self.both(|counters| counters.dropped(bytes));
    }

    pub(crate) fn carried(&mut self, carried: Carried) {
        self.both(|counters| counters.carried.add(carried));
    }

    /// Returns the current state; the recent counters start again at zero.
    pub(crate) fn look(&mut self) -> Self {
        let seen = *self;
        self.recent = Counters::default();
        seen
    }

    fn both(&mut self, count: impl Fn(&mut Counters)) {
        count(&mut self.total);
        count(&mut self.recent);
    }
}

/// Rough histogram of waits in 16 parts. Each part except the last ends at twice the end of the one
/// before; the first ends at 128 µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits([u64; Waits::PARTS]);

impl Waits {
    /// Number of parts.
    pub const PARTS: usize = 16;

    /// Exclusive end of a part; `None` for the last, which has none.
    pub const fn end_of(part: usize) -> Option<Duration> {
        if part + 1 < Self::PARTS { Some(Duration::from_micros(128 << part)) } else { None }
    }

    /// Number of waits in each part.
    pub const fn counts(&self) -> &[u64; Self::PARTS] {
        &self.0
    }

    /// The end of the part in which this share of all waits is reached, `share` being 0 to 1: no
    /// more than `longest`, and that where the part has no end.
    pub fn quantile(&self, share: f64, longest: Duration) -> Duration {
        let all: u64 = self.0.iter().sum();
        let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut so_far = 0;
        let part = self.0.iter().position(|count| {
            so_far += count;
            so_far >= wanted
        });
        let end = part.map(Self::end_of);
        end.map_or(Duration::ZERO, |end| end.unwrap_or(longest).min(longest))
    }

    pub(crate) fn add(&mut self, wait: Duration) {
        let units = wait.as_micros() >> 7;
        let part = (u128::BITS - units.leading_zeros()) as usize;
        self.0[part.min(Self::PARTS - 1)] += 1;
    }
}

/// A class and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassCounters {
    /// Sent, lost and waited by its flows.
    pub sent: Counters,
    /// Bytes charged to it in addition to its flows: repairs, retransmissions, packet overhead.
    pub charged_bytes: u64,
    /// Flows in it now.
    pub flows: usize,
    /// Memory of its datagrams now.
    pub queued_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_mean_is_of_all_waits() {
        let mut one = Activity::default();
        assert_eq!(one.total.delay.mean(), Duration::ZERO);
        one.sent(100, ms(10));
        one.sent(100, ms(30));
        one.dropped(70);
        let Counters { packets, bytes, dropped_packets, dropped_bytes, delay, .. } = one.total;
        assert_eq!((delay.mean(), delay.max), (ms(20), ms(30)));
        assert_eq!((packets, bytes, dropped_packets, dropped_bytes), (2, 200, 1, 70));
    }

    #[test]
    fn what_is_recent_begins_with_each_look() {
        let mut one = Activity::default();
        one.sent(100, ms(30));
        one.carried(Carried { sent_bytes: 90, received_bytes: 7 });
        let seen = one.look();
        assert_eq!(seen.total, seen.recent);
        assert_eq!(seen.total.carried.both(), 97);
        one.sent(50, ms(10));
        let seen = one.look();
        assert_eq!((seen.recent.bytes, seen.recent.delay.max), (50, ms(10)));
        assert_eq!((seen.total.bytes, seen.total.delay.max), (150, ms(30)));
    }

    #[test]
    fn waits_fall_into_parts_that_double() {
        let mut waits = Waits::default();
        assert_eq!(waits.quantile(0.95, ms(0)), ms(0));
        for (part, micros) in [(0, 127), (1, 128), (1, 255), (2, 256), (14, 2_000_000)] {
            let before = waits.counts()[part];
            waits.add(Duration::from_micros(micros));
            assert_eq!(waits.counts()[part], before + 1, "{micros} µs");
        }
        let day = Duration::from_secs(86_400);
        waits.add(day);
        waits.add(Duration::MAX);
        assert_eq!(waits.counts()[Waits::PARTS - 1], 2);
        assert_eq!(Waits::end_of(14), Some(Duration::from_micros(128 << 14)));
        assert_eq!(Waits::end_of(15), None);
        assert_eq!(waits.quantile(0.0, day), Duration::from_micros(128));
        assert_eq!(waits.quantile(0.5, day), Duration::from_micros(512));
        assert_eq!(waits.quantile(0.5, ms(0)), ms(0));
        assert_eq!(waits.quantile(1.0, day), day);
    }
}
