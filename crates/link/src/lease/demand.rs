//! Demand: the rate that waiting data and present sending could use.

use std::time::Duration;

use bentpipe_schedule::{Class, PerClass};
use bentpipe_units::BitRate;

/// Minimum span over which sending is measured, and in which waiting data should be sent …
const MIN_SPAN: Duration = Duration::from_millis(50);
/// … and maximum.
const MAX_SPAN: Duration = Duration::from_secs(1);

/// Waiting data of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    pub bytes: u64,
    /// Ceiling of the class.
    pub ceil: Option<BitRate>,
}

/// Demand of each class, and of the network's own packets.
#[derive(Debug, Clone, Default)]
pub struct ClassDemands {
    own: DemandMeter,
    classes: PerClass<DemandMeter>,
}

impl ClassDemands {
    /// Counts a packet of `bytes`, paid by `class` or by nobody.
    pub fn sent(&mut self, bytes: usize, class: Option<Class>, rtt: Duration, now: Duration) {
        let meter = class.map_or(&mut self.own, |class| &mut self.classes[class]);
        meter.sent(bytes, rtt, now);
    }

    /// Rate that all classes could use; each no more than its ceiling, however much waits.
    pub fn useful(&mut self, waiting: &PerClass<Waiting>, rtt: Duration, now: Duration) -> BitRate {
        let mut bps = self.own.useful(0, rtt, now).bps();
        for (class, Waiting { bytes, ceil }) in waiting.iter() {
            let useful = self.classes[class].useful(*bytes, rtt, now);
            bps = bps.saturating_add(ceil.map_or(useful, |ceil| useful.min(ceil)).bps());
        }
        BitRate::from_bps(bps)
    }
}

/// Bytes sent recently, in two spans of time: the present one and the one before.
#[derive(Debug, Clone, Default)]
pub struct DemandMeter {
    began: Duration,
    span: Duration,
    current_bytes: u64,
    before_bytes: u64,
}

impl DemandMeter {
    /// Counts a packet of `bytes`. Spans are half of `rtt` long.
    pub fn sent(&mut self, bytes: usize, rtt: Duration, now: Duration) {
        self.advance(rtt, now);
        self.current_bytes += bytes as u64;
    }

    /// Rate that could be used: enough to send `waiting_bytes` within a span, plus 5/4 of the
    /// present rate, so that a sender that uses its whole rate asks for more.
    pub fn useful(&mut self, waiting_bytes: u64, rtt: Duration, now: Duration) -> BitRate {
        self.advance(rtt, now);
        let span_ns = self.span.as_nanos().max(1);
        let left_ns = span_ns - now.saturating_sub(self.began).as_nanos().min(span_ns);
        let sent =
            u128::from(self.before_bytes) * left_ns / span_ns + u128::from(self.current_bytes);
        let bits = (u128::from(waiting_bytes) + sent * 5 / 4) * 8;
        let bps = bits * 1_000_000_000 / span_ns;
        BitRate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
    }

    fn advance(&mut self, rtt: Duration, now: Duration) {
        let passed = now.saturating_sub(self.began);
        if passed < self.span {
            return;
        }
        let just_now = passed < self.span * 2;
        self.before_bytes = if just_now { self.current_bytes } else { 0 };
        self.began = if just_now { self.began + self.span } else { now };
        self.span = (rtt / 2).clamp(MIN_SPAN, MAX_SPAN);
        self.current_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    #[test]
    fn steady_sending_asks_for_a_quarter_more_and_waiting_data_for_all_it_needs() {
        let mut meter = DemandMeter::default();
        for at_ms in (0..3000).step_by(10) {
            meter.sent(1250, RTT, Duration::from_millis(at_ms));
        }
        let now = Duration::from_millis(3000);
        let steady = meter.useful(0, RTT, now).bps();
        assert!((1_200_000..=1_260_000).contains(&steady), "{steady} for 1 Mbit/s");
        let more = meter.useful(75_000, RTT, now).bps() - steady;
        assert!(
            (1_999_999..=2_000_001).contains(&more),
            "75 kB in 300 ms are 2 Mbit/s, not {more}"
        );
        assert_eq!(meter.useful(0, RTT, now + RTT).bps(), 0, "long quiet");
    }

    #[test]
    fn a_class_asks_for_no_more_than_its_ceiling() {
        let (mut demands, now) = (ClassDemands::default(), Duration::from_secs(3));
        let mut waiting = PerClass::<Waiting>::default();
        let ceil = Some(BitRate::from_bps(256_000));
        waiting[Class::LowerEffort] = Waiting { bytes: 1 << 30, ceil };
        waiting[Class::Assured] = Waiting { bytes: 0, ceil };
        demands.sent(1500, Some(Class::LowerEffort), RTT, now);
        assert_eq!(demands.useful(&waiting, RTT, now).bps(), 256_000);
        waiting[Class::BestEffort].bytes = 75_000;
        demands.useful(&waiting, RTT, now);
        let all = demands.useful(&waiting, RTT, now).bps();
        assert!((2_255_000..=2_257_000).contains(&all), "75 kB in 300 ms beside them: {all}");
        demands.sent(1500, None, RTT, now);
        let own = demands.useful(&waiting, RTT, now).bps() - all;
        assert_eq!(own, 50_000, "5/4 of 12,000 bit in 300 ms");
    }
}
