//! Mahimahi packet-delivery traces, converted to a rate.
//!
//! Each line of a trace is a time in milliseconds at which one packet of 1500 bytes can be sent.
//! The trace repeats after its last line. The bytes of each millisecond become the rate of that
//! millisecond. A packet therefore takes its share of a millisecond instead of waiting for the next
//! whole opportunity.

use std::time::Duration;

use bentpipe_units::BitRate;

use crate::error::SpecError;
use crate::series::{MAX_STEPS, Series};

/// Rate that one line adds to the millisecond before its time: 1500 bytes in 1 ms.
const OPPORTUNITY_BPS: u64 = 1500 * 8 * 1000;

/// Rate of a trace, with one step for each millisecond in which it changes.
pub(crate) fn rate(trace: &str) -> Result<Series<BitRate>, SpecError> {
    let mut opportunities = Opportunities::default();
    for (index, line) in trace.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let error = |why: &str| error(format!("line {}: {line:?} {why}", index + 1));
        let at_ms = line.trim().parse().map_err(|_| error("is not a time in milliseconds"))?;
        opportunities.add(at_ms).map_err(error)?;
    }
    let (steps, end_ms) = opportunities.finish();
    if end_ms == 0 {
        return Err(error("has no line after 0 ms: its rate is undefined".into()));
    }
    Series::new(steps, Some(Duration::from_millis(end_ms)))
}

fn error(why: String) -> SpecError {
    SpecError::new("Mahimahi trace", why)
}

/// Steps so far, and the millisecond whose lines are being counted.
#[derive(Default)]
struct Opportunities {
    steps: Vec<(Duration, BitRate)>,
    /// Time and number of the lines being counted.
    last: Option<(u64, u64)>,
    /// End of the steps.
    end_ms: u64,
}

impl Opportunities {
    fn add(&mut self, at_ms: u64) -> Result<(), &'static str> {
        // A line at 0 ms has no preceding millisecond; it counts for the first one.
        let at_ms = at_ms.max(1);
        match &mut self.last {
            Some((last_ms, _)) if *last_ms > at_ms => {
                return Err("is earlier than the line before");
            }
            Some((last_ms, lines)) if *last_ms == at_ms => *lines += 1,
            _ => {
                self.close();
                self.last = Some((at_ms, 1));
            }
        }
        if self.steps.len() > MAX_STEPS { Err("makes the trace too long") } else { Ok(()) }
    }

    /// Converts the counted lines to the rate of their millisecond, and the gap before them to a
    /// zero rate.
    fn close(&mut self) {
        let Some((at_ms, lines)) = self.last.take() else { return };
        if at_ms - 1 > self.end_ms {
            self.push(self.end_ms, 0);
        }
        self.push(at_ms - 1, lines * OPPORTUNITY_BPS);
        self.end_ms = at_ms;
    }

    fn push(&mut self, start_ms: u64, rate_bps: u64) {
        let rate = BitRate::from_bps(rate_bps);
        if self.steps.last().is_none_or(|(_, last)| *last != rate) {
            self.steps.push((Duration::from_millis(start_ms), rate));
        }
    }

    fn finish(mut self) -> (Vec<(Duration, BitRate)>, u64) {
        self.close();
        (self.steps, self.end_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::{Capacity, work};
    use crate::series::Varying;
    use proptest::prelude::*;

    #[test]
    fn errors_name_the_line() {
        assert!(rate("1\n5\n4\n").unwrap_err().to_string().contains("line 3"));
        assert!(rate("1\nx\n").unwrap_err().to_string().contains("line 2"));
        assert!(rate("\n\n").is_err());
    }

    #[test]
    fn a_line_at_zero_counts_for_the_first_millisecond() {
        let rate = Varying::Series(rate("0\n\n5\n").unwrap());
        assert_eq!(Capacity::new(&rate).until(1_000_000), work(1500));
        assert_eq!(Capacity::new(&rate).until(5_000_000), work(3000));
    }

    proptest! {
        #[test]
        fn every_line_carries_1500_bytes_by_its_time(
            gaps in prop::collection::vec(0u64..30, 1..200),
        ) {
            let mut at = 1;
            let times: Vec<u64> = gaps.iter().map(|gap| { at += gap; at }).collect();
            let trace: String = times.iter().map(|at| format!("{at}\n")).collect();
            let capacity = Capacity::new(&Varying::Series(rate(&trace).unwrap()));
            for at in &times {
                let lines = times.iter().filter(|other| *other <= at).count() as u64;
                prop_assert_eq!(capacity.until(at * 1_000_000), work(lines * 1500));
            }
            // The second repetition carries the same amount again.
            prop_assert_eq!(capacity.until(2 * at * 1_000_000), work(times.len() as u64 * 3000));
        }
    }
}
