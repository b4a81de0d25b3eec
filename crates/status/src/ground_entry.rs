//! Other gateways on the ground in the status file.

use bentpipe_link::PublicKey;
use bentpipe_transport::{EgressState, GroundStanding};
use bentpipe_units::micros;
use serde::{Deserialize, Serialize};

/// Other gateways on the ground, as one of them sees them.
#[derive(Default)]
pub struct Others {
    /// Grounds of the fleet.
    pub grounds: Vec<GroundEntry>,
    /// Egresses in the file.
    pub egresses: Vec<EgressEntry>,
}

/// An egress in another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressEntry {
    /// Its address in the configuration.
    pub name: String,
    /// `true` for a proxy of any maker.
    pub is_proxy: bool,
    /// `true` if new flows may go there.
    pub is_up: bool,
    /// Round-trip time to it; `None` while there is no connection.
    pub round_trip_us: Option<u64>,
    /// Flows that it dials for this gateway now.
    pub flows_now: usize,
}

impl EgressEntry {
    /// Entry of an egress.
    pub fn of(egress: EgressState) -> Self {
        let EgressState { name, is_proxy, is_up, rtt, flows } = egress;
        Self { name, is_proxy, is_up, round_trip_us: rtt.map(micros), flows_now: flows }
    }
}

/// Another ground of the fleet. Nothing of it is needed for flows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroundEntry {
    /// Its address in the configuration, or its public key.
    pub name: String,
    /// Its public key.
    pub public_key: String,
    /// `true` if it speaks to this gateway now.
    pub is_connected: bool,
    /// Public key of the ground that passed its statement on; `None` if it speaks for itself.
    pub through: Option<String>,
    /// Time since its last statement arrived; `None` if none counts any more.
    pub age_us: Option<u64>,
    /// `true` if it has egresses, and forwards flows of its aircraft to them.
    pub is_hub: bool,
    /// `true` if it dials for hubs.
    pub is_egress: bool,
    /// `true` if it is about to stop.
    pub is_leaving: bool,
    /// Used flows of a thousand.
    pub load_permille: Option<u64>,
}

impl GroundEntry {
    /// Entry of a ground with this name in the configuration.
    pub fn of(ground: &GroundStanding, name: Option<&str>) -> Self {
        let text = |key: &[u8; 32]| PublicKey::from_bytes(*key).to_string();
        let public_key = text(&ground.key);
        Self {
            name: name.map_or_else(|| public_key.clone(), str::to_owned),
            public_key,
            is_connected: ground.is_connected,
            through: ground.through.as_ref().map(text),
            age_us: ground.age.map(micros),
            is_hub: ground.is_hub,
            is_egress: ground.is_egress,
            is_leaving: ground.is_leaving,
            load_permille: ground.load.map(|load| u64::from(load) * 1000 / 255),
        }
    }
}
