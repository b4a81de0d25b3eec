//! The two ends, sans-IO: datagrams in, datagrams out. Who may speak at all is decided here, by
//! the link's own handshake ([`bentpipe_link::secure`]).

mod air;
mod ground;

pub use air::{AirConfig, AirCore};
pub use ground::{Aircraft, GroundConfig, GroundCore};

/// Sets AeroTCP's handshakes apart from the link's: neither end of one understands the other.
const PROLOGUE: &[u8] = b"bentpipe aerotcp v1";

#[cfg(test)]
pub mod tests;
