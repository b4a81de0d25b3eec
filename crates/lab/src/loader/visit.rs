//! Result of a load.

use std::time::Duration;

use super::Protocol;

/// Result of a load.
#[derive(Debug, Clone)]
pub struct Visit {
    /// Each resource that was found, in the site's order.
    pub entries: Vec<Entry>,
    /// Connections that came up: TCP's handshake was over, or QUIC's.
    pub connections: u32,
    /// Those of them that never carried a request.
    pub connections_dropped: u32,
    /// Those that resumed a session of an earlier visit: by an abbreviated handshake, or by 0-RTT that
    /// the server took.
    pub connections_resumed: u32,
    /// Those that are known not to have: a full handshake of TLS, or 0-RTT that could not be tried or
    /// that the server refused.
    pub connections_anew: u32,
    /// From the load's beginning to the last object's last byte, or to the deadline.
    pub took: Duration,
    /// `true` if it ended before the deadline, with or without failures.
    pub finished: bool,
    /// Bytes of bodies on each connection in each slot of [`super::RATE_SLOT`], if they were asked for.
    pub rates: Vec<Vec<u64>>,
    /// Over what.
    pub protocol: Protocol,
}

/// Result of a resource. The times follow each other without gaps, from its discovery to its last
/// byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the site.
    pub resource: usize,
    /// Its URL.
    pub url: String,
    /// The number of its connection, counted from 0; none where it never had one.
    pub connection: Option<usize>,
    /// Time of its discovery, from the load's beginning.
    pub started: Duration,
    /// Waiting for a connection and a place on it, without `connect`.
    pub block: Duration,
    /// Making its connection, TLS included; none where the connection had served another before.
    pub connect: Option<Duration>,
    /// The part of `connect` that was TLS; QUIC's handshake is not counted twice.
    pub secure: Option<Duration>,
    /// Until the request was handed to the connection. What the kernel keeps of it is `wait`.
    pub send: Duration,
    /// Until the answer's header was here.
    pub wait: Duration,
    /// Until the last byte was here.
    pub receive: Duration,
    /// Bytes of its body that came.
    pub bytes: u64,
    /// The answer's status.
    pub status: Option<u16>,
    /// Reason for which it is missing or damaged.
    pub failed: Option<String>,
}

impl Visit {
    /// Returns `true` if an object is missing: it failed, or the load was cut off.
    pub fn failed(&self) -> bool {
        !self.finished || self.entries.iter().any(|entry| entry.failed.is_some())
    }

    /// Bytes of all bodies that came.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }
}

impl Entry {
    /// From being found to its last byte.
    pub fn time(&self) -> Duration {
        self.block + self.connect.unwrap_or_default() + self.send + self.wait + self.receive
    }
}
