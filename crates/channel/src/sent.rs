//! Sender's record of a packet.

/// Start and end of a packet's sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub start_ns: u64,
    pub finish_ns: u64,
}
