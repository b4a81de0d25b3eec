//! Recent deliveries to the peer: their rate, and its relation to the sending rate.

use std::collections::VecDeque;
use std::time::Duration;

use super::Observation;

/// Maximum number of recorded arrivals, 48 bytes each.
const MAX_ARRIVALS: usize = 512;

/// Reported arrivals.
#[derive(Debug, Default)]
pub struct DeliveryRate {
    arrivals: VecDeque<Arrival>,
    sent_bytes: u64,
    bytes: u64,
}

/// A reported packet.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// Sending time, on our clock.
    sent: Duration,
    /// Arrival time, on the peer's clock.
    at: Duration,
    /// Bytes sent up to this packet, with lost ones.
    sent_bytes: u64,
    /// Number of these bytes that had arrived.
    bytes: u64,
}

impl DeliveryRate {
    /// Records the newest packet of a report, and drops those that arrived more than `keep` before
    /// it.
    pub fn note(&mut self, report: &Observation, keep: Duration) {
        let arrived = report.judged.saturating_sub(report.lost);
        let bytes = u128::from(report.judged_bytes) * u128::from(arrived)
            / u128::from(report.judged.max(1));
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.sent_bytes = self.sent_bytes.saturating_add(report.judged_bytes);
        if self.arrivals.back().is_some_and(|last| report.arrived <= last.at) {
            return; // ignore a clock that goes backwards
        }
        self.arrivals.push_back(Arrival {
            sent: report.sent_at,
            at: report.arrived,
            sent_bytes: self.sent_bytes,
            bytes: self.bytes,
        });
        let keep_from = report.arrived.saturating_sub(keep);
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

    /// Delivery rate of the last `span`, relative to the rate at which it was sent.
    pub fn relative_rate(&self, span: Duration) -> Option<f64> {
        let (first, last) = self.over(span)?;
        let sent_bytes = last.sent_bytes - first.sent_bytes;
        let arrived = (last.bytes - first.bytes) as f64 / sent_bytes.max(1) as f64;
        let span = last.sent.saturating_sub(first.sent);
        Some(arrived * span.div_duration_f64(last.at - first.at))
    }

    /// First and last arrival of the last `span`.
    fn over(&self, span: Duration) -> Option<(Arrival, Arrival)> {
        let last = *self.arrivals.back()?;
        let from = last.at.saturating_sub(span);
        let first = self.arrivals.partition_point(|arrival| arrival.at <= from).saturating_sub(1);
        let first = *self.arrivals.get(first)?;
        (last.at > first.at).then_some((first, last))
    }
}
