//! Send permission of this side: a rate on lease.
//!
//! A lease is a rate, who it comes from, when it ends, and which bytes it counts. The best that
//! lives counts: the modem's, then one granted by the ground, then the operator's config. The
//! operator's rate is above them all as a cap. Where a lease ends and no other lives, what is left
//! is [`IDLE_GRANT`], enough to ask for a new one.
//!
//! ```text
//!  modem · grant · config ──► Leases ──► Breaker ──► Pacer
//!                                 ▲          ▲
//!           LEASE ── Claim ───────┘          └─── Observation, one for every report
//!             ▲        │
//!            Beam ◄─ DEMAND      (the ground: who gets how much of a beam)
//! ```
//!
//! Loss lowers no lease. What does is a queue that does not drain, or a delivery that falls below
//! what the channel's own loss explains: then somebody else's bytes are in the way, or the lease is
//! wrong, and the [`breaker`] keeps this side from doing harm.

mod appetite;
mod baseline;
mod beam;
mod breaker;
mod claim;
mod control;
mod delay;
mod deliveries;
mod divide;
mod leases;
mod others;
mod probe;

use std::time::Duration;

use bentpipe_units::BitRate;

pub use appetite::Waiting;
pub use beam::{Beam, BeamError, GRANT_LIFETIME, Grant, check};
pub use claim::Demand;
pub use control::Control;
pub use divide::{Want, divide_beside};

/// Rate that may always be used without a request: at 16 kbit/s a DEMAND of 80 bytes takes 40 ms.
/// The ground sets it aside for every aircraft that it knows.
pub const IDLE_GRANT: BitRate = BitRate::from_bps(16_000);

/// A modem's rate counts for so long after it was told. Whoever reads the modem repeats it more
/// often than that while the modem is there, so that one who died does not leave a rate behind.
pub const MODEM_LEASE: Duration = Duration::from_secs(90);

/// Origin of the rate at which a session may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeaseMode {
    /// The operator's config, for ever. A modem that tells a rate is believed before it.
    #[default]
    Static,
    /// The ground, which grants rates for a while; until then and in between, [`IDLE_GRANT`].
    Granted,
    /// The modem; until it tells a rate and when it stops telling, [`IDLE_GRANT`].
    Modem,
}

/// Sending rate that a modem reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModemRate {
    /// Bits per second, of IP packets and the modem's own framing.
    pub rate: BitRate,
    /// Bytes that the framing adds to every IP packet; 0 if the rate counts IP bytes.
    pub framing_bytes: u16,
}

/// An aircraft's share of a beam, as its operator set it. Nothing it says can raise it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its weight when several want more than there is.
    pub weight: u32,
    /// Rate that it gets before the others get more than theirs; [`IDLE_GRANT`] at least.
    pub floor: BitRate,
    /// The most it is granted for sending to the ground.
    pub most_return: BitRate,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1, floor: IDLE_GRANT, most_return: BitRate::from_bps(u64::MAX) }
    }
}

/// Source of a lease, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody gave one: [`IDLE_GRANT`].
    Idle,
    /// The operator's config.
    Config,
    /// The ground's grant, or at the ground this aircraft's part of the beam.
    Grant,
    /// The modem.
    Modem,
}

/// A rate, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Bits per second.
    pub rate: BitRate,
    /// Source.
    pub source: Source,
    /// End.
    pub until: Duration,
    /// Bytes that the rate counts for every packet in addition to its IP bytes.
    pub framing_bytes: u16,
}

/// Observation of the path to the peer from one report, for the breaker.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Time at which the report arrived.
    pub now: Duration,
    /// The round trip of the newest packet it names.
    pub rtt: Duration,
    /// Time at which that packet was sent, on our clock.
    pub sent_at: Duration,
    /// Time at which it arrived, on the peer's clock.
    pub arrived: Duration,
    /// Packets judged since the report before.
    pub judged: u64,
    /// Number of these that were lost.
    pub lost: u64,
    /// IP bytes of the judged packets.
    pub judged_bytes: u64,
    /// IP bytes sent and not judged yet.
    pub in_flight_bytes: u64,
}
