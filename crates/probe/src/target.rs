//! Targets of pings, and the methods that reach them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Maximum number of targets of a run. Each costs a ping of at most 84 bytes every 2 s in each direction: 16 targets
/// take 10.8 kbit/s.
pub const MAX_TARGETS: usize = 16;

/// Port of a TCP ping if none is named. Public resolvers and most sites listen there.
pub const DEFAULT_TCP_PORT: u16 = 443;

/// Port of the echo service (RFC 862).
pub const DEFAULT_UDP_PORT: u16 = 7;

/// Version of IP.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The address that stands for any address of the host.
    pub fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

/// A kind of ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "method")]
pub enum Method {
    /// ICMP echo.
    Icmp,
    /// A datagram to an echo server. A "port unreachable" is a reply too.
    Udp {
        /// Destination port.
        port: u16,
    },
    /// The handshake of a TCP connection, closed at once. A refusal is a reply too.
    Tcp {
        /// Destination port.
        port: u16,
    },
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Icmp => write!(f, "icmp"),
            Self::Udp { port } => write!(f, "udp/{port}"),
            Self::Tcp { port } => write!(f, "tcp/{port}"),
        }
    }
}

/// Position of a target. Only targets beyond the radio tell its delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// In the cabin, or not known to be outside: the gateway, the DHCP resolver.
    Near,
    /// Beyond the radio: public addresses.
    Far,
}

/// A destination of pings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name in records and tables.
    pub name: String,
    /// Address, always literal: a lookup would be a measurement of its own.
    pub address: IpAddr,
    /// Methods to use, the preferred one first.
    pub methods: Vec<Method>,
    /// Position.
    pub side: Side,
}

impl Target {
    /// A target pinged by ICMP, or by TCP if ICMP is not allowed or not answered.
    pub fn automatic(name: impl Into<String>, address: IpAddr, tcp_port: u16, side: Side) -> Self {
        let methods = vec![Method::Icmp, Method::Tcp { port: tcp_port }];
        Self { name: name.into(), address, methods, side }
    }
}

/// Text that does not name a target.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "`{text}` does not name a target: {why}. Write ADDRESS, icmp:ADDRESS, tcp:ADDRESS:PORT or udp:ADDRESS:PORT, \
     for example 192.0.2.1, tcp:192.0.2.1:443 or tcp:[2001:db8::1]:443, with NAME= in front if you like"
)]
pub struct NotATarget {
    text: String,
    why: &'static str,
}

impl FromStr for Target {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, NotATarget> {
        let fault = |why| NotATarget { text: text.into(), why };
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) => (Some(name), rest),
            None => (None, text),
        };
        let (address, methods) = reach(rest).ok_or_else(|| fault("it has no literal address"))?;
        let unusable = address.is_unspecified() || address.is_multicast();
        if unusable {
            return Err(fault("its address is not that of one host"));
        }
        let name = name.map_or_else(|| rest.to_owned(), str::to_owned);
        if name.is_empty() || name.len() > 40 || name.chars().any(char::is_control) {
            return Err(fault("its name is empty, has control characters or exceeds 40 bytes"));
        }
        Ok(Self { name, address, methods, side: side(address) })
    }
}

/// Parses everything after the name.
fn reach(text: &str) -> Option<(IpAddr, Vec<Method>)> {
    if let Some(rest) = text.strip_prefix("icmp:") {
        return Some((literal(rest)?, vec![Method::Icmp]));
    }
    if let Some(rest) = text.strip_prefix("tcp:") {
        let (address, port) = with_port(rest, DEFAULT_TCP_PORT)?;
        return Some((address, vec![Method::Tcp { port }]));
    }
    if let Some(rest) = text.strip_prefix("udp:") {
        let (address, port) = with_port(rest, DEFAULT_UDP_PORT)?;
        return Some((address, vec![Method::Udp { port }]));
    }
    let (address, port) = with_port(text, DEFAULT_TCP_PORT)?;
    Some((address, vec![Method::Icmp, Method::Tcp { port }]))
}

fn with_port(text: &str, default: u16) -> Option<(IpAddr, u16)> {
    if let Some(address) = literal(text) {
        return Some((address, default));
    }
    let whole: SocketAddr = text.parse().ok()?;
    (whole.port() != 0).then(|| (whole.ip(), whole.port()))
}

fn literal(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

/// Side of an address: private and local ones may be in the cabin.
pub fn side(address: IpAddr) -> Side {
    let near = match address {
        IpAddr::V4(v4) => {
            // 100.64.0.0/10 is behind a carrier's NAT (RFC 6598).
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || shared
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    };
    if near { Side::Near } else { Side::Far }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Target {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn all_ways_of_writing_a_target() {
        let plain = parse("1.1.1.1");
        assert_eq!(plain.methods, [Method::Icmp, Method::Tcp { port: 443 }]);
        assert_eq!((plain.name.as_str(), plain.side), ("1.1.1.1", Side::Far));
        let named = parse("ours=udp:[2001:db8::1]:4000");
        assert_eq!(named.methods, [Method::Udp { port: 4000 }]);
        assert_eq!(named.name, "ours");
        assert_eq!(parse("tcp:10.0.0.1").methods, [Method::Tcp { port: 443 }]);
        assert_eq!(parse("tcp:10.0.0.1").side, Side::Near);
        assert_eq!(parse("icmp:fe80::1").side, Side::Near);
        assert_eq!(parse("100.64.0.1").side, Side::Near);
        assert_eq!(parse("100.128.0.1").side, Side::Far);
    }

    #[test]
    fn faults_say_what_to_write() {
        for text in
            ["example.com", "", "=1.1.1.1", "tcp:1.1.1.1:0", "0.0.0.0", "ff02::1", "icmp:1.1.1.1:7"]
        {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("tcp:192.0.2.1:443"), "{text}: {error}");
        }
    }
}
