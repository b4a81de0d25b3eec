//! What a sender tells of a packet.

/// When a packet's sending began and ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub start_ns: u64,
    pub finish_ns: u64,
}
