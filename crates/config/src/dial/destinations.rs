//! Destinations that the ground gateway may dial.
//!
//! An address is permitted if `deny` does not name it, and one of these holds:
//!
//! - it is globally reachable (IANA special-purpose registries, RFC 6890);
//! - `allow` names it.
//!
//! An IPv4 address embedded in an IPv6 address (mapped, 6to4, NAT64) counts as that IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::Dial;

impl Dial {
    /// Returns the address to dial for `ip`, or `None` if it is forbidden for `protocol` and
    /// `port`.
    pub fn permit(&self, ip: IpAddr, protocol: u8, port: u16) -> Option<IpAddr> {
        let plain = ip.to_canonical();
        let inner = self.inner(plain);
        let named = |ip| self.allows(ip);
        let permitted = named(plain) || inner.is_some_and(named) || is_global(inner, plain);
        (permitted && !self.denies(plain, protocol, port)).then_some(plain)
    }

    /// Returns `true` if `deny` names the destination or its embedded IPv4 address.
    pub fn denies(&self, ip: IpAddr, protocol: u8, port: u16) -> bool {
        let plain = ip.to_canonical();
        let named = |ip| self.deny.iter().any(|denied| denied.names(ip, protocol, port));
        named(plain) || self.inner(plain).is_some_and(named)
    }

    /// Returns `true` if `allow` names `ip`.
    pub fn allows(&self, ip: IpAddr) -> bool {
        self.allow.iter().any(|net| net.contains(&ip))
    }

    /// IPv4 address that `ip` leads to through a translator or a tunnel.
    pub fn inner(&self, ip: IpAddr) -> Option<IpAddr> {
        let IpAddr::V6(v6) = ip else { return None };
        let by_operator = self.nat64.iter().find_map(|prefix| prefix.inside(v6));
        by_operator.or_else(|| embedded_v4(v6)).map(IpAddr::V4)
    }
}

/// Judges by the embedded IPv4 address, if any.
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

/// IANA's global unicast space. Everything else (loopback, unique local RFC 4193, link-local,
/// multicast) is outside it.
const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 3);

const NOT_GLOBAL_V6: [Ipv6Net; 3] = [
    v6(0x2001, 0, 23),     // IETF protocol assignments, including Teredo
    v6(0x2001, 0xdb8, 32), // documentation
    v6(0x3fff, 0, 20),     // documentation
];

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::ip;

    fn dial(written: &str) -> Dial {
        toml::from_str(written).unwrap()
    }

    fn permits(dial: &Dial, ip: &str) -> bool {
        dial.permit(ip.parse().unwrap(), ip::TCP, 443).is_some()
    }

    #[test]
    fn only_the_internet_is_dialled() {
        let dial = Dial { deny: Vec::new(), ..Dial::default() };
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
            assert!(permits(&dial, open), "{open} is on the Internet");
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
            assert!(!permits(&dial, shut), "{shut} is not on the Internet");
        }
    }

    #[test]
    fn the_operator_may_allow_more() {
        let dial = dial("allow = [\"10.1.0.0/16\", \"fd00::/8\"]");
        assert!(permits(&dial, "10.1.2.3"));
        assert!(permits(&dial, "::ffff:10.1.2.3"));
        assert!(permits(&dial, "64:ff9b::a01:203"));
        assert!(permits(&dial, "fd12::1"));
        assert!(!permits(&dial, "10.2.0.1"));
        assert!(!permits(&dial, "127.0.0.1"));
        let mapped = "::ffff:10.1.2.3".parse().unwrap();
        assert_eq!(dial.permit(mapped, ip::TCP, 443), Some("10.1.2.3".parse().unwrap()));
    }

    #[test]
    fn denied_destinations_are_never_dialled() {
        let to = |dial: &Dial, ip: &str, protocol, port| {
            dial.permit(ip.parse().unwrap(), protocol, port).is_some()
        };
        let safe = dial("");
        for metadata in ["168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110"] {
            assert!(!to(&safe, metadata, ip::TCP, 32_526), "{metadata}");
            assert!(!to(&safe, metadata, ip::UDP, 53), "{metadata}");
            assert!(!to(&safe, metadata, ip::ICMP, 0), "{metadata}");
        }
        assert!(!to(&safe, "1.1.1.1", ip::TCP, 25));
        assert!(!to(&safe, "2606:4700::1111", ip::TCP, 25));
        assert!(to(&safe, "1.1.1.1", ip::TCP, 587) && to(&safe, "1.1.1.1", ip::UDP, 25));
        let both = dial("allow = [\"10.0.0.0/8\"]\ndeny = [\"10.9.0.0/16\"]");
        assert!(to(&both, "10.8.0.1", ip::TCP, 80) && !to(&both, "10.9.0.1", ip::TCP, 80));
        assert!(to(&both, "1.1.1.1", ip::TCP, 25), "the operator's list is the whole list");
    }

    #[test]
    fn translators_are_seen_through() {
        let address = "2a01:4f8:64::10.0.0.1";
        assert!(permits(&dial(""), address), "nobody said that it is a translator's");
        let known = dial("nat64 = [\"2a01:4f8:64::/96\", \"64:ff9b:1::/48\"]");
        assert!(!permits(&known, address));
        assert!(permits(&known, "2a01:4f8:64::1.1.1.1"));
        assert!(!permits(&known, "2a01:4f8:64::168.63.129.16"));
        assert!(permits(&known, "64:ff9b:1:101:1:100::"), "1.1.1.1 by a prefix of 48 bits");
        assert!(!permits(&known, "64:ff9b:1:a00:0:100::"), "10.0.0.1 by it");
        let allowed = dial("nat64 = [\"2a01:4f8:64::/96\"]\nallow = [\"10.0.0.1/32\"]");
        assert!(permits(&allowed, address));
    }
}
