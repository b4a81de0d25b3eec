//! What a client asks.

use std::net::IpAddr;

use crate::key::Key;
use crate::wire::{self, HEADER, Malformed, Record, flag, rcode, record};

/// The Internet.
const IN: u16 = 1;

/// Types 249 to 254 ask for zones and for sessions, not for records.
const TRANSFERS: std::ops::RangeInclusive<u16> = 249..=254;

/// Addresses in one answer, which then fits into the smallest packet with the longest name; the
/// others of a name are left out.
const MOST_ADDRESSES: usize = 7;

/// The least that every client takes over UDP (RFC 1035 section 4.2.1).
pub const MIN_ROOM: usize = 512;

/// How large an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// What the client says it takes, and never more than this: what one packet carries.
    Packet(u16),
    /// Whatever there is.
    Stream,
}

/// A query for records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The client's own id.
    pub id: u16,
    /// What it asks for.
    pub key: Key,
    /// The name as the client spells it, on the wire.
    pub spelled: Box<[u8]>,
    /// The header's flags.
    pub flags: u16,
    /// The client's UDP buffer, where it speaks EDNS.
    pub edns: Option<u16>,
}

/// Why a message gets no answer of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is not a query at all: silence.
    Silence,
    /// This is the answer.
    Reply(Vec<u8>),
}

impl Query {
    /// Reads what a client sent.
    pub fn parse(message: &[u8]) -> Result<Self, Refusal> {
        let flags = match (wire::word(message, 1), message.len() >= HEADER) {
            (Ok(flags), true) if flags & flag::RESPONSE == 0 => flags,
            _ => return Err(Refusal::Silence),
        };
        if flags & flag::OPCODE != 0 {
            return Err(refuse(message, rcode::NOTIMP, false));
        }
        let query = Self::read(message, flags);
        let query = query.map_err(|Malformed| refuse(message, rcode::FORMERR, false))?;
        let (key, edns) = (&query.0.key, query.0.edns.is_some());
        if query.1 > 0 {
            return Err(refuse(message, rcode::BADVERS, edns));
        }
        if TRANSFERS.contains(&key.kind()) {
            return Err(refuse(message, rcode::NOTIMP, edns));
        }
        // What others have asked for is nobody's business: no query without recursion.
        if key.class() != IN || flags & flag::RECURSION_DESIRED == 0 {
            return Err(refuse(message, rcode::REFUSED, edns));
        }
        Ok(query.0)
    }

    /// The query, and the version of EDNS that it speaks.
    fn read(message: &[u8], flags: u16) -> Result<(Self, u8), Malformed> {
        let counts = [2, 3, 4, 5].map(|index| wire::word(message, index));
        let [Ok(1), Ok(0), Ok(0), Ok(additional)] = counts else { return Err(Malformed) };
        let end = wire::plain_name_end(message, HEADER)?;
        let (kind, class) = (wire::number(message, end)?, wire::number(message, end + 2)?);
        if kind == record::OPT {
            return Err(Malformed);
        }
        let (mut at, mut opt) = (end + 4, None);
        for _ in 0..additional {
            let record = Record::parse(message, at)?;
            at = record.data.end;
            if record.kind == record::OPT {
                let rooted = record.ttl_at == record.start + 5;
                if opt.is_some() || !rooted {
                    return Err(Malformed);
                }
                opt = Some((record.class, wire::long(message, record.ttl_at)?));
            }
        }
        let (edns, extended) = opt.map_or((None, 0), |(room, extended)| (Some(room), extended));
        let spelled = &message[HEADER..end];
        let dnssec_ok = extended & 0x8000 != 0;
        let key = Key::new(spelled, (kind, class), dnssec_ok, flags & flag::CHECKING_DISABLED != 0);
        let id = wire::word(message, 0)?;
        Ok((Self { id, key, spelled: spelled.into(), flags, edns }, (extended >> 16) as u8))
    }

    /// How many bytes of answer the client takes.
    pub fn room(&self, room: Room) -> usize {
        match room {
            Room::Stream => usize::from(u16::MAX),
            Room::Packet(most) => {
                let said = usize::from(self.edns.unwrap_or(0)).max(MIN_ROOM);
                said.min(usize::from(most).max(MIN_ROOM))
            }
        }
    }

