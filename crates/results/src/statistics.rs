//! Medians, nearest-rank percentiles, and their confidence intervals.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

/// Number of bootstrap samples. With ten times as many, the bounds of the interval move by less
/// than the width of a line in a figure.
pub const RESAMPLES: usize = 1_000;

/// Maximum number of values for the bootstrap, which takes some milliseconds. For more values, the
/// normal approximation gives the interval, which hardly differs then.
pub const MAX_RESAMPLED: usize = 300;

/// Minimum number of values for which the 95th percentile is not simply the largest one.
pub const MIN_FOR_P95: usize = 20;

/// Statistic over the runs of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Middle value. For an even number of values, the mean of the two in the middle.
    #[default]
    Median,
    /// 95th percentile. For fewer than [`MIN_FOR_P95`] values, the largest.
    P95,
    /// Arithmetic mean.
    Mean,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
}

/// A figure with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Statistic of the sample.
    pub value: f64,
    /// Lower bound of the 95 % interval.
    pub low: f64,
    /// Upper bound of the 95 % interval.
    pub high: f64,
}

impl Statistic {
    /// Computes the statistic over `values` in any order. Infinite values rank above all others.
    /// `None` if there are no values.
    pub fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Median => median(values),
            Self::P95 => percentile(values, 0.95),
            Self::Min => percentile(values, 0.0),
            Self::Max => percentile(values, 1.0),
            Self::Mean => {
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
            }
        }
    }

    /// Computes the statistic with its 95 % interval by the percentile bootstrap (Efron 1979):
    /// [`RESAMPLES`] samples with replacement, from a generator with this seed.
    pub fn with_interval(self, values: &[f64], seed: u64) -> Option<Interval> {
        let value = self.of(values)?;
        if values.len() > MAX_RESAMPLED {
            return self.approximate_interval(values, value);
        }
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut drawn = vec![0.0; values.len()];
        let figures: Vec<f64> = (0..RESAMPLES)
            .filter_map(|_| {
                drawn
                    .iter_mut()
                    .for_each(|one| *one = values[random.random_range(0..values.len())]);
                self.of(&drawn)
            })
            .collect();
        let (low, high) = (percentile(&figures, 0.025)?, percentile(&figures, 0.975)?);
        Some(Interval { value, low, high })
    }

    /// Approximates the interval. The bounds of a percentile are the ranks between which it lies
    /// with a probability of 95 %, by the binomial distribution of the values below it. The bounds
    /// of a mean are 1.96 standard errors away.
    fn approximate_interval(self, values: &[f64], value: f64) -> Option<Interval> {
        let n = values.len() as f64;
        let q = match self {
            Self::Median => 0.5,
            Self::P95 => 0.95,
            Self::Min | Self::Max => return Some(Interval { value, low: value, high: value }),
            Self::Mean => {
                let variance =
                    values.iter().map(|one| (one - value).powi(2)).sum::<f64>() / (n - 1.0);
                let off = 1.96 * (variance / n).sqrt();
                // Infinite values have no spread.
                let off = if off.is_finite() { off } else { 0.0 };
                return Some(Interval { value, low: value - off, high: value + off });
            }
        };
        let off = 1.96 * (q * (1.0 - q) / n).sqrt();
        let (low, high) = (percentile(values, q - off)?, percentile(values, (q + off).min(1.0))?);
        Some(Interval { value, low, high })
    }
}

/// Jain's fairness index: (Σx)² ÷ (n Σx²). It is 1 if all get the same, or nothing, and 1/n if one gets
/// everything.
pub fn jain(parts: impl IntoIterator<Item = f64>) -> f64 {
    let (n, sum, squares) = parts.into_iter().fold((0.0, 0.0, 0.0), |(n, sum, squares), part| {
        (n + 1.0, sum + part, squares + part * part)
    });
    if squares == 0.0 { 1.0 } else { sum * sum / (n * squares) }
}

/// Smallest of `values` that at least the fraction `q` (0 to 1) of all values does not exceed.
pub fn percentile(values: &[f64], q: f64) -> Option<f64> {
    ranked(values, ((q * values.len() as f64).ceil() as usize).max(1))
}

/// Median. The mean of the two middle values is infinite if the upper one is. If one of two page
/// loads never ends, neither is typical, and the worse one counts.
fn median(values: &[f64]) -> Option<f64> {
    let upper = ranked(values, values.len() / 2 + 1)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = ranked(values, values.len() / 2)?;
    Some(if lower == upper { upper } else { lower.midpoint(upper) })
}

