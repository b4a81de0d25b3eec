//! A site, as an archive has it, loaded over a link: between real kernels by any contender, protocol and
//! loader, or in virtual time.
//!
//! Each run has a world of its own with a seed of its own, so that no cache and no connection of one is
//! in the next one's way, and a run can be repeated alone.

pub mod emu;
pub mod sim;

use std::time::Duration;

use serde_json::Value;

use super::report::row;
use super::table;
use crate::contender::Contender;
use crate::loader::{Load, Protocol, Visit};
use crate::profile::Profile;
use crate::result::{Row, Sample, Samples};
use crate::site::Site;
use time::OffsetDateTime;

/// Runs of each contender unless told otherwise.
pub const DEFAULT_RUNS: u16 = 3;

/// Selection of the replay.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// Site to load.
    pub site: &'a Site,
    /// Over which link.
    pub profile: &'a Profile,
    /// Over what.
    pub protocol: Protocol,
    /// Time at which a load is cut off.
    pub deadline: Duration,
}

/// One load of the site.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Duration; cut off if anything is missing.
    pub plt: Sample,
    /// Bytes of bodies that came.
    pub bytes: u64,
    /// Resources of the site that came whole.
    pub came: usize,
    /// First fault, if any.
    pub failed: Option<String>,
    /// Its waterfall, as HAR 1.2.
    pub har: Value,
}

/// Results of all runs of one contender.
#[derive(Debug, Clone)]
pub struct Found {
    /// System under test.
    pub contender: &'static dyn Contender,
    /// One for each run.
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

    /// Bytes of bodies in a second of each load that came to an end.
    fn goodput(&self) -> Samples {
        let bps = |load: &Loaded| match load.plt {
            Sample::Finished(took) => Sample::Finished(8.0 * load.bytes as f64 / took.max(1e-9)),
            Sample::Cut(took) => Sample::Cut(8.0 * load.bytes as f64 / took.max(1e-9)),
        };
        Samples(self.loads.iter().map(bps).collect())
    }

    /// For a program: page-load times, goodput and the share of loads that failed.
    pub fn rows(&self, choice: &Choice<'_>, engine: &str, seed: u64) -> Vec<Row> {
        let what = format!("archive-{} {}", choice.site.name, choice.protocol);
        let limit = choice.profile.forward_limit(choice.site.bytes());
        let row = |metric: &str, unit: &str, limit: Option<f64>| Row {
            engine: engine.into(),
            contender: Some(self.contender.name().into()),
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

/// Text for a person: a row for each contender, in 80 columns.
pub fn text(choice: &Choice<'_>, found: &[Found]) -> String {
    let header = ["", "contender", "median", "p95", "best", "worst", "objects", "runs"];
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
            found.contender.name().to_owned(),
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
