//! Networks in which one client may choose its address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that one client may use: an IPv4 address, or an IPv6 /64 (RFC 4291 section 2.5.4). A
/// /64 often covers a whole cabin, and one device of it may forge all the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientNetwork {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 /64, by its upper half.
    V6(u64),
}

impl ClientNetwork {
    /// Network of `client`. An IPv4-mapped address is an IPv4 address.
    pub fn of(client: IpAddr) -> Self {
        match client.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            // The upper 64 of 128 bits.
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }

    /// The IPv6 /64, if it is one.
    pub fn v6(self) -> Option<u64> {
        match self {
            Self::V4(_) => None,
            Self::V6(upper) => Some(upper),
        }
    }

    /// Address of the network; of an IPv6 network the one that ends in zeros.
    pub fn address(self) -> IpAddr {
        match self {
            Self::V4(address) => address.into(),
            Self::V6(upper) => Ipv6Addr::from_bits(u128::from(upper) << 64).into(),
        }
    }
}

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => address.fmt(f),
            Self::V6(_) => write!(f, "{}/64", self.address()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_an_ipv4_address_or_an_ipv6_64() {
        let of = |ip: &str| ClientNetwork::of(ip.parse().unwrap());
        assert_eq!(of("::ffff:10.0.0.7"), of("10.0.0.7"));
        assert_ne!(of("10.0.0.7"), of("10.0.0.8"));
        assert_eq!(of("2001:db8:0:7:1:2:3:4"), of("2001:db8:0:7::"));
        assert_ne!(of("2001:db8:0:7::"), of("2001:db8:0:8::"));
        assert_eq!(of("2001:db8:0:7:1:2:3:4").v6(), Some(0x2001_0db8_0000_0007));
        assert_eq!(of("10.0.0.7").v6(), None);
    }

    #[test]
    fn a_network_is_written_as_operators_write_it() {
        let shown = |ip: &str| ClientNetwork::of(ip.parse().unwrap()).to_string();
        assert_eq!(shown("10.0.0.7"), "10.0.0.7");
        assert_eq!(shown("2001:db8:0:7:1:2:3:4"), "2001:db8:0:7::/64");
        let network = ClientNetwork::of("2001:db8:0:7::9".parse().unwrap());
        assert_eq!(network.address(), "2001:db8:0:7::".parse::<IpAddr>().unwrap());
    }
}
