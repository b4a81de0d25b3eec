//! Arrival times of recent packets, for a peer that learns its rate.

use std::time::Duration;

use bentpipe_units::BitRate;

use crate::wire::curve::{Back, Curve, MAX_KNOTS};

/// Maximum number of recorded arrivals since the last report. Beyond it, every second one is
/// dropped: 64 × 24 bytes.
const MAX_RECORDED: usize = 64;

/// Maximum time between two arrivals of a curve: two knots a minute apart do not make a train.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Part of a round trip over which the peer's rate is measured …
const METER_PART: u32 = 8;
/// … the minimum number of packets …
const MIN_METERED: u32 = 8;
/// … and the minimum time.
const MIN_METER: Duration = Duration::from_millis(20);

/// Arrivals since the last report, and a measurement of the peer's rate.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Packets and arrivals since the newest packet of the last report, which is the first.
    recorded: Vec<(u64, Duration)>,
    /// Number of packets between two recorded ones.
    stride: u64,
    /// Those of the last report, which is repeated once.
    before: Vec<(u64, Duration)>,
    meter: Meter,
}

impl Recorder {
    /// Notes the newest packet, which has `bytes`.
    pub fn on_newest(&mut self, packet: u64, bytes: usize, rtt: Duration, now: Duration) {
        self.meter.came(bytes, rtt, now);
        self.recorded.push((packet, now));
        let len = self.recorded.len();
        // The last one stays the newest packet; those between two strides are dropped.
        if len > 2 && self.recorded[len - 2].0 < self.recorded[len - 3].0 + self.stride {
            self.recorded.remove(len - 2);
        }
        if self.recorded.len() > MAX_RECORDED {
            let mut index = 0;
            self.recorded.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride = self.stride.max(1) * 2;
        }
    }

    /// Curve for the next report, whose newest packet is `largest`.
    pub fn curve(&self, largest: u64) -> Option<Curve> {
        let is_news = self.recorded.last().is_some_and(|last| last.0 == largest);
        let points = if is_news && self.recorded.len() > 1 { &self.recorded } else { &self.before };
        if points.len() < 2 || points[points.len() - 1].0 != largest {
            return None;
        }
        // The first and the last one, and others evenly between them.
        let (steps, last) = (MAX_KNOTS.min(points.len() - 1), points.len() - 1);
        let at = |step: usize| points[last * step / steps];
        let back = |step: usize| {
            let (older, newer) = (at(step), at(step + 1));
            Back { packets: newer.0 - older.0, time: newer.1.saturating_sub(older.1) }
        };
        // A pause says nothing about the path.
        let knots = (0..steps).rev().map(back).take_while(|knot| knot.time <= MAX_PAUSE);
        Some(Curve(knots.collect())).filter(|curve| !curve.0.is_empty())
    }

    /// Notes that a report was sent.
    pub fn reported(&mut self) {
        if self.recorded.len() > 1 {
            let last = self.recorded[self.recorded.len() - 1];
            self.before = std::mem::replace(&mut self.recorded, vec![last]);
            self.stride = 1;
        }
    }

    /// Highest rate at which packets arrived in an eighth of a round trip; zero if unknown.
    pub fn rate(&self) -> BitRate {
        self.meter.rate()
    }
}

/// Highest arrival rate. It only rises: an idle peer may send as fast again.
#[derive(Debug, Default)]
struct Meter {
    /// Arrival of the first and of the last packet of the present window.
    began: Duration,
    last: Duration,
    /// Bytes after the first packet.
    bytes: u64,
    packets: u32,
    best_bps: u64,
}

impl Meter {
    fn came(&mut self, bytes: usize, rtt: Duration, now: Duration) {
        let window = (rtt / METER_PART).max(MIN_METER);
        if self.packets == 0 || now.saturating_sub(self.began) > window {
            (self.began, self.bytes, self.packets) = (now, 0, 0);
        } else {
            self.bytes += bytes as u64;
        }
        self.last = now;
        self.packets += 1;
        let span = self.last.saturating_sub(self.began);
        // A request or a keep-alive shows no rate.
        if self.packets >= MIN_METERED && span >= window / 4 {
            let bits = u128::from(self.bytes) * 8 * 1_000_000_000;
            let bps = u64::try_from(bits / span.as_nanos().max(1)).unwrap_or(u64::MAX);
            self.best_bps = self.best_bps.max(bps);
        }
    }

    fn rate(&self) -> BitRate {
        BitRate::from_bps(self.best_bps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_curve_has_the_arrivals_since_the_last_report() {
        let mut recorder = Recorder::default();
        assert_eq!(recorder.curve(0), None);
        for packet in 0..4 {
            recorder.on_newest(packet, 1500, RTT, ms(10 * packet));
        }
        let curve = recorder.curve(3).unwrap();
        assert_eq!(curve.points(3, ms(30)), [(0, ms(0)), (1, ms(10)), (2, ms(20)), (3, ms(30))]);
        recorder.reported();
        assert_eq!(recorder.curve(3), Some(curve), "a repetition has the same curve");
        recorder.on_newest(9, 1500, RTT, ms(50));
        let points = recorder.curve(9).unwrap().points(9, ms(50));
        assert_eq!(points, [(3, ms(30)), (9, ms(50))]);
    }

    #[test]
    fn a_long_curve_is_thinned_evenly() {
        let mut recorder = Recorder::default();
        for packet in 0..1000 {
            recorder.on_newest(packet, 1500, RTT, ms(packet));
        }
        assert!(recorder.recorded.len() <= MAX_RECORDED);
        let points = recorder.curve(999).unwrap().points(999, ms(999));
        assert_eq!(
            (points.len(), points[0], points[16]),
            (MAX_KNOTS + 1, (0, ms(0)), (999, ms(999)))
        );
        let widest = points.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
        assert!(widest <= 96, "{widest}");
        assert!(points.iter().all(|(packet, at)| *at == ms(*packet)));
    }

    #[test]
    fn the_highest_rate_counts() {
        let mut recorder = Recorder::default();
        for packet in 0..200 {
            recorder.on_newest(packet, 1500, RTT, ms(10 * packet));
        }
        recorder.on_newest(200, 1500, RTT, ms(60_000));
        let mbps = recorder.rate().bps() as f64 / 1e6;
        assert!((1.1..1.3).contains(&mbps), "{mbps}");
    }
}
