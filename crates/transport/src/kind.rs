//! Kinds of flows.

use bentpipe_net::ip;

/// Kind of flow. Each kind has its own count and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP connections.
    Streams,
    /// Flows of UDP datagrams.
    Datagrams,
    /// ICMP echo and protocols other than TCP and UDP.
    Ip,
}

impl Kind {
    /// Number of kinds.
    pub const COUNT: usize = 3;

    /// Kind of datagrams of the IP protocol `protocol`.
    pub fn of_protocol(protocol: u8) -> Self {
        if protocol == ip::UDP { Self::Datagrams } else { Self::Ip }
    }
}
