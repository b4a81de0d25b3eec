//! Packet trace of a simulated network, and a digest of it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use bentpipe_channel::Fate;

/// One event: a datagram was sent, or could not be delivered at its arrival.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Time since the network was made.
    pub at: Duration,
    /// Socket that sent it.
    pub from: SocketAddr,
    /// Destination address.
    pub to: SocketAddr,
    /// Payload.
    pub bytes: &'a [u8],
    /// Fate of the datagram.
    pub outcome: Outcome,
}

/// Fate of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The link's decision when the datagram is sent.
    Link(Fate),
    /// No node has the destination's address, or no link leads there.
    NoRoute,
    /// More than [`super::net::MAX_IN_FLIGHT_BYTES`] are in flight.
    TooMuchInFlight,
    /// No socket listens at the destination any more.
    NotListening,
    /// The destination socket's queue is full.
    ReceiveQueueFull,
}

/// A running hash over events (64-bit FNV-1a). Equal digests mean equal runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    hash: u64,
    events: u64,
    contents: bool,
}

impl Digest {
    /// A digest over times, addresses, sizes and outcomes. It repeats even if the keys, and with
    /// them every encrypted byte, differ between runs.
    pub fn of_sizes() -> Digest {
        Digest { hash: 0xcbf2_9ce4_8422_2325, events: 0, contents: false }
    }

    /// A digest that also covers every byte.
    pub fn of_contents() -> Digest {
        Digest { contents: true, ..Digest::of_sizes() }
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event<'_>) {
        self.events += 1;
        self.duration(event.at);
        self.address(event.from);
        self.address(event.to);
        self.bytes(&(event.bytes.len() as u64).to_le_bytes());
        if self.contents {
            self.bytes(event.bytes);
        }
        match event.outcome {
            Outcome::Link(Fate::Delivered { at }) => {
                self.bytes(&[0]);
                self.duration(at);
            }
            Outcome::Link(Fate::Lost) => self.bytes(&[1]),
            Outcome::Link(Fate::QueueDropped) => self.bytes(&[2]),
            Outcome::Link(Fate::TooLong) => self.bytes(&[7]),
            Outcome::Link(Fate::Policed) => self.bytes(&[8]),
            Outcome::Link(Fate::Waiting(_)) => self.bytes(&[9]),
            Outcome::NoRoute => self.bytes(&[3]),
            Outcome::TooMuchInFlight => self.bytes(&[4]),
            Outcome::NotListening => self.bytes(&[5]),
            Outcome::ReceiveQueueFull => self.bytes(&[6]),
        }
    }

    /// Number of events added.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn duration(&mut self, duration: Duration) {
        self.bytes(&duration.as_nanos().to_le_bytes());
    }

    fn address(&mut self, address: SocketAddr) {
        match address.ip() {
            IpAddr::V4(ip) => self.bytes(&ip.octets()),
            IpAddr::V6(ip) => self.bytes(&ip.octets()),
        }
        self.bytes(&address.port().to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} over {} events", self.hash, self.events)
    }
}
