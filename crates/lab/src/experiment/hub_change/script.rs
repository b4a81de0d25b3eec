//! Script of a scene, which either engine can play.

use std::ops::Range;
use std::time::Duration;

use super::files::Roles;
use super::traffic::{Course, Load};

/// Flows, and what happens to the gateways meanwhile.
#[derive(Debug, Clone)]
pub struct Script {
    /// Arrangement of the roles.
    pub roles: Roles,
    /// Number of aircraft, which share the radio's rate and the flows.
    pub aircraft: usize,
    /// Rate at which the flows write.
    pub load: Load,
    /// End of the writing.
    pub until: Duration,
    /// Flows, and the time at which they are opened.
    pub openings: Vec<(Duration, Range<u16>)>,
    /// Events, in order.
    pub events: Vec<(Duration, Event)>,
}

/// Event of a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The first hub ends in an orderly way.
    HubLeaves,
    /// The first hub is killed.
    HubDies,
    /// The first egress is killed, or does not run yet.
    EgressDies,
    /// The first egress runs again.
    EgressComes,
    /// The second hub is out of reach.
    SecondHubOut,
    /// The aircraft reaches no hub.
    RadioOut,
    /// The aircraft has another address, and reaches the second hub alone.
    RadioElsewhere,
    /// The first hub is restarted in an orderly way, by a service manager.
    HubRestarts,
    /// All air gateways are restarted in an orderly way, by a service manager.
    AirRestarts,
}

/// Results of a script.
#[derive(Debug, Clone)]
pub struct Played {
    /// Course of the flows.
    pub course: Course,
    /// Bytes offered to the radio.
    pub radio_bytes: u64,
}

/// Engine that plays scripts.
pub trait Stage {
    /// Name of the engine in rows.
    fn name(&self) -> &'static str;

    /// Plays a script from the beginning.
    fn play(&self, script: &Script) -> anyhow::Result<Played>;
}
