//! What devices are told that ask the resolver for its encrypted siblings (DDR, RFC 9462): SVCB records
//! (RFC 9460) as RFC 9461 has them for resolvers. `resolver.arpa` is of each resolver's own and is never
//! asked for elsewhere, where the answer would be another resolver's.

use std::net::IpAddr;

use crate::answer::Answer;
use crate::query::{Query, Room};
use crate::wire::{self, MAX_NAME, rcode, record};

/// The zone that every resolver has its own of, and the name in it that devices ask for.
const ZONE: &[u8] = b"\x08resolver\x04arpa\x00";
const ASKED: &[u8] = b"\x04_dns\x08resolver\x04arpa\x00";

/// How long it holds: a restart with other addresses shows soon.
const TTL_S: u32 = 300;

/// Endpoints that are told; with the longest name that is some 3 KiB.
pub const MOST_ENDPOINTS: usize = 8;

/// Keys of service parameters (RFC 9460 section 14.3.2, RFC 9461 section 5).
const ALPN: u16 = 1;
const PORT: u16 = 3;
const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;
const DOH_PATH: u16 = 7;

/// Where the resolver is reached encrypted.
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
    records: Vec<u8>,
    answers: u16,
    additional: u16,
}

/// Whether `name`, on the wire and in lower case, is `resolver.arpa` or below it.
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
        let name = to_wire(name)?;
        let endpoints = &endpoints[..endpoints.len().min(MOST_ENDPOINTS)];
        let (mut records, mut ips) = (Vec::new(), Vec::new());
        for (endpoint, priority) in endpoints.iter().zip(1u16..) {
            // The owner is the question's.
            records.extend([0xc0, wire::HEADER as u8]);
            let target = [&priority.to_be_bytes()[..], &name].concat();
            put(&mut records, record::SVCB, &[target, endpoint.parameters()].concat());
            if !ips.contains(&endpoint.ip) {
                ips.push(endpoint.ip);
            }
        }
        // RFC 9462 section 4: the addresses too.
        for ip in &ips {
            records.extend_from_slice(&name);
            match ip {
                IpAddr::V4(ip) => put(&mut records, record::A, &ip.octets()),
                IpAddr::V6(ip) => put(&mut records, record::AAAA, &ip.octets()),
            }
        }
        let (answers, additional) = (endpoints.len() as u16, ips.len() as u16);
        (answers > 0).then_some(Self { records, answers, additional })
    }

    /// The answer to `query`, where it is the question for this.
    pub fn answer(&self, query: &Query, room: Room) -> Option<Vec<u8>> {
        if query.key.name() != ASKED || query.key.kind() != record::SVCB {
            return None;
        }
        let mut message = Vec::with_capacity(64 + self.records.len());
        query.head(rcode::NOERROR, &mut message);
        wire::set(&mut message, 6, self.answers);
        wire::set(&mut message, 10, self.additional);
        message.extend_from_slice(&self.records);
        Some(Answer::parse(&query.key, &message).ok()?.relay(query, room))
    }
}

impl Endpoint {
    /// By their keys, as they have to be (RFC 9460 section 2.2).
    fn parameters(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |key: u16, value: &[u8]| {
            out.extend(key.to_be_bytes());
            out.extend((value.len() as u16).to_be_bytes());
            out.extend_from_slice(value);
        };
        put(ALPN, if self.doh_path.is_some() { b"\x02h2" } else { b"\x03dot" });
        put(PORT, &self.port.to_be_bytes());
        match self.ip {
            IpAddr::V4(ip) => put(IPV4_HINT, &ip.octets()),
            IpAddr::V6(ip) => put(IPV6_HINT, &ip.octets()),
        }
        if let Some(path) = self.doh_path {
            put(DOH_PATH, path.as_bytes());
        }
        out
    }
}

/// What of a record follows its owner.
fn put(out: &mut Vec<u8>, kind: u16, data: &[u8]) {
    out.extend(kind.to_be_bytes());
    out.extend(1u16.to_be_bytes());
    out.extend(TTL_S.to_be_bytes());
    out.extend((data.len() as u16).to_be_bytes());
    out.extend_from_slice(data);
}

fn to_wire(name: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?;
        out.push(length);
        out.extend(label.bytes().map(|b| b.to_ascii_lowercase()));
    }
    out.push(0);
    (out.len() <= MAX_NAME).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::query;
    use hickory_proto::op::Message;
    use hickory_proto::rr::{RData, RecordType};

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
