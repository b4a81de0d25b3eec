//! Limits of the radio transport on a path and on memory; the same keys in both files.

use bentpipe_units::ByteSize;
use serde::Deserialize;

/// Bounds of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Memory {
    /// For received bytes that wait for their reader.
    pub receive: ByteSize,
    /// For bytes that wait to leave, and those that wait to be reported: half each.
    pub send: ByteSize,
    /// For what repairs combine, beyond that: a quarter for each lane in each direction.
    pub code: ByteSize,
}

/// The largest packet, IP header included, where the file does not say: Ethernet's.
pub const fn default_mtu() -> usize {
    1500
}

/// Packets on the radio are marked where the file does not say otherwise.
pub const fn marked() -> bool {
    true
}

/// Repairs go with what is sent, unless the file says otherwise.
pub const fn coded() -> bool {
    true
}

/// Datagrams of QUIC are put back in order where the file does not say otherwise.
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
