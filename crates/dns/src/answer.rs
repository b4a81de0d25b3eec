//! A message kept as it came.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{EdnsFlags, HeaderCounts, MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsCode;
use hickory_proto::rr::{RData, RecordType};
use hickory_proto::serialize::binary::{BinDecoder, Restrict};

use crate::key::Key;
use crate::parts::{EXTENDED_ERROR, MOST_OPT, Parts};
use crate::private;
use crate::query::{Query, Room};
use crate::wire::{self, Malformed, Record, ttl_seconds};

/// Extended error "Other": there is no room.
pub const OTHER_ERROR: u16 = 0;

/// Extended errors of a stale positive answer, and of a stale denial.
const STALE_ANSWER: u16 = 3;
const STALE_DENIAL: u16 = 19;

/// Kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There are such records.
    Positive,
    /// The name has none of this type, or there is no such name (RFC 2308).
    Negative,
    /// The resolver could not find out (RFC 9520).
    Failure,
}

/// Reason for which a message is not an answer that can be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAnswer {
    /// It is no message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It answers another question, or none.
    #[error("the message answers another question than was asked")]
    Mismatch,
    /// Only a part of it fitted.
    #[error("the answer did not fit and has to be asked for over a stream")]
    Truncated,
}

/// A response, without its OPT record and with the places of its TTLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    message: Arc<[u8]>,
    /// Offsets of its TTLs.
    ttls: Box<[u16]>,
    question_end: u16,
    /// Answers, authorities and additional records.
    counts: [u16; 3],
    /// Its kind.
    pub kind: Kind,
    /// For how long, in seconds; of a failure and of a denial that does not say, 0.
    pub lifetime_s: u32,
    /// The whole response code.
    rcode: ResponseCode,
    /// `true` if the resolver has found it authentic (AD).
    authentic: bool,
    /// The resolver's extended error.
    error: Option<u16>,
}

impl Answer {
    /// Reads `message` as the answer to `key`.
    pub fn parse(key: &Key, message: &[u8]) -> Result<Self, NotAnAnswer> {
        let (mut header, mut rest) = wire::header(message)?;
        let asked = wire::question(&mut rest)?;
        let is_answer =
            header.message_type == MessageType::Response && header.op_code == OpCode::Query;
        let same = header.counts.queries == 1
            && asked.name.eq_ignore_ascii_case(key.name())
            && (asked.kind, asked.class) == (key.kind(), key.class());
        if !is_answer || !same {
            return Err(NotAnAnswer::Mismatch);
        }
        if header.truncation {
            return Err(NotAnAnswer::Truncated);
        }
        if message.len() > usize::from(u16::MAX) {
            return Err(Malformed.into());
        }
        let question_end = rest.index() as u16;
        let mut reading = Reading::new(rest, key);
        reading.sections(&header.counts)?;
        let Reading { ref ttls, kept, counts, opt, .. } = reading;
        let (rcode_high, error) = opt.unwrap_or((0, None));
        let rcode = ResponseCode::from(rcode_high, header.response_code.low());
        let (kind, lifetime_s) = reading.outcome(rcode);
        let [answers, authorities, additionals] = counts;
        header.counts = HeaderCounts { queries: 1, answers, authorities, additionals };
        let mut message = message[..kept].to_vec();
        wire::set_header(&mut message, &header);
        let (message, ttls) = (message.into(), ttls.as_slice().into());
        let authentic = header.authentic_data;
        Ok(Self { message, ttls, question_end, counts, kind, lifetime_s, rcode, authentic, error })
    }

    /// Substitute for an answer to `key` that never arrived.
    pub(crate) fn none(key: &Key) -> Self {
        let (rcode, counts) = (ResponseCode::ServFail, [0; 3]);
        let mut metadata = Metadata::new(0, MessageType::Response, OpCode::Query);
        metadata.recursion_desired = true;
        metadata.recursion_available = true;
        metadata.response_code = rcode;
        let (question, edns) = (Some(key.asked()), None);
        let message = Parts { metadata, question, counts, records: &[], edns }.write();
        let (ttls, question_end) = (Box::default(), message.len() as u16);
        let (kind, lifetime_s, authentic, error) = (Kind::Failure, 0, false, None);
        let message = message.into();
        Self { message, ttls, question_end, counts, kind, lifetime_s, rcode, authentic, error }
    }

    /// The message, for the journal; its OPT record is left out, so a response code above 15 is not
    /// whole, and failures are not for the journal.
    pub fn message(&self) -> &Arc<[u8]> {
        &self.message
    }

    /// The resolver's extended error (RFC 8914), if it told one.
    pub fn extended_error(&self) -> Option<u16> {
        self.error
    }

