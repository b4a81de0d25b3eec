//! The cells as an experiment.

use std::path::PathBuf;

use anyhow::Context;

use super::cells::Cell;
use super::play::{self, Outcome};
use super::traces;
use crate::experiment::engine::{Engine, Kind};
use crate::experiment::report::Report;
use crate::experiment::runner::Experiment;

/// Cells as an experiment.
#[derive(Debug, Clone)]
pub struct LearnedRate {
    /// Selection of runs.
    pub choice: play::Choice,
    /// Folder for a trace of the first run of each cell.
    pub trace: Option<PathBuf>,
}

impl Experiment for LearnedRate {
    fn engines(&self) -> Vec<Kind> {
        let is_emulated = self.choice.cells.iter().any(Cell::is_emulated);
        [Kind::Sim].into_iter().chain(is_emulated.then_some(Kind::Emu)).collect()
    }

    fn run(&self, engine: &Engine<'_>) -> anyhow::Result<Report> {
        let mut choice = self.choice.clone();
        if let Engine::Emu(_) = engine {
            choice.cells.retain(Cell::is_emulated);
        }
        let outcomes = play::run(&choice, engine)?;
        if let Some(folder) = &self.trace {
            traces::write(folder, engine.name(), &outcomes)
                .with_context(|| format!("cannot write to {}", folder.display()))?;
        }
        let broken = outcomes.iter().filter_map(|one| one.broken.as_ref());
        Ok(Report {
            text: broken.map(|broken| format!("broken: {broken}\n")).collect(),
            rows: outcomes
                .iter()
                .flat_map(|one| one.rows(engine.name(), choice.lease, choice.seed))
                .collect(),
            goals: outcomes.iter().flat_map(Outcome::goals).collect(),
        })
    }
}
