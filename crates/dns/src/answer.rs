//! Response, stored as received.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{EdnsFlags, HeaderCounts, MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsCode;
use hickory_proto::rr::{RData, RecordType};
use hickory_proto::serialize::binary::{BinDecoder, Restrict};

use crate::key::Key;
use crate::parts::{EXTENDED_ERROR, MAX_OPT, Parts};
use crate::private;
use crate::query::{Query, Room};
use crate::wire::{self, Malformed, Record, ttl_seconds};

/// Extended error "Other" (RFC 8914): there is no room.
pub const OTHER_ERROR: u16 = 0;

/// Extended errors of a stale positive answer and of a stale denial (RFC 8914).
const STALE_ANSWER: u16 = 3;
const STALE_DENIAL: u16 = 19;

/// Kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The records exist.
    Positive,
    /// The name does not exist or has no records of this type (RFC 2308).
    Negative,
    /// The resolver failed (RFC 9520).
    Failure,
}

/// Reason why a message cannot be stored as an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not a DNS message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Answers another question, or none.
    #[error("the message answers another question than was asked")]
    Mismatch,
    /// Truncated.
    #[error("the answer did not fit and must be requested over a stream")]
    Truncated,
}

/// Response without its OPT record, with the positions of its TTLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    message: Arc<[u8]>,
    /// Offsets of the TTLs.
    ttls: Box<[u16]>,
    question_end: u16,
    /// Number of answers, authorities and additional records.
    counts: [u16; 3],
    /// Kind.
    pub kind: Kind,
    /// Lifetime in seconds; 0 for a failure, and for a denial without a lifetime.
    pub lifetime_s: u32,
    /// Full response code.
    rcode: ResponseCode,
    /// `true` if the resolver found it authentic (AD).
    authentic: bool,
    /// Extended error of the resolver.
    error: Option<u16>,
}

impl Answer {
    /// Parses `message` as the answer to `key`.
    pub fn parse(key: &Key, message: &[u8]) -> Result<Self, AnswerError> {
        let (mut header, mut rest) = wire::header(message)?;
        let question = wire::question(&mut rest)?;
        let is_answer =
            header.message_type == MessageType::Response && header.op_code == OpCode::Query;
        let matches = header.counts.queries == 1
            && question.name.eq_ignore_ascii_case(key.name())
            && (question.kind, question.class) == (key.kind(), key.class());
        if !is_answer || !matches {
            return Err(AnswerError::Mismatch);
        }
        if header.truncation {
            return Err(AnswerError::Truncated);
        }
        if message.len() > usize::from(u16::MAX) {
            return Err(Malformed.into());
        }
        let question_end = rest.index() as u16;
        let mut reading = Reading::new(rest, key);
        reading.sections(&header.counts)?;
        let Reading { ref ttls, stored_end, counts, opt, .. } = reading;
        let (rcode_high, error) = opt.unwrap_or((0, None));
        let rcode = ResponseCode::from(rcode_high, header.response_code.low());
        let (kind, lifetime_s) = reading.classify(rcode);
        let [answers, authorities, additionals] = counts;
        header.counts = HeaderCounts { queries: 1, answers, authorities, additionals };
        let mut message = message[..stored_end].to_vec();
        wire::set_header(&mut message, &header);
        let (message, ttls) = (message.into(), ttls.as_slice().into());
        let authentic = header.authentic_data;
        Ok(Self { message, ttls, question_end, counts, kind, lifetime_s, rcode, authentic, error })
    }

    /// Failure that stands for an answer that never arrived.
    pub(crate) fn none(key: &Key) -> Self {
        let (rcode, counts) = (ResponseCode::ServFail, [0; 3]);
        let mut metadata = Metadata::new(0, MessageType::Response, OpCode::Query);
        metadata.recursion_desired = true;
        metadata.recursion_available = true;
        metadata.response_code = rcode;
        let (question, edns) = (Some(key.as_question()), None);
        let message = Parts { metadata, question, counts, records: &[], edns }.write();
        let (ttls, question_end) = (Box::default(), message.len() as u16);
        let (kind, lifetime_s, authentic, error) = (Kind::Failure, 0, false, None);
        let message = message.into();
        Self { message, ttls, question_end, counts, kind, lifetime_s, rcode, authentic, error }
    }

