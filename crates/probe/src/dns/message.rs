//! DNS queries and responses, by hickory-proto.

use std::str::FromStr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use thiserror::Error;

use super::Response;

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

/// Builds a recursive query for the IPv4 addresses of `name`.
pub fn query(id: u16, name: &str) -> Result<Vec<u8>, Fault> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(parse(name)?, RecordType::A));
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_PAYLOAD);
    message.set_edns(edns);
    message.to_vec().map_err(|_| Fault::Name)
}

/// Reads the response to [`query`]. Identifier and question must match; everything else is discarded as
/// somebody else's.
pub fn response(id: u16, name: &str, bytes: &[u8]) -> Result<Response, Fault> {
    let message = Message::from_vec(bytes).map_err(|_| Fault::Malformed)?;
    let metadata = &message.metadata;
    let asked = parse(name)?;
    let repeats = message
        .queries
        .iter()
        .any(|query| query.query_type() == RecordType::A && query.name().eq_ignore_root(&asked));
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
pub fn addresses(id: u16, name: &str, bytes: &[u8]) -> Result<Vec<std::net::Ipv4Addr>, Fault> {
    use hickory_proto::rr::RData;
    response(id, name, bytes)?;
    let message = Message::from_vec(bytes).map_err(|_| Fault::Malformed)?;
    let address = |record: &hickory_proto::rr::Record| match &record.data {
        RData::A(a) => Some(a.0),
        _ => None,
    };
    Ok(message.answers.iter().filter_map(address).collect())
}

fn parse(name: &str) -> Result<Name, Fault> {
    let mut name = Name::from_str(name).map_err(|_| Fault::Name)?;
    name.set_fqdn(true);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::ResponseCode;
    use hickory_proto::rr::{RData, Record, rdata::A};
    use proptest::prelude::*;

    use super::*;

    fn reply(query: &[u8], code: ResponseCode, ttls: &[u32]) -> Vec<u8> {
        let asked = Message::from_vec(query).unwrap();
        let mut message = Message::response(asked.metadata.id, OpCode::Query);
        message.metadata.response_code = code;
        let name = asked.queries[0].name().clone();
        for ttl in ttls {
            let data = RData::A(A::new(192, 0, 2, 1));
            message.add_answer(Record::from_rdata(name.clone(), *ttl, data));
        }
        message.add_queries(asked.queries);
        message.to_vec().unwrap()
    }

    #[test]
    fn a_response_answers_its_query_only() {
        let asked = query(7, "www.example.com").unwrap();
        let bytes = reply(&asked, ResponseCode::NoError, &[300, 20]);
        let read = response(7, "WWW.example.com", &bytes).unwrap();
        assert_eq!((read.rcode, read.answers, read.ttl_s), (0, 2, Some(20)));
        assert_eq!(response(8, "www.example.com", &bytes), Err(Fault::Unrelated));
        assert_eq!(response(7, "example.com", &bytes), Err(Fault::Unrelated));
        assert_eq!(response(7, "www.example.com", &asked), Err(Fault::Unrelated), "a query");
        assert_eq!(response(7, "www.example.com", &bytes[..20]), Err(Fault::Malformed));
        let none = reply(&asked, ResponseCode::NXDomain, &[]);
        assert_eq!(response(7, "www.example.com", &none).unwrap().rcode, 3);
        let found = addresses(7, "www.example.com", &bytes).unwrap();
        assert_eq!(found, [std::net::Ipv4Addr::new(192, 0, 2, 1); 2]);
    }

    #[test]
    fn names_that_are_not_names_are_refused() {
        for name in ["", "a..b", &"a".repeat(64), &"a.".repeat(200)] {
            let asked = query(1, name);
            assert!(asked.is_err() || name.is_empty(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = response(1, "example.com", &bytes);
            let _ = addresses(1, "example.com", &bytes);
        }
    }
}
