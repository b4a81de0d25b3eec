//! The cleartext header of every datagram.
//!
//! | first byte | datagram | length |
//! |---|---|---|
//! | `0x01` | handshake initiation, air to ground | [`INIT_BYTES`] |
//! | `0x02` | handshake response, ground to air | [`RESPONSE_BYTES`] |
//! | `0x03` | cookie reply, ground to air | [`COOKIE_BYTES`] |
//! | `0x40` + path | data | [`DATA_OVERHEAD_BYTES`] + plaintext |

use super::codec::{Malformed, Reader};

/// First byte of a handshake initiation.
pub const INIT: u8 = 0x01;
/// First byte of a handshake response.
pub const RESPONSE: u8 = 0x02;
/// First byte of a cookie reply.
pub const COOKIE: u8 = 0x03;
/// First byte of a data packet on path 0; the low four bits name the path.
pub const DATA: u8 = 0x40;

/// Length: type, three zero bytes, sender index, Noise message 1, mac1, mac2.
pub const INIT_BYTES: usize = 4 + 4 + INIT_NOISE_BYTES + 16 + 16;
/// Length: ephemeral key, sealed static key, sealed payload.
pub const INIT_NOISE_BYTES: usize = 32 + 48 + INIT_PAYLOAD_BYTES + 16;
/// Length: counter, the air's instance, instance of the session to resume, send rate, first flow
/// credit, AEADs.
pub const INIT_PAYLOAD_BYTES: usize = 8 + 8 + 8 + 8 + 4 + 1;
/// Length: type, three zero bytes, sender index, receiver index, Noise message 2, mac1, mac2.
pub const RESPONSE_BYTES: usize = 4 + 4 + 4 + RESPONSE_NOISE_BYTES + 16 + 16;
/// Length: ephemeral key and sealed payload.
pub const RESPONSE_NOISE_BYTES: usize = 32 + RESPONSE_PAYLOAD_BYTES + 16;
/// Length: the session's instance, the hub's send rate, its first flow credit, its flow limit, the
/// AEAD.
pub const RESPONSE_PAYLOAD_BYTES: usize = 8 + 8 + 4 + 4 + 1;
/// Length: type, three zero bytes, receiver index, nonce, sealed cookie.
pub const COOKIE_BYTES: usize = 4 + 4 + 24 + 32;

/// Length: type and path, receiver index, packet number.
pub const DATA_HEADER_BYTES: usize = 1 + 4 + 7;
/// Length of the AEAD's tag.
pub const TAG_BYTES: usize = 16;
/// Overhead of encryption and addressing.
pub const DATA_OVERHEAD_BYTES: usize = DATA_HEADER_BYTES + TAG_BYTES;

/// Maximum packet number: 56 bits, because the nonce is path id ‖ packet number.
pub const MAX_PACKET_NUMBER: u64 = (1 << 56) - 1;

/// Maximum number of paths of a session. The handshake negotiates it in three bits.
pub const MAX_PATHS: u8 = 8;

/// A packet of a session: its path, and its number there. Packets are ordered on one path only; the
/// derived order serves as a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId {
    /// Path that carries the packet.
    pub path: u8,
    /// Number on this path.
    pub number: u64,
}

#[cfg(test)]
impl From<u64> for PacketId {
    /// The packet `number` of path 0.
    fn from(number: u64) -> Self {
        Self { path: 0, number }
    }
}

/// A data packet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// Radio path, 0 to 15.
    pub path: u8,
    /// The receiver's index of the keys.
    pub receiver: u32,
    /// Packet number, which increases by one with every packet on the path, over all keys of the
    /// session.
    pub number: u64,
}

impl DataHeader {
    /// Splits a datagram into header and ciphertext.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut reader = Reader::new(datagram);
        let first = reader.u8()?;
        if first & 0xf0 != DATA {
            return Err(Malformed);
        }
        let receiver = reader.u32()?;
        let mut number = [0; 8];
        number[..7].copy_from_slice(reader.take(7)?);
        let header = Self { path: first & 0x0f, receiver, number: u64::from_le_bytes(number) };
        Ok((header, reader.rest()))
    }

    /// Appends the header.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(DATA | self.path);
        out.extend_from_slice(&self.receiver.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes()[..7]);
    }

    /// The packet with this header.
    pub fn packet(&self) -> PacketId {
        PacketId { path: self.path, number: self.number }
    }

    /// AEAD nonce: path id in the top byte, packet number below.
    pub fn nonce(&self) -> u64 {
        u64::from(self.path) << 56 | self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_read_back(path in 0u8..16, receiver: u32, number in 0..=MAX_PACKET_NUMBER, body: Vec<u8>) {
            let header = DataHeader { path, receiver, number };
            let mut bytes = Vec::new();
            header.put(&mut bytes);
            prop_assert_eq!(bytes.len(), DATA_HEADER_BYTES);
            bytes.extend_from_slice(&body);
            prop_assert_eq!(DataHeader::parse(&bytes), Ok((header, &body[..])));
        }
    }

    #[test]
    fn replies_are_never_larger_than_requests() {
        const { assert!(RESPONSE_BYTES <= INIT_BYTES) };
        const { assert!(COOKIE_BYTES <= INIT_BYTES) };
    }
}
