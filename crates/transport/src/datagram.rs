//! Prefix of the link's datagrams: a context id, as RFC 9298 section 4 has it for HTTP Datagrams,
//! the same over every transport.
//!
//! The id is a QUIC variable-length integer (RFC 9000 section 16). Even ids are the client's; both
//! ends of a pair know these and register none:
//!
//! | id | direction | after it |
//! |---|---|---|
//! | 0 | both | the payload |
//! | 2 | air → ground | hop limit (1 byte), then the payload |
//! | 4 | ground → air | an ICMP error: see [`IcmpError`] |
//! | 6 | air → ground | the flow's number (8 bytes), by which it keeps its port in a later session |
//! | 8 | between hub and egress | the hub's [statement](STATEMENT) about the aircraft |
//!
//! The payload is UDP's own, a whole ICMP message for echo, and the IP payload for other protocols.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, BytesMut};

const PAYLOAD: u8 = 0;
const HOP_LIMIT: u8 = 2;
const ICMP_ERROR: u8 = 4;
const NUMBER: u8 = 6;

/// Context id between a hub and its egress alone: a statement about the aircraft, or, empty, its
/// confirmation. It is no [`Datagram`], because neither gateway's users see it.
pub const STATEMENT: u8 = 8;

/// Length that [`Datagram::HopLimit`] needs before the payload, and so the longest prefix of one.
pub const MAX_HEADER_BYTES: usize = 2;

/// A datagram of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// The payload, to be sent with the sender's usual hop limit.
    Payload(&'a [u8]),
    /// The payload, to be sent with this hop limit.
    HopLimit(u8, &'a [u8]),
    /// ICMP error of a router or of the destination.
    Error(IcmpError),
    /// Number of the flow, drawn at random by the air. A flow of a later session with the same number
    /// goes on with its external port.
    Number(u64),
}

/// ICMP error for a flow. On the wire: family (1 byte, 4 or 6), the sender's address (4 or 16
/// bytes), type, code, the 4 bytes after the checksum, the received hop limit, and, if known, the
/// first 8 bytes of the payload that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    /// Sender. Its family decides between ICMP and ICMPv6.
    pub from: IpAddr,
    /// The ICMP type.
    pub kind: u8,
    /// The ICMP code.
    pub code: u8,
    /// Rest of the header; the next hop's MTU if the error reports one.
    pub rest: [u8; 4],
    /// Received hop limit.
    pub hop_limit: u8,
    /// First bytes of the sent payload. They identify the echo request that failed. Absent for UDP,
    /// because routers may quote no more than the ports.
    pub quote: Option<Quote>,
}

/// Minimum payload that an ICMP error quotes (RFC 792).
pub type Quote = [u8; 8];

/// Reason why a datagram is dropped and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Its context id is not registered.
    #[error("a datagram has the unknown context id {0}")]
    Context(u64),
    /// It is too short or too long.
    #[error("a datagram of context id {0} has the wrong length or content")]
    Content(u64),
    /// It has no context id.
    #[error("a datagram ends within its context id")]
    Cut,
}

impl<'a> Datagram<'a> {
    /// Reads `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Unknown> {
        let (id, rest) = variable(bytes).ok_or(Unknown::Cut)?;
        match u8::try_from(id) {
            Ok(PAYLOAD) => Ok(Self::Payload(rest)),
            Ok(HOP_LIMIT) => {
                let (hops, payload) = rest.split_first().ok_or(Unknown::Content(id))?;
                Ok(Self::HopLimit(*hops, payload))
            }
            Ok(ICMP_ERROR) => IcmpError::parse(rest).map(Self::Error).ok_or(Unknown::Content(id)),
            Ok(NUMBER) => {
                let number = rest.try_into().map_err(|_| Unknown::Content(id))?;
                Ok(Self::Number(u64::from_be_bytes(number)))
            }
            _ => Err(Unknown::Context(id)),
        }
    }

    /// Encoding of this datagram.
    pub fn encoded(&self) -> BytesMut {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Payload(payload) => {
                out.reserve(1 + payload.len());
                out.put_u8(PAYLOAD);
                out.put_slice(payload);
            }
            Self::HopLimit(hops, payload) => {
                out.reserve(2 + payload.len());
                out.put_slice(&[HOP_LIMIT, *hops]);
                out.put_slice(payload);
            }
            Self::Error(error) => {
                out.put_u8(ICMP_ERROR);
                error.encode(out);
            }
            Self::Number(number) => {
                out.put_u8(NUMBER);
                out.put_u64(*number);
            }
        }
    }
}

