//! Result of a load.

use std::time::Duration;

use super::Protocol;

/// Result of a load.
#[derive(Debug, Clone)]
pub struct Visit {
    /// Entry of each resource that was found, in the site's order.
    pub entries: Vec<Entry>,
    /// Connections that came up: the handshake of TCP or QUIC completed.
    pub connections: u32,
    /// Connections that came up but never carried a request.
    pub connections_dropped: u32,
    /// Connections that resumed a session of an earlier visit, by an abbreviated handshake or by
    /// accepted 0-RTT.
    pub connections_resumed: u32,
    /// Connections known to have a new session, by a full TLS handshake or because 0-RTT could not
    /// be tried or was refused.
    pub connections_anew: u32,
    /// Time from the load's beginning to the last object's last byte, or to the deadline.
    pub took: Duration,
    /// `true` if it ended before the deadline, with or without failures.
    pub finished: bool,
    /// Bytes of bodies on each connection in each slot of [`super::RATE_SLOT`], if requested.
    pub rates: Vec<Vec<u64>>,
    /// Protocol of the load.
    pub protocol: Protocol,
}

/// Result of a resource. Its phases follow each other without gaps, from its discovery to its last
/// byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Index of the resource in the site.
    pub resource: usize,
    /// URL of the resource.
    pub url: String,
    /// Number of its connection, counted from 0. `None` if it never had one.
    pub connection: Option<usize>,
    /// Time of its discovery, since the load's beginning.
    pub started: Duration,
    /// Wait for a connection and a place on it, without `connect`.
    pub block: Duration,
    /// Connection setup, including TLS. `None` if the connection had been used before.
    pub connect: Option<Duration>,
    /// TLS handshake, a part of `connect`. QUIC's handshake is not counted twice.
    pub secure: Option<Duration>,
    /// Sending, until the request was handed to the connection. Time in the kernel's buffers is
    /// part of `wait`.
    pub send: Duration,
    /// Wait for the response header.
    pub wait: Duration,
    /// Reception, until the last byte.
    pub receive: Duration,
    /// Received bytes of its body.
    pub bytes: u64,
    /// Status of the response.
    pub status: Option<u16>,
    /// Reason why it is missing or damaged.
    pub failed: Option<String>,
}

impl Visit {
    /// Returns `true` if an object is missing: it failed, or the load was cut off.
    pub fn failed(&self) -> bool {
        !self.finished || self.entries.iter().any(|entry| entry.failed.is_some())
    }

    /// Received bytes of all bodies.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }
}

impl Entry {
    /// Time from its discovery to its last byte.
    pub fn time(&self) -> Duration {
        self.block + self.connect.unwrap_or_default() + self.send + self.wait + self.receive
    }
}
