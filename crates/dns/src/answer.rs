//! A message kept as it came.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;
use crate::query::{MOST_OPT, Query, Room, put_opt};
use crate::wire::{self, HEADER, Malformed, Record, flag, rcode, record};

/// Extended errors (RFC 8914 section 4).
const EXTENDED_ERROR: u16 = 15;

/// Extended error "Other": there is no room.
pub const OTHER_ERROR: u16 = 0;

/// What the answer is stale and positive, or stale and a denial, is told with.
const STALE_ANSWER: u16 = 3;
const STALE_DENIAL: u16 = 19;

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There are such records.
    Positive,
    /// The name has none of this type, or there is no such name (RFC 2308).
    Negative,
    /// The resolver could not find out (RFC 9520).
    Failure,
}

/// Why a message is no answer that can be kept.
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
    /// Where TTLs stand in it.
    ttls: Box<[u16]>,
    question_end: u16,
    /// What it says.
    pub kind: Kind,
    /// For how long, in seconds; of a failure and of a denial that does not say, 0.
    pub lifetime_s: u32,
    /// The upper eight bits of the response code.
    rcode_high: u8,
    /// The resolver's extended error.
    error: Option<u16>,
}

impl Answer {
    /// Reads `message` as the answer to `key`.
    pub fn parse(key: &Key, message: &[u8]) -> Result<Self, NotAnAnswer> {
        let flags = wire::word(message, 1)?;
        let is_answer = flags & flag::RESPONSE != 0 && flags & flag::OPCODE == 0;
        let end = wire::plain_name_end(message, HEADER)?;
        let question = (wire::number(message, end)?, wire::number(message, end + 2)?);
        let same = wire::word(message, 2)? == 1
            && message[HEADER..end].eq_ignore_ascii_case(key.name())
            && question == (key.kind(), key.class());
        if !is_answer || !same {
            return Err(NotAnAnswer::Mismatch);
        }
        if flags & flag::TRUNCATED != 0 {
            return Err(NotAnAnswer::Truncated);
        }
        let mut reading = Reading::new(message, key, end + 4);
        reading.sections()?;
        let Reading { ttls, kept, counts, opt, .. } = &reading;
        let (rcode_high, error) = opt.unwrap_or((0, None));
        let rcode = flags & flag::RCODE | u16::from(rcode_high) << 4;
        let (kind, lifetime_s) = reading.outcome(rcode);
        let mut message = message[..*kept].to_vec();
        for (index, count) in counts.iter().enumerate() {
            wire::set(&mut message, 2 * (3 + index), *count);
        }
        let message = message.into();
        let ttls = ttls.as_slice().into();
        let question_end = (end + 4) as u16;
        Ok(Self { message, ttls, question_end, kind, lifetime_s, rcode_high, error })
    }

