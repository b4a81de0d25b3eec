//! The attacks: their names, their strength, and the traces that they leave in a gateway.

use std::fmt;
use std::str::FromStr;

/// An attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// Idle TCP connections from 1,000 addresses of both families of one device.
    Addresses,
    /// Idle TCP connections from nine addresses of one device.
    SybilTcp,
    /// UDP datagrams with forged source addresses and ports.
    SpoofedUdp,
    /// TCP connections that are reset after a moment.
    OpenRate,
    /// Requests over HTTP/2 to the operator's own site that are never answered.
    SiteFlows,
    /// Requests over HTTP/2 for large objects that the client does not read.
    SiteHold,
    /// HTTP/2 streams that are reset immediately.
    SiteReset,
    /// Forged handshake responses to the air.
    ResponseFlood,
    /// Datagrams without a session to the ground.
    HubJunk,
    /// UDP flows on a ground with 1,000 ports.
    HubPorts,
    /// Handshakes in which only mac1 is valid.
    InitFlood,
    /// Queries for new names, which use up the fake-IP addresses.
    InstantPool,
    /// Downloads from 1,000 addresses of one device, together with datagrams from forged sources.
    Shares,
    /// Flows of a hostile aircraft, which never reads the responses.
    Hoard,
    /// Aircraft that are switched off during a download.
    Vanish,
}

/// Trace of an attack: its refusals are counted and logged. An attack without a trace had no
/// effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// Gateway: 0 is the air gateway, 1 the ground gateway.
    pub gateway: usize,
    /// Counters of its status, at least one of which must increase.
    pub counters: &'static [&'static str],
    /// Limits, at least one of which its log must name, together with the heaviest user. Empty if
    /// no limit is reached, because junk is dropped as invalid.
    pub limits: &'static [&'static str],
}

/// No attack has this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no attack {0:?}; write one of {names}", names = Attack::ALL.map(Attack::name).join(", "))]
pub struct UnknownAttack(String);

impl Attack {
    /// All attacks.
    pub const ALL: [Self; 15] = [
        Self::SybilTcp,
        Self::Addresses,
        Self::SpoofedUdp,
        Self::OpenRate,
        Self::SiteFlows,
        Self::SiteHold,
        Self::SiteReset,
        Self::ResponseFlood,
        Self::HubJunk,
        Self::HubPorts,
        Self::InitFlood,
        Self::InstantPool,
        Self::Shares,
        Self::Hoard,
        Self::Vanish,
    ];

