//! A grid as an experiment.

use std::path::PathBuf;

use anyhow::Context;

use super::emu::{self, Runs};
use super::{Cell, Work, sim, table, targets};
use crate::experiment::engine::{Engine, Kind};
use crate::experiment::report::{Goal, Report};
use crate::experiment::runner::Experiment;

/// A grid as an experiment.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Cells and works.
    pub works: Vec<(Cell, Work)>,
    /// Runs of each work. The simulator ignores the deadline.
    pub runs: Runs,
    /// Folder of the golden files that the simulated figures replace.
    pub golden: Option<PathBuf>,
}

impl Experiment for Grid {
    fn engines(&self) -> Vec<Kind> {
        vec![Kind::Sim, Kind::Emu]
    }

    fn run(&self, engine: &Engine<'_>) -> anyhow::Result<Report> {
        let Self { works, runs, golden } = self;
        let outcomes = match engine {
            Engine::Sim => sim::run(works, runs.count, runs.seed)?,
            Engine::Emu(emulator) => emu::run(works, emulator, *runs)?,
        };
        if let (Some(folder), Engine::Sim) = (golden, engine) {
            super::golden::update(folder, &outcomes)
                .with_context(|| format!("cannot write to {}", folder.display()))?;
        }
        let in_text = |(_, goal)| Goal { is_in_text: true, ..goal };
        Ok(Report {
            text: table::grid(&outcomes),
            rows: outcomes.iter().flat_map(|one| one.rows(engine.name(), runs.seed)).collect(),
            goals: targets::judge(&outcomes).into_iter().map(in_text).collect(),
        })
    }
}