    /// Whether the client understands AD (RFC 6840 section 5.7).
    pub fn wants_authentic(&self) -> bool {
        self.flags & flag::AUTHENTIC != 0 || self.key.dnssec_ok()
    }

    /// What of `rcode` the header says. The rest is EDNS's: who does not speak that would take a code
    /// above 15 for another one, BADVERS for success, and is told of a failure.
    pub(crate) fn low_rcode(&self, rcode: u16) -> u16 {
        match rcode > flag::RCODE && self.edns.is_none() {
            true => rcode::SERVFAIL,
            false => rcode & flag::RCODE,
        }
    }

    /// The answer's head: id, flags and question, and 0 for all other counts.
    pub(crate) fn head(&self, flags: u16, out: &mut Vec<u8>) {
        let copied = self.flags & (flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
        let flags = flags | copied | flag::RESPONSE | flag::RECURSION_AVAILABLE;
        for word in [self.id, flags, 1, 0, 0, 0] {
            out.extend(word.to_be_bytes());
        }
        out.extend_from_slice(&self.spelled);
        out.extend(self.key.kind().to_be_bytes());
        out.extend(self.key.class().to_be_bytes());
    }

    /// An answer with those of `ips` that are of the family asked for.
    pub fn addresses(&self, ips: &[IpAddr], ttl_s: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.spelled.len() + 28 * ips.len());
        self.head(rcode::NOERROR, &mut out);
        let wanted = |ip: &&IpAddr| match self.key.kind() {
            record::A => ip.is_ipv4(),
            record::AAAA => ip.is_ipv6(),
            _ => false,
        };
        let mut count = 0;
        for ip in ips.iter().filter(wanted).take(MOST_ADDRESSES) {
            count += 1;
            // The name is the question's.
            out.extend([0xc0, HEADER as u8]);
            out.extend(self.key.kind().to_be_bytes());
            out.extend(self.key.class().to_be_bytes());
            out.extend(ttl_s.to_be_bytes());
            match ip {
                IpAddr::V4(ip) => out.extend([&[0, 4][..], &ip.octets()].concat()),
                IpAddr::V6(ip) => out.extend([&[0, 16][..], &ip.octets()].concat()),
            }
        }
        wire::set(&mut out, 6, count);
        if self.edns.is_some() {
            put_opt(&mut out, 0, self.key.dnssec_ok(), None);
        }
        out
    }

    /// An answer without records, with an extended error (RFC 8914) for who understands one.
    pub fn reply(&self, rcode: u16, error: Option<u16>) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.spelled.len() + 24);
        self.head(self.low_rcode(rcode), &mut out);
        if self.edns.is_some() {
            put_opt(&mut out, (rcode >> 4) as u8, self.key.dnssec_ok(), error);
        }
        out
    }
}

/// What this side takes over UDP: what goes through every path unfragmented (RFC 9715).
pub const OUR_ROOM: u16 = 1232;

/// Bytes of OPT without options, and with an extended error.
pub const PLAIN_OPT: usize = 11;
pub const MOST_OPT: usize = 17;

/// Appends an OPT record to `message` and counts it.
pub fn put_opt(message: &mut Vec<u8>, rcode_high: u8, dnssec_ok: bool, error: Option<u16>) {
    let additional = wire::word(message, 5).unwrap_or(0);
    wire::set(message, 10, additional.saturating_add(1));
    message.push(0);
    message.extend(record::OPT.to_be_bytes());
    message.extend(OUR_ROOM.to_be_bytes());
    message.extend([rcode_high, 0, if dnssec_ok { 0x80 } else { 0 }, 0]);
    match error {
        None => message.extend([0, 0]),
        Some(code) => {
            message.extend([0, 6, 0, 15, 0, 2]);
            message.extend(code.to_be_bytes());
        }
    }
}

