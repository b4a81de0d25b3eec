//! The kind of access, inferred from pings and the provider: geostationary, medium or low orbit, or
//! air-to-ground.
//!
//! | module | contents |
//! |---|---|
//! | `period` | the 15 s rhythm of a low constellation |
//!
//! Windows of 5 minutes each weigh their evidence. Physics excludes: no packet crosses a geostationary
//! satellite in less than 477 ms, nor one at 8,062 km in less than 107 ms. Everything else is only likely. A
//! flight is then split where another kind explains it better, and a segment whose evidence is thin stays
//! unknown. The paper's rule, "below 400 ms is air-to-ground", knows no low or medium orbit.

mod period;

use serde::{Deserialize, Serialize};

pub use period::Sample;

/// Length of a window in seconds.
pub const WINDOW_S: u64 = 300;

/// Round-trip times below which a geostationary and a medium orbit are impossible, in microseconds: four
/// times the altitude (35,786 km and 8,062 km) at the speed of light.
const GEOSTATIONARY_US: u64 = 477_000;
const MEDIUM_US: u64 = 107_000;

/// Round-trip time from which a medium orbit is likely: the way on the ground adds to that of light, and
/// air-to-ground radio seldom takes that long for a whole window.
const LIKELY_MEDIUM_US: u64 = 125_000;

/// Fewest replies of a window that say anything.
const MIN_REPLIES: usize = 20;

/// Weights of evidence, in natural logarithms of odds.
const IMPOSSIBLE: f64 = -1e6;
const STRONG: f64 = 4.0;
const WEAK: f64 = 1.0;

/// Weight against a kind that the provider does not sell. It outweighs a missing rhythm, which not every low
/// constellation has, and never the speed of light.
const NOT_SOLD: f64 = -2.0;

/// Evidence that a change of the kind must outweigh.
const CHANGE: f64 = 8.0;

/// Lead over the next kind with which a segment is named.
const LEAD: f64 = 6.0;

/// Weight of the 15 s rhythm in a window: its gain is normally distributed, about 0 without it and about 6
/// with a faint one, with a deviation of 4.5. So its logarithm of odds is (6 × gain − 18) ÷ 20, here bounded.
const RHYTHM_SLOPE: f64 = 0.3;
const RHYTHM_OFFSET: f64 = 0.9;
const RHYTHM_BOUNDS: (f64, f64) = (-2.0, 4.0);

/// A kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A geostationary satellite.
    Geostationary,
    /// Satellites in a medium orbit.
    Medium,
    /// Satellites in a low orbit.
    Low,
    /// Radio to stations on the ground.
    AirToGround,
}

/// All kinds.
const KINDS: [Kind; 4] = [Kind::Geostationary, Kind::Medium, Kind::Low, Kind::AirToGround];

impl Kind {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Geostationary => "geostationary orbit",
            Self::Medium => "medium orbit",
            Self::Low => "low orbit",
            Self::AirToGround => "air-to-ground",
        }
    }
}

/// Evidence of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Number of the window since the start of the session.
    pub window: u64,
    /// Smallest round-trip time in microseconds.
    pub minimum_us: u64,
    /// Gain of the 15 s rhythm.
    pub rhythm: f64,
    weights: [f64; 4],
}

impl Evidence {
    /// Adds that the provider of the window sells only `kinds`. An empty list says nothing.
    pub fn sold_as(&mut self, kinds: &[Kind]) {
        if kinds.is_empty() {
            return;
        }
        for (kind, weight) in KINDS.iter().zip(&mut self.weights) {
            if !kinds.contains(kind) {
                *weight += NOT_SOLD;
            }
        }
    }
}

/// A part of a flight.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// First window.
    pub from: u64,
    /// Last window.
    pub to: u64,
    /// Kind of access, or `None` if the evidence is thin.
    pub kind: Option<Kind>,
    /// Smallest round-trip time in microseconds.
    pub minimum_us: u64,
    /// Mean gain of the 15 s rhythm; above 3 it speaks for a low orbit.
    pub rhythm: f64,
}

