//! What was done for whom, for a metrics page.

use std::time::Duration;

/// How long what was sent had waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// How many waits these are.
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

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

/// Of a class, a passenger or a flow, since it was first heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// How often something was sent: datagrams, or pieces of a stream.
    pub packets: u64,
    /// What was sent.
    pub bytes: u64,
    /// Datagrams that were dropped.
    pub dropped_packets: u64,
    /// What they counted as.
    pub dropped_bytes: u64,
    /// How long what was sent had waited here: a datagram since it was queued, a stream for its turn.
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

    pub(crate) fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.dropped_packets += other.dropped_packets;
        self.dropped_bytes += other.dropped_bytes;
        self.delay.merge(&other.delay);
    }
}

/// A class and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassCounters {
    /// What its flows sent, lost and waited.
    pub sent: Counters,
    /// What was charged to it beside its flows: repairs, retransmissions, packets' overhead.
    pub charged_bytes: u64,
    /// Flows in it now.
    pub flows: usize,
    /// What its datagrams take now.
    pub queued_bytes: u64,
}

/// A passenger, over all classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassengerCounters {
    /// What its flows sent, lost and waited.
    pub sent: Counters,
    /// Flows it has now.
    pub flows: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_all_waits() {
        let ms = Duration::from_millis;
        let (mut one, mut other) = (Counters::default(), Counters::default());
        assert_eq!(one.delay.mean(), Duration::ZERO);
        one.sent(100, ms(10));
        one.sent(100, ms(30));
        other.sent(50, ms(80));
        other.dropped(70);
        one.merge(&other);
        assert_eq!((one.delay.mean(), one.delay.max), (ms(40), ms(80)));
        assert_eq!(
            (one.packets, one.bytes, one.dropped_packets, one.dropped_bytes),
            (3, 250, 1, 70)
        );
    }
}
