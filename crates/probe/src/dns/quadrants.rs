//! Hits and misses of pairs (Mile High WiFi, section 5.3).
//!
//! A lookup that takes less time than any packet needs to the ground and back was answered in flight. The
//! limit is the flight's own minimum round-trip time, and two answers give four quadrants.

use serde::Serialize;

use super::{DnsPair, Lookup};

/// A quadrant of figure 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quadrant {
    /// Both answers came from a cache in flight.
    BothHit,
    /// The second answer came from a cache in flight.
    MissHit,
    /// The first answer came from a cache in flight, and the second did not.
    HitMiss,
    /// Neither answer came from a cache in flight.
    BothMiss,
}

impl Quadrant {
    /// The quadrant of two times.
    pub fn of(first_us: u64, second_us: u64, minimum_rtt_us: u64) -> Self {
        match (first_us < minimum_rtt_us, second_us < minimum_rtt_us) {
            (true, true) => Self::BothHit,
            (false, true) => Self::MissHit,
            (true, false) => Self::HitMiss,
            (false, false) => Self::BothMiss,
        }
    }
}

/// Pairs in each quadrant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quadrants {
    /// Both hit.
    pub both_hit: u32,
    /// Only the second hit.
    pub miss_hit: u32,
    /// Only the first hit.
    pub hit_miss: u32,
    /// Neither hit.
    pub both_miss: u32,
    /// Pairs without two proper responses. They are in no quadrant.
    pub failed: u32,
}

impl Quadrants {
    /// Sorts pairs by the flight's minimum round-trip time.
    pub fn of<'a>(pairs: impl IntoIterator<Item = &'a DnsPair>, minimum_rtt_us: u64) -> Self {
        let mut counts = Self::default();
        for pair in pairs {
            let count = match quadrant_of(pair, minimum_rtt_us) {
                Some(Quadrant::BothHit) => &mut counts.both_hit,
                Some(Quadrant::MissHit) => &mut counts.miss_hit,
                Some(Quadrant::HitMiss) => &mut counts.hit_miss,
                Some(Quadrant::BothMiss) => &mut counts.both_miss,
                None => &mut counts.failed,
            };
            *count += 1;
        }
        counts
    }

    /// Pairs in the quadrants.
    pub fn total(&self) -> u32 {
        self.both_hit + self.miss_hit + self.hit_miss + self.both_miss
    }

    /// Share of first lookups that hit.
    pub fn first_hits(&self) -> Option<f64> {
        self.share(self.both_hit + self.hit_miss)
    }

    /// Share of second lookups that hit.
    pub fn second_hits(&self) -> Option<f64> {
        self.share(self.both_hit + self.miss_hit)
    }

    /// Share of pairs that miss twice.
    pub fn double_misses(&self) -> Option<f64> {
        self.share(self.both_miss)
    }

    fn share(&self, part: u32) -> Option<f64> {
        let total = self.total();
        (total > 0).then(|| f64::from(part) / f64::from(total))
    }
}

/// The quadrant of a pair, if both lookups had a proper response.
pub(super) fn quadrant_of(pair: &DnsPair, minimum_rtt_us: u64) -> Option<Quadrant> {
    let times = time(&pair.first).zip(time(&pair.second));
    times.map(|(first, second)| Quadrant::of(first, second, minimum_rtt_us))
}

/// Time of a lookup with a proper response: success, or "no such name". Server failures, which may be
/// fast without any cache, do not count.
fn time(lookup: &Lookup) -> Option<u64> {
    let response = lookup.response.as_ref()?;
    matches!(response.rcode, 0 | 3).then_some(())?;
    lookup.rtt_us
}

#[cfg(test)]
mod tests;
