//! Pairs of DNS lookups: values, messages, names, and what they tell of caches in flight.
//!
//! | module | contents |
//! |---|---|
//! | `message` | queries and responses |
//! | `names` | the dated list of names, and unique names |
//! | `repeats` | [`Cause`] of double misses |
//! | `quadrants` | [`Quadrants`]: hits and misses of pairs, by the flight's own minimum round-trip time |

pub mod message;
pub mod names;
mod quadrants;
mod repeats;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use quadrants::{Quadrant, Quadrants};
pub use repeats::Cause;

/// Wait for a response.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Two lookups of one name, the second as soon as the first has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsPair {
    /// The name.
    pub name: String,
    /// Reason for the choice of the name.
    pub kind: NameKind,
    /// Address of the resolver.
    pub resolver: IpAddr,
    /// Reason for the choice of the resolver.
    pub resolver_kind: ResolverKind,
    /// First lookup.
    pub first: Lookup,
    /// Second lookup.
    pub second: Lookup,
}

/// Reason for the choice of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameKind {
    /// A name of the list.
    Listed,
    /// A name that nobody can have asked for: its first lookup cannot be answered from a cache.
    Unique,
}

/// Reason for the choice of a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolverKind {
    /// The resolver of this machine, usually obtained by DHCP.
    Local,
    /// A resolver named by the user, or a public one.
    Other,
}

/// One lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// Time to the response in microseconds.
    pub rtt_us: Option<u64>,
    /// The response, if there was a proper one.
    pub response: Option<Response>,
    /// The failure in OONI's manner: `generic_timeout_error`.
    pub failure: Option<String>,
}

/// Contents of a response that matter here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// Response code: 0 is success, 3 is "no such name".
    pub rcode: u16,
    /// Number of answers.
    pub answers: u16,
    /// Smallest TTL of the answers, in seconds.
    pub ttl_s: Option<u32>,
    /// The response was truncated.
    pub truncated: bool,
    /// The responder is an authority for the name.
    pub authoritative: bool,
}

impl Lookup {
    /// A lookup that failed.
    pub fn failed(failure: impl Into<String>) -> Self {
        Self { rtt_us: None, response: None, failure: Some(failure.into()) }
    }
}
