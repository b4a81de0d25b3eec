//! Redundancy that the measured loss calls for. Pure arithmetic: counts in, counts out.

mod estimate;
mod need;
mod ratio;

pub use estimate::{Estimator, Fate};
pub use need::{BATCHES, Need, Plan, at_once};
pub use ratio::Steady;

/// Loss of a direction, as a chain of two states: a packet is lost with probability `rate`, and
/// after a loss the next packet of a train with probability `rate + correlation × (1 − rate)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// The share of packets lost.
    pub rate: f64,
    /// 0: each by itself; towards 1: in ever longer bursts.
    pub correlation: f64,
}

impl Loss {
    /// Losses at `rate` in bursts of `burst` packets on average.
    pub fn in_bursts(rate: f64, burst: f64) -> Self {
        let rate = rate.clamp(0.0, 1.0 - LEAST_WAY_OUT);
        let after_loss = 1.0 - 1.0 / burst.max(1.0);
        Self { rate, correlation: ((after_loss - rate) / (1.0 - rate)).clamp(0.0, 1.0) }
    }

    /// The probability that a loss follows a loss.
    pub fn after_loss(self) -> f64 {
        self.rate + self.correlation * (1.0 - self.rate)
    }

    /// The probability that a loss follows an arrival.
    pub fn after_arrival(self) -> f64 {
        self.rate * (1.0 - self.correlation)
    }

    /// Mean length of a burst in packets of a train.
    pub fn burst_packets(self) -> f64 {
        1.0 / (1.0 - self.after_loss()).max(LEAST_WAY_OUT)
    }

    /// Packets of a burst beyond what independent losses come to.
    pub fn excess_packets(self) -> f64 {
        (self.burst_packets() - 1.0 / (1.0 - self.rate).max(LEAST_WAY_OUT)).max(0.0)
    }

    /// Degree to which losses count as bursts: 0 for independent ones, 1 for bursts, or between.
    pub fn burstiness(self) -> f64 {
        (self.correlation / BURSTS_FROM).min(1.0)
    }

    /// By how much the variance of a count of losses exceeds that of independent ones.
    pub fn variance_factor(self) -> f64 {
        (1.0 + self.correlation) / (1.0 - self.correlation).max(LEAST_WAY_OUT)
    }
}

/// A burst ends with at least this probability at each packet: longer ones are outages, and no
/// redundancy helps against those.
const LEAST_WAY_OUT: f64 = 0.01;
/// From this correlation on losses count as bursts; below, in proportion.
const BURSTS_FROM: f64 = 0.25;