    /// What stands for the answer to `key` that never came.
    pub(crate) fn none(key: &Key) -> Self {
        let flags = flag::RESPONSE | flag::RECURSION_DESIRED | flag::RECURSION_AVAILABLE;
        let mut message = Vec::with_capacity(HEADER + key.name().len() + 4);
        for word in [0, flags | rcode::SERVFAIL, 1, 0, 0, 0] {
            message.extend(word.to_be_bytes());
        }
        message.extend_from_slice(key.name());
        message.extend(key.kind().to_be_bytes());
        message.extend(key.class().to_be_bytes());
        let (ttls, question_end) = (Box::default(), message.len() as u16);
        let (kind, lifetime_s, rcode_high, error) = (Kind::Failure, 0, 0, None);
        Self { message: message.into(), ttls, question_end, kind, lifetime_s, rcode_high, error }
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

    /// Its whole response code.
    pub fn rcode(&self) -> u16 {
        let low = wire::word(&self.message, 1).unwrap_or(0) & flag::RCODE;
        low | u16::from(self.rcode_high) << 4
    }

    /// The answer to `query` as it came: nobody has kept it meanwhile.
    pub fn relay(&self, query: &Query, room: Room) -> Vec<u8> {
        let ages = Ages { age_s: 0, least_s: 0, most_s: u32::MAX, cap_s: u32::MAX, stale: false };
        self.write(query, room, &ages)
    }

    /// Whether all of it fits into an answer to `query`.
    pub fn fits(&self, query: &Query, room: Room) -> bool {
        let opt = if query.edns.is_some() { MOST_OPT } else { 0 };
        self.message.len() + opt <= query.room(room)
    }

    /// The same at a time when every TTL has these `ages`.
    pub(crate) fn write(&self, query: &Query, room: Room, ages: &Ages) -> Vec<u8> {
        let opt = if query.edns.is_some() { MOST_OPT } else { 0 };
        let mut flags = query.low_rcode(self.rcode());
        if query.wants_authentic() {
            flags |= wire::word(&self.message, 1).unwrap_or(0) & flag::AUTHENTIC;
        }
        let mut out = Vec::with_capacity(self.message.len() + opt);
        if self.fits(query, room) {
            query.head(flags, &mut out);
            out.extend_from_slice(&self.message[usize::from(self.question_end)..]);
            out[6..HEADER].copy_from_slice(&self.message[6..HEADER]);
            for at in self.ttls.iter().map(|at| usize::from(*at)) {
                let ttl = ages.shown(wire::long(&self.message, at).unwrap_or(0));
                out[at..at + 4].copy_from_slice(&ttl.to_be_bytes());
            }
        } else {
            query.head(flags | flag::TRUNCATED, &mut out);
        }
        if query.edns.is_some() {
            let stale = match self.rcode() {
                rcode::NXDOMAIN => STALE_DENIAL,
                _ => STALE_ANSWER,
            };
            let error = if ages.stale { Some(stale) } else { self.error };
            put_opt(&mut out, self.rcode_high, query.key.dnssec_ok(), error);
        }
        out
    }

    /// The addresses in it, whatever the names that they stand behind (CNAME).
    pub fn addresses(&self) -> Vec<IpAddr> {
        let count = wire::word(&self.message, 3).unwrap_or(0);
        let mut at = usize::from(self.question_end);
        let mut addresses = Vec::new();
        for _ in 0..count {
            let Ok(record) = Record::parse(&self.message, at) else { break };
            at = record.data.end;
            let data = &self.message[record.data];
            match record.kind {
                record::A => {
                    addresses.extend(
                        <[u8; 4]>::try_from(data).map(|ip| IpAddr::from(Ipv4Addr::from(ip))),
                    );
                }
                record::AAAA => {
                    addresses.extend(
                        <[u8; 16]>::try_from(data).map(|ip| IpAddr::from(Ipv6Addr::from(ip))),
                    );
                }
                _ => {}
            }
        }
        addresses
    }

    /// What it costs to keep, in bytes.
    pub fn bytes(&self) -> usize {
        self.message.len() + 2 * self.ttls.len()
    }
}

/// The smallest TTL among the answers and authorities of `message`, in seconds.
pub fn least_ttl(message: &[u8]) -> Option<u32> {
    let count = u32::from(wire::word(message, 3).ok()?) + u32::from(wire::word(message, 4).ok()?);
    let mut at = wire::plain_name_end(message, HEADER).ok()? + 4;
    let mut least = None;
    for _ in 0..count {
        let record = Record::parse(message, at).ok()?;
        at = record.data.end;
        let ttl = record.ttl(message);
        least = Some(least.map_or(ttl, |least: u32| least.min(ttl)));
    }
    least
}

/// What `message` answers, by its question, its flag CD and the DO of its OPT record.
pub fn key_of(message: &[u8]) -> Result<Key, Malformed> {
    let flags = wire::word(message, 1)?;
    let end = wire::plain_name_end(message, HEADER)?;
    let question = (wire::number(message, end)?, wire::number(message, end + 2)?);
    let mut count = 0u32;
    for section in 3..6 {
        count += u32::from(wire::word(message, section)?);
    }
    let (mut at, mut dnssec_ok) = (end + 4, false);
    for _ in 0..count {
        let record = Record::parse(message, at)?;
        at = record.data.end;
        if record.kind == record::OPT {
            dnssec_ok = wire::long(message, record.ttl_at)? & 0x8000 != 0;
        }
    }
    let checking_disabled = flags & flag::CHECKING_DISABLED != 0;
    Ok(Key::new(&message[HEADER..end], question, dnssec_ok, checking_disabled))
}

/// How TTLs are shown.
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
    /// Whether its time is over.
    pub stale: bool,
}

