//! Recent deliveries to the peer: their rate, and the slowdown against the sending rate.

use std::collections::VecDeque;
use std::time::Duration;

use super::Observation;

/// No more arrivals than this are remembered, 48 bytes each.
const MAX_ARRIVALS: usize = 512;

/// The arrivals that reports told of.
#[derive(Debug, Default)]
pub struct Deliveries {
    arrivals: VecDeque<Arrival>,
    sent_bytes: u64,
    bytes: u64,
}

/// A reported packet.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// On our clock.
    sent: Duration,
    /// On the peer's.
    at: Duration,
    /// Bytes sent up to this packet, lost ones included.
    sent_bytes: u64,
    /// Bytes of these that had arrived.
    bytes: u64,
}

impl Deliveries {
    /// Notes the newest packet of a report, and forgets what came more than `keep` before it.
    pub fn note(&mut self, seen: &Observation, keep: Duration) {
        let arrived = seen.judged.saturating_sub(seen.lost);
        let bytes =
            u128::from(seen.judged_bytes) * u128::from(arrived) / u128::from(seen.judged.max(1));
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.sent_bytes = self.sent_bytes.saturating_add(seen.judged_bytes);
        if self.arrivals.back().is_some_and(|last| seen.arrived <= last.at) {
            return; // a clock that goes backwards is not believed
        }
        self.arrivals.push_back(Arrival {
            sent: seen.sent_at,
            at: seen.arrived,
            sent_bytes: self.sent_bytes,
            bytes: self.bytes,
        });
        let keep_from = seen.arrived.saturating_sub(keep);
        while self.arrivals.len() > MAX_ARRIVALS
            || self.arrivals.get(1).is_some_and(|second| second.at < keep_from)
        {
            self.arrivals.pop_front();
        }
    }

    /// Arrival rate over the last `span`, in bits per second.
    pub fn bps(&self, span: Duration) -> Option<f64> {
        let (first, last) = self.over(span)?;
        Some(8.0 * (last.bytes - first.bytes) as f64 / (last.at - first.at).as_secs_f64())
    }

    /// Sending rate between the last two arrivals, in bits per second.
    pub fn sending_bps(&self) -> Option<f64> {
        let mut newest = self.arrivals.iter().rev();
        let (last, before) = (newest.next()?, newest.next()?);
        let span = last.sent.checked_sub(before.sent).filter(|span| !span.is_zero())?;
        Some(8.0 * (last.sent_bytes - before.sent_bytes) as f64 / span.as_secs_f64())
    }

    /// As what part of the rate at which it was sent the last `span` arrived.
    pub fn part(&self, span: Duration) -> Option<f64> {
        let (first, last) = self.over(span)?;
        let sent_bytes = last.sent_bytes - first.sent_bytes;
        let arrived = (last.bytes - first.bytes) as f64 / sent_bytes.max(1) as f64;
        let span = last.sent.saturating_sub(first.sent);
        Some(arrived * span.div_duration_f64(last.at - first.at))
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
