//! DNS queries and responses, by hickory-proto.

use std::net::IpAddr;
use std::str::FromStr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use thiserror::Error;

use super::Response;
use crate::target::Family;

/// UDP payload that we accept: it passes every path unfragmented (RFC 9715).
pub const MAX_PAYLOAD: u16 = 1232;

/// Fault of a name or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Not a domain name.
    #[error("not a domain name")]
    Name,
    /// Not a DNS message.
    #[error("not a DNS message")]
    Malformed,
    /// A message that does not answer the query.
    #[error("not the response to the query")]
    Unrelated,
}

/// Builds a recursive query for the addresses of `name` of one family.
pub fn query(id: u16, name: &str, family: Family) -> Result<Vec<u8>, Fault> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(parse(name)?, record_type(family)));
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_PAYLOAD);
    message.set_edns(edns);
    message.to_vec().map_err(|_| Fault::Name)
}

/// Reads the response to [`query`]. Identifier and question must match; everything else is discarded as
/// somebody else's.
pub fn response(id: u16, name: &str, family: Family, bytes: &[u8]) -> Result<Response, Fault> {
    let message = Message::from_vec(bytes).map_err(|_| Fault::Malformed)?;
    let metadata = &message.metadata;
    let asked = parse(name)?;
    let repeats = message.queries.iter().any(|query| {
        query.query_type() == record_type(family) && query.name().eq_ignore_root(&asked)
    });
    // Some servers leave out the question with an error such as "format error".
    let bare = message.queries.is_empty() && metadata.response_code.low() != 0;
    if metadata.message_type != MessageType::Response || metadata.id != id || !(repeats || bare) {
        return Err(Fault::Unrelated);
    }
    Ok(Response {
        rcode: metadata.response_code.into(),
        answers: u16::try_from(message.answers.len()).unwrap_or(u16::MAX),
        ttl_s: message.answers.iter().map(|record| record.ttl).min(),
        truncated: metadata.truncation,
        authoritative: metadata.authoritative,
    })
}

/// Addresses in the response to [`query`], for a connection to `name`.
pub fn addresses(id: u16, name: &str, family: Family, bytes: &[u8]) -> Result<Vec<IpAddr>, Fault> {
    response(id, name, family, bytes)?;
    let message = Message::from_vec(bytes).map_err(|_| Fault::Malformed)?;
    let address = |record: &Record| match (&record.data, family) {
        (RData::A(a), Family::V4) => Some(a.0.into()),
        (RData::AAAA(aaaa), Family::V6) => Some(aaaa.0.into()),
        _ => None,
    };
    Ok(message.answers.iter().filter_map(address).collect())
}

fn record_type(family: Family) -> RecordType {
    match family {
        Family::V4 => RecordType::A,
        Family::V6 => RecordType::AAAA,
    }
}

fn parse(name: &str) -> Result<Name, Fault> {
    let mut name = Name::from_str(name).map_err(|_| Fault::Name)?;
    name.set_fqdn(true);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::ResponseCode;
    use hickory_proto::rr::rdata::{A, AAAA};
    use proptest::prelude::*;

    use super::*;
    use Family::{V4, V6};

    fn reply(query: &[u8], code: ResponseCode, ttls: &[u32]) -> Vec<u8> {
        let asked = Message::from_vec(query).unwrap();
        let mut message = Message::response(asked.metadata.id, OpCode::Query);
        message.metadata.response_code = code;
        let name = asked.queries[0].name().clone();
        for ttl in ttls {
            let data = match asked.queries[0].query_type() {
                RecordType::A => RData::A(A::new(192, 0, 2, 1)),
                _ => RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
            };
            message.add_answer(Record::from_rdata(name.clone(), *ttl, data));
        }
        message.add_queries(asked.queries);
        message.to_vec().unwrap()
    }

    #[test]
    fn a_response_answers_its_query_only() {
        let asked = query(7, "www.example.com", V4).unwrap();
        let bytes = reply(&asked, ResponseCode::NoError, &[300, 20]);
        let read = response(7, "WWW.example.com", V4, &bytes).unwrap();
        assert_eq!((read.rcode, read.answers, read.ttl_s), (0, 2, Some(20)));
        assert_eq!(response(8, "www.example.com", V4, &bytes), Err(Fault::Unrelated));
        assert_eq!(response(7, "example.com", V4, &bytes), Err(Fault::Unrelated));
        assert_eq!(response(7, "www.example.com", V4, &asked), Err(Fault::Unrelated), "a query");
        assert_eq!(response(7, "www.example.com", V4, &bytes[..20]), Err(Fault::Malformed));
        let none = reply(&asked, ResponseCode::NXDomain, &[]);
        assert_eq!(response(7, "www.example.com", V4, &none).unwrap().rcode, 3);
        let found = addresses(7, "www.example.com", V4, &bytes).unwrap();
        assert_eq!(found, [IpAddr::from([192, 0, 2, 1]); 2]);
        let asked = query(7, "www.example.com", V6).unwrap();
        let bytes = reply(&asked, ResponseCode::NoError, &[300]);
        let found = addresses(7, "www.example.com", V6, &bytes).unwrap();
        assert_eq!(found, ["2001:db8::1".parse::<IpAddr>().unwrap()]);
        assert_eq!(response(7, "www.example.com", V4, &bytes), Err(Fault::Unrelated));
    }

    #[test]
    fn names_that_are_not_names_are_refused() {
        for name in ["", "a..b", &"a".repeat(64), &"a.".repeat(200)] {
            let asked = query(1, name, V4);
            assert!(asked.is_err() || name.is_empty(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            for family in [V4, V6] {
                let _ = response(1, "example.com", family, &bytes);
                let _ = addresses(1, "example.com", family, &bytes);
            }
        }
    }
}
