//! Figures of a scene, each with its bound.

use std::fmt::Write;
use std::time::Duration;

use super::traffic::{Course, UP};
use crate::experiment::report::{Goal, Report};
use crate::profile::Profile;
use crate::result::Row;

/// Maximum number of reasons of failures in a report.
const MAX_REASONS: usize = 4;

/// A scene's figures, each with its bound.
pub struct Findings {
    scene: &'static str,
    goals: Vec<Goal>,
    text: String,
}

impl Findings {
    /// Begins the figures of `scene`.
    pub fn new(scene: &'static str) -> Self {
        Self { scene, goals: Vec::new(), text: String::new() }
    }

    /// Adds a time. An unknown one misses its bound.
    pub fn time(&mut self, what: &str, found: Option<Duration>, most: Duration) {
        let found = found.map(|found| found.as_secs_f64());
        self.goals.push(Goal::time_at_most(self.name(what), found, most.as_secs_f64()));
    }

    /// Adds a number or a ratio.
    pub fn at_most(&mut self, what: &str, found: f64, most: f64) {
        self.goals.push(Goal::ratio_at_most(self.name(what), Some(found), most));
    }

    /// Adds a number of failures, which must be zero, with the first reasons.
    pub fn failures(&mut self, what: &str, found: f64, course: &Course) {
        self.at_most(what, found, 0.0);
        let shown = if found > 0.0 { MAX_REASONS } else { 0 };
        for failure in course.failures.iter().take(shown) {
            let (flow, at, side, reason) = failure;
            let side = if *side == UP { "client" } else { "server" };
            let _ = writeln!(
                self.text,
                "{}: flow {flow} at its {side} after {:.3} s: {reason}",
                self.name(what),
                at.as_secs_f64()
            );
        }
    }

    /// Adds a number that must not be lower.
    pub fn at_least(&mut self, what: &str, found: f64, least: f64) {
        self.goals.push(Goal::ratio_at_least(self.name(what), Some(found), least));
    }

    fn name(&self, what: &str) -> String {
        format!("{}: {what}", self.scene)
    }

    /// The report of the scene.
    pub fn report(self, engine: &str, profile: &Profile, seed: u64) -> Report {
        let row = |goal: &Goal| Row {
            experiment: "hub-change".into(),
            engine: engine.into(),
            profile: Some(profile.name.clone()),
            workload: Some(goal.name.clone()),
            metric: if goal.unit == "s" { "time".into() } else { "count".into() },
            unit: goal.unit.into(),
            n: 1,
            mean: goal.found,
            limit: Some(goal.bound.value()),
            seed: Some(seed),
            ..Row::default()
        };
        Report { text: self.text, rows: self.goals.iter().map(row).collect(), goals: self.goals }
    }
}
