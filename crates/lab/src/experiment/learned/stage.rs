//! A session under test, observed, in either engine.

use std::time::Duration;

use crate::record::Record;
use crate::result::Sample;
use crate::sim::scene::Scene;

/// A session over a link, and the record of the direction towards the aircraft.
pub trait Stage {
    /// Time since the run began.
    fn now(&mut self) -> Duration;
    /// Advances the time by `length`.
    fn pass(&mut self, length: Duration);
    /// Starts an endless download.
    fn start_bulk(&mut self) -> Result<(), String>;
    /// Fetches one object of `bytes`. Returns its duration.
    fn fetch(&mut self, bytes: u64, patience: Duration) -> Sample;
    /// Record so far.
    fn record(&self) -> Result<Record, String>;

    /// Advances the time to `at`, if it is in the future.
    fn pass_until(&mut self, at: Duration) {
        let now = self.now();
        self.pass(at.saturating_sub(now));
    }
}

impl Stage for Scene {
    fn now(&mut self) -> Duration {
        Self::now(self)
    }

    fn pass(&mut self, length: Duration) {
        Self::pass(self, length);
    }

    fn start_bulk(&mut self) -> Result<(), String> {
        Self::start_bulk(self).ok_or_else(|| "the session ended before the download".into())
    }

    fn fetch(&mut self, bytes: u64, patience: Duration) -> Sample {
        Self::fetch(self, bytes, patience)
    }

    fn record(&self) -> Result<Record, String> {
        Ok(Self::record(self))
    }
}
