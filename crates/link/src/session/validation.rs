//! Addresses of the peer that are not proven yet, and the challenges to them.

use std::net::SocketAddr;
use std::time::Duration;

use crate::wire::frame::Challenge;

/// Challenges on a path that carries no data yet (RFC 9000, section 8.2).
pub struct Validation {
    pub challenge: Challenge,
    pub next_try: Duration,
    pub interval: Duration,
    pub received_bytes: usize,
    pub sent_bytes: usize,
}

/// Maximum bytes sent to an unproven address, relative to the bytes received from it.
pub const ANTI_AMPLIFICATION: usize = 3;

impl Validation {
    /// Returns `true` if `bytes` may be sent to the unproven address.
    pub fn affords(&self, bytes: usize) -> bool {
        self.sent_bytes + bytes <= self.received_bytes.saturating_mul(ANTI_AMPLIFICATION)
    }
}

/// An address that the peer may have moved to. Only challenges are sent there until it echoes one.
pub struct Candidate {
    pub address: SocketAddr,
    pub challenge: Challenge,
    pub next_try: Duration,
    pub tries_left: u32,
    pub received_bytes: usize,
    pub sent_bytes: usize,
}
