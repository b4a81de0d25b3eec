//! Paced sources, which send a little all the time, as a call does.
//!
//! A flush after every packet would double what they send. While such a source goes on, repairs
//! accrue at its class's ratio instead, and each protects the last packets before it. The flush
//! follows when the source falls silent.

use std::time::Duration;

use bentpipe_schedule::Class;

use crate::redundancy::Loss;

/// Maximum number of symbols in a burst of a paced source.
const MAX_SYMBOLS: u64 = 2;
/// Number of small bursts in a row that make a source paced.
const MIN_STREAK: u32 = 8;
/// Maximum distance of bursts …
const MAX_GAP: Duration = Duration::from_millis(250);
/// … and minimum: closer ones are one burst.
const MIN_GAP: Duration = Duration::from_millis(5);
/// Number of gaps without a burst after which a source counts as silent.
const SILENCE_GAPS: u32 = 2;
/// Maximum of accrued repairs.
const MAX_OWED: f64 = 4.0;

/// Repairs after a burst of a paced source.
#[derive(Debug, PartialEq)]
pub struct AccruedRepairs {
    /// Number of repairs to send now.
    pub repairs: u32,
    /// Time at which the source counts as silent if nothing more is sent.
    pub silent_at: Duration,
}

/// Detector of paced sources in one lane.
#[derive(Debug, Default)]
pub struct PacedSource {
    last: Option<Duration>,
    streak: u32,
    owed: f64,
}

impl PacedSource {
    /// Notes the end of a burst of `symbols`. Returns `None` if the burst should be flushed at
    /// once.
    pub fn ended(
        &mut self,
        symbols: u64,
        class: Class,
        loss: Loss,
        now: Duration,
    ) -> Option<AccruedRepairs> {
        let gap = self.last.replace(now).map(|last| now.saturating_sub(last));
        let gap = gap.filter(|gap| (MIN_GAP..=MAX_GAP).contains(gap));
        let Some(gap) = gap.filter(|_| symbols <= MAX_SYMBOLS) else {
            (self.streak, self.owed) = (0, 0.0);
            return None;
        };
        self.streak += 1;
        if self.streak < MIN_STREAK {
            return None;
        }
        self.owed = (self.owed + symbols as f64 * ratio(class, loss)).min(MAX_OWED);
        let repairs = self.owed as u32;
        self.owed -= f64::from(repairs);
        Some(AccruedRepairs { repairs, silent_at: now + gap * SILENCE_GAPS })
    }
}

/// Repairs per symbol of `class` while others follow it: at 6 % loss, one in four for a call.
pub fn ratio(class: Class, loss: Loss) -> f64 {
    factor(class) * loss.rate / (1.0 - loss.rate)
}

/// Minimum repairs as a multiple of the losses.
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
        let (mut paced_source, mut repairs, mut flushes) = (PacedSource::default(), 0, 0);
        for packet in 0..408 {
            match paced_source.ended(1, Class::Network, LOSS, ms(20 * packet)) {
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
    fn pages_and_downloads_are_not_paced_sources() {
        let mut paced_source = PacedSource::default();
        for object in 0..100 {
            assert_eq!(paced_source.ended(8, Class::BestEffort, LOSS, ms(50 * object)), None);
        }
        for packet in 0..100 {
            assert_eq!(paced_source.ended(1, Class::BestEffort, LOSS, ms(9000 + packet)), None);
        }
        for rare in 0..100 {
            assert_eq!(
                paced_source.ended(1, Class::BestEffort, LOSS, ms(20_000 + 900 * rare)),
                None
            );
        }
    }
}
