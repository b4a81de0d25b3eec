//! Bounds and keys that both ends of a lane agree on.

/// Maximum distance of a symbol number above the receiver's base: four times what a sender with
/// 8 × BDP and 64 MiB of memory retains. The receiver refuses a symbol above it, which is then sent
/// again.
pub const MAX_AHEAD: u64 = 1 << 18;

/// Bookkeeping charged for each retained symbol in addition to its content.
pub const SLOT_BYTES: usize = 64;

/// Coding key of the repair in `packet`: RFC 8681 gives it 16 bits.
pub fn repair_key(packet: u64) -> u16 {
    packet as u16
}