/// The answer to `message`, of which no more than the header may be understood.
fn refuse(message: &[u8], rcode: u16, edns: bool) -> Refusal {
    let Ok(id) = wire::word(message, 0) else { return Refusal::Silence };
    let asked = wire::word(message, 1).unwrap_or(0);
    let copied = asked & (flag::OPCODE | flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
    let flags = flag::RESPONSE | flag::RECURSION_AVAILABLE | copied | rcode & flag::RCODE;
    let question = wire::plain_name_end(message, HEADER)
        .ok()
        .and_then(|end| message.get(HEADER..end + 4))
        .filter(|_| rcode != rcode::FORMERR && wire::word(message, 2) == Ok(1));
    let mut out = Vec::with_capacity(64);
    for word in [id, flags, u16::from(question.is_some()), 0, 0, 0] {
        out.extend(word.to_be_bytes());
    }
    out.extend_from_slice(question.unwrap_or_default());
    if edns {
        put_opt(&mut out, (rcode >> 4) as u8, false, None);
    }
    Refusal::Reply(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{query, query_with};
    use hickory_proto::op::{Edns, Message, OpCode, ResponseCode};
    use hickory_proto::rr::{DNSClass, RecordType};

    fn refusal(message: &Message) -> u16 {
        match Query::parse(&message.to_vec().unwrap()) {
            Err(Refusal::Reply(reply)) => {
                let reply = Message::from_vec(&reply).unwrap();
                assert_eq!(reply.metadata.id, message.metadata.id);
                u16::from(reply.metadata.response_code)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn queries_read_as_they_were_written() {
        let read = Query::parse(&query("WwW.example.NET.", RecordType::HTTPS)).unwrap();
        assert_eq!(&*read.spelled, b"\x03WwW\x07example\x03NET\x00");
        assert_eq!(read.key.host_name().as_deref(), Some("www.example.net"));
        assert_eq!((read.key.kind(), read.edns, read.key.dnssec_ok()), (65, None, false));
        assert_eq!(read.room(Room::Packet(1232)), 512);
        let edns = query_with("a.test.", RecordType::A, |message| {
            let mut edns = Edns::new();
            edns.set_max_payload(4096).set_dnssec_ok(true);
            message.set_edns(edns);
            message.metadata.checking_disabled = true;
        });
        let read = Query::parse(&edns).unwrap();
        assert!(read.key.dnssec_ok() && read.key.checking_disabled() && read.wants_authentic());
        assert_eq!((read.edns, read.room(Room::Packet(1232))), (Some(4096), 1232));
        assert_eq!(read.room(Room::Stream), 65_535);
    }

    #[test]
    fn what_is_not_asked_for_is_refused() {
        let asked = |change: fn(&mut Message)| {
            let bytes = query_with("a.test.", RecordType::A, change);
            refusal(&Message::from_vec(&bytes).unwrap())
        };
        assert_eq!(asked(|m| m.metadata.recursion_desired = false), rcode::REFUSED);
        assert_eq!(asked(|m| m.metadata.op_code = OpCode::Status), rcode::NOTIMP);
        assert_eq!(asked(|m| _ = m.queries[0].set_query_class(DNSClass::CH)), rcode::REFUSED);
        let axfr = asked(|m| _ = m.queries[0].set_query_type(RecordType::AXFR));
        assert_eq!(axfr, rcode::NOTIMP);
        assert_eq!(asked(|m| m.queries.clear()), rcode::FORMERR);
        let version = asked(|m| {
            let mut edns = Edns::new();
            edns.set_version(1);
            m.set_edns(edns);
        });
        assert_eq!(version, rcode::BADVERS);
        assert_eq!(Query::parse(b"short"), Err(Refusal::Silence));
        let answer = query_with("a.test.", RecordType::A, |m| {
            m.metadata.message_type = hickory_proto::op::MessageType::Response;
        });
        assert_eq!(Query::parse(&answer), Err(Refusal::Silence));
    }

    #[test]
    fn errors_say_why_to_who_understands() {
        let plain = Query::parse(&query("a.test.", RecordType::A)).unwrap();
        let reply = Message::from_vec(&plain.reply(rcode::SERVFAIL, Some(22))).unwrap();
        assert!(reply.edns.is_none() && reply.metadata.response_code == ResponseCode::ServFail);
        let edns = query_with("a.test.", RecordType::A, |m| _ = m.set_edns(Edns::new()));
        let edns = Query::parse(&edns).unwrap();
        let reply = edns.reply(rcode::SERVFAIL, Some(22));
        assert!(reply.ends_with(&[0, 6, 0, 15, 0, 2, 0, 22]));
        assert!(Message::from_vec(&reply).unwrap().edns.is_some());
    }
}
