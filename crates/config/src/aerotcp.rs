//! `[aerotcp]` table of `air.toml` and `ground.toml`.

use bentpipe_units::{BitRate, ByteSize, Span};
use serde::Deserialize;

/// Description of the satellite for AeroTCP, in the terms of its paper. Required if the transport
/// is `aerotcp`; the other transports ignore it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AeroTcp {
    /// SatRTT: round-trip time between the gateways.
    pub rtt: Span,
    /// Division of the bandwidth among the connections.
    #[serde(default)]
    pub window: WindowKind,
    /// N of a static window: maximum number of connections.
    pub connections: Option<u32>,
    /// Rows of the table for `WindowKind::Table`.
    #[serde(default)]
    pub table: Vec<TableRow>,
    /// SatBW: maximum sending rate of this gateway. Default: the `rate` of the link or of the
    /// aircraft.
    pub satellite_bandwidth: Option<BitRate>,
    /// PR: maximum rate of one connection. Default: the whole bandwidth.
    pub peak_rate: Option<BitRate>,
    /// Buffers in multiples of the peak rate-delay product: 2, or 3 to 4 at high error rates.
    #[serde(default = "default_buffer_factor")]
    pub buffer_factor: u32,
    /// Memory shared by all connections with one peer.
    #[serde(default = "default_memory")]
    pub memory: ByteSize,
}

/// Division of the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowKind {
    /// SatBW/N × SatRTT with a fixed N.
    Static,
    /// SatBW/N × SatRTT, with N the number of open connections.
    #[default]
    Adaptive,
    /// Looked up in the table by the number of open connections when a connection begins.
    Table,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TableRow {
    /// The row applies to a connection if at most this many are open, itself included.
    pub connections: u32,
    /// Bandwidth of such a connection.
    pub bandwidth: BitRate,
}

fn default_buffer_factor() -> u32 {
    *bentpipe_aerotcp::BUFFER_FACTORS.start()
}

fn default_memory() -> ByteSize {
    bentpipe_aerotcp::Settings::default().memory
}
