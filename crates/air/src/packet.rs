//! IP packets to clients: answers from the original destination's address, and ICMP errors that
//! quote the client's packet (RFC 792, RFC 4443).

use std::net::{IpAddr, SocketAddr};

use bentpipe_flow::ResetCode;
use bentpipe_net::ip;
use etherparse::{IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder};

use bentpipe_transport::datagram::IcmpError;

/// Initial hop limit of our own packets.
const HOP_LIMIT: u8 = 64;

/// RFC 1812 section 4.3.2.3: maximum size of an ICMP error.
const MAX_V4_BYTES: usize = 576;
/// RFC 4443 section 2.4 (c): an ICMPv6 error does not exceed the minimum MTU.
const MAX_V6_BYTES: usize = 1280;
const V4_HEADER_BYTES: usize = 20;
const V6_HEADER_BYTES: usize = 40;
/// Length of the UDP header, and of the ICMP header.
const HEADER_BYTES: usize = 8;
/// Length before the quote: the outer IP header, then the ICMP header.
const V4_HEADERS_BYTES: usize = V4_HEADER_BYTES + HEADER_BYTES;
const V6_HEADERS_BYTES: usize = V6_HEADER_BYTES + HEADER_BYTES;

/// Offset of the next-header field of IPv6.
const NEXT_HEADER_AT: u8 = 6;

/// Minimum MTU of IPv6 (RFC 8200 section 5); hosts ignore smaller values.
const MIN_V6_MTU: u32 = 1280;

/// A packet as sent by a client.
#[derive(Debug, Clone, Copy)]
pub struct Original<'a> {
    /// The IP protocol.
    pub protocol: u8,
    /// Source; the port is UDP's.
    pub client: SocketAddr,
    /// Destination; the port is UDP's.
    pub target: SocketAddr,
    /// Its traffic class.
    pub traffic_class: u8,
    /// Payload of UDP, or the IP payload of another protocol.
    pub payload: &'a [u8],
    /// Number of bytes that followed `payload`, if it is truncated.
    pub cut_bytes: usize,
}

/// Message of an ICMP error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The hop limit expired here.
    HopLimit,
    /// The port is closed, so the client should do without.
    PortUnreachable,
    /// Packets of this IP protocol are not carried.
    ProtocolUnreachable,
    /// The destination cannot be reached, or the limit of flows is reached (RFC 6888 REQ-8).
    HostUnreachable,
    /// The operator does not allow it.
    Prohibited,
    /// The packet exceeds the maximum size on the path.
    TooBig {
        /// Maximum payload.
        max_payload: usize,
    },
    /// Error from a router beyond the ground gateway.
    Relayed(IcmpError),
}

impl Message {
    /// Message for a client whose flow of `protocol` ended with `code`; `None` for flows that ended
    /// by silence.
    pub fn of_reset(code: ResetCode, protocol: u8) -> Option<Self> {
        match code {
            ResetCode::Refused if protocol == ip::UDP => Some(Self::PortUnreachable),
            ResetCode::Refused => Some(Self::ProtocolUnreachable),
            ResetCode::Forbidden => Some(Self::Prohibited),
            ResetCode::Unreachable
            | ResetCode::Timeout
            | ResetCode::NameNotFound
            | ResetCode::Limit
            | ResetCode::Internal => Some(Self::HostUnreachable),
            ResetCode::Idle | ResetCode::Aborted | ResetCode::Lost => None,
        }
    }

    /// Type, code and the four bytes after the checksum, for a packet of `protocol`; `None` if
    /// clients must not see the error.
    fn v4(self, protocol: u8) -> Option<(u8, u8, [u8; 4])> {
        Some(match self {
            Self::HopLimit => (11, 0, [0; 4]),
            Self::PortUnreachable => (3, 3, [0; 4]),
            Self::ProtocolUnreachable => (3, 2, [0; 4]),
            Self::HostUnreachable => (3, 1, [0; 4]),
            Self::Prohibited => (3, 13, [0; 4]),
            Self::TooBig { max_payload } => {
                // RFC 1191 section 4: the low 16 bits are the MTU of the next hop.
                let mtu = max_payload + V4_HEADER_BYTES + own_header_bytes(protocol);
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                let [high, low] = mtu.to_be_bytes();
                (3, 4, [0, 0, high, low])
            }
            Self::Relayed(error) => {
                // Unreachable, time exceeded, parameter problem; not redirects or replies.
                let fits = error.from.is_ipv4() && matches!(error.kind, 3 | 11 | 12);
                return fits.then_some((error.kind, error.code, error.rest));
            }
        })
    }

