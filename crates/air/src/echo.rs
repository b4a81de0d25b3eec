//! ICMP and ICMPv6 messages of clients, and the translation of echoes.
//!
//! The ground gateway sends echoes with its own identifier, as NATs do (RFC 5508). The whole
//! message crosses the link. Its checksum is not used, because over IPv6 it covers the addresses.

use std::net::IpAddr;

use bentpipe_net::ip;
use etherparse::checksum::Sum16BitWords;

/// Type, code, checksum, identifier and sequence number (RFC 792, RFC 4443 section 4.1).
const HEADER_BYTES: usize = 8;

/// Errors, redirects and messages between neighbours. No ICMP error may refer to these, or nobody
/// waits for one (RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e)).
const NEVER_ANSWERED_V4: [u8; 10] = [0, 3, 4, 5, 9, 10, 11, 12, 14, 18];

/// Meaning of a client's ICMP message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// An echo request.
    Echo {
        /// Identifier chosen by the client.
        identifier: u16,
    },
    /// Another message that expects an answer.
    Query,
    /// An error, an answer, or a message between neighbours.
    Other,
    /// Truncated, or with a wrong checksum.
    Broken,
}

/// Classifies the ICMP message that `from` sent to `to`.
pub fn read(message: &[u8], from: IpAddr, to: IpAddr) -> Message {
    let Some(&[kind, code, _, _, a, b, _, _]) = message.first_chunk() else {
        return Message::Broken;
    };
    // The sum over a message that includes its correct checksum is zero.
    if checksum(message, from, to) != Some(0) {
        return Message::Broken;
    }
    let identifier = u16::from_be_bytes([a, b]);
    match (from, kind, code) {
        (IpAddr::V4(_), 8, 0) | (IpAddr::V6(_), 128, 0) => Message::Echo { identifier },
        (IpAddr::V4(_), kind, _) if NEVER_ANSWERED_V4.contains(&kind) => Message::Other,
        // Errors are below 128. Router and neighbour discovery and group messages are 130 to 137,
        // 141 to 143 and 148 to 153.
        (IpAddr::V6(_), 0..128 | 129..138 | 141..144 | 148..154, _) => Message::Other,
        _ => Message::Query,
    }
}

/// Translates an echo reply for the client: sets `identifier` and the checksum. Returns `None` if
/// `message` is not an echo reply.
pub fn answer(message: &[u8], identifier: u16, from: IpAddr, to: IpAddr) -> Option<Vec<u8>> {
    let answers = if from.is_ipv4() { 0 } else { 129 };
    if message.len() < HEADER_BYTES || message[..2] != [answers, 0] {
        return None;
    }
    let mut message = message.to_vec();
    message[2..4].fill(0);
    message[4..6].copy_from_slice(&identifier.to_be_bytes());
    let sum = checksum(&message, from, to)?;
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(message)
}

