//! HTTP objects in the clear, each fetched twice, and what caches say about them (Mile High WiFi, section 5.3).
//!
//! | module | contents |
//! |---|---|
//! | `signs` | the fields that proxies and caches add |
//! | `verdict` | hits and misses of a cache in flight |

mod signs;
mod verdict;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use signs::Signs;
pub use verdict::{Verdict, Verdicts, Witness};

/// Sizes of an own origin's objects, in bytes. All four together, twice, take 222 kB.
pub const SIZES: [u64; 4] = [1, 1000, 10_000, 100_000];

/// Size of the largest object in bytes.
pub const LARGE: u64 = 1_000_000;

/// Number of rounds of which one has the largest object.
pub const LARGE_EVERY: u64 = 8;

/// Listed names of a round: with a kilobyte each, twice, 40 kB.
pub const NAMES: usize = 20;

/// Two fetches of one object, the second when the first has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectPair {
    /// Address of the object.
    pub url: String,
    /// Choice of the object.
    pub kind: ObjectKind,
    /// First fetch. An own origin's object has an address that nobody can have requested before.
    pub first: Fetch,
    /// Second fetch, unless the first one failed.
    pub second: Option<Fetch>,
}

/// Choice of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// The root of a listed name, in the clear. It mostly redirects.
    Listed,
    /// An object of an own origin, with a serial number in each response.
    Origin,
}

/// A fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// Server, or the address for which a proxy answers.
    pub address: Option<IpAddr>,
    /// Time of the handshake in microseconds.
    pub connect_us: Option<u64>,
    /// Time from the request to the response header in microseconds.
    pub first_byte_us: Option<u64>,
    /// Time from the request to the end of the body in microseconds.
    pub complete_us: Option<u64>,
    /// Status code.
    pub status: Option<u16>,
    /// Bytes of the body that were read.
    pub bytes: u64,
    /// The body was longer.
    pub cut: bool,
    /// Serial number of an own origin's response. A repeated one is of a cache.
    pub serial: Option<u64>,
    /// Fields of proxies and caches.
    pub signs: Signs,
    /// The failure in OONI's manner.
    pub failure: Option<String>,
}

impl Fetch {
    /// A fetch without a response.
    pub fn failed(failure: String) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    /// Returns `true` if the response tells something about caches: an error is made by anybody on the path.
    pub fn answered(&self) -> bool {
        self.failure.is_none() && self.status.is_some_and(|status| (200..400).contains(&status))
    }
}
