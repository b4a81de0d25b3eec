//! Target of a flow: an address, a name or a service of the ground gateway, and a port.
//!
//! On the wire a target has three parts, and exactly one encoding:
//!
//! 1. one byte of kind: 1 = IPv4, 2 = IPv6, 3 = name, 4 = service;
//! 2. the address in network order, the name after its length in one byte, or the service's number in
//!    one byte;
//! 3. the port in network order.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Maximum length of a name, in bytes: the length is one byte on the wire.
pub const MAX_NAME_BYTES: usize = 255;

const KIND_V4: u8 = 1;
const KIND_V6: u8 = 2;
const KIND_NAME: u8 = 3;
const KIND_SERVICE: u8 = 4;

/// Destination of a flow, displayed and parsed as `host:port` or `[v6]:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The address or name.
    pub host: Host,
    /// The TCP or UDP port.
    pub port: u16,
}

/// An address, or a name that the ground resolves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A host name: letters, digits, `-`, `_` and dots; never an address as text.
    Name(String),
    /// An address.
    Ip(IpAddr),
    /// The ground gateway itself. No text parses as a service, so that passengers cannot name one.
    Service(Service),
}

/// Service of the ground gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// DNS resolver, on a datagram flow or on a stream with two bytes of length before each message
    /// (RFC 1035, section 4.2.2).
    Resolver,
    /// Ground half of Split HTTP, on a stream: fetches a page with the objects that it will
    /// request.
    Pages,
    /// Flows that outlive their hub: a carrier of one, on a stream.
    Anchor,
}

impl Service {
    /// Every service.
    pub const ALL: [Self; 3] = [Self::Resolver, Self::Pages, Self::Anchor];

    /// Number on the wire.
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Resolver => 1,
            Self::Pages => 2,
            Self::Anchor => 3,
        }
    }

    /// Returns the service with this number.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.to_u8() == number)
    }

    /// Name of the service where only names can stand. No DNS name ends like this (RFC 6761,
    /// section 6.4).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resolver => "resolver.bentpipe.invalid",
            Self::Pages => "pages.bentpipe.invalid",
            Self::Anchor => "anchor.bentpipe.invalid",
        }
    }

    /// Returns the service with this [`name`](Self::name), in any case and with or without a final
    /// dot.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.strip_suffix('.').unwrap_or(name);
        Self::ALL.into_iter().find(|service| service.name().eq_ignore_ascii_case(name))
    }
}

/// Reason for which bytes or text are not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The bytes end before the target does.
    #[error("the target is cut short")]
    Short,
    /// The kind is unknown.
    #[error("the target has the unknown kind {0}")]
    Kind(u8),
    /// The service is unknown.
    #[error("the target has the unknown service {0}")]
    Service(u8),
    /// The host is neither an address nor a host name.
    #[error("{0:?} is not a host name: write letters, digits, '-', '_' and dots, at most 255")]
    Name(String),
    /// The text has no valid port.
    #[error("{0:?} has no valid port: write \"host:port\" or \"[IPv6 address]:port\"")]
    Port(String),
}

impl Target {
    /// Appends the encoding to `out`; an invalid [`Host::Name`] leaves `out` as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TargetError> {
        match &self.host {
            Host::Ip(IpAddr::V4(ip)) => {
                out.push(KIND_V4);
                out.extend(ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                out.push(KIND_V6);
                out.extend(ip.octets());
            }
            Host::Name(name) => {
                check_name(name)?;
                out.push(KIND_NAME);
                // Fits: check_name allows at most 255 bytes.
                out.push(name.len() as u8);
                out.extend(name.as_bytes());
            }
            Host::Service(service) => out.extend([KIND_SERVICE, service.to_u8()]),
        }
        out.extend(self.port.to_be_bytes());
        Ok(())
    }

    /// Reads a target from the front of `bytes`. Returns it and its length.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), TargetError> {
        let (kind, rest) = take::<1>(bytes)?;
        let (host, rest) = match kind {
            [KIND_V4] => {
                let (octets, rest) = take::<4>(rest)?;
                (Host::Ip(Ipv4Addr::from(octets).into()), rest)
            }
            [KIND_V6] => {
                let (octets, rest) = take::<16>(rest)?;
                (Host::Ip(Ipv6Addr::from(octets).into()), rest)
            }
            [KIND_NAME] => {
                let ([length], rest) = take::<1>(rest)?;
                let (name, rest) =
                    rest.split_at_checked(usize::from(length)).ok_or(TargetError::Short)?;
                let name = String::from_utf8_lossy(name).into_owned();
                check_name(&name)?;
                (Host::Name(name), rest)
            }
            [KIND_SERVICE] => {
                let ([number], rest) = take::<1>(rest)?;
                let service = Service::from_u8(number).ok_or(TargetError::Service(number))?;
                (Host::Service(service), rest)
            }
            [other] => return Err(TargetError::Kind(other)),
        };
        let (port, rest) = take::<2>(rest)?;
        let target = Self { host, port: u16::from_be_bytes(port) };
        Ok((target, bytes.len() - rest.len()))
    }
}

impl Host {
    /// Returns the name, if the host is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Ip(_) | Self::Service(_) => None,
        }
    }
}

/// Splits `N` bytes off the front.
fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), TargetError> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(TargetError::Short)?;
    Ok((*head, rest))
}

