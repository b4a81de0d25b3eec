//! The transports behind the seam [`crate::transport`], started as a config says.

pub mod aerotcp;
mod error;
pub mod handshake_counter;
mod homes;
pub mod link;
pub mod masque;
pub(crate) mod path_memory;
mod start;

#[cfg(test)]
mod failure_tests;

pub use error::TransportError;
pub use start::{acceptor, connector};
