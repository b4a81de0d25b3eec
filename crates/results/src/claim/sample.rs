//! Runs of a cell, and the bootstrap over them (Efron 1979): runs are drawn again with replacement,
//! each with all its values, because the values of one run depend on each other.

use std::collections::BTreeMap;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::Claim;
use crate::measured::{Cell, Measured, least_of, most_of};
use crate::statistics::Statistic;

/// 97.5th percentile of Student's t distribution, for 2 to 10 runs.
const T: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
/// The same percentile of the normal distribution.
const Z: f64 = 1.96;

/// Factor by which the bootstrap of `runs` is too narrow. The percentile bootstrap takes the variance
/// of the sample for that of the population, and Student's t for normal. More than 10 runs stay.
pub(super) fn widening(runs: usize) -> f64 {
    let count = runs as f64;
    let t = runs.checked_sub(2).and_then(|place| T.get(place));
    t.map_or(1.0, |t| t / Z * (count / (count - 1.0)).sqrt())
}

/// Runs of one cell, as a claim uses them.
pub(super) struct Sample {
    runs: Vec<Run>,
    /// Spread of a single run, borrowed from other cells: values of runs as multiples of the value
    /// of their cell.
    borrowed: Vec<f64>,
}

/// Values of one run: of the metric, and of the metric by which it is divided.
#[derive(Default, Clone)]
struct Run {
    values: Vec<f64>,
    over: Vec<f64>,
}

impl Sample {
    /// Runs of a cell. `None` if it lacks the metric.
    pub fn of(claim: &Claim, measured: &Measured) -> Option<Self> {
        let mut runs: BTreeMap<u32, Run> = BTreeMap::new();
        for row in measured.of(&claim.metric).filter(|row| row.is_possible()) {
            runs.entry(row.run).or_default().values.push(row.ranked());
        }
        if let Some(over) = &claim.over {
            for row in measured.of(over).filter(|row| row.is_possible()) {
                runs.entry(row.run).or_default().over.push(row.ranked());
            }
        }
        let sample = Self { runs: runs.into_values().collect(), borrowed: Vec::new() };
        value(claim, &sample.runs).map(|_| sample)
    }

    /// Number of runs with the metric.
    pub fn runs(&self) -> usize {
        self.runs.iter().filter(|run| !run.values.is_empty()).count()
    }

    /// Number of values of the metric.
    pub fn values(&self) -> usize {
        self.runs.iter().map(|run| run.values.len()).sum()
    }

    /// Value of the cell. Undecided quotients are NaN.
    pub fn value(&self, claim: &Claim) -> f64 {
        value(claim, &self.runs).unwrap_or(f64::NAN)
    }

    /// Value of the cell after its runs were drawn again. The deviation from the cell's value is
    /// [widened](widening), as a factor if the values are positive.
    pub fn drawn(&self, claim: &Claim, random: &mut ChaCha8Rng) -> f64 {
        if let [run] = self.runs.as_slice() {
            let value = value(claim, [run]).unwrap_or(f64::NAN);
            if self.borrowed.is_empty() || value == 0.0 {
                return value;
            }
            let multiple = self.borrowed[random.random_range(0..self.borrowed.len())];
            return possible(claim, value * multiple);
        }
        let draw = (0..self.runs.len()).map(|_| random.random_range(0..self.runs.len()));
        let drawn: Vec<usize> = draw.collect();
        let drawn = value(claim, drawn.into_iter().map(|run| &self.runs[run]));
        let (drawn, value) = (drawn.unwrap_or(f64::NAN), self.value(claim));
        if drawn == value || !drawn.is_finite() || !value.is_finite() {
            return drawn;
        }
        let wider = widening(self.runs());
        possible(
            claim,
            if value > 0.0 && drawn >= 0.0 {
                value * (drawn / value).powf(wider)
            } else {
                value + wider * (drawn - value)
            },
        )
    }

    /// Returns `true` if drawing the runs again can change the value.
    pub fn has_spread(&self) -> bool {
        self.runs.len() > 1 || !self.borrowed.is_empty()
    }

    /// Gives each cell with a single run the spread of other cells: those of the same system under
    /// test, or of all systems if that has none with several runs. An exact bound has no spread.
    pub fn borrow(claim: &Claim, samples: &mut BTreeMap<&Cell, Self>) {
        if claim.is_exact() {
            return;
        }
        let mut spreads: BTreeMap<Option<String>, Vec<f64>> = BTreeMap::new();
        for (cell, sample) in samples.iter() {
            let system = cell.on("contender").map(str::to_owned);
            spreads.entry(system).or_default().extend(sample.multiples(claim));
        }
        let all: Vec<f64> = spreads.values().flatten().copied().collect();
        for (cell, sample) in samples.iter_mut().filter(|(_, sample)| sample.runs.len() == 1) {
            let own = spreads.get(&cell.on("contender").map(str::to_owned));
            sample.borrowed = own.filter(|own| !own.is_empty()).unwrap_or(&all).clone();
        }
    }

    /// Values of single runs as multiples of their median, widened to the deviations of an unbiased
    /// variance. Empty if there is one run, or if the median is 0, negative or infinite. A run with
    /// the value 0 or without an end says nothing about the spread of other cells, so it is left out.
    fn multiples(&self, claim: &Claim) -> Vec<f64> {
        let each: Vec<f64> = self.runs.iter().filter_map(|run| value(claim, [run])).collect();
        let count = each.len() as f64;
        let usual = |median: &f64| *median > 0.0 && median.is_finite() && each.len() > 1;
        let Some(median) = Statistic::Median.of(&each).filter(usual) else { return Vec::new() };
        let wider = (count / (count - 1.0)).sqrt();
        let multiples = each.iter().map(|one| (one / median).powf(wider));
        multiples.filter(|one| one.is_finite() && *one > 0.0).collect()
    }
}

/// Nearest possible value of the metric. A quotient has no limits of its own.
fn possible(claim: &Claim, value: f64) -> f64 {
    if claim.over.is_some() {
        return value;
    }
    value.clamp(least_of(&claim.metric), most_of(&claim.metric))
}

fn value<'a>(claim: &Claim, runs: impl IntoIterator<Item = &'a Run> + Clone) -> Option<f64> {
    let all = |of: fn(&Run) -> &Vec<f64>| -> Vec<f64> {
        runs.clone().into_iter().flat_map(|run| of(run).iter().copied()).collect()
    };
    let value = claim.statistic.of(&all(|run| &run.values))?;
    match claim.over {
        Some(_) => Some(value / claim.statistic.of(&all(|run| &run.over))?),
        None => Some(value),
    }
}
