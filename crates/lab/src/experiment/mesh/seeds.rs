//! Seeds of runs.

/// Seeds of the runs of a simulated path.
#[derive(Debug, Clone, Copy)]
pub struct Seeds {
    /// Seed of the first run. The others follow.
    pub first: u64,
    /// Number of runs.
    pub runs: u64,
}

impl Seeds {
    /// The seeds.
    pub fn all(self) -> impl Iterator<Item = u64> + Clone {
        self.first..self.first + self.runs
    }
}
