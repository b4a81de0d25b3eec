//! Start of the transports behind the seam [`bentpipe_transport`], as configured.
//!
//! | module | contents |
//! |---|---|
//! | `start` | start of the configured transports |
//! | `call` | a call to one ground: addresses, sockets, the radio transport |
//! | [`link`], [`masque`], [`aerotcp`] | configuration of each transport |
//! | `hubs`, `egresses` | an aircraft's hubs, and a hub's egresses |
//! | [`leg`] | between hub and egress by the radio transport |
//! | [`handshake_counter`] | the counter of handshakes, which survives a restart |
//! | `path_memory`, `homes` | properties of the path, and addresses of the aircraft, kept over a restart |
//! | `radio` | a socket for each radio of a session |
//! | [`daily_limit`] | daily limits of radios, which survive a restart |
//! | `machine` | memory of the machine |
//! | `trial` | one call to the ground before a gateway runs |

#![forbid(unsafe_code)]

pub mod aerotcp;
mod call;
pub mod daily_limit;
mod egresses;
mod error;
pub mod handshake_counter;
mod homes;
mod hubs;
pub mod leg;
pub mod link;
mod machine;
pub mod masque;
mod neighbours;
mod path_memory;
mod radio;
mod start;
mod trial;

pub use call::call;
pub use error::TransportError;
pub use start::{acceptor, connector, fleet};
pub use trial::{Trial, TrialError, trial};

/// Entry points for a fuzz target.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz {
    pub use crate::path_memory::{read, written};
}
