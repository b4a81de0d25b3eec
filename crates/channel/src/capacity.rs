//! Exact capacity of a rate: the work possible by a given time, and the time by which given work is
//! possible.

use bentpipe_units::BitRate;

use crate::series::Varying;

/// Work in bits × nanoseconds per second (rate × time). Integers, so that no rounding error builds
/// up however long a run lasts.
pub(crate) type Work = u128;

/// Work of sending `bytes`.
pub(crate) const fn work(bytes: u64) -> Work {
    bytes as Work * 8 * 1_000_000_000
}

/// Bytes in `work`, rounded up.
pub(crate) fn bytes(work: Work) -> u64 {
    u64::try_from(work.div_ceil(8_000_000_000)).unwrap_or(u64::MAX)
}

/// Running sum of a rate over time.
#[derive(Debug, Clone)]
pub(crate) enum Capacity {
    Constant(u64),
    Series { steps: Vec<Step>, cycle: Option<Cycle> },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    start_ns: u64,
    rate_bps: u64,
    /// Work possible before `start_ns`.
    before: Work,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Cycle {
    length_ns: u64,
    total: Work,
}

impl Capacity {
    /// Creates the running sum. The long-run rate must be above zero, which specs are checked for.
    pub fn new(rate: &Varying<BitRate>) -> Self {
        let series = match rate {
            Varying::Constant(rate) => return Self::Constant(rate.bps()),
            Varying::Series(series) => series,
        };
        let mut steps: Vec<Step> = Vec::with_capacity(series.steps().len());
        for (start_ns, rate) in series.steps() {
            let before = steps.last().map_or(0, |step| step.until(*start_ns));
            steps.push(Step { start_ns: *start_ns, rate_bps: rate.bps(), before });
        }
        let cycle = series.repeat_ns().map(|length_ns| Cycle {
            length_ns,
            total: steps.last().map_or(0, |step| step.until(length_ns)),
        });
        Self::Series { steps, cycle }
    }

    /// Work possible from the beginning until `at_ns`.
    pub fn until(&self, at_ns: u64) -> Work {
        match self {
            Self::Constant(rate_bps) => Work::from(*rate_bps) * Work::from(at_ns),
            Self::Series { steps, cycle } => {
                let (done, within) = cycle.map_or((0, at_ns), |cycle| {
                    (Work::from(at_ns / cycle.length_ns) * cycle.total, at_ns % cycle.length_ns)
                });
                let index = steps.partition_point(|step| step.start_ns <= within);
                done + steps[index - 1].until(within)
            }
        }
    }

    /// First nanosecond by which `wanted` work is possible.
    pub fn when(&self, wanted: Work) -> u64 {
        if wanted == 0 {
            return 0;
        }
        let at = match self {
            Self::Constant(rate_bps) => wanted.div_ceil(Work::from(*rate_bps)),
            Self::Series { steps, cycle } => {
                let (start, rest) = cycle.map_or((0, wanted), |cycle| {
                    let cycles = (wanted - 1) / cycle.total;
                    (cycles * Work::from(cycle.length_ns), wanted - cycles * cycle.total)
                });
                // The last step with less than `rest` before it has a rate above zero. Otherwise
                // the next step would have the same amount before it.
                let step = &steps[steps.partition_point(|step| step.before < rest) - 1];
                let into = (rest - step.before).div_ceil(Work::from(step.rate_bps));
                start + Work::from(step.start_ns) + into
            }
        };
        u64::try_from(at).unwrap_or(u64::MAX)
    }
}

impl Step {
    fn until(&self, at_ns: u64) -> Work {
        self.before + Work::from(self.rate_bps) * Work::from(at_ns - self.start_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Series;
    use proptest::prelude::*;
    use std::time::Duration;

    fn series(rates: &[u64], repeat: bool) -> Capacity {
        let step =
            |(i, bps): (usize, &u64)| (Duration::from_secs(i as u64), BitRate::from_bps(*bps));
        let steps = rates.iter().enumerate().map(step).collect();
        let repeat = repeat.then(|| Duration::from_secs(rates.len() as u64));
        Capacity::new(&Varying::Series(Series::new(steps, repeat).unwrap()))
    }

    #[test]
    fn a_pause_in_the_rate_is_skipped() {
        let capacity = series(&[8_000, 0, 16_000], true);
        assert_eq!(capacity.when(work(1000)), 1_000_000_000);
        assert_eq!(capacity.when(work(1001)), 2_000_500_000);
        assert_eq!(capacity.when(work(3000)), 3_000_000_000);
        assert_eq!(capacity.when(work(3001)), 3_001_000_000);
        assert_eq!(capacity.until(4_500_000_000), work(4000));
    }

    proptest! {
        #[test]
        fn the_first_time_with_enough_capacity_is_found(
            mut rates in prop::collection::vec(prop_oneof![Just(0u64), 1u64..1_000_000_000], 1..8),
            repeat: bool,
            bytes in 1u64..100_000_000,
        ) {
            rates.push(1_000_000);
            let capacity = series(&rates, repeat);
            let at = capacity.when(work(bytes));
            prop_assert!(capacity.until(at) >= work(bytes));
            prop_assert!(capacity.until(at - 1) < work(bytes));
        }
    }
}
