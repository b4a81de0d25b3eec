//! Cache key: the properties that questions with the same answer share.

use std::fmt;

use hickory_proto::op::{MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use hickory_proto::serialize::binary::BinDecoder;

use crate::parts::{PLAIN_OPT, Parts, edns};
use crate::wire::{self, HEADER, Malformed, Question};

const DNSSEC_OK: u8 = 1;
const CHECKING_DISABLED: u8 = 2;

/// Maximum sizes of a label and of a name in wire format (RFC 1035 section 2.3.4).
const MAX_LABEL: u8 = 63;
const MAX_NAME: usize = 255;

/// Cache key: lower-case name, type, class, and the flags DO (signatures wanted) and CD (unchecked
/// answers accepted). Answers for one combination of flags do not serve another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    /// Creates the key of a question.
    pub(crate) fn new(
        Question { name, kind, class }: Question<'_>,
        dnssec_ok: bool,
        checking_disabled: bool,
    ) -> Self {
        let mut bytes = Vec::with_capacity(name.len() + 5);
        // Label lengths are below 64, so lower-casing does not change them.
        bytes.extend(name.iter().map(u8::to_ascii_lowercase));
        bytes.extend(u16::from(kind).to_be_bytes());
        bytes.extend(u16::from(class).to_be_bytes());
        let dnssec = if dnssec_ok { DNSSEC_OK } else { 0 };
        let checking = if checking_disabled { CHECKING_DISABLED } else { 0 };
        bytes.push(dnssec | checking);
        Self(bytes.into())
    }

    /// Creates the key of a query for the addresses of the host called `name`, with or without a
    /// final dot: of IPv6, or of IPv4.
    pub fn of_host(name: &str, is_v6: bool) -> Result<Self, Malformed> {
        let mut wire = Vec::with_capacity(name.len() + 2);
        for label in name.strip_suffix('.').unwrap_or(name).split('.') {
            let length = u8::try_from(label.len()).map_err(|_| Malformed)?;
            if !(1..=MAX_LABEL).contains(&length) {
                return Err(Malformed);
            }
            wire.push(length);
            wire.extend(label.bytes());
        }
        wire.push(0);
        if wire.len() > MAX_NAME {
            return Err(Malformed);
        }
        let kind = if is_v6 { RecordType::AAAA } else { RecordType::A };
        let question = Question { name: &wire, kind, class: DNSClass::IN };
        Ok(Self::new(question, false, false))
    }

    /// Parses the output of [`as_bytes`](Self::as_bytes).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let end = wire::plain_name(&mut BinDecoder::new(bytes))?.len();
        let is_valid = bytes.len() == end + 5
            && bytes[end + 4] <= DNSSEC_OK | CHECKING_DISABLED
            && !bytes[..end].iter().any(u8::is_ascii_uppercase);
        if is_valid { Ok(Self(bytes.into())) } else { Err(Malformed) }
    }

    /// Encoding for the journal.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Name in wire format, in lower case.
    pub fn name(&self) -> &[u8] {
        &self.0[..self.0.len() - 5]
    }

    /// Record type.
    pub fn kind(&self) -> RecordType {
        self.number(5).into()
    }

    /// Record class.
    pub fn class(&self) -> DNSClass {
        self.number(3).into()
    }

    /// Question of the key, in lower case.
    pub(crate) fn as_question(&self) -> Question<'_> {
        Question { name: self.name(), kind: self.kind(), class: self.class() }
    }

    /// Returns `true` if signatures are wanted (DO, RFC 3225).
    pub fn dnssec_ok(&self) -> bool {
        self.flags() & DNSSEC_OK != 0
    }

    /// Returns `true` if the client validates for itself (CD, RFC 4035).
    pub fn checking_disabled(&self) -> bool {
        self.flags() & CHECKING_DISABLED != 0
    }

    /// Name as text, if it is a host name: letters, digits, `-` and `_`. Otherwise `None`.
    pub fn host_name(&self) -> Option<String> {
        let mut text = String::with_capacity(self.name().len());
        let mut rest = self.name();
        while let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let (label, after) = after.split_at_checked(usize::from(*length))?;
            let is_valid = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            if !label.iter().all(is_valid) {
                return None;
            }
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(std::str::from_utf8(label).ok()?);
            rest = after;
        }
        (!text.is_empty()).then_some(text)
    }

    /// Encodes the query with the id `id`. The AD flag requests the resolver's authenticity result
    /// (RFC 6840 section 5.7).
    pub fn question(&self, id: u16) -> Vec<u8> {
        let mut metadata = Metadata::new(id, MessageType::Query, OpCode::Query);
        metadata.recursion_desired = true;
        metadata.authentic_data = true;
        metadata.checking_disabled = self.checking_disabled();
        let edns = Some(edns(ResponseCode::NoError, self.dnssec_ok(), None));
        let (question, counts) = (Some(self.as_question()), [0; 3]);
        Parts { metadata, question, counts, records: &[], edns }.write()
    }

    /// Size of the query in bytes.
    pub fn question_bytes(&self) -> usize {
        HEADER + self.name().len() + 4 + PLAIN_OPT
    }

    fn flags(&self) -> u8 {
        self.0[self.0.len() - 1]
    }

    fn number(&self, from_end: usize) -> u16 {
        let at = self.0.len() - from_end;
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.host_name().unwrap_or_else(|| self.name().escape_ascii().to_string());
        write!(f, "{name}/{}", self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_through_bytes() {
        let (kind, class) = (RecordType::AAAA, DNSClass::IN);
        let name = b"\x03wWw\x03Gov\x02uk\x00";
        let key = Key::new(Question { name, kind, class }, true, false);
        assert_eq!((key.kind(), key.class()), (kind, class));
        assert_eq!((key.dnssec_ok(), key.checking_disabled()), (true, false));
        assert_eq!(key.host_name().as_deref(), Some("www.gov.uk"));
        assert_eq!(Key::from_bytes(key.as_bytes()), Ok(key.clone()));
        assert_eq!(key.question(7).len(), key.question_bytes());
        for wrong in 0..key.as_bytes().len() {
            assert!(Key::from_bytes(&key.as_bytes()[..wrong]).is_err());
        }
        assert!(Key::from_bytes(b"\x01A\x00\x00\x01\x00\x01\x00").is_err(), "upper case");
        assert!(Key::from_bytes(b"\x01a\x00\x00\x01\x00\x01\x04").is_err(), "an unknown flag");
    }

    #[test]
    fn a_host_is_asked_for_by_its_name() {
        for name in ["Www.Gov.uk", "www.gov.uk."] {
            let key = Key::of_host(name, true).unwrap();
            assert_eq!(key.host_name().as_deref(), Some("www.gov.uk"));
            assert_eq!((key.kind(), key.class()), (RecordType::AAAA, DNSClass::IN));
            assert_eq!(Key::from_bytes(key.as_bytes()), Ok(key));
        }
        assert_eq!(Key::of_host("a", false).unwrap().kind(), RecordType::A);
        let long = vec!["a".repeat(63); 4].join(".");
        for wrong in ["", ".", "a..b", &"a".repeat(64), &long] {
            assert_eq!(Key::of_host(wrong, false), Err(Malformed), "{wrong}");
        }
        assert!(Key::of_host(&long[..253], false).is_ok(), "255 bytes in wire format");
    }

    #[test]
    fn only_host_names_are_text() {
        let (kind, class) = (RecordType::A, DNSClass::IN);
        let host = |name: &[u8]| Key::new(Question { name, kind, class }, false, false).host_name();
        assert_eq!(host(b"\x04_dmc\x01A\x00").as_deref(), Some("_dmc.a"));
        assert_eq!(host(b"\x03a.b\x00"), None);
        assert_eq!(host(b"\x01\xff\x00"), None);
        assert_eq!(host(b"\x00"), None);
    }
}
