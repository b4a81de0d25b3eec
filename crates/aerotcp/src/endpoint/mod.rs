//! Both gateways, sans-IO: datagrams in, datagrams out. The link's handshake
//! ([`bentpipe_link::secure`]) decides which peers may speak.

mod air;
mod ground;

pub use air::{AirConfig, AirCore};
pub use ground::{Aircraft, GroundConfig, GroundCore};

/// Prologue of AeroTCP's handshakes. It makes them incompatible with the link's.
const PROLOGUE: &[u8] = b"bentpipe aerotcp v1";

#[cfg(test)]
pub mod tests;
