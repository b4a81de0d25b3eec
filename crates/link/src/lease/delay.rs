//! Queueing delay, from one-way delays between two clocks that were never compared.
//!
//! A one-way delay is the arrival on the peer's clock less the sending on ours: an unknown constant,
//! the way, and the queue. What it exceeds its own recent minimum by is the queue. The minimum is
//! taken over [`WINDOW`]: crystals are good to 50 ppm each, so two of them part by 6 ms in a minute,
//! which is far below what the breaker looks for. A way that becomes shorter shows at once; one that
//! becomes longer looks like a queue until it is seen to stay with nothing in it
//! ([`Delay::begin_anew`]).

use std::time::Duration;

/// The minimum is looked for over so many parts of the window …
const PARTS: usize = 12;
/// … that long each, 60 s in all.
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
    /// Takes in a packet sent at `sent` on our clock that arrived at `arrived` on the peer's.
    /// Returns its queueing delay.
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
        let least = self.parts.iter().flatten().map(|part| part.one_way_ns).min();
        let queue_ns = one_way_ns - least.unwrap_or(one_way_ns);
        Duration::from_nanos(u64::try_from(queue_ns).unwrap_or(u64::MAX))
    }

    /// The least round trip of the window.
    pub fn rtt(&self) -> Option<Duration> {
        self.parts.iter().flatten().map(|part| part.rtt).min()
    }

    /// Forgets what was: the way has changed.
    pub fn begin_anew(&mut self) {
        self.parts = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The queue seen by a packet sent at `at_ms` that was `way_ms` under way.
    fn sample(delay: &mut Delay, at_ms: u64, way_us: u64, offset_s: u64) -> Duration {
        let arrived = ms(at_ms) + Duration::from_micros(way_us) + Duration::from_secs(offset_s);
        delay.sample(ms(at_ms), arrived, ms(600), ms(at_ms + 600))
    }

    #[test]
    fn the_queue_is_what_exceeds_the_least_whatever_the_clocks_say() {
        for offset_s in [0, 1_000_000] {
            let mut delay = Delay::default();
            assert_eq!(sample(&mut delay, 0, 380_000, offset_s), ms(0));
            assert_eq!(sample(&mut delay, 100, 400_000, offset_s), ms(20));
            assert_eq!(sample(&mut delay, 200, 300_000, offset_s), ms(0));
            assert_eq!(sample(&mut delay, 300, 400_000, offset_s), ms(100));
        }
        // A peer whose clock stands still, or that lies.
        let mut delay = Delay::default();
        assert_eq!(delay.sample(Duration::MAX, ms(0), ms(1), Duration::MAX), ms(0));
        assert_eq!(
            delay.sample(ms(0), Duration::MAX, ms(1), Duration::MAX),
            Duration::from_nanos(u64::MAX)
        );
    }

    #[test]
    fn clocks_that_part_by_100_ppm_look_like_6_ms_at_most() {
        let mut delay = Delay::default();
        let seen = (0..10_000).map(|i| sample(&mut delay, i * 100, 380_000 + i * 10, 5)).max();
        assert!(seen <= Some(ms(6)), "{seen:?}");
    }

    #[test]
    fn a_longer_way_is_the_new_normal_after_a_minute_or_when_told() {
        let mut delay = Delay::default();
        sample(&mut delay, 0, 100_000, 0);
        assert_eq!(sample(&mut delay, 54_000, 300_000, 0), ms(200));
        assert_eq!(sample(&mut delay, 61_000, 300_000, 0), ms(0));
        sample(&mut delay, 62_000, 500_000, 0);
        delay.begin_anew();
        assert_eq!(sample(&mut delay, 63_000, 510_000, 0), ms(0));
    }
}
