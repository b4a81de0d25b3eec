//! Bounds of UDP, and what becomes of the passengers' QUIC.

use std::time::Duration;

use bentpipe_units::Span;
use serde::Deserialize;

use super::{least, seconds};

/// RFC 4787 REQ-5: five minutes, and no less than two.
const DEFAULT_IDLE: Span = seconds(300);
/// A name server answers within seconds or not at all; REQ-5c allows well-known ports less.
const DEFAULT_DNS_IDLE: Span = seconds(30);

/// REQ-5 is for mappings in use: this is for those that have reached nobody.
const DEFAULT_UNANSWERED: Span = seconds(10);

/// At the air: a path of 600 ms has answered by then, and an invented source never does.
const DEFAULT_AIR_UNANSWERED: Span = seconds(10);

const DNS_PORT: u16 = 53;

/// Treatment of the passengers' QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quic {
    /// It crosses as datagrams, like all UDP.
    #[default]
    Carry,
    /// It is answered at once with ICMP port unreachable: browsers then use TCP.
    Reject,
}

/// Bounds of UDP in an air gateway. A flow takes about 5 KiB with a packet of full size in it:
/// 4,096 take 20 MiB.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirUdp {
    /// Flows at once: each is one client's port towards one destination's.
    pub max_flows: usize,
    /// Maximum for one passenger.
    pub max_flows_per_passenger: usize,
    /// New flows of one passenger per second, on average; twice as many at a stretch. So that
    /// nobody uses up what the ground lets the aircraft open.
    pub flows_per_second_per_passenger: u32,
    /// A flow on which nothing moves ends after this.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// The same for flows towards port 53.
    #[serde(deserialize_with = "least::moment")]
    pub dns_idle_timeout: Span,
    /// The same for flows that nothing has answered yet. They have a quarter of `max-flows`.
    #[serde(deserialize_with = "least::moment")]
    pub unanswered_timeout: Span,
}

/// Bounds of UDP in a ground gateway. A flow takes about 5 KiB, and a socket where it is the first
/// of its client's port: 49,152 take 240 MiB.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GroundUdp {
    /// Flows of all aircraft at once.
    pub max_flows: usize,
    /// A flow on which nothing moves ends after this.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// The same for flows towards port 53.
    #[serde(deserialize_with = "least::moment")]
    pub dns_idle_timeout: Span,
    /// The same for flows that nothing has answered yet, which a scan opens by the thousand.
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
            unanswered_timeout: DEFAULT_AIR_UNANSWERED,
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
    pub fn idle(&self, port: u16) -> Duration {
        idle(port, self.idle_timeout, self.dns_idle_timeout)
    }

    /// Longest idle timeout of any flow.
    pub fn longest_idle(&self) -> Duration {
        self.idle_timeout.duration().max(self.dns_idle_timeout.into())
    }
}

impl GroundUdp {
    /// Idle timeout of a flow to `port`.
    pub fn idle(&self, port: u16) -> Duration {
        idle(port, self.idle_timeout, self.dns_idle_timeout)
    }

    /// Longest idle timeout of any flow.
    pub fn longest_idle(&self) -> Duration {
        self.idle_timeout.duration().max(self.dns_idle_timeout.into())
    }
}

fn idle(port: u16, idle: Span, dns: Span) -> Duration {
    if port == DNS_PORT { dns.into() } else { idle.into() }
}
