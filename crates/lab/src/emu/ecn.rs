//! The two ECN bits of an IP header (RFC 3168, section 5).

use super::offload::HEADER_BYTES;

/// Congestion Experienced.
const CE: u8 = 0b11;
/// Offset of the IPv4 header's checksum.
const CHECKSUM: usize = 10;

/// Returns `true` if the packet in a TUN device's frame may be marked: it carries ECT(0), ECT(1) or
/// CE.
pub fn is_capable(frame: &[u8]) -> bool {
    frame.get(HEADER_BYTES..).and_then(codepoint).is_some_and(|bits| bits != 0)
}

/// Sets Congestion Experienced in the packet in `frame`.
pub fn mark(frame: &mut [u8]) {
    let Some(packet) = frame.get_mut(HEADER_BYTES..) else { return };
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => {
            let before = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= CE;
            let after = u16::from_be_bytes([packet[0], packet[1]]);
            let sum = u16::from_be_bytes([packet[CHECKSUM], packet[CHECKSUM + 1]]);
            let sum = updated(sum, before, after).to_be_bytes();
            packet[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum);
        }
        // The traffic class spans the first two bytes. No checksum covers it.
        Some(6) if packet.len() >= 40 => packet[1] |= CE << 4,
        _ => {}
    }
}

fn codepoint(packet: &[u8]) -> Option<u8> {
    match packet.first()? >> 4 {
        4 if packet.len() >= 20 => Some(packet[1] & CE),
        6 if packet.len() >= 40 => Some((packet[1] >> 4) & CE),
        _ => None,
    }
}

/// Checksum after one covered word changed from `before` to `after` (RFC 1624, equation 3).
fn updated(sum: u16, before: u16, after: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!before) + u32::from(after);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sum over an IPv4 header. It is 0xffff if the checksum is right.
    fn sum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let mut total: u32 = words.sum();
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    fn ipv4(tos: u8) -> Vec<u8> {
        let mut packet = vec![0; HEADER_BYTES];
        packet
            .extend([0x45, tos, 0, 20, 0, 7, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
        let checksum = (!sum(&packet[HEADER_BYTES..])).to_be_bytes();
        packet[HEADER_BYTES + CHECKSUM..HEADER_BYTES + CHECKSUM + 2].copy_from_slice(&checksum);
        packet
    }

    #[test]
    fn a_mark_sets_both_bits_and_keeps_the_checksum_right() {
        for tos in [0b01, 0b10, 0xb8 | 0b10, 0xfc | 0b01] {
            let mut frame = ipv4(tos);
            assert!(is_capable(&frame));
            mark(&mut frame);
            assert_eq!(frame[HEADER_BYTES + 1], tos | CE);
            assert_eq!(sum(&frame[HEADER_BYTES..]), 0xffff);
        }
        assert!(!is_capable(&ipv4(0xb8)));
    }

    #[test]
    fn ipv6_is_marked_in_its_traffic_class() {
        let mut frame = vec![0; HEADER_BYTES + 40];
        frame[HEADER_BYTES] = 0x6b;
        assert!(!is_capable(&frame));
        frame[HEADER_BYTES + 1] = 0xa5;
        assert!(is_capable(&frame));
        mark(&mut frame);
        assert_eq!(frame[HEADER_BYTES..HEADER_BYTES + 2], [0x6b, 0xb5]);
    }

    #[test]
    fn frames_without_ip_are_unchanged() {
        for frame in [vec![], vec![0xff; HEADER_BYTES + 3], vec![0x45; HEADER_BYTES + 19]] {
            let mut marked = frame.clone();
            mark(&mut marked);
            assert_eq!(marked, frame);
            assert!(!is_capable(&frame));
        }
    }
}
