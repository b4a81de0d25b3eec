//! Symbols that repairs protect, and the division of the repairs over time.

use super::Loss;

/// Number of parts in which the second half of a flush is sent.
pub const BATCHES: u32 = 4;
/// Rounding of the immediate repairs: a fraction from 1 − this on counts as a whole repair.
const WHOLE_FROM: f64 = 0.75;

/// Symbols of a range by what is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Plan {
    /// Symbols known to be missing, less the equations that the receiver holds for them.
    pub deficit: u32,
    /// Source symbols whose outcome is unknown.
    pub sources: u32,
    /// Repairs whose outcome is unknown.
    pub repairs: u32,
}

/// Number of `repairs` to send directly after the source symbols. With independent losses it is
/// half, so that most losses are recovered without waiting, and one if only one is needed. If a
/// burst that takes source symbols would take these repairs too, it is none.
pub fn at_once(repairs: u32, loss: Loss) -> u32 {
    let apart = 1.0 - loss.burstiness();
    (f64::from(repairs) * 0.5 * apart + WHOLE_FROM) as u32
}
