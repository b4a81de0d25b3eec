//! Arrivals of our packets at the peer, as its reports tell them.

use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of recorded arrivals, 32 bytes each.
const MAX_SAMPLES: usize = 512;

/// A packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivalSample {
    /// Sending time, on our clock.
    pub sent: Duration,
    /// Arrival time, on the peer's clock.
    pub arrived: Duration,
    /// IP bytes of all packets up to this one, with lost ones.
    pub total_bytes: u64,
}

/// Recent arrivals, oldest first.
#[derive(Debug, Default)]
pub struct Arrivals {
    samples: VecDeque<ArrivalSample>,
}

/// Passage of several packets.
#[derive(Debug, Clone, Copy)]
pub struct Passage {
    /// Rate at which they arrived, in bits per second. Packets that the channel lost count, because
    /// they took their time at the bottleneck.
    pub arrived_bps: f64,
    /// Rate at which they were sent.
    pub sent_bps: f64,
    pub bytes: u64,
}

impl Arrivals {
    /// Adds the arrivals of a report, oldest first. Those that are known already are skipped.
    /// Returns the new ones with the newest known before them.
    pub fn add(&mut self, samples: &[ArrivalSample]) -> Vec<ArrivalSample> {
        let last = self.samples.back().copied();
        let is_new = |sample: &&ArrivalSample| {
            last.is_none_or(|last| {
                sample.total_bytes > last.total_bytes && sample.arrived >= last.arrived
            })
        };
        let new: Vec<ArrivalSample> =
            last.into_iter().chain(samples.iter().filter(is_new).copied()).collect();
        self.samples.extend(new.iter().skip(usize::from(last.is_some())));
        while self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
        new
    }

    /// Passage of the packets sent from `from` to `to`. `None` with fewer than three arrivals.
    pub fn between(&self, from: Duration, to: Duration) -> Option<Passage> {
        let first = self.samples.partition_point(|sample| sample.sent < from);
        let end = self.samples.partition_point(|sample| sample.sent <= to);
        if end < first + 3 {
            return None;
        }
        passage(self.samples[first], self.samples[end - 1])
    }

    /// Passage of the last packets that arrived over at least `span`.
    pub fn last(&self, span: Duration) -> Option<Passage> {
        let newest = *self.samples.back()?;
        let from = newest.arrived.checked_sub(span)?;
        let first = self.samples.partition_point(|sample| sample.arrived <= from).checked_sub(1)?;
        passage(self.samples[first], newest)
    }

    /// The same for packets sent from `sent_from` on.
    pub fn last_sent_from(&self, span: Duration, sent_from: Duration) -> Option<Passage> {
        let newest = *self.samples.back()?;
        let from = newest.arrived.checked_sub(span)?;
        let first = self.samples.partition_point(|sample| sample.arrived <= from).checked_sub(1)?;
        let first = *self.samples.get(first).filter(|first| first.sent >= sent_from)?;
        passage(first, newest)
    }

    /// Passage of the longest run of recent packets that were sent at least `stretched` times as fast
    /// as they arrived, with at least `bytes` after the first. Runs of which every beginning was stretched
    /// too are preferred: in them the bottleneck was never idle, as it is while the sender waits for data.
    pub fn train(&self, bytes: u64, stretched: f64) -> Option<Passage> {
        let is_stretched = |found: &Passage| found.sent_bps >= stretched * found.arrived_bps;
        let runs = (0..self.samples.len()).rev().flat_map(|first| {
            let from = self.samples[first];
            let later = self.samples.range(first + 1..);
            later.filter_map(move |to| passage(from, *to)).scan(true, move |busy, found| {
                *busy &= is_stretched(&found);
                Some((*busy, found))
            })
        });
        let trains = runs.filter(|(_, found)| found.bytes >= bytes && is_stretched(found));
        trains.max_by_key(|(busy, found)| (*busy, found.bytes)).map(|(_, found)| found)
    }

    /// The last `count` arrivals, oldest first.
    pub fn recent(&self, count: usize) -> Vec<ArrivalSample> {
        self.samples.range(self.samples.len().saturating_sub(count)..).copied().collect()
    }
}

/// Passage from one arrival to another.
pub fn passage(first: ArrivalSample, last: ArrivalSample) -> Option<Passage> {
    let span = last.arrived.checked_sub(first.arrived).filter(|span| !span.is_zero())?;
    let bytes = last.total_bytes.checked_sub(first.total_bytes)?;
    let bits = 8.0 * bytes as f64;
    let sent_s = last.sent.saturating_sub(first.sent).as_secs_f64();
    Some(Passage {
        arrived_bps: bits / span.as_secs_f64(),
        sent_bps: bits / sent_s.max(1e-9),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A packet of 1,500 bytes, sent every millisecond, that arrives every two.
    fn sample(number: u64) -> ArrivalSample {
        let (sent, arrived) = (ms(number), ms(300 + 2 * number));
        ArrivalSample { sent, arrived, total_bytes: 1500 * number }
    }

    #[test]
    fn rates_are_those_of_sending_and_of_arrival() {
        let mut arrivals = Arrivals::default();
        let samples: Vec<ArrivalSample> = (0..100).map(sample).collect();
        assert_eq!(arrivals.add(&samples[..50]).len(), 50);
        let new = arrivals.add(&samples[40..]);
        assert_eq!((new.len(), new[0], new[1]), (51, sample(49), sample(50)));
        let found = arrivals.between(ms(20), ms(79)).unwrap();
        assert!((found.arrived_bps - 6e6).abs() < 1.0 && (found.sent_bps - 12e6).abs() < 1.0);
        assert_eq!(found.bytes, 59 * 1500);
        let last = arrivals.last(ms(10)).unwrap();
        assert_eq!(last.bytes, 5 * 1500);
        assert!(arrivals.last(ms(1_000)).is_none());
        assert!(arrivals.between(ms(97), ms(98)).is_none(), "two arrivals are no train");
    }

    #[test]
    fn time_in_which_the_sender_waits_for_data_is_no_part_of_a_train() {
        // Five packets together, and five more 10 ms later, on a path that passes one in 0.6 ms.
        let passes = Duration::from_micros(600);
        let sample = |number: u32| {
            let sent = ms(10) * (number / 5);
            let arrived = ms(300) + sent + passes * (number % 5 + 1);
            ArrivalSample { sent, arrived, total_bytes: 1500 * u64::from(number) }
        };
        let mut arrivals = Arrivals::default();
        arrivals.add(&(0..10).map(sample).collect::<Vec<_>>());
        let found = arrivals.train(3600, 1.05).unwrap();
        assert!((found.arrived_bps - 20e6).abs() < 1.0, "{found:?}");
        assert_eq!(found.bytes, 4 * 1500);
        // Groups that are too small for it still tell more than nothing.
        let all = arrivals.train(6_001, 1.05).unwrap();
        assert!((6e6..10e6).contains(&all.arrived_bps), "{all:?}");
    }

    #[test]
    fn a_clock_that_goes_backwards_is_ignored() {
        let mut arrivals = Arrivals::default();
        arrivals.add(&[sample(5)]);
        assert_eq!(arrivals.add(&[ArrivalSample { arrived: ms(0), ..sample(6) }]), [sample(5)]);
        assert_eq!(arrivals.recent(3), [sample(5)]);
    }
}
