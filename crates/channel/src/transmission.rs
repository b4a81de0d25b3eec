//! Transmission times of a packet.

/// Start and end of the transmission of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transmission {
    pub start_ns: u64,
    pub finish_ns: u64,
}
