//! Discovery of the encrypted resolver (DDR, RFC 9462): SVCB records (RFC 9460) as RFC 9461 defines
//! them for resolvers. `resolver.arpa` belongs to each resolver and is never forwarded, because the
//! answer would be another resolver's.

use std::net::IpAddr;

use hickory_proto::op::{self, Message, OpCode};
use hickory_proto::rr::rdata::SVCB;
use hickory_proto::rr::rdata::svcb::{Alpn, IpHint, SvcParamKey, SvcParamValue, Unknown};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinDecodable;

use crate::answer::Answer;
use crate::key::Key;
use crate::query::{Query, Room};
use crate::wire::Question;

/// The zone that every resolver has its own of, and the name in it that devices ask for.
const ZONE: &[u8] = b"\x08resolver\x04arpa\x00";
const ASKED: &[u8] = b"\x04_dns\x08resolver\x04arpa\x00";

/// TTL of the records: a restart with other addresses shows soon.
const TTL_S: u32 = 300;

/// Endpoints that are told; with the longest name that is some 3 KiB.
pub const MOST_ENDPOINTS: usize = 8;

/// The key of the service parameter `dohpath` (RFC 9461 section 5), for which hickory has no name.
const DOH_PATH: SvcParamKey = SvcParamKey::Unknown(7);

/// Address of the encrypted resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
    /// The URI template of DNS over HTTPS; without one it is DNS over TLS.
    pub doh_path: Option<&'static str>,
}

/// The resolver's encrypted siblings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Designated {
    answer: Answer,
}

/// Returns `true` if `name`, on the wire and in lower case, is `resolver.arpa` or below it.
pub fn is_of_resolver(name: &[u8]) -> bool {
    let mut rest = name;
    while rest != ZONE {
        let length = rest.first().map_or(0, |length| usize::from(*length));
        match rest.get(1 + length..) {
            Some(after) if length > 0 => rest = after,
            _ => return false,
        }
    }
    true
}

impl Designated {
    /// A resolver whose certificate is for `name`, at the first [`MOST_ENDPOINTS`] of `endpoints`; `None`
    /// where there are none, or `name` is no name.
    pub fn new(name: &str, endpoints: &[Endpoint]) -> Option<Self> {
        let name = Name::from_ascii(name).ok().filter(|name| name.num_labels() > 0)?;
        let mut name = name.to_lowercase();
        name.set_fqdn(true);
        let endpoints = &endpoints[..endpoints.len().min(MOST_ENDPOINTS)];
        if endpoints.is_empty() {
            return None;
        }
        let (kind, class) = (RecordType::SVCB, DNSClass::IN);
        let asked = Name::from_bytes(ASKED).ok()?;
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(op::Query::query(asked.clone(), kind));
        let mut ips = Vec::new();
        for (endpoint, priority) in endpoints.iter().zip(1u16..) {
            let service = SVCB::new(priority, name.clone(), endpoint.parameters());
            message.add_answer(Record::from_rdata(asked.clone(), TTL_S, RData::SVCB(service)));
            if !ips.contains(&endpoint.ip) {
                ips.push(endpoint.ip);
            }
        }
        // RFC 9462 section 4: the addresses too.
        for ip in ips {
            message.add_additional(Record::from_rdata(name.clone(), TTL_S, ip.into()));
        }
        let key = Key::new(Question { name: ASKED, kind, class }, false, false);
        let answer = Answer::parse(&key, &message.to_vec().ok()?).ok()?;
        Some(Self { answer })
    }

    /// The answer to `query`, where it is the question for this.
    pub fn answer(&self, query: &Query, room: Room) -> Option<Vec<u8>> {
        let is_asked = query.key.name() == ASKED && query.key.kind() == RecordType::SVCB;
        is_asked.then(|| self.answer.relay(query, room))
    }
}

impl Endpoint {
    /// By their keys, as they have to be (RFC 9460 section 2.2).
    fn parameters(&self) -> Vec<(SvcParamKey, SvcParamValue)> {
        let protocol = if self.doh_path.is_some() { "h2" } else { "dot" };
        let hint = match self.ip {
            IpAddr::V4(ip) => {
                (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![ip.into()])))
            }
            IpAddr::V6(ip) => {
                (SvcParamKey::Ipv6Hint, SvcParamValue::Ipv6Hint(IpHint(vec![ip.into()])))
            }
        };
        let mut parameters = vec![
            (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec![protocol.to_owned()]))),
            (SvcParamKey::Port, SvcParamValue::Port(self.port)),
            hint,
        ];
        if let Some(path) = self.doh_path {
            parameters.push((DOH_PATH, SvcParamValue::Unknown(Unknown(path.into()))));
        }
        parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::query;

    fn told(designated: &Designated, name: &str, kind: RecordType) -> Option<Message> {
        let query = Query::parse(&query(name, kind)).unwrap();
        Some(Message::from_vec(&designated.answer(&query, Room::Packet(1232))?).unwrap())
    }

    #[test]
    fn devices_read_what_they_are_told() {
        let at = |port, doh_path| Endpoint { ip: [10, 0, 0, 1].into(), port, doh_path };
        let endpoints = [at(853, None), at(443, Some("/dns-query{?dns}"))];
        let designated = Designated::new("Dns.Example.Aero", &endpoints).unwrap();
        let told = |name, kind| told(&designated, name, kind);
        let answer = told("_DNS.resolver.arpa.", RecordType::SVCB).unwrap();
        let shown = answer.answers.iter().map(|record| match &record.data {
            RData::SVCB(svcb) => svcb.to_string(),
            other => panic!("{other:?}"),
        });
        let shown: Vec<_> = shown.collect();
        let expected = [
            "1 dns.example.aero. alpn=dot, port=853 ipv4hint=10.0.0.1,",
            "2 dns.example.aero. alpn=h2, port=443 ipv4hint=10.0.0.1, unknown7=\"/dns-query{?dns}\",",
        ];
        assert_eq!(shown, expected);
        let [address] = &answer.additionals[..] else { panic!("{answer}") };
        assert_eq!((address.name.to_ascii().as_str(), address.ttl), ("dns.example.aero.", TTL_S));
        assert_eq!(address.data.ip_addr(), Some(IpAddr::from([10, 0, 0, 1])));
        assert!(told("_dns.resolver.arpa.", RecordType::A).is_none());
        assert!(told("resolver.arpa.", RecordType::SVCB).is_none());
    }

    #[test]
    fn names_of_the_resolver_are_known() {
        for (name, expected) in [
            (&b"\x08resolver\x04arpa\x00"[..], true),
            (b"\x04_dns\x08resolver\x04arpa\x00", true),
            (b"\x01x\x04_dns\x08resolver\x04arpa\x00", true),
            (b"\x04arpa\x00", false),
            (b"\x00", false),
            (b"\x0aa\x08resolver\x04arpa\x00", false),
        ] {
            assert_eq!(is_of_resolver(name), expected, "{name:?}");
        }
    }

    #[test]
    fn nobody_is_designated_without_a_name_or_an_address() {
        let at = Endpoint { ip: [10, 0, 0, 1].into(), port: 853, doh_path: None };
        assert_eq!(Designated::new("dns.example", &[]), None);
        for name in ["", "a..b", &"a".repeat(64), &["a"; 128].join(".")] {
            assert_eq!(Designated::new(name, std::slice::from_ref(&at)), None, "{name}");
        }
    }
}
