//! `[limits]` of both files.

use bentpipe_net::ip;
use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AirIp, AirUdp, GroundIp, GroundUdp, Idle, least, seconds};
use bentpipe_relay::RelayLimits;

/// RFC 5382 REQ-5: a middlebox keeps an established connection at least this long.
const DEFAULT_IDLE: Span = seconds(2 * 3600 + 4 * 60);
const DEFAULT_STALL: Span = seconds(300);
const DEFAULT_DRAIN: Span = seconds(30);

/// Limits. An idle flow takes about 6 KiB in the air gateway: 10,000 take 58 MiB (`bentpipe lab
/// bench idle`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirLimits {
    /// Client connections at once. If the table is full, a newcomer ends the heaviest user's idlest
    /// connection.
    #[serde(deserialize_with = "least::one")]
    pub max_flows: usize,
    /// Connections of one passenger; the next one ends the passenger's idlest.
    #[serde(deserialize_with = "least::one")]
    pub max_flows_per_passenger: usize,
    /// New connections of one passenger, on average; bursts of four times as many. It does not
    /// apply to programs of this machine.
    // It prevents one passenger from using up the flows that the ground gateway allows the aircraft.
    #[serde(deserialize_with = "least::one")]
    pub flows_per_second_per_passenger: u32,
    /// Identity of a passenger: docs/operations.md#who-a-passenger-is.
    pub passenger: PassengerIs,
    /// Time for a client to state its destination.
    #[serde(deserialize_with = "least::moment")]
    pub handshake_timeout: Span,
    /// End of an idle flow, and of an idle download of Split HTTP. For flows, outages of the link
    /// do not count, up to an hour.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// End of a client that does not read waiting data.
    #[serde(deserialize_with = "least::moment")]
    pub stall_timeout: Span,
    /// End of a flow whose destination has never sent anything, and of a request without a
    /// response, if nothing moves for this long. Outages of the link do not count, up to an hour.
    #[serde(deserialize_with = "least::moment")]
    pub answer_timeout: Span,
    /// Time for flows to finish after a stop.
    pub drain_timeout: Span,
    /// Differences for UDP.
    pub udp: AirUdp,
    /// Differences for ICMP echo and other protocols.
    pub ip: AirIp,
}

/// Unit by which passengers are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PassengerIs {
    /// A device, if the kernel knows its hardware address.
    #[default]
    Device,
    /// An IPv4 address or an IPv6 /64, for access points that hide their clients' hardware
    /// addresses.
    Address,
}

/// Limits. An idle flow takes about 5 KiB: 10,000 take 50 MiB.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GroundLimits {
    /// TCP flows of all aircraft at once. The next one ends a flow of the heaviest aircraft.
    #[serde(deserialize_with = "least::one")]
    pub max_flows: usize,
    /// End of an idle flow, and of an idle download of Split HTTP. For flows, outages of the link
    /// do not count, up to an hour.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// End of a destination that does not read waiting data.
    #[serde(deserialize_with = "least::moment")]
    pub stall_timeout: Span,
    /// Time for flows to finish after a stop.
    pub drain_timeout: Span,
    /// Time for which a TCP flow, or the external port of a UDP flow, waits for its aircraft, which
    /// has lost its hub: docs/several-hubs.md.
    #[serde(deserialize_with = "least::moment")]
    pub orphan_timeout: Span,
    /// Differences for UDP.
    pub udp: GroundUdp,
    /// Differences for ICMP echo and other protocols.
    pub ip: GroundIp,
}

impl Default for AirLimits {
    fn default() -> Self {
        Self {
            max_flows: 4_096,
            max_flows_per_passenger: 1_024,
            flows_per_second_per_passenger: 50,
            passenger: PassengerIs::Device,
            handshake_timeout: seconds(10),
            idle_timeout: DEFAULT_IDLE,
            stall_timeout: DEFAULT_STALL,
            answer_timeout: seconds(180),
            drain_timeout: DEFAULT_DRAIN,
            udp: AirUdp::default(),
            ip: AirIp::default(),
        }
    }
}

impl Default for GroundLimits {
    fn default() -> Self {
        Self {
            max_flows: 65_536,
            idle_timeout: DEFAULT_IDLE,
            stall_timeout: DEFAULT_STALL,
            drain_timeout: DEFAULT_DRAIN,
            orphan_timeout: seconds(120),
            udp: GroundUdp::default(),
            ip: GroundIp::default(),
        }
    }
}

impl AirLimits {
    /// Idle timeout of a datagram flow of IP protocol `protocol` to `port`.
    pub fn datagram_idle(&self, protocol: u8, port: u16) -> Idle {
        if protocol == ip::UDP { self.udp.idle(port) } else { self.ip.idle(protocol) }
    }

    /// Limits that the relay enforces.
    pub fn relay(&self) -> RelayLimits {
        RelayLimits {
            idle: self.idle_timeout.into(),
            stall: self.stall_timeout.into(),
            answer: Some(self.answer_timeout.into()),
        }
    }
}

impl GroundLimits {
    /// Idle timeout of a datagram flow of IP protocol `protocol` to `port`.
    pub fn datagram_idle(&self, protocol: u8, port: u16) -> Idle {
        if protocol == ip::UDP { self.udp.idle(port) } else { self.ip.idle(protocol) }
    }

    /// Limits that the relay enforces.
    pub fn relay(&self) -> RelayLimits {
        RelayLimits {
            idle: self.idle_timeout.into(),
            stall: self.stall_timeout.into(),
            answer: None,
        }
    }
}
