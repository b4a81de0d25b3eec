//! Workload of one run of a cell in a testbed; each kind has its own file.

pub mod bulk;
mod call;
mod chromium;
mod error;
mod files;
mod measure_link;
mod mixed;
pub mod page;
mod scope;
mod sequence;
mod sites;
mod values;

use bentpipe_results::{Row, Workload};

pub use error::{SiteError, WorkError};
pub use scope::Scope;
pub use sites::Sites;
pub use values::{failed, nothing};

/// Performs one run of the scope's cell.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Row>, WorkError> {
    match scope.job.grid.workload {
        Workload::MeasureLink => Ok(measure_link::values(scope.job, scope.measured)),
        Workload::Files => files::run(scope),
        Workload::Sequence => sequence::run(scope),
        Workload::Bulk => bulk::run(scope),
        Workload::Call => call::run(scope),
        Workload::Mixed => mixed::run(scope),
        Workload::Page | Workload::Archive => page::run(scope),
        Workload::RuralPolicy => {
            Err(WorkError::cannot("have a policy without gateways of its own"))
        }
    }
}
