//! Redundancy for the measured loss. Pure arithmetic: counts in, counts out.
//!
//! | file | contents |
//! |---|---|
//! | `estimate` | loss rate and burst length of a direction, from packet outcomes |
//! | `need` | number of repairs for the end of a burst |
//! | `exact` | the same for a short train, computed exactly |
//! | `plan` | the protected symbols, and the division of repairs over time |
//! | `ratio` | repairs per symbol of a paced source |

mod estimate;
mod exact;
mod need;
mod plan;
mod ratio;

pub use estimate::{Estimator, Outcome};
pub use need::Need;
pub use plan::{BATCHES, Plan, at_once};
pub use ratio::PacedFlow;

/// Loss of a direction as a two-state chain. A packet is lost with probability `rate`; after a
/// loss, the next packet of a train is lost with probability `rate + correlation × (1 − rate)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// Share of packets lost.
    pub rate: f64,
    /// Correlation of losses: 0 if independent, towards 1 in ever longer bursts.
    pub correlation: f64,
}

impl Loss {
    /// Returns losses at `rate` in bursts of `burst` packets on average.
    pub fn in_bursts(rate: f64, burst: f64) -> Self {
        let rate = rate.clamp(0.0, 1.0 - MIN_BURST_END);
        let after_loss = 1.0 - 1.0 / burst.max(1.0);
        Self { rate, correlation: ((after_loss - rate) / (1.0 - rate)).clamp(0.0, 1.0) }
    }

    /// Probability of a loss after a loss.
    pub fn after_loss(self) -> f64 {
        self.rate + self.correlation * (1.0 - self.rate)
    }

    /// Probability of a loss after an arrival.
    pub fn after_arrival(self) -> f64 {
        self.rate * (1.0 - self.correlation)
    }

    /// Mean length of a burst, in packets of a train.
    pub fn burst_packets(self) -> f64 {
        1.0 / (1.0 - self.after_loss()).max(MIN_BURST_END)
    }

    /// Mean length of a burst beyond that of independent losses, in packets.
    pub fn excess_packets(self) -> f64 {
        (self.burst_packets() - 1.0 / (1.0 - self.rate).max(MIN_BURST_END)).max(0.0)
    }

    /// Degree to which losses count as bursts: 0 for independent losses, 1 for bursts.
    pub fn burstiness(self) -> f64 {
        (self.correlation / BURSTS_FROM).min(1.0)
    }

    /// Variance of a number of losses, relative to independent losses.
    pub fn variance_factor(self) -> f64 {
        (1.0 + self.correlation) / (1.0 - self.correlation).max(MIN_BURST_END)
    }
}

/// Minimum probability with which a burst ends at each packet. Longer bursts are outages, against
/// which no redundancy helps.
const MIN_BURST_END: f64 = 0.01;
/// Correlation from which on losses count fully as bursts; below, in proportion.
const BURSTS_FROM: f64 = 0.25;
