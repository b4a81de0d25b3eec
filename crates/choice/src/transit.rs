//! Detours of the path to an egress, by its round-trip time.

use std::time::Duration;

/// A path is a detour if its round-trip time is at least so many times the usual one.
const DETOUR: f64 = 2.0;
/// It is as usual again below so many times.
const AS_USUAL: f64 = 1.5;
/// A detour costs at least this. Short paths double by a queue alone.
const MIN_MORE: Duration = Duration::from_millis(20);
/// A change counts once it has lasted for this time.
const PROOF: Duration = Duration::from_secs(30);
/// The usual time is the lowest of so many hours.
const HOURS: usize = 24;
const HOUR: Duration = Duration::from_secs(3600);

/// Change of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transit {
    /// It has become a detour. The usual time is with it.
    Detour(Duration),
    /// It is as usual again, or its time has become the usual one.
    Usual,
}

/// Watch over one path.
#[derive(Debug, Clone, Default)]
pub struct TransitWatch {
    /// Lowest time of each of the last hours.
    lowest: [Option<Duration>; HOURS],
    /// Hour of the last look.
    hour: u64,
    is_detour: bool,
    /// Time since which the path is the other way.
    differs_since: Option<Duration>,
}

impl TransitWatch {
    /// Takes the round-trip time at `now`, which counts from any epoch. Returns a change.
    pub fn look(&mut self, rtt: Duration, now: Duration) -> Option<Transit> {
        let hour = now.as_secs() / HOUR.as_secs();
        for passed in self.hour + 1..=hour.min(self.hour + HOURS as u64) {
            self.lowest[passed as usize % HOURS] = None;
        }
        self.hour = hour;
        let lowest = &mut self.lowest[hour as usize % HOURS];
        *lowest = Some(lowest.map_or(rtt, |it| it.min(rtt)));
        let usual = self.lowest.iter().flatten().min().copied().unwrap_or(rtt);
        let part = if self.is_detour { AS_USUAL } else { DETOUR };
        let is_long = rtt >= usual.mul_f64(part) && rtt >= usual + MIN_MORE;
        if is_long == self.is_detour {
            self.differs_since = None;
            return None;
        }
        let since = *self.differs_since.get_or_insert(now);
        if now.saturating_sub(since) < PROOF {
            return None;
        }
        self.differs_since = None;
        self.is_detour = is_long;
        Some(if is_long { Transit::Detour(usual) } else { Transit::Usual })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(5);
    /// Round-trip times ÷ the usual one.
    const JITTER: [f64; 3] = [0.8, 1.19, 1.0];

    /// Looks every 5 s for `hours`; returns the changes with their times.
    fn looks(
        watch: &mut TransitWatch,
        hours: std::ops::Range<u32>,
        rtt: Duration,
    ) -> Vec<(Duration, Transit)> {
        let steps = HOUR.as_secs() as u32 / STEP.as_secs() as u32;
        let look = |step| {
            let now = STEP * step;
            let rtt = rtt.mul_f64(JITTER[step as usize % JITTER.len()]);
            Some((now, watch.look(rtt, now)?))
        };
        (hours.start * steps..hours.end * steps).filter_map(look).collect()
    }

    #[test]
    fn jitter_is_no_detour_and_a_detour_is_found_once() {
        let ms = Duration::from_millis;
        for (rtt, far) in [(ms(8), ms(68)), (ms(40), ms(100)), (ms(150), ms(330))] {
            let mut watch = TransitWatch::default();
            assert_eq!(looks(&mut watch, 0..24, rtt), []);
            let changes = looks(&mut watch, 24..25, far);
            let [(found, Transit::Detour(usual))] = changes[..] else { panic!("{changes:?}") };
            assert!(found - 24 * HOUR <= Duration::from_secs(120), "{found:?}");
            assert_eq!(usual, rtt.mul_f64(0.8));
            let changes = looks(&mut watch, 25..26, rtt);
            assert!(matches!(changes[..], [(_, Transit::Usual)]), "{changes:?}");
        }
    }

    #[test]
    fn a_detour_that_stays_for_a_day_is_usual() {
        let mut watch = TransitWatch::default();
        let ms = Duration::from_millis;
        assert_eq!(looks(&mut watch, 0..1, ms(40)), []);
        let changes = looks(&mut watch, 1..49, ms(120));
        let [(_, Transit::Detour(_)), (over, Transit::Usual)] = changes[..] else {
            panic!("{changes:?}")
        };
        assert!((24 * HOUR..26 * HOUR).contains(&over), "{over:?}");
    }
}
