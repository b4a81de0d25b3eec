//! `[beam]` of `ground.toml`: a capacity that several aircraft share.

use bentpipe_units::BitRate;
use serde::Deserialize;

/// Beam that the aircraft share. In an absent direction, each aircraft has its own rate instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Beam {
    /// Total sending rate to all aircraft.
    pub forward: Option<BitRate>,
    /// Total sending rate of all aircraft with `lease = "granted"`.
    #[serde(rename = "return")]
    pub return_: Option<BitRate>,
}
