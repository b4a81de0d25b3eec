//! Counters of the scheduler, for metrics.

use std::time::Duration;

/// Waiting time of sent data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// Number of waits.
    pub count: u64,
    /// Sum of all waits.
    pub sum: Duration,
    /// Longest wait.
    pub max: Duration,
}

impl Delay {
    /// Average wait.
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

/// Payload bytes, without the overhead that the link adds. The user of a flow counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Payload {
    /// Bytes sent for the first time, without retransmissions.
    pub sent_bytes: u64,
    /// Bytes received and taken by their reader.
    pub received_bytes: u64,
}

impl Payload {
    /// Sum of both directions.
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
    /// Payload in both directions.
    pub payload: Payload,
    /// Number of sends: datagrams, or pieces of a stream.
    pub packets: u64,
    /// Bytes sent, frame headers included.
    pub bytes: u64,
    /// Number of dropped datagrams.
    pub dropped_packets: u64,
    /// Queued size of the dropped datagrams.
    pub dropped_bytes: u64,
    /// Waiting time of sent data: of a datagram since it was queued, of a stream since it became
    /// active.
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

/// Counters since the beginning and since the last snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// Counters since the beginning.
    pub total: Counters,
    /// Counters since the last snapshot.
    pub recent: Counters,
}

impl Activity {
    pub(crate) fn sent(&mut self, bytes: u64, waited: Duration) {
        self.both(|counters| counters.sent(bytes, waited));
    }

    pub(crate) fn dropped(&mut self, bytes: u64) {
        self.both(|counters| counters.dropped(bytes));
    }

    pub(crate) fn record_payload(&mut self, payload: Payload) {
        self.both(|counters| counters.payload.add(payload));
    }

    /// Returns the current counters and resets the recent ones.
    pub(crate) fn take(&mut self) -> Self {
        let snapshot = *self;
        self.recent = Counters::default();
        snapshot
    }

    fn both(&mut self, count: impl Fn(&mut Counters)) {
        count(&mut self.total);
        count(&mut self.recent);
    }
}

/// Histogram of waits in 16 buckets. Each bucket except the last ends at twice the end of the
/// previous one; the first ends at 128 µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DelayHistogram([u64; DelayHistogram::BUCKETS]);

impl DelayHistogram {
    /// Number of buckets.
    pub const BUCKETS: usize = 16;

    /// Exclusive upper bound of a bucket; `None` for the last, which has none.
    pub const fn upper_bound(bucket: usize) -> Option<Duration> {
        if bucket + 1 < Self::BUCKETS { Some(Duration::from_micros(128 << bucket)) } else { None }
    }

    /// Number of waits in each bucket.
    pub const fn counts(&self) -> &[u64; Self::BUCKETS] {
        &self.0
    }

    /// Upper bound of the bucket that contains the quantile `share` (0 to 1), at most `longest`. In
    /// the last bucket the result is `longest`.
    pub fn quantile(&self, share: f64, longest: Duration) -> Duration {
        let all: u64 = self.0.iter().sum();
        let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut so_far = 0;
        let bucket = self.0.iter().position(|count| {
            so_far += count;
            so_far >= wanted
        });
        let end = bucket.map(Self::upper_bound);
        end.map_or(Duration::ZERO, |end| end.unwrap_or(longest).min(longest))
    }

    pub(crate) fn add(&mut self, wait: Duration) {
        let units = wait.as_micros() >> 7;
        let bucket = (u128::BITS - units.leading_zeros()) as usize;
        self.0[bucket.min(Self::BUCKETS - 1)] += 1;
    }
}

/// Counters of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassCounters {
    /// Traffic of its flows.
    pub sent: Counters,
    /// Bytes charged in addition to its flows' data: repair packets, retransmissions, packet
    /// overhead.
    pub charged_bytes: u64,
    /// Current number of flows.
    pub flows: usize,
    /// Memory that its queued datagrams use.
    pub queued_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_mean_covers_all_waits() {
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
    fn recent_counters_restart_at_each_snapshot() {
        let mut one = Activity::default();
        one.sent(100, ms(30));
        one.record_payload(Payload { sent_bytes: 90, received_bytes: 7 });
        let snapshot = one.take();
        assert_eq!(snapshot.total, snapshot.recent);
        assert_eq!(snapshot.total.payload.both(), 97);
        one.sent(50, ms(10));
        let snapshot = one.take();
        assert_eq!((snapshot.recent.bytes, snapshot.recent.delay.max), (50, ms(10)));
        assert_eq!((snapshot.total.bytes, snapshot.total.delay.max), (150, ms(30)));
    }

    #[test]
    fn histogram_buckets_double() {
        let mut waits = DelayHistogram::default();
        assert_eq!(waits.quantile(0.95, ms(0)), ms(0));
        for (bucket, micros) in [(0, 127), (1, 128), (1, 255), (2, 256), (14, 2_000_000)] {
            let before = waits.counts()[bucket];
            waits.add(Duration::from_micros(micros));
            assert_eq!(waits.counts()[bucket], before + 1, "{micros} µs");
        }
        let day = Duration::from_secs(86_400);
        waits.add(day);
        waits.add(Duration::MAX);
        assert_eq!(waits.counts()[DelayHistogram::BUCKETS - 1], 2);
        assert_eq!(DelayHistogram::upper_bound(14), Some(Duration::from_micros(128 << 14)));
        assert_eq!(DelayHistogram::upper_bound(15), None);
        assert_eq!(waits.quantile(0.0, day), Duration::from_micros(128));
        assert_eq!(waits.quantile(0.5, day), Duration::from_micros(512));
        assert_eq!(waits.quantile(0.5, ms(0)), ms(0));
        assert_eq!(waits.quantile(1.0, day), day);
    }
}
