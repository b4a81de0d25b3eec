//! Memory and path limits of the radio transport; the keys are the same in both files.

use bentpipe_units::ByteSize;
use schemars::JsonSchema;
use serde::Deserialize;

/// Memory of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Memory {
    /// Received bytes that wait for their reader.
    pub receive: ByteSize,
    /// Bytes that wait to be sent, and sent bytes that are not reported yet: half each.
    pub send: ByteSize,
    /// Symbols stored only for repair packets, in addition.
    // A quarter for each lane in each direction.
    pub code: ByteSize,
}

/// Default maximum packet size, IP header included: Ethernet's.
pub const fn default_mtu() -> usize {
    1500
}

/// Default of a setting that is on unless the file disables it.
pub const fn enabled() -> bool {
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
