//! Settings that cannot work, and the limits of every path.

use std::time::Duration;

use bentpipe_units::{BitRate, ByteSize};

use crate::Class;
use crate::wire::header::MAX_PATHS;

/// IP packet that every path carries (RFC 8200, section 5; over IPv4 it is a requirement).
pub const MIN_MTU_BYTES: usize = 1280;

/// Minimum rate of a link. Below it a packet takes longer than 1.5 s, and a request is repeated
/// before its answer arrives. A lower grant or modem rate is followed nevertheless.
pub const MIN_RATE: BitRate = BitRate::from_bps(8_000);

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A link without a rate cannot send.
    #[error("the rate is 0: give what this side may send, like \"1.89 Mbit/s\"")]
    NoRate,
    /// Less than the link works at.
    #[error("a rate of {0} is too low: the link works from {MIN_RATE} on")]
    LowRate(BitRate),
    /// More than a packet's header can name.
    #[error("{0} paths are too many: a session has at most {MAX_PATHS}")]
    TooManyPaths(usize),
    /// A path besides the first cannot work.
    #[error("path {name:?}: {error}")]
    OfPath {
        /// Its name.
        name: String,
        /// Its mistake.
        error: Box<SettingsError>,
    },
    /// Smaller than any path.
    #[error("an MTU of {0} bytes is too small: IPv6 paths carry at least 1280 bytes")]
    SmallMtu(usize),
    /// Larger than an IP packet.
    #[error("an MTU of {0} bytes is too large: an IP packet has at most 65535 bytes")]
    LargeMtu(usize),
    /// Not even a few packets fit.
    #[error("a send memory of {memory} is too small: packets of {mtu} bytes need at least {min}")]
    SmallSendMemory {
        /// `send_memory`.
        memory: ByteSize,
        /// `mtu_bytes`.
        mtu: usize,
        /// Minimum value.
        min: ByteSize,
    },
    /// Repairs would combine symbols that their receiver no longer keeps.
    #[error(
        "a memory for repairs of {memory} is too small: packets of {mtu} bytes need at least {min}"
    )]
    SmallCodeMemory {
        /// `code_memory`.
        memory: ByteSize,
        /// `mtu_bytes`.
        mtu: usize,
        /// Minimum value.
        min: ByteSize,
    },
    /// A writer would wait forever.
    #[error(
        "a flow's send buffer of 0 holds nothing: give it at least a few packets, like \"256 KiB\""
    )]
    NoSendBuffer,
    /// A flow would crawl or stall.
    #[error("a flow reserve of {0} is out of range: give 1500 bytes to 4 GiB")]
    Reserve(ByteSize),
    /// Not even a few datagrams fit.
    #[error(
        "a datagram memory of {memory} is too small: packets of {mtu} bytes need at least {min}"
    )]
    SmallDatagramMemory {
        /// `datagram_memory`.
        memory: ByteSize,
        /// `mtu_bytes`.
        mtu: usize,
        /// Minimum value.
        min: ByteSize,
    },
    /// Not even a few datagrams of the class fit.
    #[error(
        "a memory of {memory} for datagrams of the class {class} is too small: packets of {mtu} \
         bytes need at least {min}"
    )]
    SmallClassMemory {
        /// The class.
        class: Class,
        /// Its `memory`.
        memory: ByteSize,
        /// `mtu_bytes`.
        mtu: usize,
        /// Minimum value.
        min: ByteSize,
    },
    /// Nothing of the class would ever be sent, and its senders would wait forever.
    #[error("a ceil of 0 shuts the class {0} out: give it what it may take, like \"64 kbit/s\"")]
    NoCeil(Class),
    /// The guaranteed rate of a class exceeds its ceiling.
    #[error(
        "the class {class} may count on {rate} and take at most {ceil}: raise its ceil or lower its rate"
    )]
    CeilBelowRate {
        /// The class.
        class: Class,
        /// Its `rate`.
        rate: BitRate,
        /// Its `ceil`.
        ceil: BitRate,
    },
    /// Datagram flows would end while they are in use.
    #[error(
        "flows of datagrams that are idle after {0:?} end between two datagrams: give at least 1 s"
    )]
    DatagramIdle(Duration),
    /// Sessions would end between two keep-alives, or in a short outage.
    #[error(
        "sessions that end after {0:?} of silence do not survive a short outage: give at least 1 min"
    )]
    SessionLifetime(Duration),
    /// The reserves alone do not fit.
    #[error(
        "{flows} flows with {reserve} reserved each need {needed}, more than the receive memory of {memory}: \
         raise the memory or lower the flows"
    )]
    Overcommitted {
        /// `max_flows`.
        flows: u32,
        /// `flow_reserve`.
        reserve: ByteSize,
        /// Their product.
        needed: ByteSize,
        /// `receive_memory`.
        memory: ByteSize,
    },
}
