//! The `[aerotcp]` table, which either file may have.

use bentpipe_units::{BitRate, ByteSize, Span};
use serde::Deserialize;

/// Description of the satellite for AeroTCP, in the terms of its paper. Required if the transport
/// is `aerotcp`; the other transports ignore it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AeroTcp {
    /// SatRTT: the round trip between the gateways.
    pub rtt: Span,
    /// Division of the bandwidth among the connections.
    #[serde(default)]
    pub window: WindowKind,
    /// N of a static window: the most connections there will be.
    pub connections: Option<u32>,
    /// The rows of a window from a table.
    #[serde(default)]
    pub table: Vec<TableRow>,
    /// SatBW: what this side may send. Absent, it is the `rate` of the link or of the aircraft.
    pub satellite_bandwidth: Option<BitRate>,
    /// PR: the most that one connection may reach. Absent, it is the whole bandwidth.
    pub peak_rate: Option<BitRate>,
    /// Buffers in peak rate delay products: 2, or 3 to 4 at high error rates.
    #[serde(default = "default_buffer_factor")]
    pub buffer_factor: u32,
    /// Memory of all connections with one peer together.
    #[serde(default = "default_memory")]
    pub memory: ByteSize,
}

/// Division of the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowKind {
    /// SatBW/N × SatRTT with a fixed N.
    Static,
    /// SatBW/N × SatRTT with the connections that are open as N.
    #[default]
    Adaptive,
    /// Looked up by the connections that are open when one begins.
    Table,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TableRow {
    /// For a connection that finds at most so many open, itself included.
    pub connections: u32,
    /// Bandwidth given to it.
    pub bandwidth: BitRate,
}

fn default_buffer_factor() -> u32 {
    *bentpipe_aerotcp::BUFFER_FACTORS.start()
}

fn default_memory() -> ByteSize {
    bentpipe_aerotcp::Settings::default().memory
}
