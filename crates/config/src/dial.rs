//! `[dial]`: permitted destinations, and the source addresses of outgoing connections.

mod destinations;
mod place;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use bentpipe_net::ip;
use bentpipe_units::Span;
use ipnet::{IpNet, Ipv6Net};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::{Source, from_text, least, network, seconds};
use crate::ConfigError;

use place::SourceEntry;
pub use place::{Country, GeofeedPlace, SourceAddress};

/// Maximum number of entries in `deny`, because each new flow is compared with all of them.
const MAX_DENIED: usize = 256;

/// Maximum number of addresses in `sources`, because each may open as many sockets as the kernel
/// has ports.
const MAX_SOURCES: usize = 64;

/// Prefix lengths of RFC 6052 section 2.2.
const NAT64_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// Denied by default; an operator's own list replaces these.
/// - 168.63.129.16: Azure's host services, which answer every program on a virtual machine at a
///   public address.
/// - 25/tcp: mail relaying, which damages the reputation of the ground's address.
const DEFAULT_DENIED: [&str; 2] = ["168.63.129.16", "25/tcp"];

/// `[dial]` table.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Dial {
    /// Networks that may be dialled although they are not on the public Internet, or are neighbours
    /// of this machine: `["10.0.0.0/8"]`.
    #[serde(deserialize_with = "network::list")]
    #[schemars(with = "Vec<String>", title = "list of networks")]
    pub allow: Vec<IpNet>,
    /// Destinations that are never dialled, whatever is allowed: a network, ports, or ports of a
    /// network, as in `["198.51.100.0/24", "135-139", "2001:db8::/32 8000-8080/udp"]`. A list
    /// replaces the default one; at most 256 entries. If a router translates a public address 1:1
    /// to this machine (NAT, an elastic IP of a cloud), add that address: this machine does not
    /// have it, so the gateway does not take it for its own.
    #[schemars(with = "Vec<String>", title = "list of networks and ports")]
    pub deny: Vec<Denied>,
    /// Prefixes of translators from IPv6 to IPv4 (RFC 6052), in addition to `64:ff9b::/96`. An
    /// address in them counts as the IPv4 address inside.
    #[schemars(with = "Vec<String>", title = "list of prefixes", extend("default" = []))]
    pub nat64: Vec<Nat64>,
    /// Addresses of this machine for passengers' TCP, UDP and pings; each has all of the kernel's
    /// ports. A passenger keeps one address of each family. Empty: the kernel chooses; at most 64. An
    /// entry may have a place, as in `{ address = "198.51.100.7", country = "FR", region = "FR-IDF",
    /// city = "Paris" }`: passengers of aircraft with this `country` get the addresses there, and
    /// `bentpipe geofeed` prints the places for those who look up addresses (RFC 8805).
    #[schemars(with = "Vec<SourceEntry>", title = "list of addresses, or of tables", extend("default" = []))]
    pub sources: Vec<SourceAddress>,
    /// Time for resolving and connecting.
    #[serde(deserialize_with = "least::moment")]
    pub connect_timeout: Span,
}

/// Destinations that are never dialled: a network, ports, or ports of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    network: Option<IpNet>,
    ports: Option<Ports>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Ports {
    range: RangeInclusive<u16>,
    /// TCP or UDP; absent for both.
    protocol: Option<u8>,
}

/// Prefix of a NAT64 translator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64(Ipv6Net);

impl Default for Dial {
    fn default() -> Self {
        let denied = |text: &str| text.parse().ok();
        Self {
            allow: Vec::new(),
            deny: DEFAULT_DENIED.into_iter().filter_map(denied).collect(),
            nat64: Vec::new(),
            sources: Vec::new(),
            connect_timeout: seconds(10),
        }
    }
}

impl Dial {
    /// Checks the limits that apply to lists as a whole, and the source addresses.
    pub(super) fn check(&self, source: &Source<'_>) -> Result<(), ConfigError> {
        for (key, count, most) in
            [("deny", self.deny.len(), MAX_DENIED), ("sources", self.sources.len(), MAX_SOURCES)]
        {
            if count > most {
                let why = format!("{key} under [dial] has {count} entries");
                return Err(ConfigError::at(source, None, why, format!("write at most {most}")));
            }
        }
        let unusable = |ip: &&IpAddr| ip.is_unspecified() || ip.is_multicast();
        if let Some(ip) = self.sources.iter().map(|it| &it.ip).find(unusable) {
            let why = format!("nothing can be sent from {ip}, which is in sources under [dial]");
            let help = "write addresses of this machine: `ip address` shows them";
            return Err(ConfigError::at(source, None, why, help));
        }
        Ok(())
    }
}

impl Denied {
    /// Returns `true` if this entry names `port` of `ip` for `protocol`. Ports apply to TCP and UDP
    /// only.
    pub fn names(&self, ip: IpAddr, protocol: u8, port: u16) -> bool {
        let is_network = self.network.is_none_or(|network| network.contains(&ip));
        let has_ports = matches!(protocol, ip::TCP | ip::UDP);
        let is_port = self.ports.as_ref().is_none_or(|ports| {
            has_ports
                && ports.range.contains(&port)
                && ports.protocol.is_none_or(|only| only == protocol)
        });
        is_network && is_port
    }
}