impl IcmpError {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (family, rest) = bytes.split_first()?;
        let (from, rest) = match family {
            4 => rest.split_first_chunk::<4>().map(|(ip, rest)| (Ipv4Addr::from(*ip).into(), rest)),
            6 => {
                rest.split_first_chunk::<16>().map(|(ip, rest)| (Ipv6Addr::from(*ip).into(), rest))
            }
            _ => None,
        }?;
        let (&[kind, code, a, b, c, d, hop_limit], quote) = rest.split_first_chunk()?;
        let quote = match quote {
            [] => None,
            quote => Some(quote.try_into().ok()?),
        };
        Some(Self { from, kind, code, rest: [a, b, c, d], hop_limit, quote })
    }

    fn encode(&self, out: &mut BytesMut) {
        match self.from {
            IpAddr::V4(ip) => {
                out.put_u8(4);
                out.put_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.put_u8(6);
                out.put_slice(&ip.octets());
            }
        }
        out.put_slice(&[self.kind, self.code]);
        out.put_slice(&self.rest);
        out.put_u8(self.hop_limit);
        out.put_slice(self.quote.as_ref().map_or(&[], |quote| quote));
    }
}

/// Variable-length integer at the start of `bytes`, and the bytes after it.
fn variable(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = 1 << (bytes.first()? >> 6);
    let (number, rest) = bytes.split_at_checked(length)?;
    let value = number.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    // The two highest bits were the length.
    Some((value & (u64::MAX >> (64 - 8 * length + 2)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(datagram: Datagram<'_>) -> BytesMut {
        let mut out = BytesMut::new();
        datagram.encode(&mut out);
        out
    }

    #[test]
    fn each_context_has_its_layout() {
        assert_eq!(encoded(Datagram::Payload(b"hi")), b"\x00hi"[..]);
        assert_eq!(encoded(Datagram::HopLimit(7, b"hi")), b"\x02\x07hi"[..]);
        let error = IcmpError {
            from: [192, 0, 2, 1].into(),
            kind: 3,
            code: 4,
            rest: [0, 0, 5, 0],
            hop_limit: 61,
            quote: None,
        };
        let bytes = [4, 4, 192, 0, 2, 1, 3, 4, 0, 0, 5, 0, 61];
        assert_eq!(encoded(Datagram::Error(error)), bytes[..]);
        let quote = Some(*b"12345678");
        let quoting = encoded(Datagram::Error(IcmpError { quote, ..error }));
        assert_eq!(quoting, [&bytes[..], b"12345678"].concat());
        for quote in [None, quote] {
            let error = IcmpError { from: Ipv6Addr::LOCALHOST.into(), quote, ..error };
            let bytes = encoded(Datagram::Error(error));
            assert_eq!(Datagram::parse(&bytes), Ok(Datagram::Error(error)));
        }
        assert_eq!(Datagram::parse(&quoting[..quoting.len() - 1]), Err(Unknown::Content(4)));
        let number = encoded(Datagram::Number(7));
        assert_eq!(number, b"\x06\0\0\0\0\0\0\0\x07"[..]);
        assert_eq!(Datagram::parse(&number), Ok(Datagram::Number(7)));
        assert_eq!(Datagram::parse(&number[..8]), Err(Unknown::Content(6)));
    }

    #[test]
    fn a_longer_form_of_an_id_is_the_same_id() {
        assert_eq!(Datagram::parse(b"\x40\x00hi"), Ok(Datagram::Payload(b"hi")));
        assert_eq!(Datagram::parse(b"\x80\0\0\x02\x09hi"), Ok(Datagram::HopLimit(9, b"hi")));
        assert_eq!(Datagram::parse(b"\xc0\0\0\0\0\0\0\0"), Ok(Datagram::Payload(b"")));
    }

    #[test]
    fn unknown_datagrams_are_distinguished() {
        assert_eq!(Datagram::parse(b""), Err(Unknown::Cut));
        assert_eq!(Datagram::parse(b"\x40"), Err(Unknown::Cut));
        assert_eq!(Datagram::parse(b"\x08"), Err(Unknown::Context(8)));
        assert_eq!(Datagram::parse(b"\x41\x04x"), Err(Unknown::Context(260)));
        let largest = Unknown::Context((1 << 62) - 1);
        assert_eq!(Datagram::parse(&[0xff; 8]), Err(largest));
        assert_eq!(Datagram::parse(b"\x02"), Err(Unknown::Content(2)));
        assert_eq!(Datagram::parse(b"\x04\x05"), Err(Unknown::Content(4)));
        assert_eq!(
            Datagram::parse(&[4, 4, 1, 1, 1, 1, 3, 4, 0, 0, 5, 0]),
            Err(Unknown::Content(4))
        );
    }

    proptest! {
        #[test]
        fn payloads_survive_encoding(hops: u8, payload: Vec<u8>) {
            for datagram in [Datagram::Payload(&payload), Datagram::HopLimit(hops, &payload)] {
                let bytes = encoded(datagram);
                prop_assert!(bytes.len() <= payload.len() + MAX_HEADER_BYTES);
                prop_assert_eq!(Datagram::parse(&bytes), Ok(datagram));
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Datagram::parse(&bytes);
        }
    }
}
