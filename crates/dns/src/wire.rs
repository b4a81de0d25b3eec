//! Zero-copy reading of DNS messages with hickory-proto's decoder: fields and their positions.
//!
//! Numbers, types, the header and strings are read by hickory. Names are read only to their end,
//! not into a `Name`: the cache uses their bytes, and following pointers is left to the caller.
//! Record data is not interpreted. `docs/decisions/0008-dns-messages.md` explains why.

use hickory_proto::op::Header;
use hickory_proto::rr::rdata::opt::EdnsCode;
use hickory_proto::rr::{DNSClass, Name, RecordType};
use hickory_proto::serialize::binary::{
    BinDecodable, BinDecoder, BinEncodable, DecodeError, EncodedSize, Restrict,
};

/// Size of a header.
pub const HEADER: usize = Header::LEN;

/// Size of type and class after the name of a question.
const AFTER_NAME: usize = 4;

/// Bytes that are not a DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a DNS message: it ends too soon, or a name in it does not end")]
pub struct Malformed;

impl From<DecodeError> for Malformed {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

/// Question with an uncompressed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question<'a> {
    /// Name in wire format, in its original spelling.
    pub name: &'a [u8],
    /// Record type.
    pub kind: RecordType,
    /// Record class.
    pub class: DNSClass,
}

/// Reads the header of `message`. Returns it with a decoder for the rest.
pub fn header(message: &[u8]) -> Result<(Header, BinDecoder<'_>), Malformed> {
    let mut rest = BinDecoder::new(message);
    Ok((Header::read(&mut rest)?, rest))
}

/// Overwrites the header of `message`, if it has one.
pub fn set_header(message: &mut [u8], header: &Header) {
    if let (Some(head), Ok(bytes)) = (message.get_mut(..HEADER), header.to_bytes()) {
        head.copy_from_slice(&bytes);
    }
}

/// Reads a question. A compressed name is an error, because in a question there is no earlier name
/// to point to.
pub fn question<'a>(rest: &mut BinDecoder<'a>) -> Result<Question<'a>, Malformed> {
    let name = plain_name(rest)?;
    Ok(Question { name, kind: RecordType::read(rest)?, class: DNSClass::read(rest)? })
}

/// Reads a name without pointers.
pub fn plain_name<'a>(rest: &mut BinDecoder<'a>) -> Result<&'a [u8], Malformed> {
    let start = rest.index();
    if skip_name(rest)? { Err(Malformed) } else { Ok(rest.slice_from(start)?) }
}

/// Resource record with its position in the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset of the name.
    pub start: usize,
    /// Record type.
    pub kind: RecordType,
    /// Class; in an OPT record the sender's buffer size.
    pub class: u16,
    /// Offset of the TTL.
    pub ttl_at: usize,
    /// Value of the TTL field; in an OPT record the upper bits of the response code, the version
    /// and the flags.
    pub ttl_field: u32,
    /// Offset of the data.
    pub data_at: usize,
    /// Data.
    pub data: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the next record.
    pub fn read(rest: &mut BinDecoder<'a>) -> Result<Self, Malformed> {
        let start = rest.index();
        skip_name(rest)?;
        let kind = RecordType::read(rest)?;
        let class = rest.read_u16()?.unverified();
        let ttl_at = rest.index();
        let ttl_field = rest.read_u32()?.unverified();
        let length = rest.read_u16()?.unverified();
        let data_at = rest.index();
        let data = rest.read_slice(length.into())?.unverified();
        Ok(Self { start, kind, class, ttl_at, ttl_field, data_at, data })
    }

    /// TTL in seconds.
    pub fn ttl(&self) -> u32 {
        ttl_seconds(self.ttl_field)
    }

    /// Offset of the end of the record.
    pub fn end(&self) -> usize {
        self.data_at + self.data.len()
    }

    /// Returns `true` if the owner is the root.
    pub fn is_of_root(&self) -> bool {
        // The name has one byte; type and class follow.
        self.ttl_at == self.start + 1 + AFTER_NAME
    }
}

/// TTL in seconds: a value with the highest bit set counts as 0 (RFC 2181 section 8).
pub fn ttl_seconds(ttl_field: u32) -> u32 {
    if ttl_field > i32::MAX as u32 { 0 } else { ttl_field }
}

/// Skips a question, whatever its name.
pub fn skip_question(rest: &mut BinDecoder<'_>) -> Result<(), Malformed> {
    skip_name(rest)?;
    rest.read_slice(AFTER_NAME)?;
    Ok(())
}

/// Skips a name and returns `true` if it ends with a pointer. The pointer is not followed.
/// Hickory's `Name` follows pointers, and a message of 64 KiB may have thousands of them to one
/// name of 126 labels.
fn skip_name(rest: &mut BinDecoder<'_>) -> Result<bool, Malformed> {
    const POINTER: u8 = 0xc0;
    let start = rest.index();
    while rest.index() - start < Name::MAX_LENGTH {
        let length = rest.peek().map(Restrict::unverified).ok_or(Malformed)?;
        match length & POINTER {
            0 if rest.read_character_data()?.unverified().is_empty() => return Ok(false),
            0 => {}
            POINTER => return Ok(rest.read_u16().map(|_| true)?),
            _ => break,
        }
    }
    Err(Malformed)
}

