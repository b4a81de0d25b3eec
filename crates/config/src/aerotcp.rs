//! `[aerotcp]` table of `air.toml` and `ground.toml`.

use bentpipe_units::{BitRate, ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Description of the satellite for AeroTCP, in the terms of its paper. Required if the transport
/// is `aerotcp`; the other transports ignore it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AeroTcp {
    /// SatRTT: the round trip between the gateways.
    pub rtt: Span,
    /// Division of the bandwidth among the connections.
    #[serde(default)]
    pub window: WindowKind,
    /// N: the maximum number of connections, for `"static"`.
    pub connections: Option<u32>,
    /// Rows of the table, for `"table"`.
    #[serde(default)]
    pub table: Vec<TableRow>,
    /// SatBW: the send rate of this side.
    #[schemars(extend("x-default" = "`rate` of the link"))]
    pub satellite_bandwidth: Option<BitRate>,
    /// PR: the maximum rate of one connection.
    #[schemars(extend("x-default" = "all of it"))]
    pub peak_rate: Option<BitRate>,
    /// Buffers in peak rate delay products; 3 or 4 at high error rates.
    #[serde(default = "default_buffer_factor")]
    #[schemars(title = "2 to 4")]
    pub buffer_factor: u32,
    /// Memory of all connections with one peer.
    #[serde(default = "default_memory")]
    pub memory: ByteSize,
}

/// Division of the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TableRow {
    /// The row applies to a connection that finds at most this number open, itself included.
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
