//! `[beam]` of `ground.toml`: a capacity that several aircraft share.

use bentpipe_units::BitRate;
use schemars::JsonSchema;
use serde::Deserialize;

/// Beam that the aircraft share. In an absent direction, each aircraft has its own rate instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Beam {
    /// Send rate towards all aircraft together.
    pub forward: Option<BitRate>,
    /// Send rate of all aircraft with `lease = "granted"` together.
    #[serde(rename = "return")]
    pub return_: Option<BitRate>,
}
