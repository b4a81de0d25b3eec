//! Lanes: series of numbered symbols, each with its own numbering and window.
//!
//! A modem may reorder between traffic classes, so that each lane has its own order and judges its
//! own losses. A short transfer next to bulk must not share bulk's window either.
//!
//! | file | contents |
//! |---|---|
//! | `limits` | bounds and keys that both ends of a lane use |
//! | `ranges` | a set of numbers, as runs |
//! | `in_flight` | unreported symbols by number and by packet |
//! | `protected_range` | one range of symbols and its repairs |
//! | `paced_source` | sources that send a little all the time |
//! | `burst_repair`, `paced_repair` | repairs for ends of bursts, and for datagrams |
//! | `sender` | what a packet asks of a lane while it is built |
//! | `send`, `datagram_sender`, `senders` | the sending halves: reliable, datagrams, all lanes |
//! | `recv` | the receiving half |

mod burst_repair;
mod datagram_sender;
mod in_flight;
mod limits;
mod paced_repair;
mod paced_source;
mod protected_range;
mod ranges;
mod recv;
mod send;
mod sender;
mod senders;

pub use datagram_sender::{DatagramSender, KEPT_SYMBOLS, NewSymbol};
pub use limits::SLOT_BYTES;
#[cfg(test)]
pub use limits::repair_key;
pub use protected_range::RepairPolicy;
pub use ranges::RangeSet;
pub use recv::{Arrival, RecvLane};
pub use send::SendLane;
pub use sender::{Due, Lost};
pub use senders::Senders;

pub use crate::wire::lane::Lane;
