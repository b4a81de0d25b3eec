//! Positions between fixes: on the great circle, and marked if the fixes are far apart.

use super::{Fix, Track};

/// Distance in time between fixes beyond which a position is marked as interpolated. An aircraft seldom turns
/// by much in 5 minutes of cruise.
pub const MARKED_US: i64 = 300_000_000;

/// Longest gap that is bridged: an ocean without receivers.
const MAX_GAP_US: i64 = 8 * 3_600_000_000;

/// Half of the time over which the vertical rate is measured.
const RATE_US: i64 = 60_000_000;

/// Vertical rate of a climb or a descent in feet per minute, and lowest altitude of cruise.
const STEEP_FT_MIN: f64 = 300.0;
const CRUISE_FT: f64 = 10_000.0;

/// A position at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Latitude in degrees.
    pub latitude: f64,
    /// Longitude in degrees from −180 to 180.
    pub longitude: f64,
    /// Altitude in feet.
    pub altitude_ft: Option<f64>,
    /// The fixes around it are more than 5 minutes apart.
    pub interpolated: bool,
    /// Phase of flight, if the altitude is known.
    pub phase: Option<Phase>,
}

/// A phase of flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// On the ground.
    Ground,
    /// Climb of more than 300 feet a minute.
    Climb,
    /// Level flight above 10,000 feet.
    Cruise,
    /// Descent of more than 300 feet a minute.
    Descent,
    /// Level flight below 10,000 feet.
    Low,
}

impl Phase {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ground => "ground",
            Self::Climb => "climb",
            Self::Cruise => "cruise",
            Self::Descent => "descent",
            Self::Low => "level, below 10,000 ft",
        }
    }
}

impl Track {
    /// The position at a time, or `None` before the first fix, after the last, between legs, and in gaps of more
    /// than 8 hours.
    pub fn position(&self, wall_us: i64) -> Option<Position> {
        let (before, after) = self.around(wall_us)?;
        let gap_us = after.wall_us - before.wall_us;
        let share =
            if gap_us == 0 { 0.0 } else { (wall_us - before.wall_us) as f64 / gap_us as f64 };
        let (latitude, longitude) = between(before, after, share);
        Some(Position {
            latitude,
            longitude,
            altitude_ft: altitude(before, after, share),
            interpolated: gap_us > MARKED_US && share > 0.0 && share < 1.0,
            phase: self.phase(wall_us),
        })
    }

    /// Fixes around a time.
    fn around(&self, wall_us: i64) -> Option<(&Fix, &Fix)> {
        let next = self.fixes.partition_point(|fix| fix.wall_us <= wall_us);
        let before = self.fixes[..next].last()?;
        if before.wall_us == wall_us {
            return Some((before, before));
        }
        let after = self.fixes.get(next)?;
        let bridged = !after.new_leg && after.wall_us - before.wall_us <= MAX_GAP_US;
        bridged.then_some((before, after))
    }

    fn phase(&self, wall_us: i64) -> Option<Phase> {
        let (before, after) = self.around(wall_us)?;
        if before.ground && after.ground {
            return Some(Phase::Ground);
        }
        let level = |at: i64| {
            let (before, after) = self.around(at)?;
            let gap_us = (after.wall_us - before.wall_us).max(1);
            altitude(before, after, (at - before.wall_us) as f64 / gap_us as f64)
        };
        let here = level(wall_us)?;
        // At the ends of a leg, the rate is that of one side.
        let (from, from_ft) = earlier(wall_us, here, level(wall_us - RATE_US), -RATE_US);
        let (to, to_ft) = earlier(wall_us, here, level(wall_us + RATE_US), RATE_US);
        let minutes = (to - from) as f64 / 60e6;
        let rate = if minutes > 0.0 { (to_ft - from_ft) / minutes } else { 0.0 };
        Some(match rate {
            rate if rate > STEEP_FT_MIN => Phase::Climb,
            rate if rate < -STEEP_FT_MIN => Phase::Descent,
            _ if here >= CRUISE_FT => Phase::Cruise,
            _ => Phase::Low,
        })
    }
}

/// The known end of a time span, or its middle.
fn earlier(wall_us: i64, here_ft: f64, there_ft: Option<f64>, by_us: i64) -> (i64, f64) {
    there_ft.map_or((wall_us, here_ft), |there_ft| (wall_us + by_us, there_ft))
}

fn altitude(before: &Fix, after: &Fix, share: f64) -> Option<f64> {
    let level = |fix: &Fix| fix.altitude_ft.or(fix.ground.then_some(0.0));
    match (level(before), level(after)) {
        (Some(from), Some(to)) => Some(from + (to - from) * share),
        (one, other) => one.or(other),
    }
}

/// The point on the great circle between two fixes.
pub fn between(before: &Fix, after: &Fix, share: f64) -> (f64, f64) {
    let (a, b) = (vector(before), vector(after));
    let dot: f64 = a.iter().zip(b).map(|(x, y)| x * y).sum();
    let angle = dot.clamp(-1.0, 1.0).acos();
    // Below some metres the circle is a line, and the quotient is not a number.
    if angle < 1e-7 {
        return (before.latitude, before.longitude);
    }
    let (from, to) =
        (((1.0 - share) * angle).sin() / angle.sin(), (share * angle).sin() / angle.sin());
    let [x, y, z]: [f64; 3] = std::array::from_fn(|i| from * a[i] + to * b[i]);
    if !(x.is_finite() && y.is_finite() && z.is_finite()) {
        return (before.latitude, before.longitude);
    }
    (z.atan2(x.hypot(y)).to_degrees(), y.atan2(x).to_degrees())
}

fn vector(fix: &Fix) -> [f64; 3] {
    let (latitude, longitude) = (fix.latitude.to_radians(), fix.longitude.to_radians());
    [latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()]
}
