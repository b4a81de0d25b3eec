//! Packets of the radio link's other users, counted separately from those of the system under test.

use std::net::Ipv4Addr;

use bentpipe_channel::{Count, Fate};

use super::offload::HEADER_BYTES;
use super::plan::{CORRESPONDENTS, TERMINALS};

/// Fate of packets in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// All packets offered to the link.
    pub offered: Count,
    /// Packets lost, or refused by a full queue.
    pub lost: Count,
}

impl Share {
    pub(super) fn add(&mut self, bytes: usize, fate: Fate) {
        let one = Count { packets: 1, bytes: bytes as u64 };
        let into = |count: &mut Count| {
            count.packets += one.packets;
            count.bytes += one.bytes;
        };
        into(&mut self.offered);
        if !matches!(fate, Fate::Delivered { .. } | Fate::Waiting(_)) {
            into(&mut self.lost);
        }
    }
}

/// Returns `true` if a TUN device's frame belongs to other users.
pub(super) fn is_others(frame: &[u8]) -> bool {
    let ip = frame.get(HEADER_BYTES..HEADER_BYTES + 20);
    ip.is_some_and(|ip| {
        let both =
            |address: &Ipv4Addr| ip[12..16] == address.octets() || ip[16..20] == address.octets();
        ip[0] >> 4 == 4 && both(&TERMINALS.v4) && both(&CORRESPONDENTS.v4)
    })
}

/// Key of the flow of a TUN device's frame: its addresses, protocol and ports (64-bit FNV-1a).
pub(super) fn flow(frame: &[u8]) -> u64 {
    let ip = frame.get(HEADER_BYTES..).unwrap_or_default();
    // Addresses and ports. IPv6 extension headers are not skipped.
    let (addresses, protocol, header_bytes) = match ip.first().map(|first| first >> 4) {
        Some(4) => (12..20, 9, usize::from(ip[0] & 0xf) * 4),
        Some(6) => (8..40, 6, 40),
        _ => return 0,
    };
    let parts = [addresses, protocol..protocol + 1, header_bytes..header_bytes + 4];
    let bytes = parts.into_iter().filter_map(|part| ip.get(part)).flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
