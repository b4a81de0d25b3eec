//! Policy on the destinations that the ground may dial.
//!
//! Aircraft reach the Internet through the hub, not the hub's own network: an
//! address is refused unless it is globally reachable (the IANA special-purpose
//! registries, RFC 6890) or the operator's `allow` names it. An IPv4 address
//! inside an IPv6 one (mapped, 6to4, NAT64) counts as that IPv4 address. The hub's
//! own addresses are refused by the same rule, global ones among them: what listens
//! there may be for the hub's own network alone. So are its neighbours, which the kernel
//! reaches without a gateway. What `deny` names is refused in any case.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::{Denied, Dial, Nat64};
use crate::net::path::{End, Path, Paths};
use crate::quiet::Quiet;

/// The operator's rules on top of the fixed ones.
#[derive(Default)]
pub struct Policy {
    allow: Vec<IpNet>,
    deny: Vec<Denied>,
    nat64: Vec<Nat64>,
    paths: Arc<Paths>,
    quiet: Quiet,
}

impl Policy {
    /// Refuses everything that is not globally reachable or that `dial` denies, except what it allows.
    pub fn new(dial: &Dial) -> Self {
        let (allow, deny, nat64) = (dial.allow.clone(), dial.deny.clone(), dial.nat64.clone());
        Self { allow, deny, nat64, ..Self::default() }
    }

    /// The address to dial for `ip`, or `None` if that is forbidden for `protocol` and `port`.
    pub fn permit(&self, ip: IpAddr, protocol: u8, port: u16) -> Option<IpAddr> {
        let plain = ip.to_canonical();
        let inner = self.inner(plain);
        let named = |ip| self.names(ip);
        let permitted = named(plain) || inner.is_some_and(named) || is_global(inner, plain);
        (permitted && !self.denies(plain, protocol, port)).then_some(plain)
    }

    /// Returns `true` if `deny` names the destination, or the IPv4 address inside it.
    pub fn denies(&self, ip: IpAddr, protocol: u8, port: u16) -> bool {
        let plain = ip.to_canonical();
        let named = |ip| self.deny.iter().any(|denied| denied.names(ip, protocol, port));
        named(plain) || self.inner(plain).is_some_and(named)
    }

    /// The path to `address`, which is permitted; [`io::ErrorKind::PermissionDenied`] if it ends
    /// at this machine or at a neighbour, and `allow` does not name it.
    pub fn path(&self, address: SocketAddr) -> io::Result<Path> {
        let path = self.paths.towards(address)?;
        let ip = address.ip();
        let is_own = match path.end {
            End::Here => true,
            // The neighbour is the translator, not the destination.
            End::OnLink => self.inner(ip).is_none(),
            End::Beyond => false,
        };
        if !is_own || self.names(ip) {
            return Ok(path);
        }
        if path.end == End::OnLink {
            self.quiet.warn(
                "a passenger asked for a neighbour of this gateway: write it under [dial] allow if \
                 it may be dialled",
                &ip,
            );
        }
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// Client for the kernel's routes.
    pub fn paths(&self) -> Arc<Paths> {
        self.paths.clone()
    }

    fn names(&self, ip: IpAddr) -> bool {
        self.allow.iter().any(|net| net.contains(&ip))
    }

    /// The IPv4 address that `ip` leads to through a translator or a tunnel.
    fn inner(&self, ip: IpAddr) -> Option<IpAddr> {
        let IpAddr::V6(v6) = ip else { return None };
        let by_operator = self.nat64.iter().find_map(|prefix| prefix.inside(v6));
        by_operator.or_else(|| embedded_v4(v6)).map(IpAddr::V4)
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
    use crate::net::ip;

    fn policy(dial: &str) -> Policy {
        Policy::new(&toml::from_str(dial).unwrap())
    }

    fn permits(policy: &Policy, ip: &str) -> bool {
        policy.permit(ip.parse().unwrap(), ip::TCP, 443).is_some()
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
        let policy = policy("allow = [\"10.1.0.0/16\", \"fd00::/8\"]");
        assert!(permits(&policy, "10.1.2.3"));
        assert!(permits(&policy, "::ffff:10.1.2.3"));
        assert!(permits(&policy, "64:ff9b::a01:203"));
        assert!(permits(&policy, "fd12::1"));
        assert!(!permits(&policy, "10.2.0.1"));
        assert!(!permits(&policy, "127.0.0.1"));
        let mapped = "::ffff:10.1.2.3".parse().unwrap();
        assert_eq!(policy.permit(mapped, ip::TCP, 443), Some("10.1.2.3".parse().unwrap()));
    }

    #[test]
    fn what_is_denied_is_never_dialled() {
        let to = |policy: &Policy, ip: &str, protocol, port| {
            policy.permit(ip.parse().unwrap(), protocol, port).is_some()
        };
        let safe = policy("");
        for metadata in ["168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110"] {
            assert!(!to(&safe, metadata, ip::TCP, 32_526), "{metadata}");
            assert!(!to(&safe, metadata, ip::UDP, 53), "{metadata}");
            assert!(!to(&safe, metadata, ip::ICMP, 0), "{metadata}");
        }
        assert!(!to(&safe, "1.1.1.1", ip::TCP, 25));
        assert!(!to(&safe, "2606:4700::1111", ip::TCP, 25));
        assert!(to(&safe, "1.1.1.1", ip::TCP, 587) && to(&safe, "1.1.1.1", ip::UDP, 25));
        let both = policy("allow = [\"10.0.0.0/8\"]\ndeny = [\"10.9.0.0/16\"]");
        assert!(to(&both, "10.8.0.1", ip::TCP, 80) && !to(&both, "10.9.0.1", ip::TCP, 80));
        assert!(to(&both, "1.1.1.1", ip::TCP, 25), "the operator's list is the whole list");
    }

    #[test]
    fn translators_are_seen_through() {
        let address = "2a01:4f8:64::10.0.0.1";
        assert!(permits(&policy(""), address), "nobody said that it is a translator's");
        let known = policy("nat64 = [\"2a01:4f8:64::/96\", \"64:ff9b:1::/48\"]");
        assert!(!permits(&known, address));
        assert!(permits(&known, "2a01:4f8:64::1.1.1.1"));
        assert!(!permits(&known, "2a01:4f8:64::168.63.129.16"));
        assert!(permits(&known, "64:ff9b:1:101:1:100::"), "1.1.1.1 by a prefix of 48 bits");
        assert!(!permits(&known, "64:ff9b:1:a00:0:100::"), "10.0.0.1 by it");
        let allowed = policy("nat64 = [\"2a01:4f8:64::/96\"]\nallow = [\"10.0.0.1/32\"]");
        assert!(permits(&allowed, address));
    }
}
