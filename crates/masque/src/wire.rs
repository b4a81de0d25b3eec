//! The bytes of HTTP/3 that h3 leaves to us: frame headers on request streams (RFC 9114 §7.1), and
//! the pseudo-fields a CONNECT must not have.

use bytes::{BufMut, Bytes, BytesMut};

pub(crate) const DATA: u64 = 0x00;
pub(crate) const HEADERS: u64 = 0x01;

/// A frame header: two variable-length integers of at most 8 bytes (RFC 9000 §16).
pub(crate) const MAX_FRAME_HEADER: usize = 16;

/// What a frame of this type means on a request stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Headers,
    /// Not ours to interpret: skipped (RFC 9114 §9).
    Unknown,
    /// Known, and never allowed here (RFC 9114 §7.2, §11.2.1).
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

/// Collects a frame header byte by byte.
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

    /// Adds a byte; type and length once they are complete.
    pub fn push(&mut self, byte: u8) -> Option<(u64, u64)> {
        // A complete header is taken before there could be a 17th byte.
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

/// The header of a DATA frame of `len` bytes.
pub(crate) fn data_header(len: usize, into: &mut BytesMut) {
    into.put_u8(DATA as u8);
    write_varint(len as u64, into);
}

fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let len = 1usize << (first >> 6);
    let (whole, rest) = bytes.split_at_checked(len)?;
    let value = whole[1..].iter().fold(u64::from(first & 0x3f), |v, b| v << 8 | u64::from(*b));
    Some((value, rest))
}

fn write_varint(value: u64, into: &mut BytesMut) {
    match value {
        0..=0x3f => into.put_u8(value as u8),
        0x40..=0x3fff => into.put_u16(value as u16 | 0x4000),
        0x4000..=0x3fff_ffff => into.put_u32(value as u32 | 0x8000_0000),
        _ => into.put_u64(value | 0xc000_0000_0000_0000),
    }
}

/// Takes `:scheme` and `:path` out of an encoded HEADERS frame.
///
/// h3 0.0.8 writes both into every request, but a CONNECT that has them is malformed (RFC 9114
/// §4.4) and a strict proxy refuses it. `None` when the frame is not one that h3's stateless
/// encoder writes, which uses the static table only.
pub(crate) fn connect_headers(frame: &[u8]) -> Option<Bytes> {
    let (frame_type, rest) = read_varint(frame)?;
    let (len, section) = read_varint(rest)?;
    if frame_type != HEADERS || section.len() as u64 != len {
        return None;
    }
    // The section's prefix (RFC 9204 §4.5.1) names no dynamic entries: two zero bytes.
    let (prefix, mut lines) = section.split_at_checked(2)?;
    if prefix != [0, 0] {
        return None;
    }
    let mut kept = BytesMut::from(prefix);
    while !lines.is_empty() {
        let (line, name, rest) = split_line(lines)?;
        if !matches!(name, Some(STATIC_PATH | STATIC_SCHEME_HTTP | STATIC_SCHEME_HTTPS)) {
            kept.extend_from_slice(line);
        }
        lines = rest;
    }
    let mut frame = BytesMut::with_capacity(kept.len() + MAX_FRAME_HEADER);
    write_varint(HEADERS, &mut frame);
    write_varint(kept.len() as u64, &mut frame);
    frame.extend_from_slice(&kept);
    Some(frame.freeze())
}

// Places in the static table (RFC 9204, appendix A).
const STATIC_PATH: u64 = 1;
const STATIC_SCHEME_HTTP: u64 = 22;
const STATIC_SCHEME_HTTPS: u64 = 23;

/// Splits off the first field line (RFC 9204 §4.5): its bytes, its name's place in the static table
/// if it has one there, and the rest.
fn split_line(lines: &[u8]) -> Option<(&[u8], Option<u64>, &[u8])> {
    let first = *lines.first()?;
    let (name, rest) = match first {
        // Indexed, static.
        0xc0.. => {
            let (index, rest) = read_prefixed(lines, 6)?;
            (Some(index), rest)
        }
        // Literal with a static name.
        0x50..=0x5f | 0x70..=0x7f => {
            let (index, rest) = read_prefixed(lines, 4)?;
            (Some(index), skip_string(rest, 7)?)
        }
        // Literal with a literal name.
        0x20..=0x3f => (None, skip_string(skip_string(lines, 3)?, 7)?),
        _ => return None,
    };
    let (line, rest) = lines.split_at(lines.len() - rest.len());
    Some((line, name, rest))
}

/// A prefixed integer (RFC 7541 §5.1).
fn read_prefixed(bytes: &[u8], bits: u8) -> Option<(u64, &[u8])> {
    let mask = (1u8 << bits) - 1;
    let (first, mut rest) = bytes.split_first()?;
    let mut value = u64::from(first & mask);
    if value < u64::from(mask) {
        return Some((value, rest));
    }
    for shift in (0..28).step_by(7) {
        let (byte, next) = rest.split_first()?;
        value += u64::from(byte & 0x7f) << shift;
        rest = next;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

fn skip_string(bytes: &[u8], bits: u8) -> Option<&[u8]> {
    let (len, rest) = read_prefixed(bytes, bits)?;
    rest.get(usize::try_from(len).ok()?..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_any_length_are_read() {
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
    fn connect_loses_scheme_and_path() {
        // :method CONNECT, :scheme https, :authority "a:1", :path /, x: "y"
        let section =
            [&[0, 0, 0xcf, 0xd7, 0x50, 3][..], b"a:1", &[0xc1, 0x21], b"x", &[1], b"y"].concat();
        let frame = [&[1, section.len() as u8][..], &section].concat();
        let wanted =
            [&[1, 12, 0, 0, 0xcf, 0x50, 3][..], b"a:1", &[0x21], b"x", &[1], b"y"].concat();
        assert_eq!(connect_headers(&frame).unwrap(), wanted);
    }

    #[test]
    fn anything_else_is_not_touched() {
        for bad in [
            &[][..],
            &[1],
            &[0, 0],
            &[1, 3, 0, 0],
            &[1, 3, 0, 1, 0xcf],
            &[1, 3, 0, 0, 0x80],
            &[1, 4, 0, 0, 0x50, 9],
        ] {
            assert_eq!(connect_headers(bad), None, "{bad:?}");
        }
    }
}
