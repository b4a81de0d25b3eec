//! Report of an experiment: a text, rows, and its goals.

use std::fmt;

use super::grid::targets::Bound;
use super::table::{align, table};
use crate::contender::{BENTPIPE, SystemUnderTest};
use crate::experiment::engine::Engine;
use crate::profile::Profile;
use crate::result::{Percentile, Row, Samples};

/// Results of an experiment.
#[derive(Debug, Default)]
pub struct Report {
    /// Text for display, in 80 columns.
    pub text: String,
    /// Machine-readable rows.
    pub rows: Vec<Row>,
    /// Goals.
    pub goals: Vec<Goal>,
}

impl Report {
    /// Appends the report of another experiment.
    pub fn append(&mut self, other: Self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&other.text);
        self.rows.extend(other.rows);
        self.goals.extend(other.goals);
    }

    /// Sets the engine in every row.
    pub fn found_by(mut self, engine: &Engine<'_>) -> Self {
        self.rows.iter_mut().for_each(|row| row.engine = engine.name().into());
        self
    }

    /// Number of missed goals.
    pub fn missed(&self) -> usize {
        self.goals.iter().filter(|goal| !goal.holds()).count()
    }

    /// Text of the goals for display. Empty if there are none.
    pub fn goals_text(&self) -> String {
        if self.goals.is_empty() {
            return String::new();
        }
        let mut table = table(&["target", "found", "bound", ""]);
        for goal in &self.goals {
            let found = goal.found.map_or("unbounded".into(), |found| goal.write(found));
            let bound = match goal.bound {
                Bound::AtLeast(least) => format!("≥ {}", goal.write(least)),
                Bound::AtMost(most) => format!("≤ {}", goal.write(most)),
            };
            let verdict = if goal.holds() { "" } else { "missed" };
            table.add_row([&goal.name, &found, &bound, verdict]);
        }
        align(&mut table, &[1, 2]);
        let held = self.goals.len() - self.missed();
        format!("{}\n{held} of {} targets hold.\n", table.trim_fmt(), self.goals.len())
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
    /// Unit: `s` or `ratio`.
    pub unit: &'static str,
}

impl Goal {
    /// A ratio that must not be above `most`.
    pub fn ratio_at_most(name: impl Into<String>, found: Option<f64>, most: f64) -> Self {
        Self { name: name.into(), found, bound: Bound::AtMost(most), unit: "ratio" }
    }

    /// A ratio that must not be below `least`.
    pub fn ratio_at_least(name: impl Into<String>, found: Option<f64>, least: f64) -> Self {
        Self { name: name.into(), found, bound: Bound::AtLeast(least), unit: "ratio" }
    }

    /// A ratio that must be within `tolerance` of 1.
    pub fn off_by_at_most(name: impl Into<String>, ratio: Option<f64>, tolerance: f64) -> Self {
        let found = ratio.map(|ratio| (ratio - 1.0).abs());
        Self { name: name.into(), found, bound: Bound::AtMost(tolerance), unit: "ratio" }
    }

    /// A time that must not be above `most_s`.
    pub fn time_at_most(name: impl Into<String>, found_s: Option<f64>, most_s: f64) -> Self {
        Self { name: name.into(), found: found_s, bound: Bound::AtMost(most_s), unit: "s" }
    }

    /// Returns `true` if the goal is met. An unknown value misses it.
    pub fn holds(&self) -> bool {
        self.found.is_some_and(|found| self.bound.holds(found))
    }

    fn write(&self, value: f64) -> String {
        if self.unit == "s" { millis(value) } else { format!("{value:.3}") }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A row for Bentpipe, without figures.
pub fn row(experiment: &str, profile: &Profile, workload: String, metric: &str, seed: u64) -> Row {
    let unit = match metric {
        "delay" | "completion" | "plt" | "lookup" | "first-byte" => "s",
        "rate" => "bit/s",
        _ => "ratio",
    };
    Row {
        experiment: experiment.into(),
        contender: Some(BENTPIPE.name().into()),
        profile: Some(profile.name.clone()),
        workload: Some(workload),
        metric: metric.into(),
        unit: unit.into(),
        seed: Some(seed),
        loss: Some(profile.forward_loss()),
        ..Row::default()
    }
}

/// A percentile of times for a table, or `lost` if the rank falls on a lost sample.
pub fn delay(samples: &Samples, q: f64) -> String {
    match samples.percentile(q) {
        Some(Percentile::Known(value)) => millis(value),
        Some(Percentile::Above(_)) => "lost".into(),
        None => "–".into(),
    }
}

/// A time in whole milliseconds. Small values have one decimal.
pub fn millis(seconds: f64) -> String {
    match seconds * 1e3 {
        ms @ ..99.95 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

/// A fraction in per cent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_holds_up_to_itself_and_the_unknown_is_a_miss() {
        let mut report = Report::default();
        assert_eq!(report.goals_text(), "");
        report.goals = vec![
            Goal::ratio_at_most("a share", Some(0.5), 0.5),
            Goal::time_at_most("a wait", None, 0.0127),
            Goal::ratio_at_least("an index", Some(0.97), 0.98),
        ];
        assert_eq!(report.missed(), 2);
        let text = report.goals_text();
        for part in ["unbounded", "≤ 12.7 ms", "0.970", "≥ 0.980", "1 of 3 targets hold"] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
    }
}
