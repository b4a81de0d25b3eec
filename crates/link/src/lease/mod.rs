//! Leases: permission to send at a rate.
//!
//! A lease is a rate, its source, its end, and which bytes it counts. The best lease that has not
//! ended is in force: the modem's, then one granted by the ground, then the operator's
//! configuration. The operator's rate caps them all. If a lease ends and there is no other,
//! [`IDLE_GRANT`] remains, which is enough to request a new one.
//!
//! ```text
//!  modem · grant · config ──► Leases ──► Breaker ──► Pacer
//!                                 ▲          ▲
//!      LEASE ── LeaseClient ──────┘          └─── Observation, one for every report
//!        ▲           │
//!       Beam ◄── DEMAND          (the ground divides a beam)
//! ```
//!
//! Loss does not lower a lease. A queue that does not drain does, and so do losses beyond the
//! channel's own: then other senders share the path or the lease is wrong, and the [`breaker`]
//! protects them.

mod baseline;
mod beam;
mod breaker;
mod client;
mod control;
mod cross_traffic;
mod delay;
mod delivery_rate;
mod demand;
mod divide;
mod learned;
mod leases;
mod probe;

use std::time::Duration;

use bentpipe_units::BitRate;

pub use beam::{Beam, BeamError, check};
pub use control::Control;
pub use demand::Waiting;
pub use divide::{Want, divide_beside};
pub use learned::{ArrivalSample, Channel, Earlier, QueueTrace};

pub use crate::wire::lease::{Demand, Grant};

/// Rate that may always be used without a request: at 16 kbit/s a DEMAND of 80 bytes takes 40 ms.
/// The ground reserves it for every aircraft it knows.
pub const IDLE_GRANT: BitRate = BitRate::from_bps(16_000);

/// Lifetime of a grant: ten round trips of a satellite. An aircraft that is silent for longer is
/// left with [`IDLE_GRANT`], and its share goes to the others.
pub const GRANT_LIFETIME: Duration = Duration::from_secs(6);

/// Lifetime of a modem's rate. The reader of a working modem repeats the rate more often, so that a
/// reader that died leaves no rate behind.
pub const MODEM_LEASE: Duration = Duration::from_secs(90);

/// Origin of the rate at which a session may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeaseMode {
    /// The operator's configuration, without end. A modem's rate takes precedence.
    #[default]
    Static,
    /// The ground, which grants rates for a limited time; otherwise [`IDLE_GRANT`].
    Granted,
    /// The modem; [`IDLE_GRANT`] while it reports no rate.
    Modem,
    /// Measurements of the path. A modem's rate and a grant take precedence.
    Learned,
}

/// Sending rate that a modem reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModemRate {
    /// Bits per second, of IP packets and the modem's own framing.
    pub rate: BitRate,
    /// Bytes that the framing adds to every IP packet; 0 if the rate counts IP bytes.
    pub per_packet_overhead: u16,
    /// The modem reports that its link carries nothing. The rate is for probes.
    pub is_down: bool,
}

/// An aircraft's share of a beam, set by its operator. No message of the aircraft can raise it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Weight if the aircraft want more than there is.
    pub weight: u32,
    /// Rate assigned before the rest is divided; at least [`IDLE_GRANT`].
    pub floor: BitRate,
    /// Maximum rate granted for sending to the ground.
    pub max_return: BitRate,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1, floor: IDLE_GRANT, max_return: BitRate::from_bps(u64::MAX) }
    }
}

/// Source of a lease, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// None: [`IDLE_GRANT`].
    Idle,
    /// Measurements of the path.
    Learned,
    /// The operator's configuration.
    Config,
    /// The ground's grant; at the ground, this aircraft's part of the beam.
    Grant,
    /// The modem.
    Modem,
}

/// A rate with an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Bits per second.
    pub rate: BitRate,
    /// Source.
    pub source: Source,
    /// End.
    pub until: Duration,
    /// Bytes that the rate counts for every packet in addition to its IP bytes.
    pub per_packet_overhead: u16,
}

/// Observation of the path to the peer in one report, for the breaker.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Time at which the report arrived.
    pub now: Duration,
    /// Round trip of the newest packet in it.
    pub rtt: Duration,
    /// Time at which that packet was sent, on our clock.
    pub sent_at: Duration,
    /// Time at which it arrived, on the peer's clock.
    pub arrived: Duration,
    /// Packets judged since the previous report.
    pub judged: u64,
    /// Number of these packets that were lost.
    pub lost: u64,
    /// IP bytes of the judged packets.
    pub judged_bytes: u64,
    /// IP bytes sent and not judged yet.
    pub in_flight_bytes: u64,
    /// Largest number of consecutive packets that were lost.
    pub longest_loss: u64,
}
