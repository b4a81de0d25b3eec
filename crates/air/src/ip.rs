//! Protocols other than TCP and UDP. ICMP echoes, and other configured protocols, become datagram
//! flows. Everything else is refused as a router would refuse it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_flow::Target;
use bentpipe_net::ip;
use etherparse::{IpNumber, IpSlice};

use super::answers::Answers;
use super::capture::Capture;
use super::client_packet::Sent;
use super::datagrams::{Key, Table};
use super::echo;
use super::packet::Message;
use bentpipe_config::Raw;
use bentpipe_uplink::Uplink;

/// Handles the packets that the interception rules select.
pub struct Server {
    /// The flows, and the sender of packets to clients.
    pub table: Arc<Table<Answers>>,
    /// State shared by the listeners.
    pub uplink: Arc<Uplink>,
    /// Protocols that are carried.
    pub raw: Raw,
}

impl Server {
    /// Carries or refuses received packets. Never returns.
    pub async fn serve(&self, capture: &Capture) {
        let counters = &self.uplink.counters;
        capture.serve(|packet| self.take(packet), || counters.datagrams_dropped.add(1)).await;
    }

    fn take(&self, packet: &[u8]) {
        let Some(packet) = Packet::parse(packet).filter(|packet| !packet.is_nobodys()) else {
            self.uplink.counters.datagrams_unknown.add(1);
            return;
        };
        match self.judge(&packet) {
            Verdict::Carry(identifier) => self.table.send(packet.key(identifier), packet.sent()),
            Verdict::Refuse(message) => {
                self.uplink.counters.ip_refused.add(1);
                self.table.back().say(&packet.key(0), &packet.sent(), message);
            }
            Verdict::Expired => {
                self.table.back().say(&packet.key(0), &packet.sent(), Message::HopLimit);
            }
            Verdict::Ignore => self.uplink.counters.datagrams_unknown.add(1),
        }
    }

    fn judge(&self, packet: &Packet<'_>) -> Verdict {
        let verdict = if packet.protocol == ip::echo(packet.client) {
            match echo::read(packet.payload, packet.client, packet.target) {
                echo::Message::Echo { identifier } => Verdict::Carry(identifier),
                echo::Message::Query => Verdict::Refuse(Message::Prohibited),
                echo::Message::Other | echo::Message::Broken => return Verdict::Ignore,
            }
        } else if self.raw.carries(packet.protocol) {
            Verdict::Carry(0)
        } else {
            Verdict::Refuse(Message::ProtocolUnreachable)
        };
        if packet.hop_limit <= 1 { Verdict::Expired } else { verdict }
    }
}

/// Treatment of a packet.
enum Verdict {
    /// Carries it, in the flow with this identifier.
    Carry(u16),
    /// Refuses it with an ICMP error.
    Refuse(Message),
    /// Its hop limit has expired.
    Expired,
    /// Drops it without an error.
    Ignore,
}

/// An IP packet of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packet<'a> {
    client: IpAddr,
    target: IpAddr,
    protocol: u8,
    hop_limit: u8,
    traffic_class: u8,
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a whole packet; `None` for invalid packets and for fragments.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let packet = IpSlice::from_slice(bytes).ok()?;
        let (hop_limit, traffic_class, extensions) = match &packet {
            IpSlice::Ipv4(packet) => {
                let header = packet.header();
                let class = header.dcp().value() << 2 | header.ecn().value();
                (header.ttl(), class, packet.extensions().auth.is_some())
            }
            IpSlice::Ipv6(packet) => {
                let header = packet.header();
                let mut extensions = packet.extensions().clone().into_iter();
                let authenticated = extensions.any(|extension| {
                    matches!(extension, etherparse::Ipv6ExtensionSlice::Authentication(_))
                });
                (header.hop_limit(), header.traffic_class(), authenticated)
            }
        };
        let inner = packet.payload();
        if inner.fragmented {
            return None;
        }
        // The payload of AH is not visible as an echo or other protocol: the packet counts as AH,
        // which is refused.
        let protocol = if extensions { IpNumber::AUTHENTICATION_HEADER } else { inner.ip_number };
        Some(Self {
            client: packet.source_addr(),
            target: packet.destination_addr(),
            protocol: protocol.0,
            hop_limit,
            traffic_class,
            payload: inner.payload,
        })
    }

    /// Returns `true` if RFC 1122 section 3.2.2 forbids errors about the packet, because one of its
    /// addresses is not that of a single host.
    fn is_nobodys(&self) -> bool {
        let nobody = |ip: IpAddr| ip.is_unspecified() || ip.is_multicast() || ip.is_loopback();
        nobody(self.client) || nobody(self.target)
    }

    fn key(&self, identifier: u16) -> Key {
        let target: Target = SocketAddr::new(self.target, 0).into();
        let client = SocketAddr::new(self.client, identifier);
        Key { protocol: self.protocol, client, target }
    }

    fn sent(&self) -> Sent<'a> {
        let Self { hop_limit, traffic_class, payload, .. } = *self;
        Sent { hop_limit, traffic_class, payload, cut_bytes: 0 }
    }
}

