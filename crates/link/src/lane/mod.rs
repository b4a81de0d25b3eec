//! Lanes: streams of numbered symbols, each with its own numbering and window.
//!
//! A modem may reorder between traffic classes, so what is in order and what is missing is judged
//! lane by lane; and a short transfer beside bulk must not share bulk's window.

mod flight;
mod guard;
mod perishable;
mod ranges;
mod recv;
mod segment;
mod send;
mod sender;
mod shield;
mod steady;

pub use perishable::{Fresh, KEPT_SYMBOLS, Perishable};
pub use ranges::RangeSet;
pub use recv::{Arrival, RecvLane};
pub use segment::Rule;
#[cfg(test)]
pub use send::repair_key;
pub use send::{SLOT_BYTES, SendLane};
pub use sender::{Due, Lost, Senders};

/// Lane of a symbol: the window to which it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Lane {
    /// Openings, control, short and sparse flows.
    Urgent = 0,
    /// Flows with a backlog.
    Bulk = 1,
    /// Datagrams, which are of no use once they are late: the one lane whose base slides over what
    /// never came.
    Datagram = 2,
}

impl Lane {
    /// Every lane.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Bulk, Self::Datagram];
    /// Those whose every symbol arrives, most urgent first.
    pub const RELIABLE: [Self; 2] = [Self::Urgent, Self::Bulk];

    /// The lane a wire value names.
    pub fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value)).copied()
    }
}
