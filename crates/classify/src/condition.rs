//! Values of rule conditions, as written by the operator.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;

/// One port or a range of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(pub RangeInclusive<u16>);

/// Protocols that a rule can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// IP protocol 6.
    Tcp,
    /// IP protocol 17.
    Udp,
    /// IP protocol 1, and 58 for IPv6.
    Icmp,
    /// Any other protocol, by its number.
    Other(u8),
}

/// Hardware address of a device on the cabin's network (EUI-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// Passengers that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Passengers with an address in this network.
    Net(IpNet),
    /// The device with this hardware address.
    Mac(Mac),
}

impl Who {
    /// Returns `true` if the passenger at `address` matches. `mac` is the passenger's device, if
    /// known.
    pub fn is(&self, address: IpAddr, mac: Option<Mac>) -> bool {
        match self {
            Self::Net(net) => net.contains(&address.to_canonical()),
            Self::Mac(wanted) => mac == Some(*wanted),
        }
    }
}

impl Protocol {
    /// Returns the protocol with this number. Both versions of ICMP count as one protocol.
    pub const fn from_number(number: u8) -> Self {
        match number {
            6 => Self::Tcp,
            17 => Self::Udp,
            1 | 58 => Self::Icmp,
            other => Self::Other(other),
        }
    }
}

/// Parses `443` or `8000-8080`.
impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("{text:?} is not a port: write 443, or \"8000-8080\" for several");
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| error());
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (port(first)?, port(last)?),
            None => (port(text)?, port(text)?),
        };
        if first > last {
            return Err(format!("{text:?} is empty: write the lower port first"));
        }
        Ok(Self(first..=last))
    }
}

/// Parses `tcp`, `udp`, `icmp` or a number.
impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            "icmp" => Ok(Self::Icmp),
            other => other.parse().map(Self::from_number).map_err(|_| {
                format!(
                    "{text:?} is not a protocol: write \"tcp\", \"udp\", \"icmp\", or a number like 50"
                )
            }),
        }
    }
}

/// Parses `a4:83:e7:01:02:03`, with colons or hyphens.
impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut octets = [0; 6];
        let mut parts = text.split([':', '-']);
        let read = octets.iter_mut().all(|octet| {
            let hex = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
            let part = parts.next().filter(hex);
            let read = part.and_then(|part| u8::from_str_radix(part, 16).ok());
            read.map(|read| *octet = read).is_some()
        });
        if read && parts.next().is_none() {
            return Ok(Self(octets));
        }
        Err(format!("{text:?} is not a MAC address: write it like \"mac:a4:83:e7:01:02:03\""))
    }
}

/// Parses `10.0.0.0/24`, `10.0.0.7` or `mac:a4:83:e7:01:02:03`.
impl FromStr for Who {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(mac) = text.strip_prefix("mac:") {
            return mac.parse().map(Self::Mac);
        }
        net(text).map(Self::Net).ok_or_else(|| {
            format!(
                "{text:?} is not a passenger: write \"10.0.0.0/24\", \"10.0.0.7\" or \
                 \"mac:a4:83:e7:01:02:03\""
            )
        })
    }
}

/// Parses a network, or a single address as a network.
pub fn net(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => first.fmt(f),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.pad("tcp"),
            Self::Udp => f.pad("udp"),
            Self::Icmp => f.pad("icmp"),
            Self::Other(number) => number.fmt(f),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) => net.fmt(f),
            Self::Mac(mac) => write!(f, "mac:{mac}"),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_shown_alike() {
        for text in ["443", "8000-8080"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        for text in ["tcp", "udp", "icmp", "50"] {
            assert_eq!(text.parse::<Protocol>().unwrap().to_string(), text);
        }
        assert_eq!("58".parse(), Ok(Protocol::Icmp));
        assert_eq!("A4-83-e7-01-02-03".parse::<Mac>().unwrap().to_string(), "a4:83:e7:01:02:03");
    }

    #[test]
    fn wrong_values_say_what_to_write() {
        for wrong in ["", "65536", "9-8", "1-2-3", "https"] {
            assert!(wrong.parse::<Ports>().unwrap_err().contains("write"), "{wrong}");
        }
        for wrong in ["", "sctp", "256"] {
            assert!(wrong.parse::<Protocol>().unwrap_err().contains("\"icmp\""), "{wrong}");
        }
        for wrong in [
            "mac:",
            "mac:a4:83:e7:01:02",
            "mac:a4:83:e7:01:02:03:04",
            "mac:+4:83:e7:01:02:03",
            "crew",
        ] {
            assert!(wrong.parse::<Who>().unwrap_err().contains("mac:a4:83"), "{wrong}");
        }
    }

    #[test]
    fn passengers_are_told_by_address_or_device() {
        let who = |text: &str| text.parse::<Who>().unwrap();
        let (ip, mac) = ("::ffff:10.0.0.7".parse().unwrap(), Mac([0xa4, 0x83, 0xe7, 1, 2, 3]));
        assert!(who("10.0.0.0/24").is(ip, None) && who("10.0.0.7").is(ip, None));
        assert!(!who("10.0.1.0/24").is(ip, None));
        assert!(who("mac:a4:83:e7:01:02:03").is(ip, Some(mac)));
        assert!(!who("mac:a4:83:e7:01:02:04").is(ip, Some(mac)));
        assert!(!who("mac:a4:83:e7:01:02:03").is(ip, None));
    }
}
