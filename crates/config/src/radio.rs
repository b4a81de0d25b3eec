//! Memory and path limits of the radio transport; the keys are the same in both files.

use bentpipe_units::ByteSize;
use serde::Deserialize;

/// Memory of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Memory {
    /// Received bytes that their reader has not read yet.
    pub receive: ByteSize,
    /// Bytes waiting to be sent, and bytes waiting for acknowledgement: half each.
    pub send: ByteSize,
    /// Additional memory for FEC coding: a quarter for each lane in each direction.
    pub code: ByteSize,
}

/// Default maximum packet size, IP header included: Ethernet's.
pub const fn default_mtu() -> usize {
    1500
}

/// Default of `dscp`: packets on the radio are marked.
pub const fn marked() -> bool {
    true
}

/// Default of `coding`: repair packets (FEC) are sent.
pub const fn coded() -> bool {
    true
}

/// Default of `quic-in-order`: QUIC datagrams are restored to their order.
pub const fn in_order() -> bool {
    true
}

impl Default for Memory {
    fn default() -> Self {
        let defaults = bentpipe_link::Settings::default();
        Self {
            receive: defaults.receive_memory,
            send: defaults.send_memory,
            code: defaults.code_memory,
        }
    }
}
