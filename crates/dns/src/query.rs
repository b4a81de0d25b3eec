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

/// Types 249 to 254 request zone transfers and sessions, not records.
const TRANSFERS: std::ops::RangeInclusive<u16> = 249..=254;

/// Maximum number of addresses in one answer. With the longest name the answer then fits into the
/// smallest packet. Further addresses are left out.
const MAX_ADDRESSES: usize = 7;

/// UDP size that every client accepts (RFC 1035 section 4.2.1).
pub const MIN_UDP_BYTES: usize = 512;

/// Maximum size of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// The client's own limit, at most this: the content of one packet.
    Packet(u16),
    /// Unlimited (65,535 bytes).
    Stream,
}

/// Query for records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Id and flags of the header.
    pub metadata: Metadata,
    /// Key of the question.
    pub key: Key,
    /// Name in wire format, as the client spells it.
    pub spelled: Box<[u8]>,
    /// UDP buffer size of the client, if it uses EDNS.
    pub edns: Option<u16>,
}

/// Reason why a message is not processed as a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Not a query at all: send nothing.
    Silence,
    /// Send this answer.
    Reply(Vec<u8>),
}

impl Query {
    /// Parses a message from a client.
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
        // Queries without recursion are refused, because they would reveal what others have
        // queried.
        if key.class() != DNSClass::IN || !header.recursion_desired {
            return refuse(ResponseCode::Refused, edns);
        }
        Ok(query)
    }

    /// Reads the query and its EDNS version.
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
            Room::Packet(max) => {
                let accepted = usize::from(self.edns.unwrap_or(0)).max(MIN_UDP_BYTES);
                accepted.min(usize::from(max).max(MIN_UDP_BYTES))
            }
        }
    }

    /// Returns `true` if the client understands AD (RFC 6840 section 5.7).
    pub fn wants_authentic(&self) -> bool {
        self.metadata.authentic_data || self.key.dnssec_ok()
    }

    /// Question as the client spells it.
    pub(crate) fn as_question(&self) -> Question<'_> {
        Question { name: &self.spelled, ..self.key.as_question() }
    }

    /// Header of an answer with the lower bits of `rcode`. The upper bits need EDNS. Without EDNS a
    /// client would mistake a code above 15 for another one, for example BADVERS for success; it
    /// gets SERVFAIL.
    pub(crate) fn response_metadata(&self, rcode: ResponseCode) -> Metadata {
        let can_express = rcode.high() == 0 || self.edns.is_some();
        response_metadata(&self.metadata, if can_express { rcode } else { ResponseCode::ServFail })
    }

    /// Encodes an answer with those of `ips` that belong to the requested family.
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
        let data = ips.iter().filter_map(data).take(MAX_ADDRESSES);
        let mut message = Message::query();
        message.metadata = self.response_metadata(ResponseCode::NoError);
        message.answers = data.map(|it| rr::Record::from_rdata(name.clone(), ttl_s, it)).collect();
        message.queries.push(op::Query::query(name, self.key.kind()));
        message.edns = self.opt(ResponseCode::NoError, None);
        message.to_vec()
    }

    /// Encodes an answer without records; clients with EDNS also get the extended error (RFC 8914).
    pub fn reply(&self, rcode: ResponseCode, error: Option<u16>) -> Vec<u8> {
        let (metadata, question) = (self.response_metadata(rcode), Some(self.as_question()));
        let edns = self.opt(rcode, error);
        Parts { metadata, question, counts: [0; 3], records: &[], edns }.write()
    }

    /// OPT record of an answer, for a client that uses EDNS.
    pub(crate) fn opt(&self, rcode: ResponseCode, error: Option<u16>) -> Option<op::Edns> {
        self.edns.map(|_| edns(rcode, self.key.dnssec_ok(), error))
    }
}

/// Header of the answer to a message with `header`.
fn response_metadata(header: &Metadata, rcode: ResponseCode) -> Metadata {
    let mut response = Metadata::response_from_request(header);
    response.recursion_available = true;
    response.response_code = rcode;
    response
}

/// Answer to `message`, of which perhaps only the header is valid.
fn refuse(message: &[u8], header: &Header, rcode: ResponseCode, is_edns: bool) -> Refusal {
    let has_question = rcode != ResponseCode::FormErr && header.counts.queries == 1;
    let question = wire::header(message).ok().filter(|_| has_question);
    let question = question.and_then(|(_, mut rest)| wire::question(&mut rest).ok());
    let metadata = response_metadata(&header.metadata, rcode);
    let edns = is_edns.then(|| edns(rcode, false, None));
    Refusal::Reply(Parts { metadata, question, counts: [0; 3], records: &[], edns }.write())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{query, query_with};
    use hickory_proto::op::Edns;

    fn refusal_code(message: &Message) -> ResponseCode {
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
    fn queries_are_parsed() {
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
    fn unsupported_messages_are_refused() {
        let code_of = |change: fn(&mut Message)| {
            let bytes = query_with("a.test.", RecordType::A, change);
            refusal_code(&Message::from_vec(&bytes).unwrap())
        };
        assert_eq!(code_of(|m| m.metadata.recursion_desired = false), ResponseCode::Refused);
        assert_eq!(code_of(|m| m.metadata.op_code = OpCode::Status), ResponseCode::NotImp);
        assert_eq!(
            code_of(|m| _ = m.queries[0].set_query_class(DNSClass::CH)),
            ResponseCode::Refused
        );
        let axfr = code_of(|m| _ = m.queries[0].set_query_type(RecordType::AXFR));
        assert_eq!(axfr, ResponseCode::NotImp);
        assert_eq!(code_of(|m| m.queries.clear()), ResponseCode::FormErr);
        let version = code_of(|m| {
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
    fn extended_errors_go_to_clients_with_edns() {
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
