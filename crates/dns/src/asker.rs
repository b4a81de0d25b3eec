//! Identity of a client for limits.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use bentpipe_flow::ClientNetwork;
use bentpipe_flow::quota::Client;

/// Identity of a client for limits. The caller determines the device of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asker {
    /// Device of the cabin's network, by hardware address, whatever IP addresses it uses.
    Device([u8; 6]),
    /// Address of an unknown device. All addresses of one IPv6 /64 also share a common limit,
    /// because a client there may choose its address freely.
    Address(IpAddr),
    /// All sources whose address may be forged.
    Unproven,
}

impl Client for Asker {
    fn network(&self) -> Option<u64> {
        match self {
            Self::Address(ip) => ClientNetwork::of(*ip).v6(),
            Self::Device(_) | Self::Unproven => None,
        }
    }
}

impl From<IpAddr> for Asker {
    fn from(ip: IpAddr) -> Self {
        Self::Address(ip.to_canonical())
    }
}

impl From<[u8; 4]> for Asker {
    fn from(ip: [u8; 4]) -> Self {
        Self::Address(ip.into())
    }
}

impl From<Ipv6Addr> for Asker {
    fn from(ip: Ipv6Addr) -> Self {
        IpAddr::from(ip).into()
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::Address(ip) => ip.fmt(f),
            Self::Unproven => f.write_str("everyone without a neighbour entry"),
        }
    }
}
