//! Settings of a path of a session.

use bentpipe_units::BitRate;

use crate::lease::LeaseMode;

/// Settings of a path besides the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSettings {
    /// Name in the status.
    pub name: String,
    /// Rate that the operator lets this side use on the path, as that of the first one.
    pub rate: BitRate,
    /// Origin of the rate.
    pub lease: LeaseMode,
    /// Largest IP packet on the path, as that of the first one, which also limits it.
    pub mtu_bytes: usize,
    /// The path's bytes cost money: it carries data only while no other path does. The air says so
    /// to the ground.
    pub metered: bool,
}
