//! Reports of experiments with Bentpipe.

pub use bentpipe_results::outcome::table::{delay, millis, percent};
pub use bentpipe_results::outcome::{Bound, Goal, Report};

use crate::profile::Profile;
use crate::result::Row;
use crate::system::{BENTPIPE, SystemUnderTest};

/// A row for Bentpipe, without figures.
pub fn row(experiment: &str, profile: &Profile, workload: String, metric: &str, seed: u64) -> Row {
    let unit = match metric {
        "delay" | "completion" | "plt" | "lookup" | "first-byte" => "s",
        "rate" => "bit/s",
        _ => "ratio",
    };
    Row {
        experiment: experiment.into(),
        system: Some(BENTPIPE.name().into()),
        profile: Some(profile.name.clone()),
        workload: Some(workload),
        metric: metric.into(),
        unit: unit.into(),
        seed: Some(seed),
        loss: Some(profile.forward_loss()),
        ..Row::default()
    }
}
