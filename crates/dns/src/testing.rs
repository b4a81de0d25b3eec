//! Test messages, written by another implementation.

use std::net::Ipv4Addr;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::key::Key;

pub fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

pub fn query(name: &str, kind: RecordType) -> Vec<u8> {
    query_with(name, kind, |_| {})
}

pub fn query_with(text: &str, kind: RecordType, change: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), kind));
    change(&mut message);
    message.to_vec().unwrap()
}

/// Key of a query.
pub fn key(query: &[u8]) -> Key {
    crate::Query::parse(query).unwrap().key
}

/// Answer to `query`, which `change` may fill.
pub fn answer_with(query: &[u8], change: impl FnOnce(&mut Message)) -> Vec<u8> {
    let query = Message::from_vec(query).unwrap();
    let mut message = Message::response(query.metadata.id, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.recursion_available = true;
    message.metadata.checking_disabled = query.metadata.checking_disabled;
    message.add_queries(query.queries);
    change(&mut message);
    message.to_vec().unwrap()
}

/// Answer with one address.
pub fn address(query: &[u8], ttl: u32, last: u8) -> Vec<u8> {
    answer_with(query, |message| {
        let owner = message.queries[0].name().clone();
        let address = RData::A(A(Ipv4Addr::new(192, 0, 2, last)));
        message.add_answer(Record::from_rdata(owner, ttl, address));
    })
}

/// Denial: the name does not exist.
pub fn denial(query: &[u8], ttl: u32, minimum: u32) -> Vec<u8> {
    answer_with(query, |message| {
        message.metadata.response_code = hickory_proto::op::ResponseCode::NXDomain;
        message.add_authority(Record::from_rdata(name("test."), ttl, soa(minimum)));
    })
}

pub fn failure(query: &[u8]) -> Vec<u8> {
    answer_with(query, |message| {
        message.metadata.response_code = hickory_proto::op::ResponseCode::ServFail;
    })
}

pub fn soa(minimum: u32) -> RData {
    RData::SOA(SOA::new(name("ns.test."), name("who.test."), 1, 7200, 3600, 86_400, minimum))
}
