//! What an experiment with measured stretches is run with.

use std::time::Duration;

use crate::profile::Profile;

/// What is run.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The link; it has a rate.
    pub profile: Profile,
    /// How much is measured of each run.
    pub length: Duration,
    /// Runs of each part.
    pub runs: u16,
    /// Of the first run; the others' follow.
    pub seed: u64,
}

impl Choice {
    /// Of every run.
    pub fn seeds(&self) -> Vec<u64> {
        seeds(self.seed, self.runs)
    }
}

/// Of so many runs.
pub fn seeds(first: u64, runs: u16) -> Vec<u64> {
    (0..u64::from(runs)).map(|run| first + run).collect()
}
