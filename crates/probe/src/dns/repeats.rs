//! The cause of double misses: several caches that share nothing, or one cache that does not store some
//! names.
//!
//! After a miss, one cache answers the second lookup of a name always, or never if it does not store that
//! name. A cluster answers it sometimes, for every name. So names are told by the mixture of their outcomes:
//! it is compared with the mixture that one common chance would give.

use std::collections::BTreeMap;

use serde::Serialize;

use super::DnsPair;
use super::quadrants::{Quadrant, quadrant_of};

/// Fewest first misses of a name that count, and fewest such names.
const MIN_MISSES: u32 = 3;
const MIN_NAMES: usize = 8;

/// Fewest double misses that need a cause: fewer are chance, such as slow replies in the cabin.
const MIN_DOUBLE: u32 = 10;

/// Shares of the expected mixture above which a cluster, and below which one cache explains it.
const CLUSTER: f64 = 0.5;
const ONE_CACHE: f64 = 0.25;

/// Cause of double misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Several caches that share nothing.
    Cluster,
    /// One cache that does not store some names.
    SomeNames,
    /// Too few double misses, or neither.
    Unclear,
}

impl Cause {
    /// Judges the pairs of one resolver.
    pub fn of<'a>(pairs: impl IntoIterator<Item = &'a DnsPair>, minimum_rtt_us: u64) -> Self {
        // First misses and double misses of each name.
        let mut names: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for pair in pairs {
            let (misses, double) = names.entry(&pair.name).or_default();
            match quadrant_of(pair, minimum_rtt_us) {
                Some(Quadrant::MissHit) => *misses += 1,
                Some(Quadrant::BothMiss) => {
                    *misses += 1;
                    *double += 1;
                }
                _ => {}
            }
        }
        names.retain(|_, (misses, _)| *misses >= MIN_MISSES);
        let sum = |part: fn(&(u32, u32)) -> u32| names.values().map(part).sum::<u32>();
        let (misses, double) = (sum(|name| name.0), sum(|name| name.1));
        if names.len() < MIN_NAMES || double < MIN_DOUBLE {
            return Self::Unclear;
        }
        let chance = f64::from(double) / f64::from(misses);
        let alike = |n: u32| chance.powi(n.cast_signed()) + (1.0 - chance).powi(n.cast_signed());
        let expected: f64 = names.values().map(|(misses, _)| 1.0 - alike(*misses)).sum();
        let mixed =
            names.values().filter(|(misses, double)| *double > 0 && double < misses).count();
        match mixed as f64 / expected {
            share if share > CLUSTER => Self::Cluster,
            share if share < ONE_CACHE => Self::SomeNames,
            _ => Self::Unclear,
        }
    }
}

#[cfg(test)]
mod tests;
