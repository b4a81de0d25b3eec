//! Sites: destinations that share their times of dials and their pins.

use std::net::IpAddr;

use bentpipe_flow::{Host, Target};
use ipnet::IpNet;

/// Length of the prefix that stands for its addresses.
const IPV4_PREFIX_BITS: u8 = 24;
const IPV6_PREFIX_BITS: u8 = 48;

/// Second labels below which a country registers domains, as in `bbc.co.uk`. The public suffix list is
/// complete, but its data is not ours to embed.
const SECOND_LABELS: [&str; 12] =
    ["ac", "co", "com", "edu", "gob", "gov", "gv", "mil", "ne", "net", "or", "org"];

/// A registrable domain, or a prefix of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Site {
    /// The domain of a name. It is approximate: the last two labels, or three below a label like `co`.
    Domain(Box<str>),
    /// An IPv4 /24 or an IPv6 /48.
    Prefix(IpNet),
}

impl Site {
    /// The site of a destination; `None` for a service of the ground.
    ///
    /// ```
    /// use bentpipe_choice::Site;
    ///
    /// let site = |target: &str| Site::of(&target.parse().unwrap());
    /// assert_eq!(site("www.bbc.co.uk:443"), site("bbc.co.uk:80"));
    /// assert_eq!(site("192.0.2.1:443"), site("192.0.2.200:443"));
    /// ```
    pub fn of(target: &Target) -> Option<Self> {
        match &target.host {
            Host::Name(name) => Some(Self::Domain(domain(name).to_ascii_lowercase().into())),
            Host::Ip(address) => Some(Self::of_address(*address)),
            Host::Service(_) => None,
        }
    }

    /// Returns `true` if this is `other`, or a network around it.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prefix(around), Self::Prefix(inner)) => around.contains(inner),
            _ => self == other,
        }
    }

    fn of_address(address: IpAddr) -> Self {
        let bits = match address {
            IpAddr::V4(_) => IPV4_PREFIX_BITS,
            IpAddr::V6(_) => IPV6_PREFIX_BITS,
        };
        Self::Prefix(IpNet::new_assert(address, bits).trunc())
    }
}

/// Text that names no site.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// It is neither a domain nor a network.
    #[error("`{0}` is neither a domain nor a network: write \"example.com\" or \"192.0.2.0/24\"")]
    Neither(String),
    /// A site is a whole domain.
    #[error(
        "`{name}` is a part of a domain, and a passenger has one egress for all of it: write \"{domain}\""
    )]
    Part {
        /// The text.
        name: String,
        /// Its domain.
        domain: String,
    },
}

impl std::str::FromStr for Site {
    type Err = SiteError;

    /// Reads a domain that somebody registers, or a network. An IPv4 /24 and an IPv6 /48 are the smallest:
    /// an address stands for its own.
    fn from_str(text: &str) -> Result<Self, SiteError> {
        let neither = || SiteError::Neither(text.to_owned());
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::of_address(address));
        }
        if let Ok(network) = text.parse::<IpNet>() {
            let whole = Self::of_address(network.addr());
            let own = Self::Prefix(network.trunc());
            return Ok(if whole.contains(&own) { whole } else { own });
        }
        let target = format!("{text}:0").parse().map_err(|_| neither())?;
        let site = Self::of(&target).ok_or_else(neither)?;
        match site.to_string() {
            domain if domain.eq_ignore_ascii_case(text) => Ok(site),
            domain => Err(SiteError::Part { name: text.to_owned(), domain }),
        }
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Domain(domain) => f.write_str(domain),
            Self::Prefix(prefix) => prefix.fmt(f),
        }
    }
}

fn domain(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    let mut labels = name.rsplit('.');
    let (last, second) = (labels.next().unwrap_or(name), labels.next().unwrap_or(""));
    let is_below_country =
        last.len() == 2 && SECOND_LABELS.iter().any(|it| second.eq_ignore_ascii_case(it));
    let labels = if is_below_country { 3 } else { 2 };
    match name.rmatch_indices('.').nth(labels - 1) {
        Some((dot, _)) => &name[dot + 1..],
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_what_somebody_registers() {
        for (name, expected) in [
            ("example.com", "example.com"),
            ("a.b.example.com.", "example.com"),
            ("www.example.co.uk", "example.co.uk"),
            ("co.uk", "co.uk"),
            ("t.co", "t.co"),
            ("www.db.de", "db.de"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(domain(name), expected, "{name}");
        }
    }

    #[test]
    fn text_names_a_whole_domain_or_a_network() {
        let site = |text: &str| text.parse::<Site>().map(|it| it.to_string());
        assert_eq!(site("Example.com").unwrap(), "example.com");
        assert_eq!(site("192.0.2.7").unwrap(), "192.0.2.0/24");
        assert_eq!(site("192.0.2.128/25").unwrap(), "192.0.2.0/24");
        assert_eq!(site("2001:db8::/32").unwrap(), "2001:db8::/32");
        let part = site("www.example.com").unwrap_err().to_string();
        assert!(part.ends_with("write \"example.com\""), "{part}");
        for wrong in ["", "a b", "example.com:443", "1.2.3.4/33"] {
            assert!(matches!(site(wrong), Err(SiteError::Neither(_))), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_has_a_24_or_a_48() {
        let site = |address: &str| Site::of_address(address.parse().unwrap()).to_string();
        assert_eq!(site("192.0.2.77"), "192.0.2.0/24");
        assert_eq!(site("2001:db8:1:2::3"), "2001:db8:1::/48");
    }
}
