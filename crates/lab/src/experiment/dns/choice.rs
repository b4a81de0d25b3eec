//! Selection of questions.

use std::time::Duration;

use crate::profile::Profile;

/// Selection of questions.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Profile of the link.
    pub profile: Profile,
    /// Number of passengers.
    pub passengers: u8,
    /// Length of the run. The first five minutes are not measured.
    pub length: Duration,
    /// Seed of losses and questions.
    pub seed: u64,
}
