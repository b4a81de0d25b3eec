//! Queueing delay, from one-way delays between two clocks that are not synchronized.
//!
//! A one-way delay is the arrival time on the peer's clock less the sending time on ours: an
//! unknown constant, the path's delay, and the queue. The excess over its recent minimum is the
//! queue. The minimum covers 60 s. Crystals are good to 50 ppm each, so that two of them diverge by
//! 6 ms in a minute, far below what the breaker looks for. A path that becomes shorter shows at
//! once. One that becomes longer looks like a queue until it stays with nothing in it
//! ([`Delay::restart`]).

use std::time::Duration;

/// Number of parts of the window over which the minimum is taken …
const PARTS: usize = 12;
/// … and the length of each; 60 s in all.
const PART: Duration = Duration::from_secs(5);

/// The recent minima of the one-way delay and of the round trip.
#[derive(Debug, Clone, Default)]
pub struct Delay {
    parts: [Option<Part>; PARTS],
}

#[derive(Debug, Clone, Copy)]
struct Part {
    index: u128,
    one_way_ns: i128,
    rtt: Duration,
}

impl Delay {
    /// Adds a packet sent at `sent` on our clock that arrived at `arrived` on the peer's. Returns
    /// its queueing delay.
    pub fn sample(
        &mut self,
        sent: Duration,
        arrived: Duration,
        rtt: Duration,
        now: Duration,
    ) -> Duration {
        let one_way_ns = arrived.as_nanos() as i128 - sent.as_nanos() as i128;
        let index = now.as_nanos() / PART.as_nanos();
        let slot = &mut self.parts[(index % PARTS as u128) as usize];
        match slot {
            Some(part) if part.index == index => {
                part.one_way_ns = part.one_way_ns.min(one_way_ns);
                part.rtt = part.rtt.min(rtt);
            }
            _ => *slot = Some(Part { index, one_way_ns, rtt }),
        }
        for slot in &mut self.parts {
            *slot = slot.filter(|part| index - part.index < PARTS as u128);
        }
        self.excess(sent, arrived)
    }

    /// Queueing delay of a packet that is not added; zero if it arrived sooner than all others.
    pub fn excess(&self, sent: Duration, arrived: Duration) -> Duration {
        let one_way_ns = arrived.as_nanos() as i128 - sent.as_nanos() as i128;
        let min = self.parts.iter().flatten().map(|part| part.one_way_ns).min();
        let queue_ns = (one_way_ns - min.unwrap_or(one_way_ns)).max(0);
        Duration::from_nanos(u64::try_from(queue_ns).unwrap_or(u64::MAX))
    }

    /// Minimum round trip of the window.
    pub fn rtt(&self) -> Option<Duration> {
        self.parts.iter().flatten().map(|part| part.rtt).min()
    }

    /// Discards all minima, because the path changed.
    pub fn restart(&mut self) {
        self.parts = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns the queue seen by a packet sent at `at_ms` with a path delay of `path_us`.
    fn sample(delay: &mut Delay, at_ms: u64, path_us: u64, offset_s: u64) -> Duration {
        let arrived = ms(at_ms) + Duration::from_micros(path_us) + Duration::from_secs(offset_s);
        delay.sample(ms(at_ms), arrived, ms(600), ms(at_ms + 600))
    }

    #[test]
    fn the_queue_is_the_excess_over_the_minimum_whatever_the_clocks() {
        for offset_s in [0, 1_000_000] {
            let mut delay = Delay::default();
            assert_eq!(sample(&mut delay, 0, 380_000, offset_s), ms(0));
            assert_eq!(sample(&mut delay, 100, 400_000, offset_s), ms(20));
            assert_eq!(sample(&mut delay, 200, 300_000, offset_s), ms(0));
            assert_eq!(sample(&mut delay, 300, 400_000, offset_s), ms(100));
        }
        // A peer whose clock stands still, or is wrong.
        let mut delay = Delay::default();
        assert_eq!(delay.sample(Duration::MAX, ms(0), ms(1), Duration::MAX), ms(0));
        assert_eq!(
            delay.sample(ms(0), Duration::MAX, ms(1), Duration::MAX),
            Duration::from_nanos(u64::MAX)
        );
    }

    #[test]
    fn clocks_that_diverge_by_100_ppm_look_like_6_ms_at_most() {
        let mut delay = Delay::default();
        let seen = (0..10_000).map(|i| sample(&mut delay, i * 100, 380_000 + i * 10, 5)).max();
        assert!(seen <= Some(ms(6)), "{seen:?}");
    }

    #[test]
    fn a_longer_path_is_the_new_minimum_after_a_minute_or_a_restart() {
        let mut delay = Delay::default();
        sample(&mut delay, 0, 100_000, 0);
        assert_eq!(sample(&mut delay, 54_000, 300_000, 0), ms(200));
        assert_eq!(sample(&mut delay, 61_000, 300_000, 0), ms(0));
        sample(&mut delay, 62_000, 500_000, 0);
        delay.restart();
        assert_eq!(sample(&mut delay, 63_000, 510_000, 0), ms(0));
    }
}