/// Parses a packet copied by the kernel, for the fuzz target and a property test; panics if an
/// invariant is violated. Returns `true` if it was a packet.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz(bytes: &[u8]) -> bool {
    let Some(packet) = Packet::parse(bytes) else { return false };
    assert_eq!(packet.client.is_ipv4(), packet.target.is_ipv4(), "an end of each family");
    assert!(packet.payload.len() < bytes.len(), "a payload without a header");
    let Packet { client, target, protocol, payload, .. } = packet;
    let asked = echo::read(payload, client, target);
    if protocol == ip::echo(client) && matches!(asked, echo::Message::Echo { .. }) {
        assert!(payload.len() >= 8, "an echo without a header");
    }
    // An error can be built for every packet.
    let original = super::packet::Original {
        protocol,
        client: SocketAddr::new(client, 0),
        target: SocketAddr::new(target, 0),
        traffic_class: packet.traffic_class,
        payload,
        cut_bytes: 0,
    };
    for message in [Message::ProtocolUnreachable, Message::HopLimit, Message::Prohibited] {
        let error = super::packet::error(target, &original, message);
        // Quotes are truncated to less than the largest packet without extensions.
        assert!(error.is_some_and(|error| error.len() <= 1280), "nothing said of {packet:?}");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Ipv4Header, PacketBuilder};
    use proptest::prelude::*;

    fn parsed(bytes: &[u8]) -> Option<(u8, u8, u8, Vec<u8>)> {
        let packet = Packet::parse(bytes)?;
        Some((packet.protocol, packet.hop_limit, packet.traffic_class, packet.payload.to_vec()))
    }

    #[test]
    fn packets_of_both_families() {
        let mut v4 = Vec::new();
        let mut header =
            Ipv4Header::new(7, 3, IpNumber(50), [10, 9, 0, 2], [192, 0, 2, 1]).unwrap();
        header.dscp = 46.try_into().unwrap();
        header.write(&mut v4).unwrap();
        v4.extend_from_slice(b"payload");
        assert_eq!(parsed(&v4), Some((50, 3, 0xb8, b"payload".to_vec())));
        assert_eq!(parsed(&v4[..v4.len() - 1]), None, "cut short");
        let mut fragment = v4.clone();
        fragment[6] |= 0x20;
        assert_eq!(parsed(&fragment), None);
        let mut v6 = Vec::new();
        let builder = PacketBuilder::ipv6([1; 16], [2; 16], 9);
        builder.write(&mut v6, IpNumber(47), b"payload").unwrap();
        assert_eq!(parsed(&v6), Some((47, 9, 0, b"payload".to_vec())));
        let packet = Packet::parse(&v6).unwrap();
        assert!(!packet.is_nobodys());
        let key = packet.key(5);
        assert_eq!((key.client.port(), key.target.port, key.protocol), (5, 0, 47));
    }

    #[test]
    fn a_packet_with_an_authentication_header_is_protocol_51() {
        let mut packet = Vec::new();
        let header = Ipv4Header::new(12 + 8, 64, IpNumber(51), [10, 9, 0, 2], [192, 0, 2, 1]);
        header.unwrap().write(&mut packet).unwrap();
        // Next header ICMP, 3 words, then an echo.
        packet
            .extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
        assert_eq!(Packet::parse(&packet).unwrap().protocol, 51);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            first in prop::sample::select(vec![0x45u8, 0x46, 0x60, 0x4f, 0]),
        ) {
            fuzz(&bytes);
            let mut bytes = bytes;
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            let length = bytes.len() as u16;
            if bytes.len() >= 60 && first == 0x60 {
                bytes[4..6].copy_from_slice(&(length - 40).to_be_bytes());
                prop_assert!(fuzz(&bytes) || bytes[6] != ip::UDP);
            } else if bytes.len() >= 24 && first >> 4 == 4 {
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
                bytes[6..8].fill(0);
                fuzz(&bytes);
            }
        }
    }
}
