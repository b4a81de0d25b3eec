//! End of slow start before anything is lost: HyStart++ (RFC 9406).

use std::time::Duration;

/// A rise of the round trip by this part of it means that a queue builds (RFC 9406, section 4.3) …
const RISE_PART: u32 = 8;
/// … within these bounds.
const LEAST_RISE: Duration = Duration::from_millis(4);
const MOST_RISE: Duration = Duration::from_millis(16);
/// Samples of a round before it is judged. The RFC asks for 8 acknowledgements; reports come about
/// eight times a round trip, so half of a round's.
const LEAST_SAMPLES: u32 = 4;
/// Divisor of the window's growth once a rise is seen.
const CONSERVATIVE_DIVISOR: u32 = 4;
/// Rounds of slower growth that make the end of slow start final.
const CONSERVATIVE_ROUNDS: u32 = 5;

/// Growth of the window in slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// By what was delivered, divided by this.
    By(u32),
    /// Not any more: slow start is over.
    Over,
}

/// Watches the round trips of slow start.
#[derive(Debug, Clone)]
pub struct HyStart {
    /// The round ends with the report of this packet.
    round_end: u64,
    samples: u32,
    least: Option<Duration>,
    least_before: Option<Duration>,
    conservative: Option<Conservative>,
}

#[derive(Debug, Clone, Copy)]
struct Conservative {
    baseline: Duration,
    rounds_left: u32,
}

impl HyStart {
    pub fn new() -> Self {
        Self { round_end: 0, samples: 0, least: None, least_before: None, conservative: None }
    }

    /// A report in slow start: `largest` is the newest packet it judges, `next` the packet that
    /// will be sent next, `sample` the round trip of the newest.
    pub fn reported(&mut self, largest: u64, next: u64, sample: Option<Duration>) -> Growth {
        if let Some(sample) = sample {
            self.samples += 1;
            self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        }
        self.judge();
        if largest >= self.round_end {
            self.round_end = next;
            self.least_before = self.least.take();
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
        let (Some(least), true) = (self.least, self.samples >= LEAST_SAMPLES) else { return };
        match self.conservative {
            // It was no queue: the round trip has come down again.
            Some(Conservative { baseline, .. }) if least < baseline => self.conservative = None,
            Some(_) => {}
            None => {
                let Some(before) = self.least_before else { return };
                let rise = (before / RISE_PART).clamp(LEAST_RISE, MOST_RISE);
                if least >= before + rise {
                    let rounds_left = CONSERVATIVE_ROUNDS;
                    self.conservative = Some(Conservative { baseline: least, rounds_left });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays rounds of eight reports with these round trips in ms; what each round ended with.
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
    fn a_rise_that_passes_was_no_queue() {
        assert_eq!(*play(&[100, 120, 100, 100]).last().unwrap(), Growth::By(1));
    }
}