/// Checksum of `message`; `None` if the addresses differ in family.
fn checksum(message: &[u8], from: IpAddr, to: IpAddr) -> Option<u16> {
    let sum = match (from, to) {
        (IpAddr::V4(_), IpAddr::V4(_)) => Sum16BitWords::new(),
        // RFC 8200 section 8.1: the pseudo-header.
        (IpAddr::V6(from), IpAddr::V6(to)) => Sum16BitWords::new()
            .add_16bytes(from.octets())
            .add_16bytes(to.octets())
            .add_4bytes(u32::try_from(message.len()).ok()?.to_be_bytes())
            .add_2bytes([0, ip::ICMPV6]),
        _ => return None,
    };
    Some(sum.add_slice(message).ones_complement().to_be())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{IcmpEchoHeader, checksum};
    use etherparse::{Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Slice, Icmpv6Type};
    use proptest::prelude::*;

    /// Addresses of a client and a destination in the same family.
    fn ends(v6: bool) -> (IpAddr, IpAddr) {
        let ends = if v6 { ["fd09::2", "2001:db8::7"] } else { ["10.9.0.2", "198.51.100.7"] };
        let [client, target] = ends.map(|ip| ip.parse().unwrap());
        (client, target)
    }

    fn octets(ip: IpAddr) -> [u8; 16] {
        match ip {
            IpAddr::V6(ip) => ip.octets(),
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        }
    }

    /// A message made by etherparse, so its checksums do not depend on the code under test.
    fn request(from: IpAddr, to: IpAddr, echo: IcmpEchoHeader, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if from.is_ipv4() {
            let header = Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(echo), data);
            header.write(&mut bytes).unwrap();
        } else {
            let kind = Icmpv6Type::EchoRequest(echo);
            let header = Icmpv6Header::with_checksum(kind, octets(from), octets(to), data);
            header.unwrap().write(&mut bytes).unwrap();
        }
        bytes.extend_from_slice(data);
        bytes
    }

    #[test]
    fn echo_requests_are_told_from_other_packets() {
        let (from, to) = ends(false);
        let v4 = |kind: u8, code: u8| {
            let mut message = [kind, code, 0, 0, 1, 2, 3, 4];
            let sum = checksum(&message, from, to).unwrap();
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            read(&message, from, to)
        };
        assert_eq!(v4(8, 0), Message::Echo { identifier: 0x102 });
        // A timestamp, an address mask, an extended echo, and an echo with an unknown code.
        assert_eq!([v4(13, 0), v4(17, 0), v4(42, 0), v4(8, 1)], [Message::Query; 4]);
        for never in NEVER_ANSWERED_V4 {
            assert_eq!(v4(never, 0), Message::Other, "{never}");
        }
        let (from, to) = ends(true);
        let v6 = |kind: u8| {
            let mut message = [kind, 0, 0, 0, 1, 2, 3, 4];
            let sum = checksum(&message, from, to).unwrap();
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            read(&message, from, to)
        };
        assert_eq!(v6(128), Message::Echo { identifier: 0x102 });
        assert_eq!([v6(139), v6(144), v6(160)], [Message::Query; 3]);
        for never in [1, 4, 127, 129, 133, 135, 137, 143] {
            assert_eq!(v6(never), Message::Other, "{never}");
        }
    }

    proptest! {
        #[test]
        fn requests_are_read_and_broken_ones_are_not(
            v6: bool, id: u16, seq: u16, data in prop::collection::vec(any::<u8>(), 0..100),
            at in any::<prop::sample::Index>(), bit in 0..8,
        ) {
            let (from, to) = ends(v6);
            let mut message = request(from, to, IcmpEchoHeader { id, seq }, &data);
            prop_assert_eq!(read(&message, from, to), Message::Echo { identifier: id });
            let at = at.index(message.len());
            message[at] ^= 1u8 << bit;
            prop_assert_eq!(read(&message, from, to), Message::Broken);
        }

        #[test]
        fn answers_get_the_clients_identifier_and_a_true_checksum(
            v6: bool, id: u16, seq: u16, other: u16,
            data in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let (client, target) = ends(v6);
            // As the ground's kernel delivers it: with another identifier and other addresses.
            let mut answered = request(client, target, IcmpEchoHeader { id: other, seq }, &data);
            answered[0] = if v6 { 129 } else { 0 };
            let message = answer(&answered, id, target, client).unwrap();
            prop_assert_eq!(&message[8..], &data[..]);
            if v6 {
                let slice = Icmpv6Slice::from_slice(&message).unwrap();
                prop_assert!(slice.is_checksum_valid(octets(target), octets(client)));
            } else {
                let sum = checksum::Sum16BitWords::new().add_slice(&message);
                prop_assert_eq!(sum.ones_complement(), 0);
            }
            prop_assert_eq!(&message[4..8], &[id.to_be_bytes(), seq.to_be_bytes()].concat()[..]);
        }

        #[test]
        fn no_bytes_panic(v6: bool, id: u16, bytes: Vec<u8>) {
            let (client, target) = ends(v6);
            let _ = read(&bytes, client, target);
            if let Some(message) = answer(&bytes, id, target, client) {
                prop_assert_eq!(message.len(), bytes.len());
            }
        }
    }
}
