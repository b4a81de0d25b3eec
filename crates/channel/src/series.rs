//! Values that change over time, in steps.

use std::sync::Arc;
use std::time::Duration;

use crate::error::SpecError;

/// Maximum number of steps in a series. A step takes 16 bytes, and 32 more for the running sum of a
/// rate. The longest series costs 48 MB: 16 minutes of a Mahimahi trace that changes every
/// millisecond.
pub const MAX_STEPS: usize = 1_000_000;

/// Constant value or series.
#[derive(Debug, Clone, PartialEq)]
pub enum Varying<T> {
    /// Same value at all times.
    Constant(T),
    /// Value that changes in steps.
    Series(Series<T>),
}

/// Values that each hold from their start until the next.
#[derive(Debug, Clone, PartialEq)]
pub struct Series<T> {
    steps: Arc<[(u64, T)]>,
    repeat_ns: Option<u64>,
}

impl<T: Copy> Varying<T> {
    /// Value at `at_ns` nanoseconds.
    pub(crate) fn at(&self, at_ns: u64) -> T {
        match self {
            Self::Constant(value) => *value,
            Self::Series(series) => series.at(at_ns),
        }
    }

    /// Long-run mean.
    pub(crate) fn mean(&self, number: impl Fn(T) -> f64) -> f64 {
        match self {
            Self::Constant(value) => number(*value),
            Self::Series(series) => series.mean(number),
        }
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = T> + '_ {
        let (constant, series) = match self {
            Self::Constant(value) => (Some(*value), None),
            Self::Series(series) => (None, Some(series)),
        };
        constant.into_iter().chain(series.into_iter().flat_map(|s| s.steps.iter().map(|s| s.1)))
    }
}

impl<T: Copy> Series<T> {
    /// Creates a series from steps of (start, value), the first at zero. It repeats after `repeat`,
    /// if given.
    pub fn new(steps: Vec<(Duration, T)>, repeat: Option<Duration>) -> Result<Self, SpecError> {
        let error = |why: String| Err(SpecError::new("series", why));
        if steps.len() > MAX_STEPS {
            return error(format!("has {} steps: at most {MAX_STEPS} are possible", steps.len()));
        }
        match steps.first() {
            None => return error("has no steps: write one like [\"0 s\", …]".into()),
            Some((start, _)) if !start.is_zero() => {
                return error(format!("begins at {start:?}: begin with a step at \"0 s\""));
            }
            Some(_) => {}
        }
        if let Some(pair) = steps.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            let (this, next) = (pair[0].0, pair[1].0);
            return error(format!(
                "goes from {this:?} to {next:?}: put the steps in order of time"
            ));
        }
        let last = steps[steps.len() - 1].0;
        if let Some(repeat) = repeat.filter(|repeat| *repeat <= last) {
            return error(format!(
                "repeats after {repeat:?}, before its last step at {last:?}: repeat later"
            ));
        }
        let steps = steps.into_iter().map(|(start, value)| (nanos(start), value)).collect();
        Ok(Self { steps, repeat_ns: repeat.map(nanos) })
    }

    /// Steps as (start in nanoseconds, value), the first at zero.
    pub(crate) fn steps(&self) -> &[(u64, T)] {
        &self.steps
    }

    /// Length of a repetition, if the series repeats.
    pub(crate) fn repeat_ns(&self) -> Option<u64> {
        self.repeat_ns
    }

    fn at(&self, at_ns: u64) -> T {
        let within = self.repeat_ns.map_or(at_ns, |repeat| at_ns % repeat);
        let index = self.steps.partition_point(|(start, _)| *start <= within);
        // The first step starts at zero, so at least one start is not after `within`.
        self.steps[index - 1].1
    }

    /// Mean over one repetition. Without a repetition, the last value, because it holds for ever.
    fn mean(&self, number: impl Fn(T) -> f64) -> f64 {
        let Some(repeat) = self.repeat_ns else {
            return number(self.steps[self.steps.len() - 1].1);
        };
        let ends = self.steps.iter().skip(1).map(|step| step.0).chain([repeat]);
        let weighted = self.steps.iter().zip(ends);
        weighted.map(|((start, value), end)| number(*value) * (end - start) as f64).sum::<f64>()
            / repeat as f64
    }
}

/// Converts to nanoseconds. 64 bits suffice for 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(steps: &[(u64, u32)], repeat: Option<u64>) -> Result<Series<u32>, SpecError> {
        let steps = steps.iter().map(|(at, value)| (Duration::from_secs(*at), *value)).collect();
        Series::new(steps, repeat.map(Duration::from_secs))
    }

    #[test]
    fn each_value_holds_until_the_next() {
        let once = seconds(&[(0, 1), (10, 2), (20, 3)], None).unwrap();
        let at = |series: &Series<u32>, ms: u64| series.at(ms * 1_000_000);
        assert_eq!([at(&once, 0), at(&once, 9_999), at(&once, 10_000)], [1, 1, 2]);
        assert_eq!(at(&once, 1_000_000), 3);
        assert_eq!(once.mean(f64::from), 3.0);

        let again = seconds(&[(0, 1), (10, 2), (20, 3)], Some(40)).unwrap();
        assert_eq!([at(&again, 39_999), at(&again, 40_000), at(&again, 50_000)], [3, 1, 2]);
        assert_eq!(again.mean(f64::from), (10.0 + 20.0 + 60.0) / 40.0);
    }

    #[test]
    fn invalid_series_are_refused() {
        assert!(seconds(&[], None).is_err());
        assert!(seconds(&[(1, 1)], None).unwrap_err().to_string().contains("0 s"));
        assert!(seconds(&[(0, 1), (5, 2), (5, 3)], None).is_err());
        assert!(seconds(&[(0, 1), (5, 2)], Some(5)).is_err());
    }
}
