//! Metrics of transfers, computed from bytes and times as defined in `experiments/README.md`.

use std::time::Duration;

use crate::link::Scene;
use bentpipe_results::Row;

/// Share of NetForecast's link that a receive window of 64 KB can use: 0.097 of 10 Mbit/s.
const WINDOW_SHARE: f64 = 0.097;

/// Repair packets allowed for each lost packet.
const REPAIRS: f64 = 1.2;
/// Allowed share of headers, reports and acknowledgements, in addition to repair packets.
const OVERHEAD: f64 = 0.03;

/// A full IP packet of kernel TCP with timestamps, divided by its payload.
const IP_BYTES_PER_PAYLOAD: f64 = 1500.0 / 1448.0;

/// One transfer, or several consecutive transfers on one connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// Payload bytes received.
    pub bytes: u64,
    /// Time from the request to the last byte, or to the deadline.
    pub took: Duration,
    /// Time from the first byte received to the last, or to the deadline.
    pub receiving: Duration,
    /// IP bytes offered to the link in the payload's direction.
    pub offered_bytes: u64,
    /// Share of offered packets that the link lost.
    pub lost: f64,
    /// Number of connections reset before their end.
    pub resets: u32,
    /// `true` if everything was received.
    pub finished: bool,
}

impl Transfer {
    /// Computes the metrics.
    pub fn values(&self, scene: &Scene, up: bool) -> Vec<Row> {
        let share = |time: Duration| per(8.0 * self.bytes as f64, time) / scene.rate_bps(up);
        let (epb, received) = (share(self.took), share(self.receiving));
        let below = epb < WINDOW_SHARE;
        let failed = !self.finished || self.resets > 0;
        let mut values = vec![
            Row::of("epb", epb, self.finished),
            Row::of("epb-received", received, self.finished),
            Row::of("epb-fair", received / scene.fair_share(), self.finished),
            Row::of("below-window", f64::from(u8::from(below)), self.finished),
            Row::of("extra-budget", budget(self.lost), self.finished),
            Row::of("resets", f64::from(self.resets), true),
            Row::of("failed", f64::from(u8::from(failed)), true),
        ];
        let extra = extra_traffic(self.offered_bytes, self.bytes);
        values.extend(extra.map(|extra| Row::of("extra-traffic", extra, self.finished)));
        values
    }
}

/// IP bytes offered to the link, relative to the IP bytes that the payload needs outside the link,
/// minus one. A kernel's own retransmissions to a gateway do not count as payload. Without payload
/// the result is `None`.
pub fn extra_traffic(offered_bytes: u64, payload_bytes: u64) -> Option<f64> {
    let passed = payload_bytes as f64 * IP_BYTES_PER_PAYLOAD;
    (payload_bytes > 0).then(|| offered_bytes as f64 / passed - 1.0)
}

/// Share of bytes that repair packets and control may add to a transfer with this loss.
fn budget(lost: f64) -> f64 {
    // A link that loses everything would need infinitely many repair packets, but the result must
    // be finite.
    let lost = lost.clamp(0.0, 0.999);
    REPAIRS * lost / (1.0 - lost) + OVERHEAD
}

/// Amount per second; 0 if the amount is 0, for any time.
pub fn per(amount: f64, time: Duration) -> f64 {
    if amount == 0.0 { 0.0 } else { amount / time.as_secs_f64().max(1e-3) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