/// EDNS options in the data of an OPT record, up to the first incomplete one. Hickory's `OPT`
/// copies each option byte by byte and logs each broken one, so a sender could flood the log.
pub fn options(data: &[u8]) -> impl Iterator<Item = (EdnsCode, &[u8])> {
    let mut rest = BinDecoder::new(data);
    std::iter::from_fn(move || {
        let code = rest.read_u16().ok()?.unverified();
        let length = rest.read_u16().ok()?.unverified();
        Some((code.into(), rest.read_slice(length.into()).ok()?.unverified()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owner_end(bytes: &[u8]) -> Result<usize, Malformed> {
        let mut rest = BinDecoder::new(bytes);
        skip_name(&mut rest).map(|_| rest.index())
    }

    fn plain_end(bytes: &[u8]) -> Result<usize, Malformed> {
        plain_name(&mut BinDecoder::new(bytes)).map(<[u8]>::len)
    }

    #[test]
    fn names_are_read_to_their_end() {
        assert_eq!(owner_end(b"\x03www\x00rest"), Ok(5));
        assert_eq!(owner_end(b"\x03www\xc0\x0crest"), Ok(6));
        assert_eq!(plain_end(b"\x03www\xc0\x00"), Err(Malformed));
        assert_eq!(plain_end(b"\x00"), Ok(1));
        for broken in [&b"\x03ww"[..], b"\x03www", b"\x40a\x00", b"\xc0", b""] {
            assert_eq!(owner_end(broken), Err(Malformed), "{broken:?}");
            assert_eq!(plain_end(broken), Err(Malformed), "{broken:?}");
        }
        let longest = [&[63; 64 * 3][..], &[62; 63], b"\x00"].concat();
        assert!(owner_end(&[&longest[..], b"x"].concat()).is_err(), "256 bytes");
        assert!(plain_end(&longest).is_err(), "256 bytes");
        let longest = [&[63; 64 * 3][..], &[61; 62], b"\x00"].concat();
        assert_eq!(owner_end(&longest), Ok(Name::MAX_LENGTH));
        assert_eq!(plain_end(&longest), Ok(Name::MAX_LENGTH));
    }

    #[test]
    fn questions_keep_their_bytes_and_reject_pointers() {
        let read = |message: &[u8]| {
            let mut rest = header(message)?.1;
            question(&mut rest)
                .map(|question| (question.name.to_vec(), question.kind, rest.index()))
        };
        // The header has zeros, to which a pointer could lead as the root.
        let message = |name: &[u8]| [&[0; 12], name, &[0, 28, 0, 1]].concat();
        let spelled = b"\x03wWw\x03g.v\x02\xffk\x00";
        let expected = (spelled.to_vec(), RecordType::AAAA, 12 + spelled.len() + 4);
        assert_eq!(read(&message(spelled)), Ok(expected));
        assert_eq!(read(&message(b"\x00")), Ok((vec![0], RecordType::AAAA, 17)));
        for pointer in [&b"\xc0\x0b"[..], b"\x03www\xc0\x0b", b"\x03www\xc0\x00", b"\xc0\x0c"] {
            assert_eq!(read(&message(pointer)), Err(Malformed), "{pointer:?}");
        }
    }

    #[test]
    fn records_stay_within_their_message() {
        let bytes = b"\x00\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x01\x02\x03\x04";
        let read = |bytes| Record::read(&mut BinDecoder::new(bytes));
        let record = read(&bytes[..]).unwrap();
        assert_eq!((record.kind, record.ttl(), record.data), (RecordType::A, 60, &bytes[11..]));
        assert!(record.is_of_root() && record.end() == bytes.len());
        for short in 0..bytes.len() {
            assert_eq!(read(&bytes[..short]), Err(Malformed));
        }
    }

    #[test]
    fn options_end_at_a_broken_one() {
        let data = b"\x00\x0f\x00\x02\x00\x09\x00\x0c\x00\x00\x00\x0a\x00\x04abc";
        let read: Vec<_> = options(data).collect();
        let expected: [(_, &[u8]); 2] =
            [(EdnsCode::Unknown(15), &[0, 9]), (EdnsCode::Padding, &[])];
        assert_eq!(read, expected);
    }

    proptest! {
        /// A record that hickory reads is also read here, and has the same end.
        #[test]
        fn records_match_hickory(
            labels in prop::collection::vec("[a-z]{1,63}", 0..6), pointer in prop::option::of(0u16..16),
            kind in 60_000u16..60_010, data in prop::collection::vec(any::<u8>(), 1..20),
        ) {
            // The root, and names that end with it or within one another.
            let mut bytes = b"\x00\x03abc\x00\x02de\xc0\x01\x01f\xc0\x06".to_vec();
            let at = bytes.len() as u16;
            for label in &labels {
                bytes.push(label.len() as u8);
                bytes.extend(label.as_bytes());
            }
            match pointer {
                Some(to) => bytes.extend((0xc000 | to).to_be_bytes()),
                None => bytes.push(0),
            }
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 9, 0, data.len() as u8]);
            bytes.extend(&data);
            let [mut theirs, mut ours] = [(); 2].map(|()| BinDecoder::new(&bytes).clone(at));
            let read = hickory_proto::rr::Record::read(&mut theirs);
            prop_assert!(read.is_ok() || pointer.is_some() || labels.concat().len() > 240);
            if let Ok(read) = read {
                let record = Record::read(&mut ours).unwrap();
                prop_assert_eq!(ours.index(), theirs.index());
                let fields = (record.kind, record.class, record.ttl_field, record.data);
                prop_assert_eq!(fields, (read.record_type(), 1, read.ttl, &data[..]));
            }
        }
    }
}