/// Value with this rank, counted from 1.
fn ranked(values: &[f64], rank: usize) -> Option<f64> {
    if rank > values.len() {
        return None;
    }
    let mut some = values.to_vec();
    let (_, value, _) = some.select_nth_unstable_by(rank - 1, f64::total_cmp);
    Some(*value)
}

#[cfg(test)]
mod tests {
    use rand::Rng as _;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn jains_index_is_between_one_of_all_and_all_alike() {
        assert_eq!(jain([5.0, 5.0, 5.0, 5.0]), 1.0);
        assert_eq!(jain([8.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain([0.0, 0.0]), 1.0);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values = [3.0, 1.0, f64::INFINITY, 2.0];
        assert_eq!(percentile(&values, 0.5), Some(2.0));
        assert_eq!(percentile(&values, 0.75), Some(3.0));
        assert_eq!(percentile(&values, 0.95), Some(f64::INFINITY));
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(Statistic::Mean.of(&[1.0, 2.0]), Some(1.5));
        assert_eq!(Statistic::Mean.of(&[]), None);
    }

    #[test]
    fn a_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let never = f64::INFINITY;
        for (values, median) in [
            (&[][..], None),
            (&[4.0], Some(4.0)),
            (&[9.0, 1.0], Some(5.0)),
            (&[3.0, 1.0, 2.0], Some(2.0)),
            (&[8.0, 1.0, 4.0, 3.0], Some(3.5)),
            (&[1.0, never], Some(never)),
            (&[1.0, 2.0, never, never], Some(never)),
            (&[1.0, 2.0, 3.0, never], Some(2.5)),
            (&[never, never], Some(never)),
        ] {
            assert_eq!(Statistic::Median.of(values), median, "{values:?}");
        }
    }

    #[test]
    fn a_95th_percentile_needs_twenty_values_to_be_less_than_the_greatest() {
        let some = |n: usize| (1..=n).map(|value| value as f64).collect::<Vec<_>>();
        for n in 1..MIN_FOR_P95 {
            assert_eq!(Statistic::P95.of(&some(n)), Some(n as f64));
        }
        assert_eq!(Statistic::P95.of(&some(MIN_FOR_P95)), Some(19.0));
    }

    #[test]
    fn an_interval_narrows_with_the_sample() {
        let sample = |n: u32| (0..n).map(|i| f64::from(i % 10)).collect::<Vec<_>>();
        let width = |n| {
            let interval = Statistic::Mean.with_interval(&sample(n), 1).unwrap();
            assert!((interval.low..=interval.high).contains(&4.5), "{interval:?}");
            interval.high - interval.low
        };
        assert!(width(1000) < width(100) / 2.5);
        assert!(width(100) < width(10) / 2.5);
    }

    #[test]
    fn the_intervals_of_many_values_are_those_of_the_bootstrap() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let values: Vec<f64> = (0..MAX_RESAMPLED).map(|_| random.random::<f64>()).collect();
        for statistic in [Statistic::Median, Statistic::P95, Statistic::Mean] {
            let drawn = statistic.with_interval(&values, 1).unwrap();
            let value = statistic.of(&values).unwrap();
            let approximate = statistic.approximate_interval(&values, value).unwrap();
            let width = drawn.high - drawn.low;
            assert!(
                (drawn.low - approximate.low).abs() < 0.25 * width,
                "{drawn:?} {approximate:?}"
            );
            assert!(
                (drawn.high - approximate.high).abs() < 0.25 * width,
                "{drawn:?} {approximate:?}"
            );
        }
        let never = vec![f64::INFINITY; MAX_RESAMPLED + 1];
        let interval = Statistic::Mean.with_interval(&never, 1).unwrap();
        assert_eq!((interval.low, interval.high), (f64::INFINITY, f64::INFINITY));
    }

    proptest! {
        #[test]
        fn a_figure_lies_within_its_interval_and_its_sample(
            values in prop::collection::vec(-1e6..1e6f64, 1..50),
            seed in any::<u64>(),
        ) {
            let (least, most) = (percentile(&values, 0.0).unwrap(), percentile(&values, 1.0).unwrap());
            for statistic in [Statistic::Median, Statistic::P95] {
                let Interval { value, low, high } = statistic.with_interval(&values, seed).unwrap();
                prop_assert!(least <= low && low <= high && high <= most);
                prop_assert!(least <= value && value <= most);
                // A percentile is one of the values, and so is the median of an odd number of
                // values.
                let between = statistic == Statistic::Median && values.len() % 2 == 0;
                prop_assert!(between || values.contains(&value));
            }
        }
    }
}