    /// Message for the journal. Its OPT record is left out, so response codes above 15 are
    /// incomplete. Failures are not written to the journal.
    pub fn message(&self) -> &Arc<[u8]> {
        &self.message
    }

    /// Extended error of the resolver (RFC 8914), if it sent one.
    pub fn extended_error(&self) -> Option<u16> {
        self.error
    }

    /// Removes the extended error "Other". A resolver of this crate uses it to mark failures of its
    /// own, which say nothing about the name. From any other resolver it means nothing.
    #[must_use]
    pub fn without_other_error(mut self) -> Self {
        self.error = self.error.filter(|error| *error != OTHER_ERROR);
        self
    }

    /// Removes the flag AD, because the path to the resolver that set it is not secure (RFC 6840
    /// section 5.8).
    #[must_use]
    pub fn without_authentic(mut self) -> Self {
        self.authentic = false;
        self
    }

    /// Full response code.
    pub fn rcode(&self) -> ResponseCode {
        self.rcode
    }

    /// Encodes the answer to `query` with unchanged TTLs, for a message that was not stored in
    /// between.
    pub fn relay(&self, query: &Query, room: Room) -> Vec<u8> {
        let (min_s, max_s, cap_s) = (0, u32::MAX, u32::MAX);
        let ages = Ages { age_s: 0, min_s, max_s, cap_s, stale: false, is_exact: true };
        self.write(query, room, &ages)
    }

    /// Returns `true` if it fits into an answer to `query`.
    pub fn fits(&self, query: &Query, room: Room) -> bool {
        let opt = if query.edns.is_some() { MAX_OPT } else { 0 };
        self.message.len() + opt <= query.room(room)
    }

    /// Encodes the answer to `query` with the TTL rules of `ages`.
    pub(crate) fn write(&self, query: &Query, room: Room, ages: &Ages) -> Vec<u8> {
        let mut metadata = query.response_metadata(self.rcode);
        metadata.authentic_data = self.authentic && query.wants_authentic();
        let stale = match self.rcode {
            ResponseCode::NXDomain => STALE_DENIAL,
            _ => STALE_ANSWER,
        };
        let edns = query.opt(self.rcode, if ages.stale { Some(stale) } else { self.error });
        let question = Some(query.as_question());
        if !self.fits(query, room) {
            metadata.truncation = true;
            return Parts { metadata, question, counts: [0; 3], records: &[], edns }.write();
        }
        let records = &self.message[usize::from(self.question_end)..];
        let mut out = Parts { metadata, question, counts: self.counts, records, edns }.write();
        for at in self.ttls.iter().map(|at| usize::from(*at)) {
            // The question has the length of the original one, so the offsets still apply.
            if let Some(ttl) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
                *ttl = ages.shown(u32::from_be_bytes(*ttl)).to_be_bytes();
            }
        }
        out
    }

    /// Addresses in the answer section, whatever their owner (CNAME).
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut rest = BinDecoder::new(&self.message).clone(self.question_end);
        let records = (0..self.counts[0]).map_while(|_| Record::read(&mut rest).ok());
        let addresses = records.filter(|it| matches!(it.kind, RecordType::A | RecordType::AAAA));
        addresses.filter_map(|it| typed(&mut BinDecoder::new(it.data), &it)?.ip_addr()).collect()
    }

    /// Cost of storing it, in bytes.
    pub fn bytes(&self) -> usize {
        self.message.len() + 2 * self.ttls.len()
    }
}

