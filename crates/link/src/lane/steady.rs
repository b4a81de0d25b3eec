//! Sources that send a little all the time, as a call does.
//!
//! To flush after every packet would double what they send. While such a source goes on, repairs
//! accrue at its class's ratio instead, and each protects the last packets before it; the flush
//! follows when the source falls silent.

use std::time::Duration;

use bentpipe_schedule::Class;

use crate::redundancy::Loss;

/// A burst of more symbols than this is no part of a steady sparse source.
const MOST_SYMBOLS: u64 = 2;
/// So many small bursts in a row make a source steady.
const LEAST_STREAK: u32 = 8;
/// Bursts are this far apart at most …
const MOST_GAP: Duration = Duration::from_millis(250);
/// … and at least: closer ones are one burst.
const LEAST_GAP: Duration = Duration::from_millis(5);
/// A source has fallen silent when nothing came for so many of its gaps.
const SILENCE_GAPS: u32 = 2;
/// Repairs accrue to no more than this.
const MOST_OWED: f64 = 4.0;

/// Repairs that a steady source's burst asks for.
#[derive(Debug, PartialEq)]
pub struct Accrued {
    /// Repairs to send now.
    pub repairs: u32,
    /// Time at which the source counts as silent if nothing more comes.
    pub silent_at: Duration,
}

/// Watches the bursts of one lane.
#[derive(Debug, Default)]
pub struct Steady {
    last: Option<Duration>,
    streak: u32,
    owed: f64,
}

impl Steady {
    /// A burst of `symbols` has ended; `None` where it should be flushed at once.
    pub fn ended(
        &mut self,
        symbols: u64,
        class: Class,
        loss: Loss,
        now: Duration,
    ) -> Option<Accrued> {
        let gap = self.last.replace(now).map(|last| now.saturating_sub(last));
        let gap = gap.filter(|gap| (LEAST_GAP..=MOST_GAP).contains(gap));
        let Some(gap) = gap.filter(|_| symbols <= MOST_SYMBOLS) else {
            (self.streak, self.owed) = (0, 0.0);
            return None;
        };
        self.streak += 1;
        if self.streak < LEAST_STREAK {
            return None;
        }
        self.owed = (self.owed + symbols as f64 * ratio(class, loss)).min(MOST_OWED);
        let repairs = self.owed as u32;
        self.owed -= f64::from(repairs);
        Some(Accrued { repairs, silent_at: now + gap * SILENCE_GAPS })
    }
}

/// Repairs per symbol of `class` while others follow it: at 6 % a call gets one in four.
pub fn ratio(class: Class, loss: Loss) -> f64 {
    factor(class) * loss.rate / (1.0 - loss.rate)
}

/// In multiples of what is lost at least.
fn factor(class: Class) -> f64 {
    match class {
        Class::Operator | Class::Network => 4.0,
        Class::Assured => 3.0,
        Class::BestEffort => 2.5,
        Class::LowerEffort => 1.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSS: Loss = Loss { rate: 0.06, correlation: 0.0 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_call_accrues_one_repair_in_four() {
        let (mut steady, mut repairs, mut flushes) = (Steady::default(), 0, 0);
        for packet in 0..408 {
            match steady.ended(1, Class::Network, LOSS, ms(20 * packet)) {
                Some(accrued) => {
                    assert_eq!(accrued.silent_at, ms(20 * packet + 40));
                    repairs += accrued.repairs;
                }
                None => flushes += 1,
            }
        }
        assert_eq!((repairs, flushes), (102, 8));
    }

    #[test]
    fn pages_and_downloads_are_no_steady_sources() {
        let mut steady = Steady::default();
        for object in 0..100 {
            assert_eq!(steady.ended(8, Class::BestEffort, LOSS, ms(50 * object)), None);
        }
        for packet in 0..100 {
            assert_eq!(steady.ended(1, Class::BestEffort, LOSS, ms(9000 + packet)), None);
        }
        for rare in 0..100 {
            assert_eq!(steady.ended(1, Class::BestEffort, LOSS, ms(20_000 + 900 * rare)), None);
        }
    }
}
