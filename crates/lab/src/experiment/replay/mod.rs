//! Loads of an archived site over a link: between real kernels with any system under test, protocol
//! and client, or in virtual time.
//!
//! Each run has its own testbed and seed. Caches and connections of one run do not affect the next,
//! and a run can be repeated alone.

pub mod emu;
pub mod sim;

use std::time::Duration;

use serde_json::Value;

use super::report::row;
use super::table;
use crate::loader::{Load, Protocol, Visit};
use crate::profile::Profile;
use crate::result::{Row, Sample, Samples};
use crate::site::Site;
use crate::system::SystemUnderTest;
use time::OffsetDateTime;

/// Default number of runs of each system under test.
pub const DEFAULT_RUNS: u16 = 3;

/// Selection of the replay.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// Site to load.
    pub site: &'a Site,
    /// Profile of the link.
    pub profile: &'a Profile,
    /// Protocol of the load.
    pub protocol: Protocol,
    /// Time at which a load is cut off.
    pub deadline: Duration,
}

/// One load of the site.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Duration. Cut off if anything is missing.
    pub plt: Sample,
    /// Received bytes of bodies.
    pub bytes: u64,
    /// Number of the site's resources that arrived completely.
    pub came: usize,
    /// First fault, if any.
    pub failed: Option<String>,
    /// Waterfall of the load as HAR 1.2.
    pub har: Value,
}

/// Results of all runs of one system under test.
#[derive(Debug, Clone)]
pub struct Found {
    /// System under test.
    pub system: &'static dyn SystemUnderTest,
    /// One load for each run.
    pub loads: Vec<Loaded>,
}

impl Loaded {
    fn of(visit: &Visit, load: &Load<'_>, begun: OffsetDateTime) -> Self {
        let seconds = visit.took.as_secs_f64();
        let whole =
            |entry: &&crate::loader::Entry| entry.failed.is_none() && entry.status.is_some();
        let late = || (!visit.finished).then(|| format!("cut off after {seconds} s"));
        Self {
            plt: if visit.failed() { Sample::Cut(seconds) } else { Sample::Finished(seconds) },
            bytes: visit.bytes(),
            came: visit.entries.iter().filter(whole).count(),
            failed: visit.entries.iter().find_map(|entry| entry.failed.clone()).or_else(late),
            har: visit.har(load, begun),
        }
    }
}

impl Found {
    fn plt(&self) -> Samples {
        Samples(self.loads.iter().map(|load| load.plt).collect())
    }

    /// Rate of bodies in each finished load, in bit/s.
    fn goodput(&self) -> Samples {
        let bps = |load: &Loaded| match load.plt {
            Sample::Finished(took) => Sample::Finished(8.0 * load.bytes as f64 / took.max(1e-9)),
            Sample::Cut(took) => Sample::Cut(8.0 * load.bytes as f64 / took.max(1e-9)),
        };
        Samples(self.loads.iter().map(bps).collect())
    }

    /// Machine-readable rows: page-load times, goodput and the fraction of failed loads.
    pub fn rows(&self, choice: &Choice<'_>, engine: &str, seed: u64) -> Vec<Row> {
        let what = format!("archive-{} {}", choice.site.name, choice.protocol);
        let limit = choice.profile.forward_limit(choice.site.bytes());
        let row = |metric: &str, unit: &str, limit: Option<f64>| Row {
            engine: engine.into(),
            system: Some(self.system.name().into()),
            unit: unit.into(),
            limit,
            ..row("replay", choice.profile, what.clone(), metric, seed)
        };
        let failed: Samples =
            self.loads.iter().map(|load| f64::from(u8::from(load.failed.is_some()))).collect();
        vec![
            self.plt().fill(row("plt", "s", limit.map(|limit| limit.as_secs_f64()))),
            self.goodput().fill(row("goodput", "bit/s", None)),
            failed.fill(row("failed", "ratio", None)),
        ]
    }
}

/// Text for display: a row for each system under test, in 80 columns.
pub fn text(choice: &Choice<'_>, found: &[Found]) -> String {
    let header = ["", "system", "median", "p95", "best", "worst", "objects", "runs"];
    let all = choice.site.resources.len();
    let line = |found: &Found| {
        let plt = found.plt();
        let at = |q| table::written(plt.percentile(q), table::seconds);
        let whole =
            found.loads.iter().filter(|load| matches!(load.plt, Sample::Finished(_))).count();
        let runs = found.loads.len();
        let least = found.loads.iter().map(|load| load.came).min().unwrap_or(0);
        [
            choice.protocol.to_string(),
            found.system.name().to_owned(),
            at(0.5),
            at(0.95),
            at(0.0),
            at(1.0),
            if least == all { all.to_string() } else { format!("{least}/{all}") },
            if whole == runs { runs.to_string() } else { format!("{whole}/{runs}") },
        ]
    };
    table::groups(header, &found.iter().map(line).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
