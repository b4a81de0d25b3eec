//! Bounds and keys that both ends of a lane agree on.

use crate::wire::header::PacketId;

/// Maximum distance of a symbol number above the receiver's base: four times what a sender with
/// 8 × BDP and 64 MiB of memory retains. The receiver refuses a symbol above it, which is then sent
/// again.
pub const MAX_AHEAD: u64 = 1 << 18;

/// Bookkeeping charged for each retained symbol in addition to its content.
pub const SLOT_BYTES: usize = 64;

/// Step between the multipliers of the paths. It is even, so that each multiplier is odd and permutes
/// the keys.
const KEY_STEP: u16 = 0x3a5e;

/// Coding key of the repair in `packet`: RFC 8681 gives it 16 bits. Each path has another multiplier.
/// So two paths whose numbers happen to give one key do not give equal keys for the next numbers too.
pub fn repair_key(packet: PacketId) -> u16 {
    let multiplier = KEY_STEP.wrapping_mul(packet.path.into()).wrapping_add(1);
    (packet.number as u16).wrapping_mul(multiplier)
}
