//! Construction of messages: parts decided here by hickory-proto's encoder, parts from elsewhere as
//! the bytes that they were.

use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, Header, HeaderCounts, Metadata, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

use crate::wire::Question;

/// EDNS option "Extended DNS Error" (RFC 8914 section 4).
pub const EXTENDED_ERROR: u16 = 15;

/// UDP payload size that this side accepts: it passes every path unfragmented (RFC 9715).
pub const OUR_ROOM: u16 = 1232;

/// Bytes of OPT without options, and with an extended error.
pub const PLAIN_OPT: usize = 11;
pub const MOST_OPT: usize = 17;

/// The least that hickory's encoder takes room for, so that it need not ask for more.
const LEAST_ROOM: usize = 512;

/// A message.
pub struct Parts<'a> {
    /// Id, flags and the lower bits of the response code.
    pub metadata: Metadata,
    /// The question, if there is one.
    pub question: Option<Question<'a>>,
    /// Numbers of answers, authorities and additional records in `records`.
    pub counts: [u16; 3],
    /// Bytes after the question. Pointers in it count from the message's beginning.
    pub records: &'a [u8],
    /// OPT record to append.
    pub edns: Option<Edns>,
}

impl Parts<'_> {
    /// The message, which has to come to no more than 65,535 bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes().max(LEAST_ROOM));
        let written = self.put(&mut BinEncoder::new(&mut out));
        // There is no other error than that it is too long: names are put as bytes.
        debug_assert!(written.is_ok(), "{written:?}");
        out
    }

    fn put(&self, out: &mut BinEncoder<'_>) -> Result<(), ProtoError> {
        let [answers, authorities, additionals] = self.counts;
        let additionals = additionals.saturating_add(self.edns.is_some().into());
        let queries = self.question.is_some().into();
        let counts = HeaderCounts { queries, answers, authorities, additionals };
        Header { metadata: self.metadata, counts }.emit(out)?;
        if let Some(Question { name, kind, class }) = self.question {
            out.emit_vec(name)?;
            kind.emit(out)?;
            class.emit(out)?;
        }
        out.emit_vec(self.records)?;
        self.edns.as_ref().map_or(Ok(()), |edns| edns.emit(out))
    }

    /// Maximum size of the message.
    fn bytes(&self) -> usize {
        let question = self.question.map_or(0, |question| question.name.len() + 4);
        crate::wire::HEADER + question + self.records.len() + MOST_OPT
    }
}

/// OPT record of this side in a message with `rcode`, of which it has the upper bits; `error` is an
/// extended one.
pub fn edns(rcode: ResponseCode, dnssec_ok: bool, error: Option<u16>) -> Edns {
    let mut edns = Edns::new();
    edns.set_rcode_high(rcode.high()).set_dnssec_ok(dnssec_ok).set_max_payload(OUR_ROOM);
    if let Some(error) = error {
        let error = EdnsOption::Unknown(EXTENDED_ERROR, error.to_be_bytes().to_vec());
        edns.options_mut().insert(error);
    }
    edns
}
