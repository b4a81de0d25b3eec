//! Encoding of HTTP/3 that h3 cannot do: frame headers on request streams (RFC 9114 §7.1), and
//! requests without the pseudo-fields that a CONNECT must not have.

use bytes::{BufMut, Bytes, BytesMut};

pub(crate) const DATA: u64 = 0x00;
pub(crate) const HEADERS: u64 = 0x01;

/// Maximum size of a frame header: two variable-length integers of at most 8 bytes (RFC 9000 §16).
pub(crate) const MAX_FRAME_HEADER: usize = 16;

/// Handling of a frame type on a request stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Headers,
    /// Skipped (RFC 9114 §9).
    Unknown,
    /// Never allowed on a request stream (RFC 9114 §7.2, §11.2.1).
    Forbidden,
}

pub(crate) fn kind(frame_type: u64) -> Kind {
    match frame_type {
        DATA => Kind::Data,
        HEADERS => Kind::Headers,
        0x02..=0x09 | 0x0d => Kind::Forbidden,
        _ => Kind::Unknown,
    }
}

/// Parses a frame header byte by byte.
#[derive(Debug, Default)]
pub(crate) struct HeaderBuf {
    bytes: [u8; MAX_FRAME_HEADER],
    len: u8,
}

impl HeaderBuf {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Adds a byte. Returns type and length once they are complete.
    pub fn push(&mut self, byte: u8) -> Option<(u64, u64)> {
        // A complete header is consumed before there could be a 17th byte.
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
        let (kind, rest) = read_varint(self.as_slice())?;
        let (len, _) = read_varint(rest)?;
        Some((kind, len))
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }
}

/// Appends the header of a DATA frame of `len` bytes.
pub(crate) fn data_header(len: usize, into: &mut BytesMut) {
    into.put_u8(DATA as u8);
    write_varint(len as u64, into);
}

/// Parses a variable-length integer (RFC 9000 §16). Returns it with the rest.
pub(crate) fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let len = 1usize << (first >> 6);
    let (whole, rest) = bytes.split_at_checked(len)?;
    let value = whole[1..].iter().fold(u64::from(first & 0x3f), |v, b| v << 8 | u64::from(*b));
    Some((value, rest))
}

/// Appends a variable-length integer in its shortest form. `value` must be below 2^62.
pub(crate) fn write_varint(value: u64, into: &mut BytesMut) {
    match value {
        0..=0x3f => into.put_u8(value as u8),
        0x40..=0x3fff => into.put_u16(value as u16 | 0x4000),
        0x4000..=0x3fff_ffff => into.put_u32(value as u32 | 0x8000_0000),
        _ => into.put_u64(value | 0xc000_0000_0000_0000),
    }
}

/// Encodes a HEADERS frame without Huffman codes and the dynamic table (RFC 9204 §4.5).
///
/// h3's own encoder has two problems. It adds `:scheme` and `:path` to every request, but a CONNECT
/// with them is malformed (RFC 9114 §4.4), and strict proxies refuse it. And its Huffman codes make
/// the length of a proof depend on its value, so seeded runs would differ.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Bytes {
    // The prefix: no dynamic entries.
    let mut section = BytesMut::from(&[0, 0][..]);
    for (name, value) in fields {
        // Indexes in the static table (RFC 9204, appendix A).
        match (*name, *value) {
            (":method", "CONNECT") => section.put_u8(0xc0 | 15),
            (":method", "GET") => section.put_u8(0xc0 | 17),
            (":scheme", "https") => section.put_u8(0xc0 | 23),
            (":status", "200") => section.put_u8(0xc0 | 25),
            (":authority", authority) => {
                section.put_u8(0x50);
                write_string(0, 7, authority, &mut section);
            }
            (":path", path) => {
                section.put_u8(0x51);
                write_string(0, 7, path, &mut section);
            }
            (name, value) => {
                write_string(0x20, 3, name, &mut section);
                write_string(0, 7, value, &mut section);
            }
        }
    }
    let mut frame = BytesMut::with_capacity(section.len() + MAX_FRAME_HEADER);
    write_varint(HEADERS, &mut frame);
    write_varint(section.len() as u64, &mut frame);
    frame.extend_from_slice(&section);
    frame.freeze()
}

/// Appends a string. Its length is an integer with a prefix of `bits` bits (RFC 7541 §5.1, §5.2).
fn write_string(flags: u8, bits: u8, string: &str, into: &mut BytesMut) {
    let mask = (1u8 << bits) - 1;
    match string.len().checked_sub(usize::from(mask)) {
        None => into.put_u8(flags | string.len() as u8),
        Some(mut rest) => {
            into.put_u8(flags | mask);
            while rest >= 0x80 {
                into.put_u8(rest as u8 | 0x80);
                rest >>= 7;
            }
            into.put_u8(rest as u8);
        }
    }
    into.extend_from_slice(string.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_headers_of_any_length_are_parsed() {
        for len in [0usize, 63, 64, 16_383, 16_384, 1 << 20] {
            let mut bytes = BytesMut::new();
            data_header(len, &mut bytes);
            let mut header = HeaderBuf::default();
            let mut found = None;
            for byte in &bytes {
                assert!(found.is_none());
                found = header.push(*byte);
            }
            assert_eq!(found, Some((DATA, len as u64)));
        }
    }

    #[test]
    fn the_longest_header_fits() {
        let mut header = HeaderBuf::default();
        let found = (0..16).filter_map(|_| header.push(0xff)).next();
        assert_eq!(found, Some((u64::MAX >> 2, u64::MAX >> 2)));
    }

    #[test]
    fn headers_follow_rfc_9204() {
        let fields = [(":method", "CONNECT"), (":authority", "a:1"), ("x", "y")];
        let wanted =
            [&[1, 12, 0, 0, 0xcf, 0x50, 3][..], b"a:1", &[0x21], b"x", &[1], b"y"].concat();
        assert_eq!(headers(&fields), wanted);
    }

    /// 7 is the first length that does not fit 3 bits, 127 and 255 the first that need one and two
    /// more bytes after 7 bits.
    #[test]
    fn lengths_at_prefix_limits_are_encoded() {
        for (len, bits, wanted) in [
            (6, 3, &[0x26][..]),
            (7, 3, &[0x27, 0]),
            (126, 7, &[0x7e]),
            (127, 7, &[0x7f, 0]),
            (254, 7, &[0x7f, 0x7f]),
            (255, 7, &[0x7f, 0x80, 1]),
        ] {
            let mut bytes = BytesMut::new();
            let flags = if bits == 3 { 0x20 } else { 0 };
            write_string(flags, bits, &"a".repeat(len), &mut bytes);
            assert_eq!(&bytes[..wanted.len()], wanted, "{len}");
            assert_eq!(bytes.len(), wanted.len() + len);
        }
    }
}
