//! Flows: a passenger's byte streams, each with credit in both directions, and its datagrams.
//!
//! | file | contents |
//! |---|---|
//! | `state` | one flow: `enum Flow { Stream, Datagrams }` |
//! | `send`, `recv` | the two halves of a stream |
//! | `recv_queue`, `pre_open`, `reorder`, `quota` | received datagrams: unread, early, out of order; shares of the flows |
//! | `limits`, `memory`, `pool`, `pressure` | bounds, and the memory that all flows share |
//! | `writers` | writers that wait for this memory, in fair order |
//! | `lingering` | flows without an owner that wait to be sent |
//! | `control` | control frames that wait for the next urgent symbol |
//! | `scheduling`, `bursts`, `charge` | turns, ends of bursts, charges to classes |
//! | `datagrams` | what all datagram flows share |
//! | `table`, `event` | all flows, the calls of their owners, and events for them |
//! | `peer` | frames of the peer |
//! | `fill`, `datagram` | contents of the next symbol |
//! | `openings` | openings of our streams, until the peer acknowledges them |
//! | `classes`, `traffic` | class limits, claims, counters |

mod bursts;
mod charge;
mod classes;
mod control;
mod datagram;
mod datagrams;
mod event;
mod fill;
mod limits;
mod lingering;
mod memory;
mod openings;
mod peer;
mod pool;
mod pre_open;
mod pressure;
mod quota;
mod recv;
mod recv_queue;
mod reorder;
mod scheduling;
mod send;
mod state;
mod table;
mod traffic;
mod writers;

pub use charge::PacketCharge;
pub use datagram::{Filled, Receive, SendError};
pub use event::FlowEvent;
pub use fill::Content;
pub use limits::FlowLimits;
pub use memory::RESERVE_PARTS;
pub use pool::Pool;
pub use pressure::{Lending, Pressure};
pub use quota::FlowRefusals;
pub use recv::{Read, RecvFlow};
pub use scheduling::Rooms;
pub use send::{SendFlow, Write};
pub use table::FlowTable;

/// A frame that no correct peer sends. The session that carried it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer broke the protocol: {0}")]
pub struct Violation(pub &'static str);
