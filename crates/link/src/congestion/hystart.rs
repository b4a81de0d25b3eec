//! End of slow start before a loss: HyStart++ (RFC 9406).

use std::time::Duration;

/// Divisor of the round trip for the rise that shows a growing queue (RFC 9406, section 4.3) …
const RISE_PART: u32 = 8;
/// … within these bounds.
const MIN_RISE: Duration = Duration::from_millis(4);
const MAX_RISE: Duration = Duration::from_millis(16);
/// Minimum samples in a round before it is judged: half of a round's. The RFC asks for 8
/// acknowledgements; reports arrive about eight times a round trip.
const MIN_SAMPLES: u32 = 4;
/// Divisor of the window's growth after a rise.
const CONSERVATIVE_DIVISOR: u32 = 4;
/// Rounds of slower growth after which the end of slow start is final.
const CONSERVATIVE_ROUNDS: u32 = 5;

/// Growth of the window in slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// By the delivered bytes, divided by this.
    By(u32),
    /// Not at all: slow start is over.
    Over,
}

/// Observation of the round trips of slow start.
#[derive(Debug, Clone)]
pub struct HyStart {
    /// The round ends with the report of this packet.
    round_end: u64,
    samples: u32,
    min: Option<Duration>,
    min_before: Option<Duration>,
    conservative: Option<Conservative>,
}

#[derive(Debug, Clone, Copy)]
struct Conservative {
    baseline: Duration,
    rounds_left: u32,
}

impl HyStart {
    pub fn new() -> Self {
        Self { round_end: 0, samples: 0, min: None, min_before: None, conservative: None }
    }

    /// Handles a report in slow start. `largest` is the newest packet judged, `next` the number of
    /// the next packet, `sample` the round trip of the newest.
    pub fn reported(&mut self, largest: u64, next: u64, sample: Option<Duration>) -> Growth {
        if let Some(sample) = sample {
            self.samples += 1;
            self.min = Some(self.min.map_or(sample, |min| min.min(sample)));
        }
        self.judge();
        if largest >= self.round_end {
            self.round_end = next;
            self.min_before = self.min.take();
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds_left -= 1;
                if conservative.rounds_left == 0 {
                    return Growth::Over;
                }
            }
        }
        Growth::By(self.conservative.map_or(1, |_| CONSERVATIVE_DIVISOR))
    }

    fn judge(&mut self) {
        let (Some(min), true) = (self.min, self.samples >= MIN_SAMPLES) else { return };
        match self.conservative {
            // The round trip has fallen again: it was not a queue.
            Some(Conservative { baseline, .. }) if min < baseline => self.conservative = None,
            Some(_) => {}
            None => {
                let Some(before) = self.min_before else { return };
                let rise = (before / RISE_PART).clamp(MIN_RISE, MAX_RISE);
                if min >= before + rise {
                    let rounds_left = CONSERVATIVE_ROUNDS;
                    self.conservative = Some(Conservative { baseline: min, rounds_left });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays rounds of eight reports with these round trips in ms. Returns the last growth of each
    /// round.
    fn play(rounds: &[u64]) -> Vec<Growth> {
        let mut hystart = HyStart::new();
        let mut growths = Vec::new();
        for (round, rtt_ms) in (1u64..).zip(rounds) {
            let mut growth = Growth::Over;
            for report in 1..=8 {
                let sample = Duration::from_millis(*rtt_ms);
                growth = hystart.reported(round * 8 + report, round * 8 + 8 + report, Some(sample));
                if growth == Growth::Over {
                    break;
                }
            }
            growths.push(growth);
        }
        growths
    }

    #[test]
    fn a_steady_round_trip_grows_at_full_speed() {
        assert_eq!(play(&[100; 6]), [Growth::By(1); 6]);
        assert_eq!(play(&[600, 610, 620, 630]), [Growth::By(1); 4], "16 ms are noise at most");
    }

    #[test]
    fn a_rise_slows_growth_and_ends_it_after_five_rounds() {
        let growths = play(&[100, 100, 120, 125, 130, 135, 140, 145]);
        assert_eq!(growths[1], Growth::By(1));
        assert_eq!(growths[2], Growth::By(4));
        assert_eq!(growths.last(), Some(&Growth::Over));
    }

    #[test]
    fn a_rise_that_passes_was_not_a_queue() {
        assert_eq!(*play(&[100, 120, 100, 100]).last().unwrap(), Growth::By(1));
    }
}
