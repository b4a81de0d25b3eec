//! Workload of one run of a cell in a testbed; each kind has its own file.

pub mod bulk;
mod chromium;
mod files;
mod measure_link;
mod mixed;
pub mod page;
mod sequence;
pub mod site;

use std::path::Path;

use bentpipe_lab::contender::Running;
use bentpipe_lab::emu::{Congestion, EmuError, LinkMeasured, Share, World};
use bentpipe_lab::workload::client::HttpError;
use bentpipe_lab::workload::origin::Origin;
use bentpipe_results::{Row, Workload};

use crate::job::Job;
use crate::link::{Scene, SceneError};
use page::Sites;
use site::SiteError;

/// Everything that a run needs.
pub struct Scope<'a> {
    /// The hosts and the link between them.
    pub world: &'a World,
    /// Measured properties of that link.
    pub measured: &'a LinkMeasured,
    /// Link of the cell, and settings of the hosts.
    pub scene: &'a Scene,
    /// The cell.
    pub job: &'a Job<'a>,
    /// The running system under test.
    pub running: &'a dyn Running,
    /// Server of transfers.
    pub origin: &'a Origin,
    /// Sites to load, and their servers.
    pub sites: &'a mut Sites,
    /// Congestion control of client and server.
    pub ends: Congestion,
    /// Folder of this testbed.
    pub folder: &'a Path,
    /// Folder of the raw data of single runs, if any.
    pub raw: Option<&'a Path>,
    /// Number of the run among those of its cell, from 0.
    pub run: u32,
    /// Number of the run among all runs of the testbed, from 1.
    pub number: u64,
    /// Reason why the run counts as failed, if it is not visible in the values; for the log.
    pub failed: Option<String>,
}

/// Reason why a run gave no results.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// A host of the lab failed.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The grid's settings are wrong.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// A page cannot be served or loaded.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The workload does not support the cell.
    #[error("cannot {0}")]
    Cannot(String),
}

/// Metrics that remain valid if the run failed.
const COUNTED: [&str; 4] = ["ceiling", "connections", "connections-dropped", "resets"];

impl WorkError {
    fn cannot(what: &str) -> Self {
        Self::Cannot(what.into())
    }
}

/// Performs one run of the scope's cell.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Row>, WorkError> {
    match scope.job.grid.workload {
        Workload::MeasureLink => Ok(measure_link::values(scope.job, scope.measured)),
        Workload::Files => files::run(scope),
        Workload::Sequence => sequence::run(scope),
        Workload::Bulk => bulk::run(scope),
        Workload::Mixed => mixed::run(scope),
        Workload::Page | Workload::Archive => page::run(scope),
        Workload::RuralPolicy => {
            Err(WorkError::cannot("have a policy without gateways of its own"))
        }
    }
}

/// First failure by damaged bytes, or else the first failure of any kind, as text.
fn reason(broke: &[HttpError]) -> Option<String> {
    let damage = broke.iter().find(|error| error.is_damage());
    damage.or(broke.first()).map(HttpError::to_string)
}

/// Marks the values of a run as those of a failed run.
pub fn failed(mut values: Vec<Row>) -> Vec<Row> {
    values.retain(|value| value.metric != "failed");
    for value in values.iter_mut().filter(|value| !COUNTED.contains(&value.metric.as_str())) {
        value.finished = false;
    }
    values.push(Row::of("failed", 1.0, true));
    values
}

/// Values of a run that failed before it gave any.
pub fn nothing(job: &Job<'_>) -> Vec<Row> {
    const TIMES: [&str; 5] = ["plt", "lcp", "repeat-plt", "repeat-lcp", "response-time"];
    const SHARES: [&str; 5] = ["goodput", "utilization", "epb", "epb-received", "epb-fair"];
    let deadline = job.planned.deadline.as_secs_f64();
    let times = TIMES.map(|metric| Row::of(metric, deadline, false));
    let shares = SHARES.map(|metric| Row::of(metric, 0.0, false));
    let asked = |value: &Row| job.grid.metrics.contains(&value.metric);
    let below = Row::of("below-window", 1.0, false);
    failed(times.into_iter().chain(shares).chain([below]).filter(asked).collect())
}

impl Scope<'_> {
    /// Counters of packets offered to the link in this direction so far, without other users, and
    /// of those lost.
    fn look(&self, up: bool) -> Result<Share, EmuError> {
        let counters = self.world.radio_counters()?;
        Ok(if up { counters.return_ } else { counters.forward }.own())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_failed_has_no_time_that_ended_whatever_it_made_of_it() {
        let values = failed(vec![
            Row::of("plt", 3.0, true),
            Row::of("connections", 6.0, true),
            Row::of("failed", 0.0, true),
        ]);
        let expected = [
            Row::of("plt", 3.0, false),
            Row::of("connections", 6.0, true),
            Row::of("failed", 1.0, true),
        ];
        assert_eq!(values, expected);
    }
}
