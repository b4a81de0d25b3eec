//! Workload of one run of a cell in a world, each kind in a file.

pub mod bulk;
mod chromium;
mod files;
pub mod http;
mod measure_link;
mod mixed;
pub mod page;
mod sequence;

use std::path::Path;

use bentpipe_lab::contender::Running;
use bentpipe_lab::emu::{EmuError, LinkMeasured, Share, World};
use bentpipe_lab::workload::origin::Congestion;
use bentpipe_results::Workload;
use tokio::runtime;

use crate::job::{Job, Value};
use crate::link::{Scene, SceneError};
use crate::origin::Origin;
use http::HttpError;
use page::{SiteError, Sites};

/// All that a run may need.
pub struct Scope<'a> {
    /// The hosts and the link between them.
    pub world: &'a World,
    /// Measured properties of that link.
    pub measured: &'a LinkMeasured,
    /// Link of the cell, and settings of the hosts.
    pub scene: &'a Scene,
    /// The cell.
    pub job: &'a Job<'a>,
    /// The contender at work.
    pub running: &'a dyn Running,
    /// The server of transfers.
    pub origin: &'a Origin,
    /// Sites to load, and their servers.
    pub sites: &'a mut Sites,
    /// Congestion control of both ends.
    pub ends: Congestion,
    /// A folder of the world's own.
    pub folder: &'a Path,
    /// Folder of the raw data of single runs, if any.
    pub raw: Option<&'a Path>,
    /// Number of the run among those of its cell, from 0.
    pub run: u32,
    /// Number of the run among all runs of the world, from 1.
    pub number: u64,
    /// Reason for which the run counts as failed, if its values alone do not say it: for the log.
    pub failed: Option<String>,
}

/// Reason for which a run gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// A host of the lab refused.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The grid's settings are wrong.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// A page cannot be served or loaded.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The workload cannot do what the cell asks for.
    #[error("cannot {0}")]
    Cannot(String),
}

/// Metrics that stay true although the run failed.
const COUNTED: [&str; 4] = ["ceiling", "connections", "connections-dropped", "resets"];

impl WorkError {
    fn cannot(what: &str) -> Self {
        Self::Cannot(what.into())
    }
}

/// One run of the scope's cell.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Value>, WorkError> {
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

/// The first of `broke` that was damage, or else the first of any kind, in words.
fn reason(broke: &[HttpError]) -> Option<String> {
    let damage = broke.iter().find(|error| error.is_damage());
    damage.or(broke.first()).map(HttpError::to_string)
}

/// Values of a run, turned into those of one that failed.
pub fn failed(mut values: Vec<Value>) -> Vec<Value> {
    values.retain(|value| value.metric != "failed");
    for value in values.iter_mut().filter(|value| !COUNTED.contains(&value.metric)) {
        value.finished = false;
    }
    values.push(Value::of("failed", 1.0, true));
    values
}

/// Values of a run that never got as far as giving any.
pub fn nothing(job: &Job<'_>) -> Vec<Value> {
    const TIMES: [&str; 5] = ["plt", "lcp", "repeat-plt", "repeat-lcp", "response-time"];
    const SHARES: [&str; 5] = ["goodput", "utilization", "epb", "epb-received", "epb-fair"];
    let deadline = job.planned.deadline.as_secs_f64();
    let times = TIMES.map(|metric| Value::of(metric, deadline, false));
    let shares = SHARES.map(|metric| Value::of(metric, 0.0, false));
    let asked = |value: &Value| job.grid.metrics.iter().any(|metric| metric == value.metric);
    let below = Value::of("below-window", 1.0, false);
    failed(times.into_iter().chain(shares).chain([below]).filter(asked).collect())
}

impl Scope<'_> {
    /// Runs `work` inside the client, on a runtime of its own that ends with it.
    fn in_client<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> Result<T, EmuError> {
        self.world.client.run(|| {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            Ok(runtime.map_err(EmuError::Thread)?.block_on(work()))
        })?
    }

    /// Packets offered to the link so far, without those of other users, and how many were lost:
    /// upwards, or downwards.
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
            Value::of("plt", 3.0, true),
            Value::of("connections", 6.0, true),
            Value::of("failed", 0.0, true),
        ]);
        let expected = [
            Value::of("plt", 3.0, false),
            Value::of("connections", 6.0, true),
            Value::of("failed", 1.0, true),
        ];
        assert_eq!(values, expected);
    }
}
