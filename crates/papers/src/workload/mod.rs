//! What one run of a cell does in a world, each kind in a file.

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
    /// What that link was measured to be.
    pub measured: &'a LinkMeasured,
    /// What the link is, and how the hosts are set.
    pub scene: &'a Scene,
    /// The cell.
    pub job: &'a Job<'a>,
    /// The contender at work.
    pub running: &'a dyn Running,
    /// The server of transfers.
    pub origin: &'a Origin,
    /// What is loaded, and who serves it.
    pub sites: &'a mut Sites,
    /// What both ends send with.
    pub ends: Congestion,
    /// A folder of the world's own.
    pub folder: &'a Path,
    /// Where the archives of page loads go, if anywhere.
    pub raw: Option<&'a Path>,
    /// Of the run among those of its cell, from 0.
    pub run: u32,
    /// Of the run among all runs of the world, from 1.
    pub number: u64,
}

/// Why a run gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// A host of the lab refused.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// A transfer went wrong in a way that is no result.
    #[error(transparent)]
    Http(#[from] HttpError),
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

/// What was counted so far in one direction.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// What the link was offered, other users left out, and what of it was lost.
    pub link: Share,
    /// IP bytes between gateway and client.
    pub cabin: u64,
}

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

impl Scope<'_> {
    /// Runs `work` inside the client, on a runtime of its own that ends with it.
    fn in_client<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> Result<T, EmuError> {
        self.world.client.run(|| {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            Ok(runtime.map_err(EmuError::Thread)?.block_on(work()))
        })?
    }

    /// What was counted so far: of what goes up, or of what comes down.
    fn look(&self, up: bool) -> Result<Look, EmuError> {
        let counters = self.world.radio_counters()?;
        let [down_bytes, up_bytes] = self.world.cabin_bytes()?;
        let (wire, cabin) =
            if up { (counters.return_, up_bytes) } else { (counters.forward, down_bytes) };
        Ok(Look { link: wire.own(), cabin })
    }
}
