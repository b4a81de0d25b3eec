//! A packet sent by a client.

use bytes::BytesMut;

use bentpipe_transport::datagram::Datagram;

/// Hop limit that suffices for any path (hosts start with 64 or more), so it need not be
/// transmitted. Probes of traceroute have less.
const PLENTY_OF_HOPS: u8 = 48;

/// A packet sent by a client.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// Hop limit on arrival.
    pub hop_limit: u8,
    /// Traffic class of the packet.
    pub traffic_class: u8,
    /// Payload of the packet.
    pub payload: &'a [u8],
    /// Number of bytes that followed `payload`, if it is truncated.
    pub cut_bytes: usize,
}

impl Sent<'_> {
    /// Encodes the packet for the link.
    pub fn encoded(&self) -> BytesMut {
        let datagram = if self.hop_limit >= PLENTY_OF_HOPS {
            Datagram::Payload(self.payload)
        } else {
            // This gateway counts as one hop, like any router.
            Datagram::HopLimit(self.hop_limit.saturating_sub(1), self.payload)
        };
        let mut out = BytesMut::new();
        datagram.encode(&mut out);
        out
    }
}