impl Answer {
    /// First address in the message that satisfies `is_private`, from an address record or a hint
    /// in an HTTPS or SVCB record (RFC 9460 section 7.3), in any section.
    pub fn find_address(&self, is_private: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let mut rest = BinDecoder::new(&self.message).clone(self.question_end);
        let count = self.counts.map(usize::from).iter().sum();
        let records = (0..count).map_while(|_| Record::read(&mut rest).ok());
        records.flat_map(|record| private::addresses_of(&record)).find(|ip| is_private(*ip))
    }
}

/// Smallest TTL among the answers and authorities of `message`, in seconds.
pub fn min_ttl(message: &[u8]) -> Option<u32> {
    let (header, mut rest) = wire::header(message).ok()?;
    wire::question(&mut rest).ok()?;
    let count = u32::from(header.counts.answers) + u32::from(header.counts.authorities);
    let mut smallest = None;
    for _ in 0..count {
        let ttl = Record::read(&mut rest).ok()?.ttl();
        smallest = Some(smallest.map_or(ttl, |smallest: u32| smallest.min(ttl)));
    }
    smallest
}

/// Key that `message` answers: its question, its flag CD, and the DO flag of its OPT record.
pub fn key_of(message: &[u8]) -> Result<Key, Malformed> {
    let (header, mut rest) = wire::header(message)?;
    let question = wire::question(&mut rest)?;
    let mut dnssec_ok = false;
    for _ in 0..sections(&header.counts).map(u32::from).iter().sum() {
        let record = Record::read(&mut rest)?;
        if record.kind == RecordType::OPT {
            dnssec_ok = EdnsFlags::from(record.ttl_field as u16).dnssec_ok;
        }
    }
    Ok(Key::new(question, dnssec_ok, header.checking_disabled))
}

/// Number of records in each section.
fn sections(counts: &HeaderCounts) -> [u16; 3] {
    [counts.answers, counts.authorities, counts.additionals]
}

/// Data of `record`, at whose position `at` stands, as decoded by hickory.
fn typed(at: &mut BinDecoder<'_>, record: &Record<'_>) -> Option<RData> {
    RData::read(at, record.kind, Restrict::new(record.data.len() as u16)).ok()
}

/// Rules for the TTLs in an encoded answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    /// Age of the answer in seconds.
    pub age_s: u32,
    /// Minimum of every original TTL.
    pub min_s: u32,
    /// Maximum of every original TTL.
    pub max_s: u32,
    /// Maximum of every remaining TTL: the remaining lifetime of a denial, or the TTL of stale
    /// answers.
    pub cap_s: u32,
    /// `true` if the answer is stale.
    pub stale: bool,
    /// `true` if TTLs are exact to the second: for our own resolvers, not for passengers.
    pub is_exact: bool,
}

impl Ages {
    fn shown(&self, ttl: u32) -> u32 {
        let left = ttl_seconds(ttl).max(self.min_s).min(self.max_s).saturating_sub(self.age_s);
        match left.min(self.cap_s) {
            _ if self.stale => self.cap_s,
            left if self.is_exact => left,
            left => coarse(left),
        }
    }
}

/// Steps to which remaining TTLs are rounded down; the smaller step applies when less is left. An
/// exact TTL would tell a client when somebody else on board queried the name.
const TTL_STEP_S: u32 = 30;
const SHORT_TTL_STEP_S: u32 = 10;

/// Rounds `left_s` down to a step, but not to 0 unless nothing is left. A TTL of 0 would forbid
/// caching.
fn coarse(left_s: u32) -> u32 {
    let step = if left_s >= TTL_STEP_S { TTL_STEP_S } else { SHORT_TTL_STEP_S };
    (left_s - left_s % step).max(left_s.min(1))
}

/// Whole seconds of `time`.
pub fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Message while its records are being read.
struct Reading<'a> {
    rest: BinDecoder<'a>,
    key: &'a Key,
    ttls: Vec<u16>,
    /// End of the part of the message that is stored.
    stored_end: usize,
    /// Number of records stored from each section.
    counts: [u16; 3],
    /// Upper bits of the response code, and the first extended error.
    opt: Option<(u8, Option<u16>)>,
    /// `true` if an answer has the requested type.
    is_positive: bool,
    min_answer_s: Option<u32>,
    denial_s: Option<u32>,
    has_soa: bool,
}

