//! Messages between the shards of a hub.

use std::net::SocketAddr;

use crate::crypto::ReceivedInit;

/// Message of one shard to another.
pub struct ShardMessage(pub(super) Content);

pub(super) enum Content {
    /// A handshake of one of the receiver's aircraft, opened within the limits on handshakes.
    Call { received: ReceivedInit, from: SocketAddr },
    /// Memory is short after the sender's silent sessions ended. The receiver's end too.
    MemoryIsShort,
}
