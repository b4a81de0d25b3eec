//! Where the parts of a DNS message begin and end (RFC 1035 section 4). Nothing is copied, and
//! nothing is believed: every read is within the message.

use std::ops::Range;

/// A header's bytes.
pub const HEADER: usize = 12;

/// The longest name on the wire, its last zero included (RFC 1035 section 2.3.4).
pub const MAX_NAME: usize = 255;

/// Types of records that something is done about here.
pub mod record {
    /// An IPv4 address.
    pub const A: u16 = 1;
    /// Another name for this one.
    pub const CNAME: u16 = 5;
    /// Who is in charge of a zone, and how long denials hold.
    pub const SOA: u16 = 6;
    /// An IPv6 address.
    pub const AAAA: u16 = 28;
    /// EDNS (RFC 6891).
    pub const OPT: u16 = 41;
    /// Where a service is, and how it is spoken to (RFC 9460).
    pub const SVCB: u16 = 64;
    /// Everything there is (RFC 8482).
    pub const ANY: u16 = 255;
}

/// Response codes that are answered here.
pub mod rcode {
    /// There is an answer, or the name has none of this type.
    pub const NOERROR: u16 = 0;
    /// The question is broken.
    pub const FORMERR: u16 = 1;
    /// Nobody could be asked.
    pub const SERVFAIL: u16 = 2;
    /// There is no such name.
    pub const NXDOMAIN: u16 = 3;
    /// Questions of that kind are not answered here.
    pub const NOTIMP: u16 = 4;
    /// The client may not ask that, or not so much.
    pub const REFUSED: u16 = 5;
    /// A version of EDNS that is not known here (RFC 6891).
    pub const BADVERS: u16 = 16;
}

/// Flags of the header's second word.
pub mod flag {
    pub const RESPONSE: u16 = 0x8000;
    pub const OPCODE: u16 = 0x7800;
    pub const TRUNCATED: u16 = 0x0200;
    pub const RECURSION_DESIRED: u16 = 0x0100;
    pub const RECURSION_AVAILABLE: u16 = 0x0080;
    pub const AUTHENTIC: u16 = 0x0020;
    pub const CHECKING_DISABLED: u16 = 0x0010;
    pub const RCODE: u16 = 0x000f;
}

/// Bytes that are no DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a DNS message: it ends too soon, or a name in it does not end")]
pub struct Malformed;

/// One of a header's words: 0 is the id, 1 the flags, then the counts of questions, answers,
/// authorities and additional records.
pub fn word(message: &[u8], index: usize) -> Result<u16, Malformed> {
    number(message, 2 * index)
}

/// Two bytes at `at`.
pub fn number(message: &[u8], at: usize) -> Result<u16, Malformed> {
    let bytes = message.get(at..).and_then(|rest| rest.first_chunk::<2>()).ok_or(Malformed)?;
    Ok(u16::from_be_bytes(*bytes))
}

/// Four bytes at `at`.
pub fn long(message: &[u8], at: usize) -> Result<u32, Malformed> {
    let bytes = message.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or(Malformed)?;
    Ok(u32::from_be_bytes(*bytes))
}

/// Writes two bytes, which have to be there.
pub fn set(message: &mut [u8], at: usize, value: u16) {
    message[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Where the name at `at`, which may end in a pointer, ends.
pub fn name_end(message: &[u8], mut at: usize) -> Result<usize, Malformed> {
    let began = at;
    loop {
        let length = usize::from(*message.get(at).ok_or(Malformed)?);
        match length {
            0 => return Ok(at + 1),
            1..=63 => at += 1 + length,
            192.. => return number(message, at).map(|_| at + 2),
            _ => return Err(Malformed),
        }
        if at - began >= MAX_NAME {
            return Err(Malformed);
        }
    }
}

/// Where the name at `at`, which has no pointers, ends.
pub fn plain_name_end(message: &[u8], at: usize) -> Result<usize, Malformed> {
    let end = name_end(message, at)?;
    // A pointer's second byte may be zero, so its first tells.
    if end - at > 1 && pointer_in(&message[at..end]) { Err(Malformed) } else { Ok(end) }
}

fn pointer_in(name: &[u8]) -> bool {
    let mut at = 0;
    while let Some(length) = name.get(at).map(|length| usize::from(*length)) {
        if length >= 192 {
            return true;
        }
        at += 1 + length;
    }
    false
}

/// A resource record, as places in its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where its name begins.
    pub start: usize,
    /// Its type.
    pub kind: u16,
    /// Its class; what OPT says the sender's buffer is.
    pub class: u16,
    /// Where its TTL stands.
    pub ttl_at: usize,
    /// Its data.
    pub data: Range<usize>,
}

impl Record {
    /// Reads the record at `at`.
    pub fn parse(message: &[u8], at: usize) -> Result<Self, Malformed> {
        let name_end = name_end(message, at)?;
        let (kind, class) = (number(message, name_end)?, number(message, name_end + 2)?);
        let ttl_at = name_end + 4;
        let length = usize::from(number(message, ttl_at + 4)?);
        let data = ttl_at + 6..ttl_at + 6 + length;
        if data.end > message.len() {
            return Err(Malformed);
        }
        Ok(Self { start: at, kind, class, ttl_at, data })
    }

    /// Its TTL in seconds; one with the highest bit counts as 0 (RFC 2181 section 8).
    pub fn ttl(&self, message: &[u8]) -> u32 {
        let ttl = long(message, self.ttl_at).unwrap_or(0);
        if ttl > i32::MAX as u32 { 0 } else { ttl }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_they_end() {
        assert_eq!(name_end(b"\x03www\x00rest", 0), Ok(5));
        assert_eq!(name_end(b"\x03www\xc0\x0crest", 0), Ok(6));
        assert_eq!(plain_name_end(b"\x03www\xc0\x00", 0), Err(Malformed));
        assert_eq!(plain_name_end(b"\x00", 0), Ok(1));
        for broken in [&b"\x03ww"[..], b"\x03www", b"\x40a\x00", b"\xc0", b""] {
            assert_eq!(name_end(broken, 0), Err(Malformed), "{broken:?}");
        }
        let longest = [&[63; 64 * 3][..], &[62; 63], b"\x00"].concat();
        assert!(name_end(&[&longest[..], b"x"].concat(), 0).is_err(), "256 bytes");
        let longest = [&[63; 64 * 3][..], &[61; 62], b"\x00"].concat();
        assert_eq!(name_end(&longest, 0), Ok(MAX_NAME));
    }

    #[test]
    fn records_stay_within_their_message() {
        let bytes = b"\x00\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x01\x02\x03\x04";
        let record = Record::parse(bytes, 0).unwrap();
        assert_eq!((record.kind, record.ttl(bytes), record.data), (record::A, 60, 11..15));
        for short in 0..bytes.len() {
            assert_eq!(Record::parse(&bytes[..short], 0), Err(Malformed));
        }
    }
}