/// Returns `true` for records that must not be stored: OPT belongs to one hop, TSIG and SIG(0) to
/// one message.
fn is_hop_record(kind: RecordType) -> bool {
    matches!(kind, RecordType::OPT | RecordType::TSIG | RecordType::SIG)
}

impl<'a> Reading<'a> {
    fn new(rest: BinDecoder<'a>, key: &'a Key) -> Self {
        let (ttls, stored_end, counts) = (Vec::new(), rest.index(), [0; 3]);
        let (opt, is_positive, min_answer_s, denial_s) = (None, false, None, None);
        let has_soa = false;
        Self {
            rest,
            key,
            ttls,
            stored_end,
            counts,
            opt,
            is_positive,
            min_answer_s,
            denial_s,
            has_soa,
        }
    }

    fn sections(&mut self, counts: &HeaderCounts) -> Result<(), Malformed> {
        let mut can_store = true;
        for (section, count) in sections(counts).into_iter().enumerate() {
            for _ in 0..count {
                let record = Record::read(&mut self.rest)?;
                if is_hop_record(record.kind) {
                    if section < 2 {
                        return Err(Malformed);
                    }
                    self.read_hop_record(&record);
                    // Later names may point to earlier ones, so nothing can be removed from the
                    // middle. The following records are additional and may be left out.
                    can_store = false;
                } else if can_store {
                    self.counts[section] += 1;
                    self.stored_end = record.end();
                    self.record(section, &record);
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, section: usize, record: &Record<'_>) {
        self.ttls.push(record.ttl_at as u16);
        let ttl = record.ttl();
        match section {
            0 => {
                let question = self.key.kind();
                self.is_positive |= record.kind == question || question == RecordType::ANY;
                self.min_answer_s =
                    Some(self.min_answer_s.map_or(ttl, |smallest| smallest.min(ttl)));
            }
            // Only the first: reading one follows pointers, and a hostile answer may have hundreds.
            1 if record.kind == RecordType::SOA && !std::mem::replace(&mut self.has_soa, true) => {
                // RFC 2308 section 5: the smaller of its TTL and its last field.
                let mut at = self.rest.clone(record.data_at as u16);
                // An unreadable SOA is passed on unchanged and gives no lifetime.
                if let Some(RData::SOA(soa)) = typed(&mut at, record) {
                    self.denial_s = Some(ttl.min(soa.minimum));
                }
            }
            _ => {}
        }
    }

    fn read_hop_record(&mut self, record: &Record<'_>) {
        if record.kind == RecordType::OPT && self.opt.is_none() {
            let rcode_high = (record.ttl_field >> 24) as u8;
            self.opt = Some((rcode_high, extended_error(record.data)));
        }
    }

    fn classify(&self, rcode: ResponseCode) -> (Kind, u32) {
        match rcode {
            ResponseCode::NoError if self.is_positive => {
                (Kind::Positive, self.min_answer_s.unwrap_or(0))
            }
            // An alias may lead to the denial; the shorter lifetime applies.
            ResponseCode::NoError | ResponseCode::NXDomain => {
                let denial = self.denial_s.unwrap_or(0);
                (Kind::Negative, self.min_answer_s.map_or(denial, |smallest| smallest.min(denial)))
            }
            _ => (Kind::Failure, 0),
        }
    }
}

/// First extended error among EDNS options.
fn extended_error(options: &[u8]) -> Option<u16> {
    let (_, error) =
        wire::options(options).find(|(code, _)| *code == EdnsCode::Unknown(EXTENDED_ERROR))?;
    error.first_chunk().map(|code| u16::from_be_bytes(*code))
}

#[cfg(test)]
mod tests;