    fn v6(self, protocol: u8) -> Option<(u8, u8, [u8; 4])> {
        Some(match self {
            Self::HopLimit => (3, 0, [0; 4]),
            Self::PortUnreachable => (1, 4, [0; 4]),
            // RFC 4443 section 3.4: an unrecognized next header, and its offset.
            Self::ProtocolUnreachable => (4, 1, [0, 0, 0, NEXT_HEADER_AT]),
            Self::HostUnreachable => (1, 3, [0; 4]),
            Self::Prohibited => (1, 1, [0; 4]),
            Self::TooBig { max_payload } => {
                let mtu = max_payload + V6_HEADER_BYTES + own_header_bytes(protocol);
                let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
                (2, 0, mtu.max(MIN_V6_MTU).to_be_bytes())
            }
            Self::Relayed(error) => {
                let fits = error.from.is_ipv6() && matches!(error.kind, 1..=4);
                return fits.then_some((error.kind, error.code, error.rest));
            }
        })
    }
}

/// Builds a UDP packet; `None` if the addresses differ in family or the payload is too large.
pub fn udp(from: SocketAddr, to: SocketAddr, traffic_class: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let headers = headers(from.ip(), to.ip(), HOP_LIMIT, traffic_class)?;
    let builder = PacketBuilder::ip(headers).udp(from.port(), to.port());
    let mut packet = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut packet, payload).ok()?;
    Some(packet)
}

/// Builds a packet of another protocol; `None` if the addresses differ in family or the payload is
/// too large.
pub fn raw(
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    traffic_class: u8,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let builder = PacketBuilder::ip(headers(from, to, HOP_LIMIT, traffic_class)?);
    let mut packet = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut packet, IpNumber(protocol), payload).ok()?;
    Some(packet)
}

/// Builds the ICMP error `message` from `source` about `original`; `None` if there is no such
/// error.
pub fn error(source: IpAddr, original: &Original<'_>, message: Message) -> Option<Vec<u8>> {
    let (client, protocol) = (original.client.ip(), original.protocol);
    let mut quoted = quoted(original)?;
    let outer = PacketBuilder::ip(headers(source, client, HOP_LIMIT, 0)?);
    let mut packet = Vec::with_capacity(MAX_V6_BYTES);
    match client {
        IpAddr::V4(_) => {
            let (kind, code, rest) = message.v4(protocol)?;
            quoted.truncate(MAX_V4_BYTES - V4_HEADERS_BYTES);
            outer.icmpv4_raw(kind, code, rest).write(&mut packet, &quoted).ok()?;
        }
        IpAddr::V6(_) => {
            let (kind, code, rest) = message.v6(protocol)?;
            quoted.truncate(MAX_V6_BYTES - V6_HEADERS_BYTES);
            outer.icmpv6_raw(kind, code, rest).write(&mut packet, &quoted).ok()?;
        }
    }
    Some(packet)
}

/// Reconstructs the packet that the client sent.
fn quoted(original: &Original<'_>) -> Option<Vec<u8>> {
    let Original { protocol, client, target, traffic_class, .. } = *original;
    let builder = PacketBuilder::ip(headers(client.ip(), target.ip(), 1, traffic_class)?);
    // The headers contain the full length, so truncated bytes are filled with zeros first. Nobody
    // can verify a checksum from a partial quote.
    let mut payload = original.payload.to_vec();
    payload.resize(payload.len() + original.cut_bytes, 0);
    let mut quoted = Vec::with_capacity(V6_HEADERS_BYTES + payload.len());
    if protocol == ip::UDP {
        builder.udp(client.port(), target.port()).write(&mut quoted, &payload).ok()?;
    } else {
        builder.write(&mut quoted, IpNumber(protocol), &payload).ok()?;
    }
    quoted.truncate(quoted.len() - original.cut_bytes);
    Some(quoted)
}

/// Length between the IP header and the bytes that count as payload.
fn own_header_bytes(protocol: u8) -> usize {
    if protocol == ip::UDP { HEADER_BYTES } else { 0 }
}

