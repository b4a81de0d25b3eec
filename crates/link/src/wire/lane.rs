//! Lane numbers.

/// Lane of a symbol: the numbering and window that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Lane {
    /// Openings, control, short and sparse flows.
    Urgent = 0,
    /// Flows with a backlog.
    Bulk = 1,
    /// Datagrams, which are useless once they are late. The only lane whose base moves past symbols
    /// that never arrived.
    Datagram = 2,
}

impl Lane {
    /// Every lane.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Bulk, Self::Datagram];
    /// Lanes in which every symbol arrives, most urgent first.
    pub const RELIABLE: [Self; 2] = [Self::Urgent, Self::Bulk];

    /// Returns the lane of a wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value)).copied()
    }
}