/// Checks that a name is a host name and not an address as text.
fn check_name(name: &str) -> Result<(), TargetError> {
    let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let labels = name.strip_suffix('.').unwrap_or(name);
    let good = name.len() <= MAX_NAME_BYTES
        && name.bytes().all(letters)
        && labels.split('.').all(|label| (1..=63).contains(&label.len()))
        && name.parse::<IpAddr>().is_err();
    if good { Ok(()) } else { Err(TargetError::Name(name.chars().take(80).collect())) }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Ip(address.ip()), port: address.port() }
    }
}

impl FromStr for Host {
    type Err = TargetError;

    /// Parses an address (IPv6 with or without brackets), or else a name.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let ip: Ipv6Addr = inner.parse().map_err(|_| TargetError::Name(text.into()))?;
            return Ok(Self::Ip(ip.into()));
        }
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        check_name(text)?;
        Ok(Self::Name(text.to_owned()))
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let no_port = || TargetError::Port(text.chars().take(80).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
        // Without brackets, the last group of an IPv6 address would look like a port.
        if host.contains(':') && !host.starts_with('[') {
            return Err(no_port());
        }
        if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(no_port());
        }
        Ok(Self { host: host.parse()?, port: port.parse().map_err(|_| no_port())? })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.pad(name),
            Self::Ip(ip) => ip.fmt(f),
            Self::Service(service) => f.pad(service.name()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host() -> impl Strategy<Value = Host> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(|o| Host::Ip(Ipv4Addr::from(o).into())),
            any::<[u8; 16]>().prop_map(|o| Host::Ip(Ipv6Addr::from(o).into())),
            "[a-z_]([a-z0-9-]{0,20}[a-z0-9])?(\\.[a-z][a-z0-9-]{0,30}){0,6}".prop_map(Host::Name),
            prop::sample::select(&Service::ALL[..]).prop_map(Host::Service),
        ]
    }

    proptest! {
        #[test]
        fn targets_read_back(host in host(), port: u16, tail in prop::collection::vec(any::<u8>(), 0..4)) {
            let target = Target { host, port };
            let mut bytes = Vec::new();
            target.encode(&mut bytes).unwrap();
            let length = bytes.len();
            bytes.extend(tail);
            prop_assert_eq!(Target::decode(&bytes), Ok((target.clone(), length)));
            if !matches!(target.host, Host::Service(_)) {
                prop_assert_eq!(target.to_string().parse(), Ok(target));
            }
            for short in 0..length {
                prop_assert!(Target::decode(&bytes[..short]).is_err());
            }
        }

        #[test]
        fn whatever_parses_has_one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((target, length)) = Target::decode(&bytes) {
                let mut again = Vec::new();
                target.encode(&mut again).unwrap();
                prop_assert_eq!(&again[..], &bytes[..length]);
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Target>();
            let _ = text.parse::<Host>();
        }
    }

    #[test]
    fn text_forms() {
        let show = |text: &str| text.parse::<Target>().map(|target| target.to_string());
        assert_eq!(show("example.net:443").as_deref(), Ok("example.net:443"));
        assert_eq!(show("[2001:db8::1]:80").as_deref(), Ok("[2001:db8::1]:80"));
        assert_eq!(show("192.0.2.7:80").as_deref(), Ok("192.0.2.7:80"));
        for wrong in [
            "example.net",
            "example.net:",
            "example.net:+80",
            "example.net:70000",
            "2001:db8::1",
            ":80",
            "a..b:80",
            "a b:80",
            "[192.0.2.7]:80",
            "a\0b:80",
        ] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong:?} must not parse");
        }
    }

    #[test]
    fn services_have_numbers_and_no_text_parses_as_one() {
        for service in Service::ALL {
            let target = Target { host: Host::Service(service), port: 53 };
            let mut bytes = Vec::new();
            target.encode(&mut bytes).unwrap();
            assert_eq!(bytes, [4, service.to_u8(), 0, 53]);
            assert_eq!(Target::decode(&bytes), Ok((target, 4)));
            // The text is a name like any other.
            assert_eq!(service.name().parse(), Ok(Host::Name(service.name().into())));
            assert_eq!(
                Service::named(&format!("{}.", service.name().to_uppercase())),
                Some(service)
            );
        }
        assert_eq!(Target::decode(&[4, 4, 0, 80]), Err(TargetError::Service(4)));
        assert_eq!(Target::decode(&[4, 0, 0, 80]), Err(TargetError::Service(0)));
        assert_eq!(Service::named("bentpipe.invalid"), None);
    }

    #[test]
    fn an_address_as_text_is_not_a_name() {
        let target = Target { host: Host::Name("10.0.0.1".into()), port: 80 };
        assert!(target.encode(&mut Vec::new()).is_err());
        assert!(Target::decode(b"\x03\x0810.0.0.1\x00\x50").is_err());
        assert_eq!("10.0.0.1".parse(), Ok(Host::Ip([10, 0, 0, 1].into())));
    }

    #[test]
    fn long_names_are_refused() {
        let label = "a".repeat(63);
        let name = [&label[..]; 4].join(".");
        assert_eq!(name.len(), MAX_NAME_BYTES);
        assert!(name.parse::<Host>().is_ok());
        assert!((name + "a").parse::<Host>().is_err());
        assert!("a".repeat(64).parse::<Host>().is_err());
    }
}
