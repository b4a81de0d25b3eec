//! The public address, its autonomous system and provider, as in Mile High WiFi, section 3.1.
//!
//! | module | contents |
//! |---|---|
//! | `stun` | the question for the address (RFC 8489) |
//! | `table` | ranges of addresses and their autonomous systems |
//! | `providers` | providers of access in flight, with table 1 of the paper |
//!
//! A record has the address's network, not the address: no network smaller than a /24 or a /48 is announced to
//! the whole Internet, so the rest tells nothing about the provider.

pub mod providers;
pub mod stun;
mod table;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::target::Family;

pub use table::{AsTable, NotATable, System};

/// Bits of an address that a record has.
const V4_BITS: u32 = 24;
const V6_BITS: u32 = 48;

/// A check of the public address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressCheck {
    /// Version of IP of which the address was asked for.
    #[serde(default)]
    pub family: Family,
    /// Method that reported the address, or that failed last.
    pub method: Witness,
    /// Server that was asked.
    pub server: String,
    /// Network of the address, a /24 or a /48.
    pub network: Option<IpAddr>,
    /// The whole address differs from that of the family's check before. A change within a network is one too.
    pub changed: bool,
    /// Autonomous system and provider, by the built-in table.
    pub system: Option<System>,
    /// The failure in OONI's manner.
    pub failure: Option<String>,
}

/// A way to learn the public address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Witness {
    /// A STUN server, by UDP.
    Stun,
    /// A page that answers with the client's address, by HTTP. A proxy on the path makes it tell its own.
    Http,
}

/// Network of an address: its first 24 or 48 bits.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - V4_BITS))).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - V6_BITS))).into(),
    }
}

/// The network as people write it: `98.97.12.0/24`.
pub fn prefix(network: IpAddr) -> String {
    format!("{network}/{}", if network.is_ipv4() { V4_BITS } else { V6_BITS })
}

/// The address in the answer of an echo page: the body is the address alone.
pub fn echoed(body: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let address: IpAddr = text.parse().ok()?;
    (!address.is_unspecified()).then_some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_hides_the_host() {
        let cut = |text: &str| prefix(network(text.parse().unwrap()));
        assert_eq!(cut("98.97.12.34"), "98.97.12.0/24");
        assert_eq!(cut("2605:59c8:1234:5678::9"), "2605:59c8:1234::/48");
        assert_eq!(cut("::ffff:98.97.12.34"), "98.97.12.0/24");
    }

    #[test]
    fn a_login_page_is_not_an_address() {
        assert_eq!(echoed(b"192.0.2.7\n"), Some(IpAddr::from([192, 0, 2, 7])));
        assert_eq!(echoed(b"<html>192.0.2.7</html>"), None);
        assert_eq!(echoed(&[0xff, 0xfe]), None);
        assert_eq!(echoed(b"0.0.0.0"), None);
    }
}
