//! Results of a run, as rows that another program can read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;

/// One figure. Times are in seconds, rates in bit/s; what is unknown is null.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Row {
    /// Experiment: `demo`, `transfers`, `measure`, `sim`, `grid`, `relay`, `idle`, `coding`,
    /// `link`, …
    pub experiment: String,
    /// `emu` or `sim`; empty where there is no link.
    pub engine: String,
    /// System under test.
    pub contender: Option<String>,
    /// Over which link.
    pub profile: Option<String>,
    /// Workload.
    pub workload: Option<String>,
    /// Figure: `completion`, `goodput`, `plt`, `overhead`, …
    pub metric: String,
    /// `s`, `bit/s`, `bytes/s`, `ratio` or `bytes`.
    pub unit: String,
    /// Over how many samples.
    pub n: usize,
    /// The median; null when more than half of the samples did not finish.
    pub p50: Option<f64>,
    /// The 95th percentile; null when more than a twentieth did not finish.
    pub p95: Option<f64>,
    /// The mean; null when a sample did not finish.
    pub mean: Option<f64>,
    /// Bound of physics.
    pub limit: Option<f64>,
    /// Seed of the link's losses.
    pub seed: Option<u64>,
    /// The share of packets lost in each direction, where an experiment sets it.
    pub loss: Option<f64>,
    /// Mean length of a burst of losses in packet times, if an experiment sets it; 1 is independent
    /// loss.
    pub burst: Option<f64>,
    /// The link's bit-error rate, where that is what was swept; absent from other rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ber: Option<f64>,
}

/// Writes `rows` to `path` as a JSON array.
pub fn write_json(path: &Path, rows: &[Row]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    serde_json::to_writer_pretty(&mut file, rows)?;
    file.write_all(b"\n")?;
    file.flush()
}

/// One measured value, or how much of it was seen before the deadline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    /// It came to an end: this is it.
    Finished(f64),
    /// It was cut off here: the true value is larger.
    Cut(f64),
}

/// A percentile of samples of which some may have been cut off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Percentile {
    /// The value.
    Known(f64),
    /// All that is known is that it is above this.
    Above(f64),
}

impl Percentile {
    /// The value, where it is known.
    pub fn known(self) -> Option<f64> {
        match self {
            Self::Known(value) => Some(value),
            Self::Above(_) => None,
        }
    }
}

/// The samples of one cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// One more that came to an end.
    pub fn push(&mut self, value: f64) {
        self.0.push(Sample::Finished(value));
    }

    /// Number of samples, unfinished ones included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The percentile `q` (0 to 1) by nearest rank: the least sample that at least this share of
    /// all does not exceed. Those cut off count as infinitely large, so a bound is all that is
    /// told where the rank falls on one. `None` of nothing.
    pub fn percentile(&self, q: f64) -> Option<Percentile> {
        let rank = ((q * self.len() as f64).ceil() as usize).clamp(1, self.len().max(1)) - 1;
        let finished = self.sorted(|sample| match sample {
            Sample::Finished(value) => Some(value),
            Sample::Cut(_) => None,
        });
        if let Some(value) = finished.get(rank) {
            return Some(Percentile::Known(*value));
        }
        // Every sample is at least what was seen of it, and so is their percentile.
        let seen = self.sorted(|sample| match sample {
            Sample::Finished(value) | Sample::Cut(value) => Some(value),
        });
        seen.get(rank).map(|value| Percentile::Above(*value))
    }

    /// The mean, if all finished.
    pub fn mean(&self) -> Option<f64> {
        let all: Option<Vec<f64>> = (self.0.iter())
            .map(|sample| match sample {
                Sample::Finished(value) => Some(*value),
                Sample::Cut(_) => None,
            })
            .collect();
        let all = all.filter(|all| !all.is_empty())?;
        Some(all.iter().sum::<f64>() / all.len() as f64)
    }

    /// All of them times `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        let scale = |sample: &Sample| match sample {
            Sample::Finished(value) => Sample::Finished(value * factor),
            Sample::Cut(value) => Sample::Cut(value * factor),
        };
        Self(self.0.iter().map(scale).collect())
    }

    /// Puts count, percentiles and mean into `row`.
    pub fn fill(&self, row: Row) -> Row {
        let known = |q| self.percentile(q).and_then(Percentile::known);
        Row { n: self.len(), p50: known(0.5), p95: known(0.95), mean: self.mean(), ..row }
    }

    fn sorted(&self, value: impl Fn(Sample) -> Option<f64>) -> Vec<f64> {
        let mut values: Vec<f64> = self.0.iter().filter_map(|sample| value(*sample)).collect();
        values.sort_by(f64::total_cmp);
        values
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
    fn what_did_not_finish_is_never_a_number() {
        let samples = Samples(vec![
            Sample::Finished(10.0),
            Sample::Finished(60.0),
            Sample::Cut(40.0),
            Sample::Cut(150.0),
        ]);
        assert_eq!(samples.percentile(0.25), Some(Percentile::Known(10.0)));
        assert_eq!(samples.percentile(0.5), Some(Percentile::Known(60.0)));
        // The third of four is the one cut at 40 or the one at 150, both infinite: above 60.
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
        let swept = Row { ber: Some(1e-5), ..Row::default() };
        assert_eq!(serde_json::to_value(swept).unwrap()["ber"], 1e-5);
    }
}
