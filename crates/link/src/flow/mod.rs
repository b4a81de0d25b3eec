//! Flows: a passenger's byte streams, each way with its own credit.

mod claims;
mod fill;
mod peer;
mod pool;
mod recv;
mod send;
mod table;

pub use pool::Pool;
pub use recv::{Read, RecvFlow};
pub use send::{SendFlow, Write};
pub use table::{FlowEvent, FlowTable, Terms};

/// A frame that no correct peer sends; the session that carried it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer broke the protocol: {0}")]
pub struct Violation(pub &'static str);
