//! The async edge: one task that moves datagrams between a socket and an end, and connections as
//! streams. The socket is the link's ([`bentpipe_link::io::Socket`]), and all time is tokio's, so
//! that a paused clock drives everything in the simulator.

mod driver;
mod flow;
mod handle;
mod shared;

use bytes::Bytes;

use bentpipe_link::{Class, Target};

pub use flow::Flow;
pub use handle::{Air, Ground, Incoming};

/// A connection to be opened.
#[derive(Debug, Clone)]
pub struct Open {
    /// Where it should lead.
    pub target: Target,
    /// How it should be treated; AeroTCP itself treats all alike and tells the ground.
    pub class: Class,
    /// Whose it is.
    pub passenger: u32,
    /// Its first bytes, which travel with the opening.
    pub first: Bytes,
}
