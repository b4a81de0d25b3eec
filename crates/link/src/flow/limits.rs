//! Limits of a session's flows.

use std::time::Duration;

use bentpipe_schedule::{ClassSettings, PerClass};

use crate::settings::Lifetimes;

/// Bytes that a datagram counts in addition to its payload, so that empty datagrams are bounded too.
pub const DATAGRAM_COST_BYTES: usize = 64;

/// Limits of a session's flows: what both ends agreed on, and this end's own bounds.
#[derive(Debug, Clone)]
pub struct FlowLimits {
    /// `true` at the air, which opens flows; the ground accepts them.
    pub opens: bool,
    pub max_flows: usize,
    /// Credit that every stream may always use, in bytes.
    pub reserve: u64,
    /// The peer's reserve.
    pub peer_reserve: u64,
    pub receive_memory: u64,
    pub flow_send_buffer: u64,
    /// Memory for bytes that have not been sent yet.
    pub send_memory: u64,
    pub flow_idle: Duration,
    pub flow_unread: Duration,
    /// Settings of each class for what this end sends.
    pub classes: PerClass<ClassSettings>,
    /// Memory for received datagrams that have not been read yet.
    pub datagram_memory: u64,
    pub datagram_idle: Duration,
    pub lifetimes: Lifetimes,
}
