//! What came to the peer of late: how fast, and how much further apart than it was sent.

use std::collections::VecDeque;
use std::time::Duration;

use super::Observation;

/// No more arrivals than this are remembered, 40 bytes each.
const MAX_ARRIVALS: usize = 512;

/// The arrivals that reports told of.
#[derive(Debug, Default)]
pub struct Deliveries {
    arrivals: VecDeque<Arrival>,
    bytes: u64,
}

/// A reported packet.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// On our clock.
    sent: Duration,
    /// On the peer's.
    at: Duration,
    /// How many bytes had come by then.
    bytes: u64,
}

impl Deliveries {
    /// Notes the newest packet of a report, and forgets what came more than `keep` before it.
    pub fn note(&mut self, seen: &Observation, keep: Duration) {
        let arrived = seen.judged.saturating_sub(seen.lost);
        let bytes =
            u128::from(seen.judged_bytes) * u128::from(arrived) / u128::from(seen.judged.max(1));
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.arrivals.back().is_some_and(|last| seen.arrived <= last.at) {
            return; // a clock that goes backwards is not believed
        }
        self.arrivals.push_back(Arrival {
            sent: seen.sent_at,
            at: seen.arrived,
            bytes: self.bytes,
        });
        let keep_from = seen.arrived.saturating_sub(keep);
        while self.arrivals.len() > MAX_ARRIVALS
            || self.arrivals.get(1).is_some_and(|second| second.at < keep_from)
        {
            self.arrivals.pop_front();
        }
    }

    /// What arrived per second over the last `span`, in bits.
    pub fn bps(&self, span: Duration) -> Option<f64> {
        let (first, last) = self.over(span)?;
        Some(8.0 * (last.bytes - first.bytes) as f64 / (last.at - first.at).as_secs_f64())
    }

    /// Whether what was sent over this part of the last `span` took the whole of it to arrive.
    pub fn are_stretched(&self, span: Duration, part: f64) -> bool {
        self.over(span).is_some_and(|(first, last)| {
            last.sent.saturating_sub(first.sent) < (last.at - first.at).mul_f64(part)
        })
    }

    /// The arrivals that the last `span` began and ended with.
    fn over(&self, span: Duration) -> Option<(Arrival, Arrival)> {
        let last = *self.arrivals.back()?;
        let from = last.at.saturating_sub(span);
        let first = self.arrivals.partition_point(|arrival| arrival.at <= from).saturating_sub(1);
        let first = *self.arrivals.get(first)?;
        (last.at > first.at).then_some((first, last))
    }
}
