//! Key of a question: the properties that questions with one answer share.

use std::fmt;

use hickory_proto::op::{MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use hickory_proto::serialize::binary::BinDecoder;

use crate::parts::{PLAIN_OPT, Parts, edns};
use crate::wire::{self, HEADER, Malformed, Question};

const DNSSEC_OK: u8 = 1;
const CHECKING_DISABLED: u8 = 2;

/// Name in lower case, type and class, and whether signatures are wanted (DO) and unchecked answers
/// taken (CD): answers to one are not answers to the other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    /// Key of a question with these properties.
    pub(crate) fn new(
        Question { name, kind, class }: Question<'_>,
        dnssec_ok: bool,
        checking_disabled: bool,
    ) -> Self {
        let mut bytes = Vec::with_capacity(name.len() + 5);
        // Lengths of labels are below 64 and stay as they are.
        bytes.extend(name.iter().map(u8::to_ascii_lowercase));
        bytes.extend(u16::from(kind).to_be_bytes());
        bytes.extend(u16::from(class).to_be_bytes());
        let dnssec = if dnssec_ok { DNSSEC_OK } else { 0 };
        let checking = if checking_disabled { CHECKING_DISABLED } else { 0 };
        bytes.push(dnssec | checking);
        Self(bytes.into())
    }

    /// From [`as_bytes`](Self::as_bytes).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let end = wire::plain_name(&mut BinDecoder::new(bytes))?.len();
        let good = bytes.len() == end + 5
            && bytes[end + 4] <= DNSSEC_OK | CHECKING_DISABLED
            && !bytes[..end].iter().any(u8::is_ascii_uppercase);
        if good { Ok(Self(bytes.into())) } else { Err(Malformed) }
    }

    /// For the journal.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name on the wire, in lower case.
    pub fn name(&self) -> &[u8] {
        &self.0[..self.0.len() - 5]
    }

    /// The type of records asked for.
    pub fn kind(&self) -> RecordType {
        self.number(5).into()
    }

    /// Their class.
    pub fn class(&self) -> DNSClass {
        self.number(3).into()
    }

    /// The question of it, in lower case.
    pub(crate) fn asked(&self) -> Question<'_> {
        Question { name: self.name(), kind: self.kind(), class: self.class() }
    }

    /// Returns `true` if signatures are wanted too (DO, RFC 3225).
    pub fn dnssec_ok(&self) -> bool {
        self.flags() & DNSSEC_OK != 0
    }

    /// Returns `true` if the client wants to validate for itself (CD, RFC 4035).
    pub fn checking_disabled(&self) -> bool {
        self.flags() & CHECKING_DISABLED != 0
    }

    /// The name as text where it is one that hosts have: letters, digits, `-` and `_`.
    pub fn host_name(&self) -> Option<String> {
        let mut text = String::with_capacity(self.name().len());
        let mut rest = self.name();
        while let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let (label, after) = after.split_at_checked(usize::from(*length))?;
            let good = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            if !label.iter().all(good) {
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

    /// The message that asks for it, with the id `id`. AD asks for what the resolver has found
    /// authentic (RFC 6840 section 5.7).
    pub fn question(&self, id: u16) -> Vec<u8> {
        let mut metadata = Metadata::new(id, MessageType::Query, OpCode::Query);
        metadata.recursion_desired = true;
        metadata.authentic_data = true;
        metadata.checking_disabled = self.checking_disabled();
        let edns = Some(edns(ResponseCode::NoError, self.dnssec_ok(), None));
        let (question, counts) = (Some(self.asked()), [0; 3]);
        Parts { metadata, question, counts, records: &[], edns }.write()
    }

    /// The bytes of that message.
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
    fn a_key_is_its_bytes() {
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
    fn only_names_of_hosts_are_text() {
        let (kind, class) = (RecordType::A, DNSClass::IN);
        let host = |name: &[u8]| Key::new(Question { name, kind, class }, false, false).host_name();
        assert_eq!(host(b"\x04_dmc\x01A\x00").as_deref(), Some("_dmc.a"));
        assert_eq!(host(b"\x03a.b\x00"), None);
        assert_eq!(host(b"\x01\xff\x00"), None);
        assert_eq!(host(b"\x00"), None);
    }
}
