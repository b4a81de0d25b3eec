//! ICMP probes with a constant flow, and the ICMP errors that quote them.
//!
//! Routers that balance load by flow hash the first words of an ICMP message, its checksum among them. Two
//! bytes of the data balance the sequence number, so the checksum stays constant (Augustin et al., "Avoiding
//! traceroute anomalies with Paris traceroute", 2006).

use super::ReplyKind;
use crate::ping::echo::checksum;
use crate::target::Family;

/// Size of an ICMP header.
const HEADER: usize = 8;

/// Builds the echo request of probe `number` whose checksum is that of every other probe with `identifier`.
/// The kernel writes the checksum of ICMPv6, to the same effect.
pub fn probe(family: Family, identifier: u16, number: u16) -> Vec<u8> {
    let kind = match family {
        Family::V4 => 8,
        Family::V6 => 128,
    };
    let mut packet = vec![kind, 0, 0, 0];
    packet.extend(identifier.to_be_bytes());
    packet.extend(number.to_be_bytes());
    // number + !number is 0xffff, which is zero in this arithmetic.
    packet.extend((!number).to_be_bytes());
    packet.extend([0; 6]);
    if family == Family::V4 {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Returns the meaning of an ICMP message and the number of the probe that it answers, if it answers a probe
/// with `identifier`. `packet` begins with the ICMP header.
pub fn answer(family: Family, identifier: u16, packet: &[u8]) -> Option<(ReplyKind, u16)> {
    let (kind, code) = (*packet.first()?, *packet.get(1)?);
    let meaning = match (family, kind, code) {
        (Family::V4, 0, _) | (Family::V6, 129, _) => {
            let number = echo_number(identifier, packet)?;
            return Some((ReplyKind::Reached, number));
        }
        (Family::V4, 11, 0) | (Family::V6, 3, 0) => ReplyKind::TimeExceeded,
        (Family::V4, 3, _) | (Family::V6, 1, _) => ReplyKind::Unreachable,
        _ => return None,
    };
    let quoted = packet.get(HEADER..)?;
    let (inner, request) = match family {
        Family::V4 => {
            // Protocol 1 is ICMP.
            (*quoted.get(9)? == 1).then_some(())?;
            (crate::ping::echo::without_ipv4_header(quoted)?, 8)
        }
        // Next header 58 is ICMPv6. Our probes have no extension headers.
        Family::V6 => {
            (*quoted.get(6)? == 58).then_some(())?;
            (quoted.get(40..)?, 128)
        }
    };
    (*inner.first()? == request).then_some(())?;
    Some((meaning, echo_number(identifier, inner)?))
}

/// Sequence number of an echo message with `identifier`.
fn echo_number(identifier: u16, message: &[u8]) -> Option<u16> {
    let word = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    (word(4)? == identifier).then_some(())?;
    word(6)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An error that quotes 8 bytes of the probe, the least that RFC 792 asks for.
    fn quoted(kind: u8, code: u8, probe: &[u8]) -> Vec<u8> {
        let mut packet = vec![kind, code, 0, 0, 0, 0, 0, 0];
        let mut header = [0; 20];
        header[0] = 0x45;
        header[9] = 1;
        packet.extend(header);
        packet.extend(&probe[..8]);
        packet
    }

    #[test]
    fn every_probe_has_the_same_flow() {
        let first = probe(Family::V4, 4000, 3);
        for number in 0..=92 {
            let other = probe(Family::V4, 4000, number);
            assert_eq!(other[..6], first[..6], "type, code, checksum, identifier");
            assert_eq!(checksum(&other), 0);
        }
    }

    #[test]
    fn errors_name_their_probe() {
        let sent = probe(Family::V4, 4000, 17);
        let exceeded = quoted(11, 0, &sent);
        assert_eq!(answer(Family::V4, 4000, &exceeded), Some((ReplyKind::TimeExceeded, 17)));
        assert_eq!(answer(Family::V4, 4001, &exceeded), None, "another program's probe");
        let refused = quoted(3, 13, &sent);
        assert_eq!(answer(Family::V4, 4000, &refused), Some((ReplyKind::Unreachable, 17)));
        let mut reply = sent;
        reply[0] = 0;
        assert_eq!(answer(Family::V4, 4000, &reply), Some((ReplyKind::Reached, 17)));
        assert_eq!(answer(Family::V4, 4000, &quoted(5, 0, &reply)), None, "a redirect");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), identifier: u16) {
            let _ = answer(Family::V4, identifier, &bytes);
            let _ = answer(Family::V6, identifier, &bytes);
        }
    }
}
