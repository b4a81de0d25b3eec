//! Common part of experiments with pages in real Chromium.

use std::path::Path;

use tokio::runtime::{self, Runtime};

use super::ExperimentError;
use super::report::row;
use crate::emu::{EmuError, SERVER, World};
use crate::profile::Profile;
use crate::result::{Percentile, Row, Sample, Samples};
use crate::workload::chromium;

/// Loads of each case unless told otherwise.
pub const DEFAULT_RUNS: u16 = 3;

/// Selection of runs.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The link.
    pub profile: Profile,
    /// Loads of each case, each in a browser of its own.
    pub runs: u16,
    /// Seed of the first case's link.
    pub seed: u64,
}

impl Choice {
    /// The least that `bytes` take over the link, in seconds.
    pub(super) fn limit(&self, bytes: u64) -> Option<f64> {
        self.profile.forward_limit(bytes).map(|limit| limit.as_secs_f64())
    }

    /// A row of `experiment`, without what was found.
    pub(super) fn row(&self, experiment: &str, workload: String, metric: &str) -> Row {
        let row = row(experiment, &self.profile, workload, metric, self.seed);
        Row { engine: "emu".into(), ..row }
    }
}

/// A link with hosts on both sides, measured, and browsers in one of them.
pub(super) struct Cabin {
    pub world: World,
    /// Runtime of requests next to the browser.
    pub runtime: Runtime,
}

impl Cabin {
    /// One on `choice`'s link.
    pub fn new(choice: &Choice, seed: u64) -> Result<Self, ExperimentError> {
        let profile = &choice.profile;
        let world = World::new(&profile.link, profile.terrestrial.as_ref(), seed)?;
        world.measure()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self { world, runtime: runtime.map_err(EmuError::Thread)? })
    }

    /// Load time of the page at `url` in a browser of its own, whose files lie in `folder`.
    pub fn load(
        &self,
        flags: &[String],
        url: &str,
        folder: &Path,
    ) -> Result<Sample, ExperimentError> {
        let visit = chromium::visit(&self.world.client, flags, url, folder);
        let took = self.world.client.run(|| self.runtime.block_on(visit))??;
        Ok(Sample::Finished(took.as_secs_f64()))
    }

    /// Checks that the link followed its model, and lost no more.
    pub fn check(&self) -> Result<(), ExperimentError> {
        match self.world.radio_counters()?.unmodelled() {
            0 => Ok(()),
            lost => Err(ExperimentError::Unmodelled(lost)),
        }
    }
}

/// Chromium's: that `name` (`*` is any) is the lab's server, and which key it is to believe.
pub(super) fn flags(name: &str, key_hash: &str) -> Vec<String> {
    vec![
        format!("--host-resolver-rules=MAP {name} {}", SERVER.v4),
        format!("--ignore-certificate-errors-spki-list={key_hash}"),
    ]
}

/// The median of what came to an end, in seconds.
pub(super) fn median(loads: &Samples) -> Option<f64> {
    loads.percentile(0.5).and_then(Percentile::known)
}
