//! One cell of one grid, with its study and plan.

use bentpipe_results::{Grid, Measured, Page, Planned, Row, Study};

/// A cell to run.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// Study.
    pub study: &'a Study,
    /// Grid of the study.
    pub grid: &'a Grid,
    /// Cell of the grid.
    pub planned: &'a Planned,
}

/// Values of one run, and the seed of its losses.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// Number of the run in its cell, from 0.
    pub run: u32,
    /// Seed of the losses.
    pub seed: u64,
    /// Values.
    pub values: Vec<Row>,
    /// Reason why the run counts as failed, if it is not visible in the values.
    pub failed: Option<String>,
}

impl Ran {
    /// Creates a run without a separate reason for failure.
    pub fn of(run: u32, seed: u64, values: Vec<Row>) -> Self {
        Self { run, seed, values, failed: None }
    }
}

impl<'a> Job<'a> {
    /// Name of the system under test; empty in a grid without systems.
    pub fn system(&self) -> &'a str {
        self.planned.cell.on("contender").unwrap_or_default()
    }

    /// Returns `true` if the cell runs in virtual time.
    pub fn is_simulated(&self) -> bool {
        self.planned.cell.on("engine") == Some("sim")
    }

    /// Returns `true` if real Chromium loads the page.
    pub fn is_in_browser(&self) -> bool {
        self.planned.cell.on("loader") == Some("chromium")
    }

    /// Returns `true` if the payload is sent from the aircraft.
    pub fn is_up(&self) -> bool {
        self.planned.cell.on("direction") == Some("up")
    }

    /// Page to load.
    pub fn page(&self) -> Option<&'a Page> {
        self.study.page(self.planned.cell.on("page")?)
    }

    /// Integer value of a grid setting.
    pub fn whole(&self, key: &str) -> Option<u64> {
        self.grid.settings.get(key)?.as_integer().and_then(|value| u64::try_from(value).ok())
    }

    /// Builds the cell's measurements from its runs, with the metrics that the grid requests.
    pub fn measured(&self, runs: &[Ran]) -> Measured {
        let asked = |value: &&Row| self.grid.metrics.contains(&value.metric);
        let row = |ran: &Ran, value: &Row| Row { run: ran.run, seed: ran.seed, ..value.clone() };
        let mut runs: Vec<&Ran> = runs.iter().collect();
        runs.sort_by_key(|ran| ran.run);
        let rows = runs
            .into_iter()
            .flat_map(|ran| ran.values.iter().filter(asked).map(move |value| row(ran, value)));
        Measured {
            paper: self.study.name.clone(),
            grid: self.grid.id.clone(),
            cell: self.planned.cell.clone(),
            rows: rows.collect(),
        }
    }
}
