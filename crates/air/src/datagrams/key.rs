//! Key of a datagram flow.

use std::net::SocketAddr;

use bentpipe_flow::Target;

/// Key of a packet's flow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// IP protocol number.
    pub protocol: u8,
    /// Address and port of the client. For ICMP echo, the port is the identifier; for protocols
    /// with neither, it is 0.
    pub client: SocketAddr,
    /// Destination; the port is 0 if the protocol has no ports.
    pub target: Target,
}