    /// Name of the attack.
    pub fn name(self) -> &'static str {
        match self {
            Self::Addresses => "addresses",
            Self::SybilTcp => "sybil-tcp",
            Self::SpoofedUdp => "spoofed-udp",
            Self::OpenRate => "open-rate",
            Self::SiteFlows => "site-flows",
            Self::SiteHold => "site-hold",
            Self::SiteReset => "site-reset",
            Self::ResponseFlood => "response-flood",
            Self::HubJunk => "hub-junk",
            Self::HubPorts => "hub-ports",
            Self::InitFlood => "init-flood",
            Self::InstantPool => "instant-pool",
            Self::Shares => "shares",
            Self::Hoard => "hoard",
            Self::Vanish => "vanish",
        }
    }

    /// Stated strength: connections or flows to hold, or attempts per second.
    pub fn stated(self) -> u32 {
        match self {
            // Half of a cabin's connections.
            Self::Addresses | Self::SybilTcp => 2_048,
            // 4,096 flows that end after 30 s.
            Self::SpoofedUdp => 150,
            // More than a ground gateway accepts from an aircraft, 500/s.
            Self::OpenRate => 900,
            // × 100 streams: more than the 4,096 flows of an aircraft.
            Self::SiteFlows => 60,
            // × 100 streams × 400 KiB = 800 MB in a gateway that buffers as hyper does by default.
            Self::SiteHold => 20,
            Self::SiteReset => 1,
            // 11 Mbit/s on Ethernet.
            Self::ResponseFlood => 10_000,
            Self::HubJunk => 5_000,
            // 1,020 for each of two addresses.
            Self::HubPorts => 2_040,
            Self::InitFlood => 2_000,
            // 65,536 addresses in 73 s.
            Self::InstantPool => 900,
            // From 1,000 addresses.
            Self::Shares => 40,
            Self::Hoard => 100,
            Self::Vanish => 100,
        }
    }

    /// Further addresses of the attacker's device in addition to its first two: of IPv4, and of
    /// IPv6.
    pub fn more_addresses(self) -> (u8, u16) {
        match self {
            // Few, because new sources of one device are limited before its flows are.
            Self::SybilTcp | Self::HubPorts => (7, 0),
            // 1,000 addresses in all.
            Self::Addresses | Self::InstantPool | Self::Shares => (250, 748),
            _ => (0, 0),
        }
    }

    /// Returns `true` if the attack runs between real kernels. The others would take a quarter of
    /// an hour, or need an aircraft that is not a gateway.
    pub fn is_emulated(self) -> bool {
        !matches!(self, Self::Hoard | Self::Vanish)
    }

    /// Returns `true` if the attack runs in virtual time, because it needs neither a kernel nor a
    /// gateway.
    pub fn is_simulated(self) -> bool {
        use Attack::{Hoard, HubJunk, InitFlood, OpenRate, ResponseFlood, Vanish};
        matches!(self, Hoard | HubJunk | InitFlood | OpenRate | ResponseFlood | Vanish)
    }

    /// Trace that the attack must leave between real kernels.
    pub fn trace(self) -> Trace {
        const TCP: [&str; 3] = ["refused_tcp_opens", "refused_tcp_flows", "evicted_tcp_flows"];
        const UDP: [&str; 3] = ["refused_udp_opens", "refused_udp_flows", "evicted_udp_flows"];
        const BOTH: [&str; 6] = [TCP[0], TCP[1], TCP[2], UDP[0], UDP[1], UDP[2]];
        let (gateway, counters, limits): (usize, &[_], &[_]) = match self {
            Self::SybilTcp | Self::Addresses | Self::OpenRate => {
                (0, &TCP, &["tcp-opens", "tcp-flows"])
            }
            // Its downloads are within the limits of one passenger; its datagrams are not.
            Self::Shares => (0, &BOTH, &["tcp-opens", "tcp-flows", "udp-opens", "udp-flows"]),
            Self::SpoofedUdp => (0, &UDP, &["udp-opens", "udp-flows"]),
            Self::SiteFlows => {
                let counters = &["refused_tcp_flows", "evicted_site_connections"];
                (0, counters, &["tcp-flows", "tcp-opens", "site-connections"])
            }
            Self::SiteHold => (0, &["evicted_site_connections"], &["site-connections"]),
            Self::SiteReset => (0, &["garbage"], &[]),
            Self::ResponseFlood => (0, &["link_strangers"], &[]),
            Self::HubJunk => (1, &["link_strangers"], &[]),
            Self::HubPorts => (1, &["refused_udp_ports", "evicted_udp_ports"], &["udp-ports"]),
            Self::InitFlood => (1, &["refused_handshakes"], &["handshakes"]),
            Self::InstantPool => (0, &["refused_dns_questions"], &["dns-questions"]),
            Self::Hoard | Self::Vanish => (1, &[], &[]),
        };
        Trace { gateway, counters, limits }
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Attack {
    type Err = UnknownAttack;

    fn from_str(name: &str) -> Result<Self, UnknownAttack> {
        let found = Self::ALL.into_iter().find(|attack| attack.name() == name);
        found.ok_or_else(|| UnknownAttack(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_are_known_by_their_names() {
        for attack in Attack::ALL {
            assert_eq!(attack.name().parse::<Attack>().unwrap(), attack);
        }
        let error = "sybil".parse::<Attack>().unwrap_err().to_string();
        assert!(error.contains("sybil-tcp"), "{error}");
    }
}
