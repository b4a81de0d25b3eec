//! Other grounds, as one ground knows them.

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
    /// It has egresses, and forwards flows of its aircraft to them.
    pub is_hub: bool,
    /// It dials for hubs.
    pub is_egress: bool,
    /// It is about to stop.
    pub is_leaving: bool,
    /// Used part of its flows; 255 is all of them.
    pub load: Option<u8>,
}

/// An egress in another process, as its hub sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressState {
    /// Its address in the configuration.
    pub name: String,
    /// `true` for a proxy: its flows are among those of this gateway.
    pub is_proxy: bool,
    /// `true` if new flows may go there.
    pub is_up: bool,
    /// Round-trip time to it; `None` while there is no connection.
    pub rtt: Option<Duration>,
    /// Flows that it dials for this hub.
    pub flows: usize,
}
