//! A packet that a client has sent.

use bytes::BytesMut;

use crate::far::datagram::Datagram;

/// A packet with at least this many hops left has enough for any path (hosts start with 64 or
/// more), and needs not cross with their number; probes of traceroute have fewer.
const PLENTY_OF_HOPS: u8 = 48;

/// A packet of a client.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// Hops it had left when it came.
    pub hop_limit: u8,
    /// Its traffic class.
    pub traffic_class: u8,
    /// Its payload.
    pub payload: &'a [u8],
    /// Bytes that followed `payload`, where that is cut short.
    pub cut_bytes: usize,
}

impl Sent<'_> {
    /// As the link has it.
    pub fn encoded(&self) -> BytesMut {
        let datagram = if self.hop_limit >= PLENTY_OF_HOPS {
            Datagram::Payload(self.payload)
        } else {
            // This gateway is one hop, as any router on the way.
            Datagram::HopLimit(self.hop_limit.saturating_sub(1), self.payload)
        };
        let mut out = BytesMut::new();
        datagram.encode(&mut out);
        out
    }
}