impl Nat64 {
    /// Returns the IPv4 address embedded in `ip`, if `ip` is in this prefix (RFC 6052 section 2.2).
    pub fn inside(self, ip: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.0.contains(&ip) {
            return None;
        }
        let first = usize::from(self.0.prefix_len() / 8);
        let octets = ip.octets();
        // Octet 8 is not part of the address.
        let mut rest = (first..16).filter(|at| *at != 8).map(|at| octets[at]);
        let mut next = || rest.next().unwrap_or_default();
        Some(Ipv4Addr::new(next(), next(), next(), next()))
    }
}

impl FromStr for Denied {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is neither a network nor ports: write \"198.51.100.0/24\", \"25/tcp\" or \
                 \"198.51.100.0/24 8000-8080\""
            )
        };
        let mut words = text.split_ascii_whitespace();
        let (first, second) = (words.next().ok_or_else(wrong)?, words.next());
        if words.next().is_some() {
            return Err(wrong());
        }
        let (network, ports) = match (bentpipe_classify::net(first), second) {
            (Some(network), ports) => (Some(network), ports),
            (None, None) => (None, Some(first)),
            (None, Some(_)) => return Err(wrong()),
        };
        let ports = ports.map(|ports| ports.parse::<Ports>()).transpose();
        Ok(Self { network, ports: ports.map_err(|()| wrong())? })
    }
}

impl FromStr for Ports {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (range, protocol) = match text.split_once('/') {
            None => (text, None),
            Some((range, "tcp")) => (range, Some(ip::TCP)),
            Some((range, "udp")) => (range, Some(ip::UDP)),
            Some(_) => return Err(()),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or(());
        let range = port(first)?..=port(last)?;
        if range.is_empty() { Err(()) } else { Ok(Self { range, protocol }) }
    }
}

impl FromStr for Nat64 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let prefix = text.parse::<Ipv6Net>().ok();
        prefix.filter(|it| NAT64_LENGTHS.contains(&it.prefix_len())).map(Self).ok_or_else(|| {
            format!(
                "{text:?} is not the prefix of a translator: write it like \"2001:db8:64::/96\", \
                 with 32, 40, 48, 56, 64 or 96 bits"
            )
        })
    }
}

impl Serialize for Denied {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Denied {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from_text(from)
    }
}

impl<'de> Deserialize<'de> for Nat64 {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from_text(from)
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.network, &self.ports) {
            (Some(network), Some(ports)) => write!(f, "{network} {ports}"),
            (Some(network), None) => network.fmt(f),
            (None, Some(ports)) => ports.fmt(f),
            (None, None) => f.write_str("everything"),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.range.start(), self.range.end());
        if first == last {
            write!(f, "{first}")?
        } else {
            write!(f, "{first}-{last}")?
        }
        match self.protocol {
            Some(ip::TCP) => f.write_str("/tcp"),
            Some(_) => f.write_str("/udp"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_ports_are_denied() {
        let names = |written: &str, ip: &str, protocol, port| {
            let denied: Denied = written.parse().unwrap();
            assert_eq!(denied.to_string().parse(), Ok(denied.clone()), "{written}");
            denied.names(ip.parse().unwrap(), protocol, port)
        };
        assert!(names("168.63.129.16", "168.63.129.16", ip::TCP, 80));
        assert!(names("168.63.129.16/32", "168.63.129.16", ip::ICMP, 0));
        assert!(!names("168.63.129.16", "168.63.129.17", ip::TCP, 80));
        assert!(names("25/tcp", "1.1.1.1", ip::TCP, 25));
        assert!(names("25/tcp", "2606::1", ip::TCP, 25));
        assert!(!names("25/tcp", "1.1.1.1", ip::UDP, 25));
        assert!(!names("25/tcp", "1.1.1.1", ip::TCP, 26));
        assert!(names("135-139", "1.1.1.1", ip::UDP, 137));
        assert!(!names("135-139", "1.1.1.1", 50, 137), "ESP has no ports");
        assert!(names("2001:db8::/32 80/udp", "2001:db8::1", ip::UDP, 80));
        assert!(!names("2001:db8::/32 80/udp", "2001:db9::1", ip::UDP, 80));
        for wrong in
            ["", "0", "25/icmp", "30-20", "70000", "host.test", "25 1.1.1.1", "1.1.1.1 25 26"]
        {
            assert!(wrong.parse::<Denied>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_defaults_are_what_they_say() {
        let denied: Vec<_> = Dial::default().deny.iter().map(ToString::to_string).collect();
        assert_eq!(denied, ["168.63.129.16/32", "25/tcp"]);
    }

    /// The table of RFC 6052 section 2.4.
    #[test]
    fn translated_addresses_show_ipv4() {
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            let prefix: Nat64 = prefix.parse().unwrap();
            let inside = prefix.inside(address.parse().unwrap());
            assert_eq!(inside, Some(Ipv4Addr::new(192, 0, 2, 33)), "{address}");
            assert_eq!(prefix.inside("2606::1".parse().unwrap()), None);
        }
        for wrong in ["2001:db8::/33", "10.0.0.0/32", "2001:db8::1"] {
            assert!(wrong.parse::<Nat64>().is_err(), "{wrong}");
        }
    }
}
