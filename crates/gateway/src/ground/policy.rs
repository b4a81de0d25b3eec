//! Which destinations the ground may dial.
//!
//! Aircraft reach the Internet through the hub, not the hub's own network: an
//! address is refused unless it is globally reachable (the IANA special-purpose
//! registries, RFC 6890) or the operator's `allow` names it. An IPv4 address
//! inside an IPv6 one (mapped, 6to4, NAT64) counts as that IPv4 address. The hub's
//! own addresses are refused by the same rule, global ones among them: what listens
//! there may be for the hub's own network alone.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::net::path::Path;

/// The operator's exceptions on top of the fixed rules.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    allow: Vec<IpNet>,
}

impl Policy {
    /// Refuses everything that is not globally reachable, except what `allow` names.
    pub fn new(allow: Vec<IpNet>) -> Self {
        Self { allow }
    }

    /// The address to dial for `ip`, or `None` where that is forbidden.
    pub fn permit(&self, ip: IpAddr) -> Option<IpAddr> {
        let plain = ip.to_canonical();
        let inner = match plain {
            IpAddr::V6(v6) => embedded_v4(v6).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let named = |ip| self.names(ip);
        let permitted = named(plain) || inner.is_some_and(named) || is_global(inner, plain);
        permitted.then_some(plain)
    }

    /// The way to `address`, which is permitted; [`io::ErrorKind::PermissionDenied`] where it ends
    /// at this machine and `allow` does not name it.
    pub fn path(&self, address: SocketAddr) -> io::Result<Path> {
        let path = Path::towards(address)?;
        if path.is_local()? && !self.names(address.ip()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(path)
    }

    fn names(&self, ip: IpAddr) -> bool {
        self.allow.iter().any(|net| net.contains(&ip))
    }
}

/// Judges by the IPv4 address inside, where there is one.
fn is_global(inner: Option<IpAddr>, plain: IpAddr) -> bool {
    match inner.unwrap_or(plain) {
        IpAddr::V4(v4) => !NOT_GLOBAL_V4.iter().any(|net| net.contains(&v4)),
        IpAddr::V6(v6) => {
            GLOBAL_V6.contains(&v6) && !NOT_GLOBAL_V6.iter().any(|net| net.contains(&v6))
        }
    }
}

/// The IPv4 address that a 6to4 or well-known NAT64 address leads to.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [_, _, a, b, c, d, ..] = ip.octets();
    match ip.segments() {
        [0x2002, ..] => Some(Ipv4Addr::new(a, b, c, d)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(first: u16, second: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0), prefix)
}

const NOT_GLOBAL_V4: [Ipv4Net; 15] = [
    v4(0, 0, 0, 0, 8),       // this network
    v4(10, 0, 0, 0, 8),      // private, RFC 1918
    v4(100, 64, 0, 0, 10),   // shared, RFC 6598
    v4(127, 0, 0, 0, 8),     // loopback
    v4(169, 254, 0, 0, 16),  // link-local, and every cloud's metadata service
    v4(172, 16, 0, 0, 12),   // private, RFC 1918
    v4(192, 0, 0, 0, 24),    // IETF protocol assignments
    v4(192, 0, 2, 0, 24),    // documentation
    v4(192, 88, 99, 0, 24),  // 6to4 relays, withdrawn
    v4(192, 168, 0, 0, 16),  // private, RFC 1918
    v4(198, 18, 0, 0, 15),   // benchmarking
    v4(198, 51, 100, 0, 24), // documentation
    v4(203, 0, 113, 0, 24),  // documentation
    v4(224, 0, 0, 0, 4),     // multicast
    v4(240, 0, 0, 0, 4),     // reserved, and the limited broadcast
];

/// Everything IANA has given out as global unicast lies in here; all else
/// (loopback, unique local RFC 4193, link-local, multicast) does not.
const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 3);

const NOT_GLOBAL_V6: [Ipv6Net; 3] = [
    v6(0x2001, 0, 23),     // IETF protocol assignments, Teredo among them
    v6(0x2001, 0xdb8, 32), // documentation
    v6(0x3fff, 0, 20),     // documentation
];

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(policy: &Policy, ip: &str) -> bool {
        policy.permit(ip.parse().unwrap()).is_some()
    }

    #[test]
    fn only_the_internet_is_dialled() {
        let policy = Policy::default();
        for open in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.0",
            "192.167.1.1",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2001:200::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::1",
        ] {
            assert!(permits(&policy, open), "{open} is on the Internet");
        }
        for shut in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.255.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::10.0.0.1",
            "::1.1.1.1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "5f00::1",
            "64:ff9b:1::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "2002:a00:1::1",
            "2002:c0a8:101::1",
        ] {
            assert!(!permits(&policy, shut), "{shut} is not on the Internet");
        }
    }

    #[test]
    fn the_operator_may_allow_more() {
        let policy = Policy::new(vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()]);
        assert!(permits(&policy, "10.1.2.3"));
        assert!(permits(&policy, "::ffff:10.1.2.3"));
        assert!(permits(&policy, "64:ff9b::a01:203"));
        assert!(permits(&policy, "fd12::1"));
        assert!(!permits(&policy, "10.2.0.1"));
        assert!(!permits(&policy, "127.0.0.1"));
        let mapped = "::ffff:10.1.2.3".parse().unwrap();
        assert_eq!(policy.permit(mapped), Some("10.1.2.3".parse().unwrap()));
    }
}