impl Ages {
    fn shown(&self, ttl: u32) -> u32 {
        let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
        let left = ttl.max(self.least_s).min(self.most_s).saturating_sub(self.age_s);
        if self.stale { self.cap_s } else { left.min(self.cap_s) }
    }
}

/// Whole seconds of `time`.
pub fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// A message while its records are being read.
struct Reading<'a> {
    message: &'a [u8],
    key: &'a Key,
    at: usize,
    ttls: Vec<u16>,
    /// The message up to here is kept.
    kept: usize,
    /// Records kept in each section.
    counts: [u16; 3],
    /// The upper bits of the response code, and the first extended error.
    opt: Option<(u8, Option<u16>)>,
    /// Whether one of the answers is of the type that was asked for.
    found: bool,
    least_answer_s: Option<u32>,
    denial_s: Option<u32>,
}

/// What cannot stay in a message that is kept: OPT is of one hop, TSIG and SIG(0) of one message.
fn of_one_hop(kind: u16) -> bool {
    kind == record::OPT || kind == 250 || kind == 24
}

impl<'a> Reading<'a> {
    fn new(message: &'a [u8], key: &'a Key, at: usize) -> Self {
        let (ttls, counts) = (Vec::new(), [0; 3]);
        let (opt, found, least_answer_s, denial_s) = (None, false, None, None);
        Self { message, key, at, ttls, kept: at, counts, opt, found, least_answer_s, denial_s }
    }

    fn sections(&mut self) -> Result<(), Malformed> {
        if self.message.len() > usize::from(u16::MAX) {
            return Err(Malformed);
        }
        let mut whole = true;
        for section in 0..3 {
            for _ in 0..wire::word(self.message, 3 + section)? {
                let record = Record::parse(self.message, self.at)?;
                self.at = record.data.end;
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
                    self.kept = self.at;
                    self.record(section, &record)?;
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, section: usize, record: &Record) -> Result<(), Malformed> {
        self.ttls.push(record.ttl_at as u16);
        let ttl = record.ttl(self.message);
        match section {
            0 => {
                self.found |= record.kind == self.key.kind() || self.key.kind() == record::ANY;
                self.least_answer_s = Some(self.least_answer_s.map_or(ttl, |least| least.min(ttl)));
            }
            1 if record.kind == record::SOA => {
                // RFC 2308 section 5: the lesser of its TTL and its last field.
                let last = record.data.end.checked_sub(4).filter(|at| *at >= record.data.start);
                let minimum = wire::long(self.message, last.ok_or(Malformed)?)?;
                self.denial_s = Some(ttl.min(minimum));
            }
            _ => {}
        }
        Ok(())
    }

    fn hop(&mut self, record: &Record) {
        if record.kind == record::OPT && self.opt.is_none() {
            let high = self.message[record.ttl_at];
            self.opt = Some((high, extended_error(&self.message[record.data.clone()])));
        }
    }

    fn outcome(&self, rcode: u16) -> (Kind, u32) {
        match rcode {
            rcode::NOERROR if self.found => (Kind::Positive, self.least_answer_s.unwrap_or(0)),
            // An alias may lead to the denial, and both have to hold.
            rcode::NOERROR | rcode::NXDOMAIN => {
                let denial = self.denial_s.unwrap_or(0);
                (Kind::Negative, self.least_answer_s.map_or(denial, |least| least.min(denial)))
            }
            _ => (Kind::Failure, 0),
        }
    }
}

/// The first extended error among EDNS options.
fn extended_error(mut options: &[u8]) -> Option<u16> {
    loop {
        let (code, length) =
            (wire::number(options, 0).ok()?, usize::from(wire::number(options, 2).ok()?));
        if code == EXTENDED_ERROR {
            return wire::number(options.get(4..4 + length)?, 0).ok();
        }
        options = options.get(4 + length..)?;
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
