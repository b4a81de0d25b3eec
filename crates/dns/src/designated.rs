//! Discovery of designated resolvers (DDR, RFC 9462): SVCB records (RFC 9460) as RFC 9461 defines
//! them for resolvers. Queries for `resolver.arpa` are never forwarded, because the answer would be
//! about another resolver.

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

/// Zone that every resolver serves for itself, and the name in it that devices query.
const ZONE: &[u8] = b"\x08resolver\x04arpa\x00";
const DISCOVERY_NAME: &[u8] = b"\x04_dns\x08resolver\x04arpa\x00";

/// TTL of the records: short, so that new addresses after a restart are noticed soon.
const TTL_S: u32 = 300;

/// Maximum number of endpoints: with the longest name about 3 KiB.
pub const MAX_ENDPOINTS: usize = 8;

/// Key of the service parameter `dohpath` (RFC 9461 section 5), which hickory does not name.
const DOH_PATH: SvcParamKey = SvcParamKey::Unknown(7);

/// Endpoint of the encrypted resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// IP address.
    pub ip: IpAddr,
    /// Port.
    pub port: u16,
    /// URI template of DNS over HTTPS; `None` means DNS over TLS.
    pub doh_path: Option<&'static str>,
}

/// Answer that designates the resolver's encrypted endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Designated {
    answer: Answer,
}

/// Returns `true` if `name`, in wire format and lower case, is `resolver.arpa` or below it.
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
    /// Designates a resolver whose certificate is for `name`, at the first [`MAX_ENDPOINTS`] of
    /// `endpoints`. Returns `None` if there are none, or if `name` is not a domain name.
    pub fn new(name: &str, endpoints: &[Endpoint]) -> Option<Self> {
        let name = Name::from_ascii(name).ok().filter(|name| name.num_labels() > 0)?;
        let mut name = name.to_lowercase();
        name.set_fqdn(true);
        let endpoints = &endpoints[..endpoints.len().min(MAX_ENDPOINTS)];
        if endpoints.is_empty() {
            return None;
        }
        let (kind, class) = (RecordType::SVCB, DNSClass::IN);
        let owner = Name::from_bytes(DISCOVERY_NAME).ok()?;
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(op::Query::query(owner.clone(), kind));
        let mut ips = Vec::new();
        for (endpoint, priority) in endpoints.iter().zip(1u16..) {
            let service = SVCB::new(priority, name.clone(), endpoint.parameters());
            message.add_answer(Record::from_rdata(owner.clone(), TTL_S, RData::SVCB(service)));
            if !ips.contains(&endpoint.ip) {
                ips.push(endpoint.ip);
            }
        }
        // Address records of the endpoints (RFC 9462 section 4).
        for ip in ips {
            message.add_additional(Record::from_rdata(name.clone(), TTL_S, ip.into()));
        }
        let key = Key::new(Question { name: DISCOVERY_NAME, kind, class }, false, false);
        let answer = Answer::parse(&key, &message.to_vec().ok()?).ok()?;
        Some(Self { answer })
    }

    /// Answer to `query`, if it is a discovery query.
    pub fn answer(&self, query: &Query, room: Room) -> Option<Vec<u8>> {
        let is_discovery =
            query.key.name() == DISCOVERY_NAME && query.key.kind() == RecordType::SVCB;
        is_discovery.then(|| self.answer.relay(query, room))
    }
}

impl Endpoint {
    /// Service parameters in the order of their keys (RFC 9460 section 2.2).
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

    fn designation(designated: &Designated, name: &str, kind: RecordType) -> Option<Message> {
        let query = Query::parse(&query(name, kind)).unwrap();
        Some(Message::from_vec(&designated.answer(&query, Room::Packet(1232))?).unwrap())
    }

    #[test]
    fn designations_are_well_formed() {
        let at = |port, doh_path| Endpoint { ip: [10, 0, 0, 1].into(), port, doh_path };
        let endpoints = [at(853, None), at(443, Some("/dns-query{?dns}"))];
        let designated = Designated::new("Dns.Example.Aero", &endpoints).unwrap();
        let designation = |name, kind| designation(&designated, name, kind);
        let answer = designation("_DNS.resolver.arpa.", RecordType::SVCB).unwrap();
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
        assert!(designation("_dns.resolver.arpa.", RecordType::A).is_none());
        assert!(designation("resolver.arpa.", RecordType::SVCB).is_none());
    }

    #[test]
    fn names_below_resolver_arpa_are_recognized() {
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
    fn a_designation_needs_a_name_and_an_address() {
        let at = Endpoint { ip: [10, 0, 0, 1].into(), port: 853, doh_path: None };
        assert_eq!(Designated::new("dns.example", &[]), None);
        for name in ["", "a..b", &"a".repeat(64), &["a"; 128].join(".")] {
            assert_eq!(Designated::new(name, std::slice::from_ref(&at)), None, "{name}");
        }
    }
}
