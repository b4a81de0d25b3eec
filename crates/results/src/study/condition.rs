//! Named changes of path or hosts.

use serde::Deserialize;

/// A named change of path or hosts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Its name.
    pub id: String,
    /// Meaning of the condition.
    pub about: String,
    /// Changes that it makes.
    pub set: Changes,
}

/// Changes of a condition; absent fields stay as the link's profile and the workload have them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Changes {
    /// Loss on the link, in each direction, as a share of its packets.
    pub loss: Option<f64>,
    /// Bit errors on the link, in each direction, as a share of its bits.
    pub ber: Option<f64>,
    /// Mean length of a burst of losses in packet times.
    pub burst: Option<f64>,
    /// Between ground gateway and server.
    pub terrestrial_rtt_ms: Option<f64>,
    /// Between ground gateway and server, in each direction, as a share.
    pub terrestrial_loss: Option<f64>,
    /// Endless CUBIC transfers of others through the link's queue, in the same direction.
    pub cross_flows: Option<u32>,
    /// Share of the rate that other users leave to one connection.
    pub fair_share: Option<f64>,
    /// Initial window of TCP, in segments.
    pub initial_window: Option<u32>,
    /// TCP Fast Open.
    pub fast_open: Option<bool>,
    /// `true` if TCP starts over after a pause.
    pub slow_start_after_idle: Option<bool>,
    /// Congestion control of TCP at client and server.
    pub congestion: Option<Congestion>,
    /// Maximum of TCP's send and receive buffers.
    pub buffer_bytes: Option<u64>,
    /// Maximum of TCP's receive window.
    pub receive_window_bytes: Option<u64>,
    /// Version of TLS.
    pub tls: Option<TlsVersion>,
    /// Concurrent streams of an HTTP/2 connection.
    pub max_streams: Option<u32>,
    /// Another connection is tried when one is not up in this time.
    pub connect_retry_ms: Option<u64>,
    /// Number of passengers who saturate the lowest class.
    pub lower_effort_passengers: Option<u32>,
    /// Connections of each of them.
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
