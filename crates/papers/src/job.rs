//! One cell of one grid, with all that belongs to it.

use bentpipe_results::{Grid, Measured, Page, Planned, Row, Study, unit_of};

/// A cell to be run.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// Study.
    pub study: &'a Study,
    /// Grid of the study.
    pub grid: &'a Grid,
    /// Cell of the grid.
    pub planned: &'a Planned,
}

/// A value that a run gave, of one of the metrics of `bentpipe_results::METRICS`.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Metric.
    pub metric: &'static str,
    /// Object or connection; empty if the run has one value.
    pub series: String,
    /// Its place in its series.
    pub x: Option<f64>,
    /// Finite.
    pub value: f64,
    /// `true` if it was not cut off.
    pub finished: bool,
}

/// Values of one run, and the seed of its losses.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// Number of the run in its cell, from 0.
    pub run: u32,
    /// Seed of the losses.
    pub seed: u64,
    /// Values.
    pub values: Vec<Value>,
    /// Reason for which it counts as failed, if the values alone do not say it.
    pub failed: Option<String>,
}

impl Ran {
    /// A run of which its values say all.
    pub fn of(run: u32, seed: u64, values: Vec<Value>) -> Self {
        Self { run, seed, values, failed: None }
    }
}

impl Value {
    /// A run's one value of a metric.
    pub fn of(metric: &'static str, value: f64, finished: bool) -> Self {
        Self { metric, series: String::new(), x: None, value, finished }
    }

    /// The same, of one object or connection of the run.
    pub fn in_series(self, series: impl Into<String>) -> Self {
        Self { series: series.into(), ..self }
    }

    /// The same, at a place of its series.
    pub fn at(self, x: f64) -> Self {
        Self { x: Some(x), ..self }
    }
}

impl<'a> Job<'a> {
    /// The contender's name; empty in a grid without contenders.
    pub fn contender(&self) -> &'a str {
        self.planned.cell.on("contender").unwrap_or_default()
    }

    /// Returns `true` if it is run in virtual time.
    pub fn is_simulated(&self) -> bool {
        self.planned.cell.on("engine") == Some("sim")
    }

    /// Returns `true` if real Chromium loads its page.
    pub fn is_in_browser(&self) -> bool {
        self.planned.cell.on("loader") == Some("chromium")
    }

    /// Returns `true` if payload leaves the aircraft.
    pub fn is_up(&self) -> bool {
        self.planned.cell.on("direction") == Some("up")
    }

    /// Page that is loaded.
    pub fn page(&self) -> Option<&'a Page> {
        self.study.page(self.planned.cell.on("page")?)
    }

    /// A whole number of the grid's settings.
    pub fn whole(&self, key: &str) -> Option<u64> {
        self.grid.settings.get(key)?.as_integer().and_then(|value| u64::try_from(value).ok())
    }

    /// Measurements of the cell, from the values of its runs: the metrics that the grid asks for.
    pub fn measured(&self, runs: &[Ran]) -> Measured {
        let asked = |value: &&Value| self.grid.metrics.iter().any(|metric| metric == value.metric);
        let row = |ran: &Ran, value: &Value| Row {
            metric: value.metric.into(),
            unit: unit_of(value.metric).unwrap_or_default().into(),
            series: value.series.clone(),
            x: value.x,
            run: ran.run,
            seed: ran.seed,
            value: value.value,
            finished: value.finished,
        };
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
