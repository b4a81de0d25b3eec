//! Figures of a scene, each with its bound.

use std::fmt::Write;
use std::time::Duration;

use super::report::{Goal, Report};
use crate::result::Row;

/// A scene's figures, each with its bound.
pub struct Findings {
    experiment: &'static str,
    scene: &'static str,
    goals: Vec<Goal>,
    text: String,
}

impl Findings {
    /// Begins the figures of a scene of an experiment.
    pub fn new(experiment: &'static str, scene: &'static str) -> Self {
        Self { experiment, scene, goals: Vec::new(), text: String::new() }
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

    /// Adds a number that must not be lower.
    pub fn at_least(&mut self, what: &str, found: f64, least: f64) {
        self.goals.push(Goal::ratio_at_least(self.name(what), Some(found), least));
    }

    /// Adds a line for display.
    pub fn say(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }

    /// Name of a figure of the scene.
    pub fn name(&self, what: &str) -> String {
        format!("{}: {what}", self.scene)
    }

    /// The report of the scene over the link of a profile.
    pub fn report(self, engine: &str, profile: Option<&str>, seed: u64) -> Report {
        let row = |goal: &Goal| Row {
            experiment: self.experiment.into(),
            engine: engine.into(),
            profile: profile.map(Into::into),
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
