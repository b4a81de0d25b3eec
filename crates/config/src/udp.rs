//! Limits of UDP, and treatment of the passengers' QUIC.

use std::time::Duration;

use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{least, seconds};

/// RFC 4787 REQ-5: five minutes are recommended, and two are the minimum.
const DEFAULT_IDLE: Span = seconds(300);
/// A name server answers within seconds or not at all. RFC 4787 REQ-5c allows shorter timeouts for
/// well-known ports.
const DEFAULT_DNS_IDLE: Span = seconds(30);

/// Timeout of mappings that have never been answered; RFC 4787 REQ-5 covers mappings in use. A path
/// of 600 ms has answered by then, and a spoofed source never gets an answer.
pub const DEFAULT_UNANSWERED: Span = seconds(10);

const DNS_PORT: u16 = 53;

/// Time without a packet after which a datagram flow ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// Timeout after the first answer.
    pub answered: Duration,
    /// Timeout before the first answer; at most `answered`.
    pub unanswered: Duration,
}

/// Treatment of the passengers' QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Quic {
    /// Carries it as datagrams, like all UDP.
    #[default]
    Carry,
    /// Answers it at once with ICMP port unreachable, which makes browsers use TCP.
    Reject,
}

/// Limits of UDP in an air gateway. A flow takes about 5 KiB, including a packet of full size:
/// 4,096 take 20 MiB.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirUdp {
    /// Flows at once; a flow is one client port to one destination port.
    pub max_flows: usize,
    /// Flows of one passenger.
    pub max_flows_per_passenger: usize,
    /// New flows of one passenger, on average; bursts of twice as many.
    // It prevents one passenger from using up the flows that the ground gateway allows the aircraft.
    pub flows_per_second_per_passenger: u32,
    /// End of an idle flow.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// End of an idle flow to port 53.
    #[serde(deserialize_with = "least::moment")]
    pub dns_idle_timeout: Span,
    /// End of an idle flow without any answer yet; such flows have a quarter of `max-flows`.
    #[serde(deserialize_with = "least::moment")]
    pub unanswered_timeout: Span,
}

/// Limits of UDP in a ground gateway. A flow takes about 5 KiB, and a socket if it is the first of
/// its client's port: 49,152 take 240 MiB.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GroundUdp {
    /// Flows of all aircraft at once. External ports have a limit of their own:
    /// docs/operations.md#udp-ports-of-the-ground.
    pub max_flows: usize,
    /// End of an idle flow.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// End of an idle flow to port 53.
    #[serde(deserialize_with = "least::moment")]
    pub dns_idle_timeout: Span,
    /// End of an idle flow without any answer yet.
    // A scan opens thousands of such flows.
    #[serde(deserialize_with = "least::moment")]
    pub unanswered_timeout: Span,
}

impl Default for AirUdp {
    fn default() -> Self {
        Self {
            max_flows: 4_096,
            max_flows_per_passenger: 1_024,
            flows_per_second_per_passenger: 50,
            idle_timeout: DEFAULT_IDLE,
            dns_idle_timeout: DEFAULT_DNS_IDLE,
            unanswered_timeout: DEFAULT_UNANSWERED,
        }
    }
}

impl Default for GroundUdp {
    fn default() -> Self {
        Self {
            max_flows: 49_152,
            idle_timeout: DEFAULT_IDLE,
            dns_idle_timeout: DEFAULT_DNS_IDLE,
            unanswered_timeout: DEFAULT_UNANSWERED,
        }
    }
}

impl AirUdp {
    /// Idle timeout of a flow to `port`.
    pub fn idle(&self, port: u16) -> Idle {
        let is_dns = port == DNS_PORT;
        let idle = if is_dns { self.dns_idle_timeout } else { self.idle_timeout };
        Idle::new(idle, self.unanswered_timeout)
    }

    /// Longest idle timeout of any flow.
    pub fn longest_idle(&self) -> Duration {
        self.idle_timeout.duration().max(self.dns_idle_timeout.into())
    }
}

impl GroundUdp {
    /// Idle timeout of a flow to `port`.
    pub fn idle(&self, port: u16) -> Idle {
        let is_dns = port == DNS_PORT;
        let idle = if is_dns { self.dns_idle_timeout } else { self.idle_timeout };
        Idle::new(idle, self.unanswered_timeout)
    }

    /// Longest idle timeout of any flow.
    pub fn longest_idle(&self) -> Duration {
        self.idle_timeout.duration().max(self.dns_idle_timeout.into())
    }
}

impl Idle {
    /// Timeouts after and before the first answer.
    pub fn new(answered: Span, unanswered: Span) -> Self {
        let answered = answered.into();
        Self { answered, unanswered: unanswered.duration().min(answered) }
    }

    /// Timeout of a flow, depending on whether it has been answered.
    pub fn of(self, is_answered: bool) -> Duration {
        if is_answered { self.answered } else { self.unanswered }
    }
}