    /// The same without the extended error "Other", by which a resolver of this crate says of its own
    /// failures that they say nothing about the name. In an answer of a resolver elsewhere it says nothing.
    #[must_use]
    pub fn without_other_error(mut self) -> Self {
        self.error = self.error.filter(|error| *error != OTHER_ERROR);
        self
    }

    /// The same without the flag AD: the path to the resolver that set it is not secure (RFC 6840
    /// section 5.8).
    #[must_use]
    pub fn without_authentic(mut self) -> Self {
        self.authentic = false;
        self
    }

    /// Its whole response code.
    pub fn rcode(&self) -> ResponseCode {
        self.rcode
    }

    /// The answer to `query` as it came: nobody has kept it meanwhile.
    pub fn relay(&self, query: &Query, room: Room) -> Vec<u8> {
        let (least_s, most_s, cap_s) = (0, u32::MAX, u32::MAX);
        let ages = Ages { age_s: 0, least_s, most_s, cap_s, stale: false, is_exact: true };
        self.write(query, room, &ages)
    }

    /// Returns `true` if all of it fits into an answer to `query`.
    pub fn fits(&self, query: &Query, room: Room) -> bool {
        let opt = if query.edns.is_some() { MOST_OPT } else { 0 };
        self.message.len() + opt <= query.room(room)
    }

    /// The same at a time when every TTL has these `ages`.
    pub(crate) fn write(&self, query: &Query, room: Room, ages: &Ages) -> Vec<u8> {
        let mut metadata = query.answered(self.rcode);
        metadata.authentic_data = self.authentic && query.wants_authentic();
        let stale = match self.rcode {
            ResponseCode::NXDomain => STALE_DENIAL,
            _ => STALE_ANSWER,
        };
        let edns = query.opt(self.rcode, if ages.stale { Some(stale) } else { self.error });
        let question = Some(query.asked());
        if !self.fits(query, room) {
            metadata.truncation = true;
            return Parts { metadata, question, counts: [0; 3], records: &[], edns }.write();
        }
        let records = &self.message[usize::from(self.question_end)..];
        let mut out = Parts { metadata, question, counts: self.counts, records, edns }.write();
        for at in self.ttls.iter().map(|at| usize::from(*at)) {
            // The question is as long as the one that was answered, so they stand where they stood.
            if let Some(ttl) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
                *ttl = ages.shown(u32::from_be_bytes(*ttl)).to_be_bytes();
            }
        }
        out
    }

    /// The addresses in it, whatever the names that they stand behind (CNAME).
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
    /// The first address of the message for which `is_private` holds: of an address record, or of a hint in an
    /// HTTPS or SVCB record (RFC 9460 section 7.3), whatever its section.
    pub fn find_address(&self, is_private: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let mut rest = BinDecoder::new(&self.message).clone(self.question_end);
        let count = self.counts.map(usize::from).iter().sum();
        let records = (0..count).map_while(|_| Record::read(&mut rest).ok());
        records.flat_map(|record| private::addresses_of(&record)).find(|ip| is_private(*ip))
    }
}

/// The smallest TTL among the answers and authorities of `message`, in seconds.
pub fn least_ttl(message: &[u8]) -> Option<u32> {
    let (header, mut rest) = wire::header(message).ok()?;
    wire::question(&mut rest).ok()?;
    let count = u32::from(header.counts.answers) + u32::from(header.counts.authorities);
    let mut least = None;
    for _ in 0..count {
        let ttl = Record::read(&mut rest).ok()?.ttl();
        least = Some(least.map_or(ttl, |least: u32| least.min(ttl)));
    }
    least
}

/// Key that `message` answers: its question, its flag CD and the DO of its OPT record.
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

/// Records of each section.
fn sections(counts: &HeaderCounts) -> [u16; 3] {
    [counts.answers, counts.authorities, counts.additionals]
}

/// The data of `record`, which `at` begins with, as hickory reads them.
fn typed(at: &mut BinDecoder<'_>, record: &Record<'_>) -> Option<RData> {
    RData::read(at, record.kind, Restrict::new(record.data.len() as u16)).ok()
}

/// TTLs to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    /// Seconds since it came.
    pub age_s: u32,
    /// Every TTL counts as at least this, and at most that.
    pub least_s: u32,
    /// The most.
    pub most_s: u32,
    /// None is shown larger than this: what is left of a denial, or what stale answers say.
    pub cap_s: u32,
    /// `true` if its time is over.
    pub stale: bool,
    /// True if TTLs are shown to the second: to another resolver of ours, not to passengers.
    pub is_exact: bool,
}

