//! Other grounds of the fleet, as one ground knows them.

use std::time::Duration;

/// Another ground of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroundStanding {
    /// Its public key.
    pub key: [u8; 32],
    /// `true` if it speaks to this ground now.
    pub is_connected: bool,
    /// The ground that passed its statement on; `None` if it speaks for itself.
    pub through: Option<[u8; 32]>,
    /// Time since its last statement arrived; `None` if none counts any more.
    pub age: Option<Duration>,
    /// It ends radio sessions.
    pub is_hub: bool,
    /// It dials for hubs.
    pub is_egress: bool,
    /// It is about to stop.
    pub is_leaving: bool,
    /// Used part of its flows; 255 is all of them.
    pub load: Option<u8>,
}
