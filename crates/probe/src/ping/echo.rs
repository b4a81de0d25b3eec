//! ICMP echo messages (RFC 792, RFC 4443).
//!
//! A request carries a token of the run and the full number of the ping. The number in the header has 16
//! bits only, and the kernel replaces the identifier on unprivileged sockets.

use crate::target::Family;

/// Size of the data: token and number.
const DATA: usize = 12;

/// Size of an ICMP header with identifier and sequence number.
const HEADER: usize = 8;

/// Types of messages.
fn request_type(family: Family) -> u8 {
    match family {
        Family::V4 => 8,
        Family::V6 => 128,
    }
}

fn reply_type(family: Family) -> u8 {
    match family {
        Family::V4 => 0,
        Family::V6 => 129,
    }
}

/// Builds an echo request. The kernel computes the checksum of ICMPv6.
pub fn request(family: Family, identifier: u16, token: u64, sequence: u32) -> Vec<u8> {
    let mut packet = vec![request_type(family), 0, 0, 0];
    packet.extend(identifier.to_be_bytes());
    packet.extend((sequence as u16).to_be_bytes());
    packet.extend(token.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    if family == Family::V4 {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Returns the number of the ping that `packet` answers, if it is a reply to this run.
///
/// `packet` begins with the ICMP header.
pub fn reply(family: Family, token: u64, packet: &[u8]) -> Option<u32> {
    if *packet.first()? != reply_type(family) {
        return None;
    }
    let data: &[u8; DATA] = packet.get(HEADER..HEADER + DATA)?.try_into().ok()?;
    let (theirs, sequence) = data.split_at(8);
    (theirs == token.to_be_bytes())
        .then(|| u32::from_be_bytes(sequence.try_into().unwrap_or_default()))
}

/// Removes the IPv4 header that raw sockets deliver.
pub fn without_ipv4_header(packet: &[u8]) -> Option<&[u8]> {
    let first = *packet.first()?;
    let length = usize::from(first & 0x0f) * 4;
    (first >> 4 == 4 && length >= 20).then(|| packet.get(length..))?
}

/// The Internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let (pairs, last) = bytes.as_chunks::<2>();
    let mut sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    sum += last.first().map_or(0, |byte| u64::from(*byte) << 8);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_as_rfc_792_draws_it() {
        let packet = request(Family::V4, 0x1234, 0x0102_0304_0506_0708, 0x0001_0002);
        assert_eq!(packet[..2], [8, 0]);
        assert_eq!(packet[4..8], [0x12, 0x34, 0, 2]);
        assert_eq!(checksum(&packet), 0, "a packet with its checksum sums to nothing");
    }

    #[test]
    fn only_replies_to_this_run_count() {
        for family in [Family::V4, Family::V6] {
            let mut packet = request(family, 1, 77, 70_000);
            assert_eq!(reply(family, 77, &packet), None, "our own request, seen on loopback");
            packet[0] = reply_type(family);
            assert_eq!(reply(family, 77, &packet), Some(70_000));
            assert_eq!(reply(family, 78, &packet), None);
            assert_eq!(reply(family, 77, &packet[..19]), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), token: u64) {
            let _ = reply(Family::V4, token, &bytes);
            let _ = reply(Family::V6, token, &bytes);
            let inner = without_ipv4_header(&bytes);
            prop_assert!(inner.is_none_or(|inner| inner.len() + 20 <= bytes.len()));
        }
    }
}
