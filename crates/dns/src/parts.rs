//! Construction of messages. Hickory-proto's encoder writes the parts decided here; parts from
//! elsewhere are copied as bytes.

use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, Header, HeaderCounts, Metadata, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

use crate::wire::Question;

/// EDNS option "Extended DNS Error" (RFC 8914 section 4).
pub const EXTENDED_ERROR: u16 = 15;

/// UDP payload size that we accept: it passes every path unfragmented (RFC 9715).
pub const MAX_UDP_PAYLOAD: u16 = 1232;

/// Size of an OPT record without options, and with an extended error.
pub const PLAIN_OPT: usize = 11;
pub const MAX_OPT: usize = 17;

/// Initial capacity of hickory's encoder. A smaller one would be grown at once.
const MIN_CAPACITY: usize = 512;

/// Parts of a message.
pub struct Parts<'a> {
    /// Id, flags and the lower bits of the response code.
    pub metadata: Metadata,
    /// Question, if there is one.
    pub question: Option<Question<'a>>,
    /// Number of answers, authorities and additional records in `records`.
    pub counts: [u16; 3],
    /// Bytes after the question. Pointers in them count from the start of the message.
    pub records: &'a [u8],
    /// OPT record to append.
    pub edns: Option<Edns>,
}

impl Parts<'_> {
    /// Encodes the message, which must not exceed 65,535 bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes().max(MIN_CAPACITY));
        let written = self.encode(&mut BinEncoder::new(&mut out));
        // The only possible error is excessive length, because names are copied as bytes.
        debug_assert!(written.is_ok(), "{written:?}");
        out
    }

    fn encode(&self, out: &mut BinEncoder<'_>) -> Result<(), ProtoError> {
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

    /// Upper bound of the message size.
    fn bytes(&self) -> usize {
        let question = self.question.map_or(0, |question| question.name.len() + 4);
        crate::wire::HEADER + question + self.records.len() + MAX_OPT
    }
}

/// OPT record of a message with `rcode`, whose upper bits it carries, and with an extended error if
/// `error` is given.
pub fn edns(rcode: ResponseCode, dnssec_ok: bool, error: Option<u16>) -> Edns {
    let mut edns = Edns::new();
    edns.set_rcode_high(rcode.high()).set_dnssec_ok(dnssec_ok).set_max_payload(MAX_UDP_PAYLOAD);
    if let Some(error) = error {
        let error = EdnsOption::Unknown(EXTENDED_ERROR, error.to_be_bytes().to_vec());
        edns.options_mut().insert(error);
    }
    edns
}
