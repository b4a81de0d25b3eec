//! Flows: a passenger's byte streams, each way with its own credit, and its datagrams.

mod backlog;
mod bill;
mod claims;
mod classes;
mod crowd;
mod datagram;
mod early;
mod fill;
mod order;
mod peer;
mod pool;
mod pressure;
mod queues;
mod recv;
mod send;
mod table;
mod traffic;
mod turns;
mod unread;

pub use bill::Bill;
pub use datagram::{Filled, Receive, SendError};
pub use fill::Content;
pub use pool::Pool;
pub use pressure::Pressure;
pub use recv::{Read, RecvFlow};
pub use send::{SendFlow, Write};
pub use table::{FlowEvent, FlowTable, Terms};
pub use traffic::{FlowTraffic, Traffic};

/// A frame that no correct peer sends; the session that carried it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer broke the protocol: {0}")]
pub struct Violation(pub &'static str);