fn headers(from: IpAddr, to: IpAddr, hop_limit: u8, traffic_class: u8) -> Option<IpHeaders> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = Ipv4Header {
                time_to_live: hop_limit,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv4Header::default()
            };
            header.dscp = (traffic_class >> 2).try_into().ok()?;
            header.ecn = (traffic_class & 3).try_into().ok()?;
            Some(IpHeaders::Ipv4(header, Default::default()))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6Header {
                traffic_class,
                hop_limit,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            Some(IpHeaders::Ipv6(header, Default::default()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{
        Icmpv4Slice, Icmpv6Slice, Icmpv6Type, NetSlice, SlicedPacket, TransportSlice,
    };
    use etherparse::{Icmpv4Type, icmpv4};

    const V4: (&str, &str) = ("10.9.0.2:4000", "198.51.100.7:443");
    const V6: (&str, &str) = ("[fd09::2]:4000", "[2001:db8::7]:443");

    fn original<'a>((client, target): (&str, &str), payload: &'a [u8]) -> Original<'a> {
        let (client, target) = (client.parse().unwrap(), target.parse().unwrap());
        Original { protocol: ip::UDP, client, target, traffic_class: 0xb8, payload, cut_bytes: 0 }
    }

    #[test]
    fn a_reply_is_a_whole_packet() {
        for (client, target) in [V4, V6] {
            let packet =
                udp(target.parse().unwrap(), client.parse().unwrap(), 0xb9, b"hello").unwrap();
            let sliced = SlicedPacket::from_ip(&packet).unwrap();
            let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("{sliced:?}") };
            assert_eq!((udp.source_port(), udp.destination_port()), (443, 4000));
            assert_eq!(udp.payload(), b"hello");
            match sliced.net.unwrap() {
                NetSlice::Ipv4(ip) => {
                    assert_eq!((ip.header().dcp().value(), ip.header().ecn().value()), (46, 1));
                }
                NetSlice::Ipv6(ip) => assert_eq!(ip.header().traffic_class(), 0xb9),
                other => panic!("{other:?}"),
            }
        }
        let (four, six) = (V4.0.parse().unwrap(), V6.1.parse().unwrap());
        assert_eq!(udp(six, four, 0, b""), None);
        assert_eq!(udp(four, four, 0, &[0; 70_000]), None);
    }

    #[test]
    fn packet_too_big_has_the_mtu_and_quotes_the_packet() {
        let payload = [7; 1400];
        let message = Message::TooBig { max_payload: 1300 };
        let packet = error([10, 9, 0, 1].into(), &original(V4, &payload), message).unwrap();
        assert_eq!(packet.len(), 576);
        let icmp = Icmpv4Slice::from_slice(&packet[20..]).unwrap();
        let mtu = icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1328 };
        assert_eq!(icmp.icmp_type(), Icmpv4Type::DestinationUnreachable(mtu));
        let quoted = Ipv4Header::from_slice(icmp.payload()).unwrap().0;
        assert_eq!(quoted.total_len, 1428);
        assert_eq!(quoted.source, [10, 9, 0, 2]);
        let cut = Original { cut_bytes: 100, ..original(V4, &payload[..1300]) };
        let packet = error([10, 9, 0, 1].into(), &cut, message).unwrap();
        let icmp = Icmpv4Slice::from_slice(&packet[20..]).unwrap();
        assert_eq!(Ipv4Header::from_slice(icmp.payload()).unwrap().0.total_len, 1428);

        let source = "fd09::1".parse().unwrap();
        let packet = error(source, &original(V6, &payload), message).unwrap();
        assert_eq!(packet.len(), 1280);
        let icmp = Icmpv6Slice::from_slice(&packet[40..]).unwrap();
        assert_eq!(icmp.icmp_type(), Icmpv6Type::PacketTooBig { mtu: 1348 });
        let least = Message::TooBig { max_payload: 1000 };
        let packet = error(source, &original(V6, &payload), least).unwrap();
        let icmp = Icmpv6Slice::from_slice(&packet[40..]).unwrap();
        assert_eq!(icmp.icmp_type(), Icmpv6Type::PacketTooBig { mtu: 1280 });
    }

    #[test]
    fn only_errors_of_the_same_family_are_relayed() {
        let heard = |from: &str, kind| IcmpError {
            from: from.parse().unwrap(),
            kind,
            code: 0,
            rest: [0; 4],
            hop_limit: 60,
            quote: None,
        };
        let said = |hosts, from, kind| {
            let heard = heard(from, kind);
            error(heard.from, &original(hosts, b"x"), Message::Relayed(heard)).is_some()
        };
        assert!(said(V4, "192.0.2.1", 11) && said(V6, "2001:db8::1", 3));
        assert!(!said(V4, "2001:db8::1", 3) && !said(V6, "192.0.2.1", 3));
        for echo_or_redirect in [0, 5, 8] {
            assert!(!said(V4, "192.0.2.1", echo_or_redirect));
        }
        for query in [128, 129, 134, 137] {
            assert!(!said(V6, "2001:db8::1", query));
        }
    }
}
