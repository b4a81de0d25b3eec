//! Selection of attacks.

use super::Attack;
use crate::profile::Profile;

/// Selection of the experiment.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Profile of the link.
    pub profile: Profile,
    /// Attacks, each in a new testbed.
    pub attacks: Vec<Attack>,
    /// Number of pages before the attack, and during it.
    pub pages: u16,
    /// Strength of the attacker, as a multiple of the stated one.
    pub factor: u32,
    /// Seed of the link's losses and of the attacker's random bytes.
    pub seed: u64,
}
