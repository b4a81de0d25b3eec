//! Binding requests of STUN (RFC 8489): the server answers with the address from which the request came.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Port of STUN over UDP.
pub const PORT: u16 = 3478;

/// Times of the transmissions after the first one, in milliseconds: doubling intervals from 1 s, more than the
/// round-trip time of a geostationary orbit (RFC 8489 section 6.2.1 leaves the first interval to the client).
pub const RETRANSMISSIONS_MS: [u64; 2] = [1000, 3000];

/// Time after the first transmission at which the answer is given up, in milliseconds.
pub const PATIENCE_MS: u64 = 7000;

/// Constant in each header.
const COOKIE: u32 = 0x2112_a442;

/// Types of messages and attributes.
const BINDING_REQUEST: u16 = 0x0001;
const BINDING_SUCCESS: u16 = 0x0101;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;

/// Length of a header.
const HEADER: usize = 20;

/// A binding request without attributes.
pub fn request(id: [u8; 12]) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..2].copy_from_slice(&BINDING_REQUEST.to_be_bytes());
    bytes[4..8].copy_from_slice(&COOKIE.to_be_bytes());
    bytes[8..].copy_from_slice(&id);
    bytes
}

/// The address in the success response to request `id`, or `None` if the bytes are something else.
pub fn response(id: [u8; 12], bytes: &[u8]) -> Option<IpAddr> {
    let (header, mut rest) = bytes.split_first_chunk::<HEADER>()?;
    let kind = u16::from_be_bytes([header[0], header[1]]);
    let length = u16::from_be_bytes([header[2], header[3]]);
    let ours = header[4..8] == COOKIE.to_be_bytes() && header[8..] == id;
    if kind != BINDING_SUCCESS || !ours || usize::from(length) != rest.len() {
        return None;
    }
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        let kind = u16::from_be_bytes([head[0], head[1]]);
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (value, after) = after.split_at_checked(length)?;
        if kind == XOR_MAPPED_ADDRESS {
            return mapped(id, value);
        }
        // Attributes are padded to multiples of four bytes.
        rest = after.get(length.next_multiple_of(4) - length..)?;
    }
    None
}

/// Address of an attribute: a byte of zero, the family, the port, and the address; the last two are XORed with
/// the cookie and the identifier, so that no translator on the path rewrites them.
fn mapped(id: [u8; 12], value: &[u8]) -> Option<IpAddr> {
    let (head, address) = value.split_first_chunk::<4>()?;
    let found = match head[1] {
        1 => {
            let bits = u32::from_be_bytes(*address.first_chunk()?);
            IpAddr::V4(Ipv4Addr::from_bits(bits ^ COOKIE))
        }
        2 => {
            let mut key = [0; 16];
            key[..4].copy_from_slice(&COOKIE.to_be_bytes());
            key[4..].copy_from_slice(&id);
            let bits = u128::from_be_bytes(*address.first_chunk()?);
            IpAddr::V6(Ipv6Addr::from_bits(bits ^ u128::from_be_bytes(key)))
        }
        _ => return None,
    };
    (!found.is_unspecified()).then_some(found.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of RFC 5769, sections 2.2 and 2.3, with the attributes that matter here.
    const ID: [u8; 12] = [0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae];
    const SOFTWARE: [u8; 16] = *b"\x80\x22\x00\x0btest vector ";
    const V4: [u8; 12] = [0, 0x20, 0, 8, 0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43];
    const V6: [u8; 24] = [
        0x00, 0x20, 0x00, 0x14, 0x00, 0x02, 0xa1, 0x47, 0x01, 0x13, 0xa9, 0xfa, 0xa5, 0xd3, 0xf1,
        0x79, 0xbc, 0x25, 0xf4, 0xb5, 0xbe, 0xd2, 0xb9, 0xd9,
    ];

    fn message(attributes: &[&[u8]]) -> Vec<u8> {
        let body = attributes.concat();
        let mut bytes = request(ID).to_vec();
        bytes[..2].copy_from_slice(&BINDING_SUCCESS.to_be_bytes());
        bytes[2..4].copy_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn the_vectors_of_rfc_5769() {
        let v4 = message(&[&SOFTWARE, &V4]);
        assert_eq!(response(ID, &v4), Some("192.0.2.1".parse().unwrap()));
        let v6 = message(&[&SOFTWARE, &V6]);
        assert_eq!(
            response(ID, &v6),
            Some("2001:db8:1234:5678:11:2233:4455:6677".parse().unwrap())
        );
    }

    #[test]
    fn other_messages_are_not_answers() {
        let good = message(&[&SOFTWARE, &V4]);
        let mut other = ID;
        other[0] ^= 1;
        assert_eq!(response(other, &good), None, "another request's");
        assert_eq!(response(ID, &message(&[&SOFTWARE])), None, "no address");
        for length in 0..good.len() {
            assert_eq!(response(ID, &good[..length]), None, "cut at {length}");
        }
        let mut refusal = good;
        refusal[..2].copy_from_slice(&0x0111u16.to_be_bytes());
        assert_eq!(response(ID, &refusal), None, "an error response");
    }
}
