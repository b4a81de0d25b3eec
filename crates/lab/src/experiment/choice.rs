//! Selection of runs for an experiment with measured periods.

use std::time::Duration;

use crate::profile::Profile;

/// Selection of runs.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Profile of the link, which must have a rate.
    pub profile: Profile,
    /// Measured length of each run.
    pub length: Duration,
    /// Runs of each part.
    pub runs: u16,
    /// Seed of the first run. The others' follow.
    pub seed: u64,
}

impl Choice {
    /// Seeds of all runs.
    pub fn seeds(&self) -> Vec<u64> {
        seeds(self.seed, self.runs)
    }
}

/// Seeds of `runs` runs.
pub fn seeds(first: u64, runs: u16) -> Vec<u64> {
    (0..u64::from(runs)).map(|run| first + run).collect()
}
