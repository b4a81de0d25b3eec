//! Lanes: streams of numbered symbols, each with its own numbering and window.
//!
//! A modem may reorder between traffic classes, so what is in order and what is missing is judged
//! lane by lane; and a short transfer beside bulk must not share bulk's window.

mod guard;
mod ranges;
mod recv;
mod segment;
mod send;
mod steady;

pub use ranges::RangeSet;
pub use recv::{Arrival, RecvLane};
pub use segment::Rule;
pub use send::{SLOT_BYTES, SendLane};

/// Which window a symbol belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Lane {
    /// Openings, control, short and sparse flows.
    Urgent = 0,
    /// Flows with a backlog.
    Bulk = 1,
}

impl Lane {
    /// Every lane, most urgent first. Wire value 2 is reserved for datagrams.
    pub const ALL: [Self; 2] = [Self::Urgent, Self::Bulk];

    /// The lane a wire value names.
    pub fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value)).copied()
    }
}