impl Ages {
    fn shown(&self, ttl: u32) -> u32 {
        let left = ttl_seconds(ttl).max(self.least_s).min(self.most_s).saturating_sub(self.age_s);
        match left.min(self.cap_s) {
            _ if self.stale => self.cap_s,
            left if self.is_exact => left,
            left => coarse(left),
        }
    }
}

/// Remaining TTLs are shown in steps of so many seconds, and in smaller ones when less is left. A remaining TTL
/// tells whoever asks when somebody else on board asked for the name.
const TTL_STEP_S: u32 = 30;
const SHORT_TTL_STEP_S: u32 = 10;

/// The largest step that `left_s` reaches, and at least 1 unless nothing is left: 0 would say that the answer
/// must not be cached.
fn coarse(left_s: u32) -> u32 {
    let step = if left_s >= TTL_STEP_S { TTL_STEP_S } else { SHORT_TTL_STEP_S };
    (left_s - left_s % step).max(left_s.min(1))
}

/// Whole seconds of `time`.
pub fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// A message while its records are being read.
struct Reading<'a> {
    rest: BinDecoder<'a>,
    key: &'a Key,
    ttls: Vec<u16>,
    /// The message up to here is kept.
    kept: usize,
    /// Records kept in each section.
    counts: [u16; 3],
    /// The upper bits of the response code, and the first extended error.
    opt: Option<(u8, Option<u16>)>,
    /// `true` if one of the answers has the requested type.
    found: bool,
    least_answer_s: Option<u32>,
    denial_s: Option<u32>,
    has_soa: bool,
}

/// Returns `true` for records that cannot stay in a stored message: OPT is of one hop, TSIG and
/// SIG(0) of one message.
fn of_one_hop(kind: RecordType) -> bool {
    matches!(kind, RecordType::OPT | RecordType::TSIG | RecordType::SIG)
}

impl<'a> Reading<'a> {
    fn new(rest: BinDecoder<'a>, key: &'a Key) -> Self {
        let (ttls, kept, counts) = (Vec::new(), rest.index(), [0; 3]);
        let (opt, found, least_answer_s, denial_s) = (None, false, None, None);
        let has_soa = false;
        Self { rest, key, ttls, kept, counts, opt, found, least_answer_s, denial_s, has_soa }
    }

    fn sections(&mut self, counts: &HeaderCounts) -> Result<(), Malformed> {
        let mut whole = true;
        for (section, count) in sections(counts).into_iter().enumerate() {
            for _ in 0..count {
                let record = Record::read(&mut self.rest)?;
                if of_one_hop(record.kind) {
                    if section < 2 {
                        return Err(Malformed);
                    }
                    self.hop(&record);
                    // Later names may point to earlier ones, so nothing can be taken out of the
                    // middle. What follows is additional, and may be left out.
                    whole = false;
                } else if whole {
                    self.counts[section] += 1;
                    self.kept = record.end();
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
                let asked = self.key.kind();
                self.found |= record.kind == asked || asked == RecordType::ANY;
                self.least_answer_s = Some(self.least_answer_s.map_or(ttl, |least| least.min(ttl)));
            }
            // The first alone: reading one follows pointers, and a hostile answer may have hundreds.
            1 if record.kind == RecordType::SOA && !std::mem::replace(&mut self.has_soa, true) => {
                // RFC 2308 section 5: the lesser of its TTL and its last field.
                let mut at = self.rest.clone(record.data_at as u16);
                // One that cannot be read is passed on as it is, and says nothing of how long.
                if let Some(RData::SOA(soa)) = typed(&mut at, record) {
                    self.denial_s = Some(ttl.min(soa.minimum));
                }
            }
            _ => {}
        }
    }

    fn hop(&mut self, record: &Record<'_>) {
        if record.kind == RecordType::OPT && self.opt.is_none() {
            let rcode_high = (record.ttl_field >> 24) as u8;
            self.opt = Some((rcode_high, extended_error(record.data)));
        }
    }

    fn outcome(&self, rcode: ResponseCode) -> (Kind, u32) {
        match rcode {
            ResponseCode::NoError if self.found => {
                (Kind::Positive, self.least_answer_s.unwrap_or(0))
            }
            // An alias may lead to the denial, and both have to hold.
            ResponseCode::NoError | ResponseCode::NXDomain => {
                let denial = self.denial_s.unwrap_or(0);
                (Kind::Negative, self.least_answer_s.map_or(denial, |least| least.min(denial)))
            }
            _ => (Kind::Failure, 0),
        }
    }
}

/// The first extended error among EDNS options.
fn extended_error(options: &[u8]) -> Option<u16> {
    let (_, error) =
        wire::options(options).find(|(code, _)| *code == EdnsCode::Unknown(EXTENDED_ERROR))?;
    error.first_chunk().map(|code| u16::from_be_bytes(*code))
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
