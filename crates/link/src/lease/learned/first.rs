//! The first estimate of the capacity.

use std::time::Duration;

use super::flight::UNPROVEN_BYTES;
use super::packets::{INITIAL_PACKETS, PACKET_BYTES};
use super::resume::First;
use super::train::CARRIED;
use super::{CRUISE, Learner};
use crate::lease::Observation;

/// Bytes between the first and the last packet of a first estimate.
const MIN_FIRST_BYTES: u64 = 3 * 1200;
/// Ratio of sending to arrival rate from which on packets arrived at the bottleneck's rate.
const STRETCHED: f64 = 1.05;
/// Share between the first estimate and its confirmation.
const UNCONFIRMED: f64 = 0.9;
/// Time over which packets have to arrive at the rate that is never exceeded, so that timers and reads of
/// several packets do not look like it.
const MIN_SPAN: Duration = Duration::from_millis(5);
/// Growth in a round trip if the first packets say nothing about the rate, as in slow start (RFC 9002,
/// section 7.3.1).
const GROWTH: f64 = 2.0;

impl Learner {
    /// Takes the first estimate from packets that arrived further apart than they were sent, from an
    /// earlier session, or from the number of the first packets.
    pub(super) fn begin(&mut self, seen: &Observation) {
        let most = 8.0 * UNPROVEN_BYTES as f64 / self.rtt.as_secs_f64();
        let passage = self.arrivals.train(MIN_FIRST_BYTES, STRETCHED);
        let measured = passage.map(|passage| passage.arrived_bps.min(most));
        let first = self.resume.first(measured, seen).or_else(|| self.unstretched());
        let Some(first) = first else { return };
        tracing::debug!(?first, ?passage, "the first estimate");
        self.capacity_bps = Some(first.bps.min(most));
        self.share = if first.is_confirmed { CRUISE } else { UNCONFIRMED };
        // No train can show more.
        self.is_confirmed = first.is_confirmed && first.bps >= self.cap.bps() as f64;
        self.flight.release();
        self.settled_at = seen.now;
        self.trains.be_bold();
        self.trains.next_at(seen.now);
        self.trains.give_up();
    }

    /// First rate if no packets arrived further apart than they were sent. The path carries the rate that
    /// is never exceeded, if they were sent at it. Otherwise it is fast, or hands packets over together:
    /// once all that may be unreported was sent and reported, twice as much is sent in a round trip.
    fn unstretched(&self) -> Option<First> {
        let cap = self.cap.bps() as f64;
        let is_full = |bps: f64| bps >= CARRIED * cap;
        let passage = self.arrivals.last(MIN_SPAN).filter(|it| it.bytes >= MIN_FIRST_BYTES);
        if passage.is_some_and(|it| is_full(it.sent_bps) && is_full(it.arrived_bps)) {
            return Some(First { bps: cap, is_confirmed: true });
        }
        let bytes = (INITIAL_PACKETS * PACKET_BYTES) as f64;
        let bps = GROWTH * 8.0 * bytes / self.rtt.as_secs_f64();
        self.flight.is_window_reported().then_some(First { bps, is_confirmed: false })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ArrivalSample, Learner};
    use super::*;
    use bentpipe_units::BitRate;

    const RTT: Duration = Duration::from_millis(30);
    const BEGAN: Duration = Duration::from_secs(1);

    /// Learner with this ceiling after ten packets, sent at it, of which packet n arrived at `arrival(n)`
    /// after the first.
    fn after_ten(cap_mbps: u64, arrival: impl Fn(u32) -> Duration) -> Learner {
        let cap = BitRate::from_bps(cap_mbps * 1_000_000);
        let mut learner = Learner::new(cap, 0, None, RTT, BEGAN);
        let gap = Duration::from_secs_f64(8.0 * PACKET_BYTES as f64 / cap.bps() as f64);
        let mut samples = Vec::new();
        for number in 0..INITIAL_PACKETS as u32 {
            let sent = BEGAN + gap * number;
            assert!(!learner.holds_data(), "{number}");
            learner.sent(PACKET_BYTES as usize, sent);
            let total_bytes = PACKET_BYTES * u64::from(number + 1);
            samples.push(ArrivalSample { sent, arrived: BEGAN + arrival(number), total_bytes });
        }
        let last = samples[samples.len() - 1];
        let seen = Observation {
            now: last.sent + RTT,
            rtt: RTT,
            sent_at: last.sent,
            arrived: last.arrived,
            judged: INITIAL_PACKETS,
            lost: 0,
            judged_bytes: last.total_bytes,
            in_flight_bytes: 0,
            longest_loss: 0,
        };
        learner.observe(&seen, &samples);
        learner
    }

    fn mbps(learner: &Learner) -> f64 {
        learner.capacity().map_or(0.0, |rate| rate.bps() as f64 * 1e-6)
    }

    #[test]
    fn the_bottleneck_spreads_the_first_packets() {
        let learner = after_ten(1_000, |number| Duration::from_micros(600) * number);
        assert!((mbps(&learner) - 20.0).abs() < 0.1, "{}", mbps(&learner));
    }

    #[test]
    fn packets_that_arrive_together_permit_twice_as_many_in_a_round_trip() {
        let learner = after_ten(1_000, |_| Duration::ZERO);
        assert!((mbps(&learner) - 8.0).abs() < 0.1, "20 packets in 30 ms: {}", mbps(&learner));
        assert!(!learner.holds_data());
    }

    #[test]
    fn a_path_that_carries_all_that_may_be_sent_needs_no_estimate() {
        let learner = after_ten(10, |number| Duration::from_micros(1_200) * number);
        assert!((mbps(&learner) - 10.0).abs() < 0.1, "{}", mbps(&learner));
        assert!(learner.confirmed().is_some());
    }

    #[test]
    fn fewer_packets_than_may_be_unreported_say_nothing() {
        let cap = BitRate::from_bps(1_000_000_000);
        let mut learner = Learner::new(cap, 0, None, RTT, BEGAN);
        for number in 1..100 {
            let now = BEGAN + RTT * number;
            learner.sent(PACKET_BYTES as usize, now);
            let total_bytes = PACKET_BYTES * u64::from(number);
            let seen = Observation {
                now: now + RTT,
                rtt: RTT,
                sent_at: now,
                arrived: now,
                judged: 1,
                lost: 0,
                judged_bytes: PACKET_BYTES,
                in_flight_bytes: 0,
                longest_loss: 0,
            };
            learner.observe(&seen, &[ArrivalSample { sent: now, arrived: now, total_bytes }]);
        }
        assert_eq!(learner.capacity(), None);
    }
}
