//! The kernel's TCP from end to end, routed across the link.

use super::{Parts, Running, Stage};
use crate::workload::fetch::{Client, Route};
use crate::workload::origin::Congestion;

/// Needs nothing but the origin's listener with this congestion control.
pub(super) fn start(stage: &Stage<'_>, congestion: Congestion) -> Running {
    let origin = stage.origin.address(congestion);
    Running { client: Client { route: Route::Direct, origin, congestion }, parts: Parts::Nothing }
}
