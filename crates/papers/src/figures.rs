//! Metrics of transfers, computed from bytes and times, as `experiments/README.md` defines them.

use std::time::Duration;

use crate::job::Value;
use crate::link::Scene;

/// Share of NetForecast's link that a receive window of 64 KB leaves: 0.97 of 10 Mbit/s.
const WINDOW_SHARE: f64 = 0.097;

/// Repairs that each lost packet may need …
const REPAIRS: f64 = 1.2;
/// … beside so much for headers, reports and acknowledgements.
const OVERHEAD: f64 = 0.03;

/// A full IP packet of a kernel's TCP with timestamps, over the payload in it.
const IP_BYTES_PER_PAYLOAD: f64 = 1500.0 / 1448.0;

/// One transfer, or several one after another on one connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// Payload that arrived.
    pub bytes: u64,
    /// From the request to the last byte, or to the deadline.
    pub took: Duration,
    /// From the first byte's arrival to the last one's, or to the deadline.
    pub receiving: Duration,
    /// IP bytes offered to the link in the payload's direction.
    pub offered_bytes: u64,
    /// The share of packets offered to the link that did not come out of it.
    pub lost: f64,
    /// Connections that were reset before their end.
    pub resets: u32,
    /// `true` if all of it arrived.
    pub finished: bool,
}

impl Transfer {
    /// Its metrics.
    pub fn values(&self, scene: &Scene, up: bool) -> Vec<Value> {
        let share = |time: Duration| per(8.0 * self.bytes as f64, time) / scene.rate_bps(up);
        let (epb, received) = (share(self.took), share(self.receiving));
        let below = epb < WINDOW_SHARE;
        let failed = !self.finished || self.resets > 0;
        let mut values = vec![
            Value::of("epb", epb, self.finished),
            Value::of("epb-received", received, self.finished),
            Value::of("epb-fair", received / scene.fair_share(), self.finished),
            Value::of("below-window", f64::from(u8::from(below)), self.finished),
            Value::of("extra-budget", budget(self.lost), self.finished),
            Value::of("resets", f64::from(self.resets), true),
            Value::of("failed", f64::from(u8::from(failed)), true),
        ];
        let extra = extra_traffic(self.offered_bytes, self.bytes);
        values.extend(extra.map(|extra| Value::of("extra-traffic", extra, self.finished)));
        values
    }
}

/// IP bytes offered to the link over those that the payload is outside of it, less one. A kernel's
/// own retransmissions towards a gateway are none of the payload's. Of no payload there is no share.
pub fn extra_traffic(offered_bytes: u64, payload_bytes: u64) -> Option<f64> {
    let passed = payload_bytes as f64 * IP_BYTES_PER_PAYLOAD;
    (payload_bytes > 0).then(|| offered_bytes as f64 / passed - 1.0)
}

/// Bytes that repairs and control may add to a transfer that loses this share of its packets.
fn budget(lost: f64) -> f64 {
    // A link that loses everything asks for no end of repairs; a file of numbers has an end.
    let lost = lost.clamp(0.0, 0.999);
    REPAIRS * lost / (1.0 - lost) + OVERHEAD
}

/// So much in a time; of nothing in no time, nothing.
pub fn per(amount: f64, time: Duration) -> f64 {
    if amount == 0.0 { 0.0 } else { amount / time.as_secs_f64().max(1e-3) }
}

/// Jain's index of shares: (Σx)² ÷ (n Σx²); 1 where all are alike, or nobody has anything.
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_between_one_of_all_and_all_alike() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[0, 0]), 1.0);
    }

    #[test]
    fn extra_traffic_is_what_the_link_bore_beyond_each_byte_sent_once() {
        let payload = 1448 * 1000;
        assert_eq!(extra_traffic(1500 * 1000, payload), Some(0.0));
        assert!((extra_traffic(1500 * 1100, payload).unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(extra_traffic(1500, 0), None);
    }

    #[test]
    fn a_budget_follows_the_loss() {
        assert!((budget(0.0) - 0.03).abs() < 1e-12);
        assert!((budget(0.5) - 1.23).abs() < 1e-12);
        assert!(budget(1.0).is_finite());
        assert_eq!(per(0.0, Duration::ZERO), 0.0);
    }
}
