//! Figures with bounds.

use std::fmt;

use super::table::{millis, seconds};

/// Time up to which milliseconds are shown, in seconds.
const MAX_IN_MILLIS_S: f64 = 10.0;

/// Bound of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Minimum, inclusive.
    AtLeast(f64),
    /// Maximum, inclusive.
    AtMost(f64),
}

impl Bound {
    /// The bound itself.
    pub fn value(self) -> f64 {
        match self {
            Self::AtLeast(value) | Self::AtMost(value) => value,
        }
    }

    /// Returns `true` if `found` satisfies the bound.
    pub fn holds(self, found: f64) -> bool {
        match self {
            Self::AtLeast(least) => found >= least,
            Self::AtMost(most) => found <= most,
        }
    }
}

/// One figure and its bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// Name of the goal.
    pub name: String,
    /// Measured value. `None` if it is above all observations.
    pub found: Option<f64>,
    /// Bound.
    pub bound: Bound,
    /// Unit: `s`, `bytes` or `ratio`.
    pub unit: &'static str,
    /// Further figures of the same cell, for display.
    pub note: String,
    /// `true` if the text of the report has the figure. The goal is then listed only if it is missed.
    pub is_in_text: bool,
}

impl Goal {
    /// A figure in `unit` with its bound.
    pub fn new(
        name: impl Into<String>,
        found: Option<f64>,
        bound: Bound,
        unit: &'static str,
    ) -> Self {
        Self { name: name.into(), found, bound, unit, note: String::new(), is_in_text: false }
    }

    /// A ratio that must not be above `most`.
    pub fn ratio_at_most(name: impl Into<String>, found: Option<f64>, most: f64) -> Self {
        Self::new(name, found, Bound::AtMost(most), "ratio")
    }

    /// A ratio that must not be below `least`.
    pub fn ratio_at_least(name: impl Into<String>, found: Option<f64>, least: f64) -> Self {
        Self::new(name, found, Bound::AtLeast(least), "ratio")
    }

    /// A ratio that must be within `tolerance` of 1.
    pub fn off_by_at_most(name: impl Into<String>, ratio: Option<f64>, tolerance: f64) -> Self {
        let found = ratio.map(|ratio| (ratio - 1.0).abs());
        Self::new(name, found, Bound::AtMost(tolerance), "ratio")
    }

    /// A time that must not be above `most_s`.
    pub fn time_at_most(name: impl Into<String>, found_s: Option<f64>, most_s: f64) -> Self {
        Self::new(name, found_s, Bound::AtMost(most_s), "s")
    }

    /// Returns `true` if the goal is met. An unknown value misses it.
    pub fn holds(&self) -> bool {
        self.found.is_some_and(|found| self.bound.holds(found))
    }

    /// The value in its unit, for display.
    pub fn write(&self, value: f64) -> String {
        match self.unit {
            "s" if value < MAX_IN_MILLIS_S => millis(value),
            "s" => seconds(value),
            "bytes" => format!("{value:.0} B"),
            _ => format!("{value:.3}"),
        }
    }

    /// The bound, for display.
    pub fn bound_text(&self) -> String {
        match self.bound {
            Bound::AtLeast(least) => format!("≥ {}", self.write(least)),
            Bound::AtMost(most) => format!("≤ {}", self.write(most)),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
