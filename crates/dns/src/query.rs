//! Queries of clients.

use std::net::IpAddr;

use hickory_proto::ProtoError;
use hickory_proto::op::{
    self, EdnsFlags, Header, Message, MessageType, Metadata, OpCode, ResponseCode,
};
use hickory_proto::rr::{self, DNSClass, Name, RData, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

use crate::key::Key;
use crate::parts::{Parts, edns};
use crate::wire::{self, Malformed, Question, Record};

/// Types 249 to 254 ask for zones and for sessions, not for records.
const TRANSFERS: std::ops::RangeInclusive<u16> = 249..=254;

/// Addresses in one answer, which then fits into the smallest packet with the longest name; the
/// others of a name are left out.
const MOST_ADDRESSES: usize = 7;

/// The least that every client takes over UDP (RFC 1035 section 4.2.1).
pub const MIN_ROOM: usize = 512;

/// Maximum size of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// The client's own limit, but never more than this: the content of one packet.
    Packet(u16),
    /// Whatever there is.
    Stream,
}

/// A query for records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The header's id and flags.
    pub metadata: Metadata,
    /// Key of the question.
    pub key: Key,
    /// The name as the client spells it, on the wire.
    pub spelled: Box<[u8]>,
    /// The client's UDP buffer, where it speaks EDNS.
    pub edns: Option<u16>,
}

/// Reason for which the cache does not answer a message.
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
        let (header, rest) = match wire::header(message) {
            Ok((header, rest)) if header.message_type == MessageType::Query => (header, rest),
            _ => return Err(Refusal::Silence),
        };
        let refuse = |rcode, edns| Err(refuse(message, &header, rcode, edns));
        if header.op_code != OpCode::Query {
            return refuse(ResponseCode::NotImp, false);
        }
        let Ok((query, version)) = Self::read(&header, rest) else {
            return refuse(ResponseCode::FormErr, false);
        };
        let (key, edns) = (&query.key, query.edns.is_some());
        if version > 0 {
            return refuse(ResponseCode::BADVERS, edns);
        }
        if TRANSFERS.contains(&key.kind().into()) {
            return refuse(ResponseCode::NotImp, edns);
        }
        // What others have asked for is nobody's business: no query without recursion.
        if key.class() != DNSClass::IN || !header.recursion_desired {
            return refuse(ResponseCode::Refused, edns);
        }
        Ok(query)
    }

    /// The query, and the version of EDNS that it speaks.
    fn read(header: &Header, mut rest: BinDecoder<'_>) -> Result<(Self, u8), Malformed> {
        let counts = &header.counts;
        if (counts.queries, counts.answers, counts.authorities) != (1, 0, 0) {
            return Err(Malformed);
        }
        let question = wire::question(&mut rest)?;
        if question.kind == RecordType::OPT {
            return Err(Malformed);
        }
        let mut opt = None;
        for _ in 0..counts.additionals {
            let record = Record::read(&mut rest)?;
            if record.kind == RecordType::OPT {
                if opt.is_some() || !record.is_of_root() {
                    return Err(Malformed);
                }
                opt = Some((record.class, record.ttl_field));
            }
        }
        let (edns, extended) = opt.map_or((None, 0), |(room, extended)| (Some(room), extended));
        let dnssec_ok = EdnsFlags::from(extended as u16).dnssec_ok;
        let key = Key::new(question, dnssec_ok, header.checking_disabled);
        let (metadata, spelled) = (header.metadata, question.name.into());
        Ok((Self { metadata, key, spelled, edns }, (extended >> 16) as u8))
    }

    /// Size of an answer that the client accepts, in bytes.
    pub fn room(&self, room: Room) -> usize {
        match room {
            Room::Stream => usize::from(u16::MAX),
            Room::Packet(most) => {
                let said = usize::from(self.edns.unwrap_or(0)).max(MIN_ROOM);
                said.min(usize::from(most).max(MIN_ROOM))
            }
        }
    }

    /// Returns `true` if the client understands AD (RFC 6840 section 5.7).
    pub fn wants_authentic(&self) -> bool {
        self.metadata.authentic_data || self.key.dnssec_ok()
    }

    /// The question as the client spells it.
    pub(crate) fn asked(&self) -> Question<'_> {
        Question { name: &self.spelled, ..self.key.asked() }
    }

    /// The header of an answer with `rcode`, of which it says the lower bits. The rest is EDNS's: who does
    /// not speak that would take a code above 15 for another one, BADVERS for success, and is told of a
    /// failure.
    pub(crate) fn answered(&self, rcode: ResponseCode) -> Metadata {
        let is_told = rcode.high() == 0 || self.edns.is_some();
        answered(&self.metadata, if is_told { rcode } else { ResponseCode::ServFail })
    }

    /// An answer with those of `ips` that are of the family asked for.
    pub fn addresses(&self, ips: &[IpAddr], ttl_s: u32) -> Vec<u8> {
        let written = self.write_addresses(ips, ttl_s);
        written.unwrap_or_else(|_| self.reply(ResponseCode::ServFail, None))
    }

    fn write_addresses(&self, ips: &[IpAddr], ttl_s: u32) -> Result<Vec<u8>, ProtoError> {
        let name = Name::from_bytes(&self.spelled)?;
        let data = |ip: &IpAddr| match (self.key.kind(), ip) {
            (RecordType::A, IpAddr::V4(_)) | (RecordType::AAAA, IpAddr::V6(_)) => {
                Some(RData::from(*ip))
            }
            _ => None,
        };
        let data = ips.iter().filter_map(data).take(MOST_ADDRESSES);
        let mut message = Message::query();
        message.metadata = self.answered(ResponseCode::NoError);
        message.answers = data.map(|it| rr::Record::from_rdata(name.clone(), ttl_s, it)).collect();
        message.queries.push(op::Query::query(name, self.key.kind()));
        message.edns = self.opt(ResponseCode::NoError, None);
        message.to_vec()
    }

    /// An answer without records, with an extended error (RFC 8914) for who understands one.
    pub fn reply(&self, rcode: ResponseCode, error: Option<u16>) -> Vec<u8> {
        let (metadata, question) = (self.answered(rcode), Some(self.asked()));
        let edns = self.opt(rcode, error);
        Parts { metadata, question, counts: [0; 3], records: &[], edns }.write()
    }

    /// OPT record of an answer, for a client that uses EDNS.
    pub(crate) fn opt(&self, rcode: ResponseCode, error: Option<u16>) -> Option<op::Edns> {
        self.edns.map(|_| edns(rcode, self.key.dnssec_ok(), error))
    }
}

