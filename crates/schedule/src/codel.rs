//! CoDel (RFC 8289) with constants for a satellite link: detects a standing queue.

use std::time::Duration;

use bentpipe_units::BitRate;

/// Targets per interval. RFC 8289 §4.3 finds that 5 to 10 % of a round trip costs hardly any
/// throughput. This is the lower end: 30 ms at 600 ms.
const INTERVAL_PER_TARGET: u32 = 20;

/// Minimum target, in percent of one packet's transmission time (RFC 8289 §4.4).
const TARGET_PER_PACKET_PERCENT: u32 = 125;

/// Minimum interval, as RFC 8289 §4.3 recommends for round trips up to it.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum interval. A longer one would hardly control the queue.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// Intervals after the last drop during which a new standing queue resumes the earlier drop rate.
const MEMORY_INTERVALS: u32 = 16;

/// Parameters of a datagram queue. They may differ from one call to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    interval: Duration,
    target: Duration,
    packet_bytes: u64,
    lifetime: Duration,
}

impl Params {
    /// Parameters for a path with round-trip time `rtt` (clamped to 100 ms … 10 s), packets of up
    /// to `packet_bytes`, and drain rate `rate` if known. Items older than `lifetime` are useless
    /// and are dropped.
    pub fn new(
        rtt: Duration,
        rate: Option<BitRate>,
        packet_bytes: usize,
        lifetime: Duration,
    ) -> Self {
        let interval = rtt.clamp(MIN_INTERVAL, MAX_INTERVAL);
        let packet_bytes = packet_bytes as u64;
        let one_packet = rate.map_or(Duration::ZERO, |rate| rate.time_for(packet_bytes));
        let least = one_packet.saturating_mul(TARGET_PER_PACKET_PERCENT) / 100;
        let target = least.max(interval / INTERVAL_PER_TARGET);
        Self { interval: interval.max(target), target, packet_bytes, lifetime }
    }

    /// Queueing delay that may persist.
    pub fn target(&self) -> Duration {
        self.target
    }

    /// Time for which the delay may exceed the target before a drop.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Maximum age of an item.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }
}

/// CoDel state of one queue (RFC 8289 §5).
#[derive(Debug, Default, Clone)]
pub(crate) struct Codel {
    /// Time at which the delay will have exceeded the target for an interval.
    above_until: Option<Duration>,
    /// Time of the next drop while dropping; otherwise the time at which it was due.
    drop_next: Duration,
    /// Drops since dropping began.
    count: u32,
    /// `count` when dropping last began.
    count_before: u32,
    dropping: bool,
}

impl Codel {
    /// Returns `true` if the item at the head, which waited for `sojourn` with `bytes_after` bytes after
    /// it, should be dropped. If so, call again with the next item in the same visit.
    pub fn drops(
        &mut self,
        sojourn: Duration,
        bytes_after: u64,
        now: Duration,
        params: &Params,
    ) -> bool {
        let is_standing = self.is_standing(sojourn, bytes_after, now, params);
        if !is_standing {
            self.dropping = false;
            return false;
        }
        if self.dropping {
            let due = now >= self.drop_next;
            if due {
                self.count = self.count.saturating_add(1);
                self.drop_next += spacing(params.interval, self.count);
            }
            return due;
        }
        self.dropping = true;
        let drops = self.count.saturating_sub(self.count_before);
        let since = now.saturating_sub(self.drop_next);
        let recently = since < params.interval * MEMORY_INTERVALS;
        self.count = if drops > 1 && recently { drops } else { 1 };
        self.drop_next = now + spacing(params.interval, self.count);
        self.count_before = self.count;
        true
    }

    /// Records that the queue ran empty.
    pub fn emptied(&mut self) {
        self.above_until = None;
        self.dropping = false;
    }

    fn is_standing(
        &mut self,
        sojourn: Duration,
        bytes_after: u64,
        now: Duration,
        params: &Params,
    ) -> bool {
        if sojourn < params.target || bytes_after <= params.packet_bytes {
            self.above_until = None;
            return false;
        }
        let until = *self.above_until.get_or_insert(now + params.interval);
        now >= until
    }
}

/// Control law: interval ÷ √count, in whole nanoseconds.
fn spacing(interval: Duration, count: u32) -> Duration {
    let square = interval.as_nanos().pow(2) / u128::from(count.max(1));
    Duration::from_nanos(u64::try_from(square.isqrt()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);
    const LIFETIME: Duration = Duration::from_secs(10);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_target_scales_with_rtt_and_exceeds_one_packet() {
        let params = Params::new(RTT, None, 1500, LIFETIME);
        assert_eq!((params.interval(), params.target()), (RTT, ms(30)));
        // 1500 bytes take 187.5 ms at 64 kbit/s.
        let slow = Params::new(RTT, Some(BitRate::from_bps(64_000)), 1500, LIFETIME);
        assert_eq!(slow.target(), Duration::from_micros(234_375));
        let near = Params::new(ms(3), Some(BitRate::from_bps(1_000_000_000)), 1500, LIFETIME);
        assert_eq!((near.interval(), near.target()), (ms(100), ms(5)));
        let stopped = Params::new(RTT, Some(BitRate::from_bps(0)), 1500, LIFETIME);
        assert!(stopped.interval() >= stopped.target());
    }

    #[test]
    fn a_standing_queue_drops_at_a_growing_rate() {
        let (params, mut codel) = (Params::new(RTT, None, 1500, LIFETIME), Codel::default());
        let drops: Vec<u64> =
            (0..4000).filter(|&at| codel.drops(ms(100), 20_000, ms(at), &params)).collect();
        // 600, then 600/√1, 600/√2, 600/√3 … ms apart.
        assert_eq!(drops[..5], [600, 1200, 1625, 1971, 2271]);
    }

    #[test]
    fn a_burst_shorter_than_an_interval_drops_nothing() {
        let (params, mut codel) = (Params::new(RTT, None, 1500, LIFETIME), Codel::default());
        for at in 0..10_000 {
            let sojourn = if at % 599 == 0 { ms(20) } else { ms(200) };
            assert!(!codel.drops(sojourn, 20_000, ms(at), &params));
        }
        // Nor does a queue of one packet, however old.
        assert!((0..10_000).all(|at| !codel.drops(ms(500), 1500, ms(at), &params)));
    }

    #[test]
    fn a_queue_that_stands_again_soon_resumes_its_drop_rate() {
        let (params, mut codel) = (Params::new(RTT, None, 1500, LIFETIME), Codel::default());
        let count = |from: u64, to: u64, codel: &mut Codel| {
            (from..to).filter(|&at| codel.drops(ms(100), 20_000, ms(at), &params)).count()
        };
        let first = count(0, 5000, &mut codel);
        codel.emptied();
        let again = count(5100, 10_100, &mut codel);
        assert!(again > first, "{again} drops after {first}");
        codel.emptied();
        assert_eq!(count(40_000, 45_000, &mut codel), first);
    }
}