/// Weighs the replies of each window of a flight. Windows with too few replies are left out.
pub fn weigh(windows: &[(u64, Vec<Sample>)]) -> Vec<Evidence> {
    let used: Vec<(u64, &[Sample])> = windows
        .iter()
        .filter(|(_, samples)| samples.len() >= MIN_REPLIES)
        .map(|(number, samples)| (*number, &samples[..]))
        .collect();
    let samples: Vec<&[Sample]> = used.iter().map(|(_, samples)| *samples).collect();
    let gains = period::gains(&samples);
    let evidence = |((window, samples), rhythm): (&(u64, &[Sample]), f64)| {
        let minimum_us = samples.iter().map(|sample| sample.rtt_us).min().unwrap_or_default();
        Evidence { window: *window, minimum_us, rhythm, weights: weights(minimum_us, rhythm) }
    };
    used.iter().zip(gains).map(evidence).collect()
}

fn weights(minimum_us: u64, rhythm: f64) -> [f64; 4] {
    let (least, most) = RHYTHM_BOUNDS;
    let low = (RHYTHM_SLOPE * rhythm - RHYTHM_OFFSET).clamp(least, most);
    let (geostationary, medium) = match minimum_us {
        us if us >= GEOSTATIONARY_US => (STRONG, 0.0),
        us if us >= LIKELY_MEDIUM_US => (IMPOSSIBLE, WEAK),
        us if us >= MEDIUM_US => (IMPOSSIBLE, 0.0),
        _ => (IMPOSSIBLE, IMPOSSIBLE),
    };
    [geostationary, medium, low, 0.0]
}

/// Splits a flight into segments: the sequence of kinds with the most evidence, where each change must
/// outweigh 8 units of evidence.
pub fn segments(evidence: &[Evidence]) -> Vec<Segment> {
    let mut best = [0.0; 4];
    let mut origins: Vec<[usize; 4]> = Vec::with_capacity(evidence.len());
    for window in evidence {
        let leader = index_of_largest(&best);
        let mut origin = [0; 4];
        let mut next = [0.0; 4];
        for kind in 0..4 {
            let stays = best[kind] >= best[leader] - CHANGE;
            origin[kind] = if stays { kind } else { leader };
            next[kind] =
                window.weights[kind] + if stays { best[kind] } else { best[leader] - CHANGE };
        }
        best = next;
        origins.push(origin);
    }
    let mut kind = index_of_largest(&best);
    let mut path = vec![0; evidence.len()];
    for (index, origin) in origins.iter().enumerate().rev() {
        path[index] = kind;
        kind = origin[kind];
    }
    let mut segments = Vec::new();
    let mut start = 0;
    for end in 1..=path.len() {
        if end == path.len() || path[end] != path[start] {
            segments.push(segment(&evidence[start..end], path[start]));
            start = end;
        }
    }
    segments
}

fn segment(windows: &[Evidence], kind: usize) -> Segment {
    let sum = |kind: usize| windows.iter().map(|window| window.weights[kind]).sum::<f64>();
    let others = (0..4).filter(|other| *other != kind).map(sum).fold(f64::MIN, f64::max);
    let named = sum(kind) - others >= LEAD;
    let rhythm =
        windows.iter().map(|window| window.rhythm).sum::<f64>() / windows.len().max(1) as f64;
    Segment {
        from: windows.first().map_or(0, |window| window.window),
        to: windows.last().map_or(0, |window| window.window),
        kind: named.then_some(KINDS[kind]),
        minimum_us: windows.iter().map(|window| window.minimum_us).min().unwrap_or_default(),
        rhythm,
    }
}

fn index_of_largest(values: &[f64; 4]) -> usize {
    (0..4).max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap_or_default()
}

#[cfg(test)]
mod tests;
