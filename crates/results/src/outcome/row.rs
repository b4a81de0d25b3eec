//! Figures of an experiment, as rows that another program can read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;

use crate::statistics::{Statistic, percentile};

/// One figure. Times are in seconds, rates in bit/s; unknown values are null.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Row {
    /// Experiment: `demo`, `transfers`, `measure`, `sim`, `grid`, `relay`, `idle`, `coding`,
    /// `link`, …
    pub experiment: String,
    /// `emu` or `sim`; empty if no link is involved.
    pub engine: String,
    /// System under test.
    #[serde(rename = "contender")]
    pub system: Option<String>,
    /// Profile of the link.
    pub profile: Option<String>,
    /// Workload.
    pub workload: Option<String>,
    /// Figure: `completion`, `goodput`, `plt`, `overhead`, …
    pub metric: String,
    /// `s`, `bit/s`, `bytes/s`, `ratio` or `bytes`.
    pub unit: String,
    /// Number of samples.
    pub n: usize,
    /// Median; null if more than half of the samples did not finish.
    pub p50: Option<f64>,
    /// 95th percentile; null if more than a twentieth of the samples did not finish.
    pub p95: Option<f64>,
    /// Mean; null if a sample did not finish.
    pub mean: Option<f64>,
    /// Physical limit.
    pub limit: Option<f64>,
    /// Seed of the link's losses.
    pub seed: Option<u64>,
    /// Fraction of packets lost in each direction, if an experiment sets it.
    pub loss: Option<f64>,
    /// Mean length of a burst of losses in packet times, if an experiment sets it; 1 is independent
    /// loss.
    pub burst: Option<f64>,
}

/// Writes `rows` to `path` as a JSON array.
pub fn write_json(path: &Path, rows: &[Row]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    serde_json::to_writer_pretty(&mut file, rows)?;
    file.write_all(b"\n")?;
    file.flush()
}

/// One measured value, or a lower bound if it was cut off at the deadline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    /// The measurement finished with this value.
    Finished(f64),
    /// The measurement was cut off at this value; the true value is larger.
    Cut(f64),
}

/// A percentile of samples, some of which may have been cut off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Percentile {
    /// The value.
    Known(f64),
    /// Lower bound of the value.
    Above(f64),
}

impl Percentile {
    /// The value, if it is known.
    pub fn known(self) -> Option<f64> {
        match self {
            Self::Known(value) => Some(value),
            Self::Above(_) => None,
        }
    }
}

/// Samples of one configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// Adds a finished sample.
    pub fn push(&mut self, value: f64) {
        self.0.push(Sample::Finished(value));
    }

    /// Number of samples, including unfinished ones.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The percentile `q` (0 to 1) by nearest rank: the smallest sample that at least this fraction
    /// of all samples does not exceed. Samples that were cut off count as infinitely large. If the
    /// rank falls on one of them, only a lower bound is known. `None` if there are no samples.
    pub fn percentile(&self, q: f64) -> Option<Percentile> {
        let value = percentile(&self.values(|_| f64::INFINITY), q)?;
        if value.is_finite() {
            return Some(Percentile::Known(value));
        }
        // Every sample is at least its lower bound, so the percentile is at least that of the
        // bounds.
        percentile(&self.values(|bound| bound), q).map(Percentile::Above)
    }

    /// The percentile `q`, if it is not only a lower bound.
    pub fn known(&self, q: f64) -> Option<f64> {
        self.percentile(q)?.known()
    }

    /// Median, if it is not only a lower bound.
    pub fn median(&self) -> Option<f64> {
        self.known(0.5)
    }

    /// Mean, if all samples finished.
    pub fn mean(&self) -> Option<f64> {
        Statistic::Mean.of(&self.values(|_| f64::INFINITY)).filter(|mean| mean.is_finite())
    }

    /// All values, with `cut` of the bound for samples that were cut off.
    fn values(&self, cut: impl Fn(f64) -> f64) -> Vec<f64> {
        let value = |sample: &Sample| match sample {
            Sample::Finished(value) => *value,
            Sample::Cut(bound) => cut(*bound),
        };
        self.0.iter().map(value).collect()
    }

    /// All samples multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        let scale = |sample: &Sample| match sample {
            Sample::Finished(value) => Sample::Finished(value * factor),
            Sample::Cut(value) => Sample::Cut(value * factor),
        };
        Self(self.0.iter().map(scale).collect())
    }

    /// Writes count, percentiles and mean to `row`.
    pub fn fill(&self, row: Row) -> Row {
        let (p50, p95) = (self.median(), self.known(0.95));
        Row { n: self.len(), p50, p95, mean: self.mean(), ..row }
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().map(Sample::Finished).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let samples: Samples = (1..=40).map(f64::from).collect();
        assert_eq!(samples.percentile(0.5), Some(Percentile::Known(20.0)));
        assert_eq!(samples.percentile(0.95), Some(Percentile::Known(38.0)));
        assert_eq!(samples.mean(), Some(20.5));
        let one: Samples = [7.0].into_iter().collect();
        assert_eq!(one.percentile(0.95), Some(Percentile::Known(7.0)));
        assert_eq!(Samples::default().percentile(0.5), None);
        assert_eq!(Samples::default().mean(), None);
    }

    #[test]
    fn an_unfinished_sample_is_never_a_number() {
        let samples = Samples(vec![
            Sample::Finished(10.0),
            Sample::Finished(60.0),
            Sample::Cut(40.0),
            Sample::Cut(150.0),
        ]);
        assert_eq!(samples.percentile(0.25), Some(Percentile::Known(10.0)));
        assert_eq!(samples.percentile(0.5), Some(Percentile::Known(60.0)));
        // The third of four samples is either the one cut at 40 or the one cut at 150. Both count
        // as infinite, so the result is above 60.
        assert_eq!(samples.percentile(0.75), Some(Percentile::Above(60.0)));
        assert_eq!(samples.percentile(0.95), Some(Percentile::Above(150.0)));
        assert_eq!(samples.mean(), None);
        let row = samples.fill(Row::default());
        assert_eq!((row.n, row.p50, row.p95, row.mean), (4, Some(60.0), None, None));
    }

    #[test]
    fn rows_have_every_key_and_null_for_the_unknown() {
        let row = Row { experiment: "demo".into(), n: 3, seed: Some(7), ..Row::default() };
        let json = serde_json::to_value([row]).unwrap();
        let keys: Vec<_> = json[0].as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = [
            "experiment",
            "engine",
            "contender",
            "profile",
            "workload",
            "metric",
            "unit",
            "n",
            "p50",
            "p95",
            "mean",
            "limit",
            "seed",
            "loss",
            "burst",
        ];
        expected.sort_unstable();
        let mut keys = keys;
        keys.sort_unstable();
        assert_eq!(keys, expected);
        assert!(json[0]["limit"].is_null() && json[0]["contender"].is_null());
        assert_eq!(json[0]["seed"], 7);
    }
}
