//! Sizes and numbers of packets.

use std::time::Duration;

/// Packets that may be unreported before a rate is known (RFC 9002, section 7.2).
pub const INITIAL_PACKETS: u64 = 10;
/// A full packet, for purposes where its true size does not matter.
pub const PACKET_BYTES: u64 = 1500;

/// Bytes at `bps` in `time`.
pub fn bytes_in(bps: f64, time: Duration) -> u64 {
    (bps * time.as_secs_f64() / 8.0) as u64
}
