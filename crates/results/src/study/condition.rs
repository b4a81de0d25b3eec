//! Named changes of path or hosts.

use serde::Deserialize;

/// A named change of path or hosts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Name of the condition.
    pub id: String,
    /// Meaning of the condition.
    pub about: String,
    /// Changes that it makes.
    pub set: Changes,
}

/// Changes of a condition. Absent fields leave the values of the link's profile and of the
/// workload.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Changes {
    /// Loss on the link in each direction, as a fraction of packets.
    pub loss: Option<f64>,
    /// Bit errors on the link in each direction, as a fraction of bits.
    pub ber: Option<f64>,
    /// Mean length of a burst of losses in packet times.
    pub burst: Option<f64>,
    /// Round-trip time between ground gateway and server.
    pub terrestrial_rtt_ms: Option<f64>,
    /// Loss between ground gateway and server in each direction, as a fraction of packets.
    pub terrestrial_loss: Option<f64>,
    /// Number of endless CUBIC transfers of other users through the link's queue, in the same
    /// direction.
    pub cross_flows: Option<u32>,
    /// Fraction of the rate that other users leave to one connection.
    pub fair_share: Option<f64>,
    /// Initial window of TCP, in segments.
    pub initial_window: Option<u32>,
    /// `true` if TCP Fast Open is allowed.
    pub fast_open: Option<bool>,
    /// `true` if TCP's congestion window restarts after idle periods.
    pub slow_start_after_idle: Option<bool>,
    /// Congestion control of TCP at client and server.
    pub congestion: Option<Congestion>,
    /// Maximum of TCP's send and receive buffers.
    pub buffer_bytes: Option<u64>,
    /// Maximum of TCP's receive window.
    pub receive_window_bytes: Option<u64>,
    /// Version of TLS.
    pub tls: Option<TlsVersion>,
    /// Maximum concurrent streams of an HTTP/2 connection.
    pub max_streams: Option<u32>,
    /// Time after which another connection is tried if the first is not up.
    pub connect_retry_ms: Option<u64>,
    /// Number of passengers who saturate the lowest class.
    pub lower_effort_passengers: Option<u32>,
    /// Number of connections of each of these passengers.
    pub connections_each: Option<u32>,
}

/// A kernel's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their own names")]
pub enum Congestion {
    Reno,
    Cubic,
    Bbr,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V1_2,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V1_3,
}
