//! The state of an egress, for people.

use std::time::Duration;

/// An egress, as a way to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressStanding {
    /// Its address in the configuration.
    pub name: String,
    /// `true` if there is a connection to it.
    pub is_up: bool,
    /// `true` if passengers who have none at the destination get it.
    pub is_chosen: bool,
    /// `true` if its last connections to the destination failed.
    pub fails: bool,
    /// Round-trip time to it.
    pub leg: Duration,
    /// Time that it needs to connect.
    pub dial: Duration,
    /// Origin of `dial`, for people.
    pub source: String,
    /// Reason why new flows do not go there, if it is known.
    pub trouble: Option<String>,
}
