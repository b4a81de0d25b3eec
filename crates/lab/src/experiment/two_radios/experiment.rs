//! The cells as an experiment.

use std::path::PathBuf;

use anyhow::Context;

use super::play::{Choice, run};
use super::{Cell, Outcome, golden};
use crate::experiment::engine::{Engine, Kind};
use crate::experiment::report::Report;
use crate::experiment::runner::Experiment;

/// Cells as an experiment.
#[derive(Debug, Clone)]
pub struct TwoRadios {
    /// The cells.
    pub cells: Vec<Cell>,
    /// Number and seeds of the runs.
    pub choice: Choice,
    /// File for the simulated figures.
    pub golden: Option<PathBuf>,
}

/// Relative difference of both engines up to which they agree.
const AGREEMENT: f64 = 0.05;

impl Experiment for TwoRadios {
    fn engines(&self) -> Vec<Kind> {
        match self.choice.baseline {
            Some(_) => vec![Kind::Emu],
            None if self.cells.iter().all(|cell| cell.play.is_simulated()) => vec![Kind::Sim],
            None => vec![Kind::Sim, Kind::Emu],
        }
    }

    fn run(&self, engine: &Engine<'_>) -> anyhow::Result<Report> {
        let has = |cell: &&Cell| matches!(engine, Engine::Sim) || !cell.play.is_simulated();
        let cells: Vec<Cell> = self.cells.iter().filter(has).cloned().collect();
        let outcomes = run(&cells, self.choice, engine)?;
        if let (Some(file), Engine::Sim) = (&self.golden, engine) {
            std::fs::write(file, golden::text(&outcomes))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        let system = self.choice.baseline.map(|one| one.name());
        let row = |one: &Outcome| one.row(engine.name(), system, self.choice.seed);
        Ok(Report {
            text: String::new(),
            rows: outcomes.iter().map(row).collect(),
            goals: outcomes.iter().flat_map(Outcome::goals).collect(),
        })
    }

    fn apart(&self) -> f64 {
        AGREEMENT
    }
}