/// The header of the answer to a message that has that `header`.
fn answered(header: &Metadata, rcode: ResponseCode) -> Metadata {
    let mut answered = Metadata::response_from_request(header);
    answered.recursion_available = true;
    answered.response_code = rcode;
    answered
}

/// The answer to `message`, of which no more than the header may be understood.
fn refuse(message: &[u8], header: &Header, rcode: ResponseCode, is_edns: bool) -> Refusal {
    let asks = rcode != ResponseCode::FormErr && header.counts.queries == 1;
    let question = wire::header(message).ok().filter(|_| asks);
    let question = question.and_then(|(_, mut rest)| wire::question(&mut rest).ok());
    let metadata = answered(&header.metadata, rcode);
    let edns = is_edns.then(|| edns(rcode, false, None));
    Refusal::Reply(Parts { metadata, question, counts: [0; 3], records: &[], edns }.write())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{query, query_with};
    use hickory_proto::op::Edns;

    fn refusal(message: &Message) -> ResponseCode {
        match Query::parse(&message.to_vec().unwrap()) {
            Err(Refusal::Reply(reply)) => {
                let reply = Message::from_vec(&reply).unwrap();
                assert_eq!(reply.metadata.id, message.metadata.id);
                reply.metadata.response_code
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn queries_read_as_they_were_written() {
        let read = Query::parse(&query("WwW.example.NET.", RecordType::HTTPS)).unwrap();
        assert_eq!(&*read.spelled, b"\x03WwW\x07example\x03NET\x00");
        assert_eq!(read.key.host_name().as_deref(), Some("www.example.net"));
        assert_eq!(
            (read.key.kind(), read.edns, read.key.dnssec_ok()),
            (RecordType::HTTPS, None, false)
        );
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
        assert_eq!(asked(|m| m.metadata.recursion_desired = false), ResponseCode::Refused);
        assert_eq!(asked(|m| m.metadata.op_code = OpCode::Status), ResponseCode::NotImp);
        assert_eq!(
            asked(|m| _ = m.queries[0].set_query_class(DNSClass::CH)),
            ResponseCode::Refused
        );
        let axfr = asked(|m| _ = m.queries[0].set_query_type(RecordType::AXFR));
        assert_eq!(axfr, ResponseCode::NotImp);
        assert_eq!(asked(|m| m.queries.clear()), ResponseCode::FormErr);
        let version = asked(|m| {
            let mut edns = Edns::new();
            edns.set_version(1);
            m.set_edns(edns);
        });
        assert_eq!(u16::from(version), u16::from(ResponseCode::BADVERS));
        assert_eq!(Query::parse(b"short"), Err(Refusal::Silence));
        let answer = query_with("a.test.", RecordType::A, |m| {
            m.metadata.message_type = MessageType::Response;
        });
        assert_eq!(Query::parse(&answer), Err(Refusal::Silence));
    }

    #[test]
    fn errors_say_why_to_who_understands() {
        let plain = Query::parse(&query("a.test.", RecordType::A)).unwrap();
        let reply = Message::from_vec(&plain.reply(ResponseCode::ServFail, Some(22))).unwrap();
        assert!(reply.edns.is_none() && reply.metadata.response_code == ResponseCode::ServFail);
        let edns = query_with("a.test.", RecordType::A, |m| _ = m.set_edns(Edns::new()));
        let edns = Query::parse(&edns).unwrap();
        let reply = edns.reply(ResponseCode::ServFail, Some(22));
        assert!(reply.ends_with(&[0, 6, 0, 15, 0, 2, 0, 22]));
        assert!(Message::from_vec(&reply).unwrap().edns.is_some());
    }
}
