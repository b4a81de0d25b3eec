//! IP protocols other than TCP and UDP: which ones are carried in addition to ICMP echo, and their
//! limits.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bentpipe_net::ip;
use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::Deserialize;

use super::udp::{DEFAULT_UNANSWERED, Idle};
use super::{least, seconds};

/// RFC 5508 REQ-2: an ICMP query mapping lives for at least 60 s.
const DEFAULT_ECHO_IDLE: Span = seconds(60);
/// Longer than UDP's, because IPsec peers that detect no NAT send no keepalives.
const DEFAULT_RAW_IDLE: Span = seconds(600);

/// Protocol names used in the configuration, with IANA's numbers.
const NAMES: [(&str, u8); 8] = [
    ("ipip", 4),
    ("6in4", 41),
    ("gre", 47),
    ("esp", 50),
    ("etherip", 97),
    ("ipcomp", 108),
    ("l2tp", 115),
    ("sctp", 132),
];

/// Number of the protocol with this name.
pub(super) fn number(name: &str) -> Option<u8> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// All names, for messages.
pub(super) fn names() -> String {
    NAMES.map(|(name, _)| name).join(", ")
}

/// Protocols carried as raw datagrams. Only addresses are translated, because these protocols have
/// no ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Raw {
    /// Protocols that cross; all others are refused: `["esp", "gre", 253]`.
    #[serde(deserialize_with = "least::some")]
    #[schemars(title = "list of names or numbers")]
    pub protocols: Vec<IpProtocol>,
}

impl Raw {
    /// Returns `true` if packets of `protocol` are carried.
    pub fn carries(&self, protocol: u8) -> bool {
        self.protocols.iter().any(|carried| carried.0 == protocol)
    }
}

/// Number of an IP protocol that can be carried: `"esp"`, or `253`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "Written")]
pub struct IpProtocol(pub u8);

/// Protocol as written in a configuration file.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a protocol's name or number: \"esp\" or 50")]
enum Written {
    Number(u8),
    Name(String),
}

impl TryFrom<Written> for IpProtocol {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Name(name) => name.parse(),
            Written::Number(number) => match cannot_cross(number) {
                Some(why) => Err(format!("protocol {number} cannot be carried: {why}")),
                None => Ok(Self(number)),
            },
        }
    }
}

impl FromStr for IpProtocol {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(number) = number(name) {
            return Ok(Self(number));
        }
        if matches!(name, "ah" | "udplite" | "dccp") {
            return Err(format!("{name:?} cannot be carried: {COVERS_ADDRESSES}"));
        }
        let names = names();
        Err(format!("{name:?} is none of the protocols known by name: {names}; write its number"))
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

const COVERS_ADDRESSES: &str =
    "it protects the packet's addresses, and the ground has to put its own there";

/// Returns the reason if this protocol can never be carried.
fn cannot_cross(number: u8) -> Option<&'static str> {
    match number {
        ip::ICMP | ip::ICMPV6 => Some("of ICMP, echo is carried without being named"),
        ip::TCP | ip::UDP => Some("TCP and UDP are carried without being named"),
        33 | 51 | 136 => Some(COVERS_ADDRESSES),
        2 | 88 | 89 | 103 | 112 => Some("it is between neighbours only"),
        0 | 43 | 44 | 59 | 60 | 135 | 139 | 140 => Some("it is an extension header of IPv6"),
        255 => Some("the number is reserved"),
        _ => None,
    }
}

/// Limits of ICMP echo and other protocols in an air gateway. A flow takes about 5 KiB: 1,024 take
/// 5 MiB.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirIp {
    /// Flows at once; a flow is one client's echo identifier, or protocol, to one destination.
    pub max_flows: usize,
    /// Flows of one passenger.
    pub max_flows_per_passenger: usize,
    /// New flows of one passenger, on average; bursts of twice as many.
    pub flows_per_second_per_passenger: u32,
    /// End of an idle flow of echoes.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// End of an idle flow of another protocol.
    #[serde(deserialize_with = "least::moment")]
    pub raw_idle_timeout: Span,
    /// End of an idle flow without any answer yet; such flows have a quarter of `max-flows`.
    #[serde(deserialize_with = "least::moment")]
    pub unanswered_timeout: Span,
}

/// Limits of ICMP echo and other protocols in a ground gateway. A flow takes about 5 KiB and a
/// socket: 8,192 take 40 MiB.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GroundIp {
    /// Flows of all aircraft at once.
    pub max_flows: usize,
    /// End of an idle flow of echoes.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// End of an idle flow of another protocol.
    #[serde(deserialize_with = "least::moment")]
    pub raw_idle_timeout: Span,
    /// End of an idle flow without any answer yet.
    #[serde(deserialize_with = "least::moment")]
    pub unanswered_timeout: Span,
}

impl Default for AirIp {
    fn default() -> Self {
        Self {
            max_flows: 1_024,
            max_flows_per_passenger: 128,
            flows_per_second_per_passenger: 20,
            idle_timeout: DEFAULT_ECHO_IDLE,
            raw_idle_timeout: DEFAULT_RAW_IDLE,
            unanswered_timeout: DEFAULT_UNANSWERED,
        }
    }
}

impl Default for GroundIp {
    fn default() -> Self {
        Self {
            max_flows: 8_192,
            idle_timeout: DEFAULT_ECHO_IDLE,
            raw_idle_timeout: DEFAULT_RAW_IDLE,
            unanswered_timeout: DEFAULT_UNANSWERED,
        }
    }
}

impl AirIp {
    /// Idle timeout of a flow of `protocol`.
    pub fn idle(&self, protocol: u8) -> Idle {
        let idle = if ip::is_echo(protocol) { self.idle_timeout } else { self.raw_idle_timeout };
        Idle::new(idle, self.unanswered_timeout)
    }

    /// Longest idle timeout of any flow.
    pub fn longest_idle(&self) -> Duration {
        self.idle_timeout.duration().max(self.raw_idle_timeout.into())
    }
}

impl GroundIp {
    /// Idle timeout of a flow of `protocol`.
    pub fn idle(&self, protocol: u8) -> Idle {
        let idle = if ip::is_echo(protocol) { self.idle_timeout } else { self.raw_idle_timeout };
        Idle::new(idle, self.unanswered_timeout)
    }

    /// Longest idle timeout of any flow.
    pub fn longest_idle(&self) -> Duration {
        self.idle_timeout.duration().max(self.raw_idle_timeout.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocols: &str) -> Result<Raw, String> {
        toml::from_str(&format!("protocols = {protocols}")).map_err(|error| error.to_string())
    }

    #[test]
    fn protocols_by_name_and_by_number() {
        let raw = written("[\"esp\", 47, 253]").unwrap();
        let shown: Vec<String> = raw.protocols.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["esp", "gre", "253"]);
        assert!(raw.carries(50) && raw.carries(47) && raw.carries(253));
        assert!(!raw.carries(51) && !Raw::default().carries(50));
    }

    #[test]
    fn packets_that_cannot_cross_name_the_reason() {
        for (protocols, why) in [
            ("[\"espp\"]", "none of the protocols known by name: ipip, 6in4, gre, esp"),
            ("[\"ah\"]", "protects the packet's addresses"),
            ("[51]", "protects the packet's addresses"),
            ("[6]", "without being named"),
            ("[1]", "echo is carried without being named"),
            ("[89]", "between neighbours only"),
            ("[44]", "extension header"),
            ("[256]", "expected a protocol's name or number"),
        ] {
            let error = written(protocols).unwrap_err();
            assert!(error.contains(why), "{protocols}: {error}");
        }
    }
}
