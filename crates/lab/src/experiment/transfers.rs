//! Systems under test × workloads over one profile, with as many concurrent testbeds as this
//! machine can run.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::budget::{Budget, CARRIED_BPS};
use super::cell::{self, Found, Job};
use super::progress::{Live, Progress, RunsBySystem};
use super::runner::by_cell;
use super::stand::MEASURED_AT_ONCE;
use crate::profile::Profile;
use crate::result::Row;
use crate::scratch::no_folder;
use crate::system::{Spread, SystemUnderTest};
use crate::workload::Workload;

/// Maximum concurrent testbeds, however slow they are. Each has about six threads.
const TESTBEDS_AT_ONCE: usize = 64;

/// Plan of the runs.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// Name in the rows.
    pub experiment: &'static str,
    /// Profile of the link.
    pub profile: &'a Profile,
    /// Systems under test.
    pub systems: &'a [&'static dyn SystemUnderTest],
    /// Workloads.
    pub workloads: &'a [Workload],
    /// Runs of each cell. By default as many as give a stable median, and more if the 95th
    /// percentile matters and runs are short.
    pub runs: Option<usize>,
    /// Seed of all losses.
    pub seed: u64,
    /// Maximum time of all runs in one testbed, from the beginning of the first.
    pub deadline: Duration,
    /// Measured length of a long download.
    pub bulk_length: Duration,
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// Folder for keys and configuration files.
    pub folder: &'a Path,
}

/// Results of one system under test with one workload.
#[derive(Debug, Clone)]
pub struct Cell {
    /// System under test.
    pub system: &'static dyn SystemUnderTest,
    /// Workload.
    pub workload: Workload,
    /// Results of all its testbeds together.
    pub found: Found,
    /// Overhead in each testbed, if known.
    pub overheads: Vec<f64>,
}

/// Callback for the progress.
pub type Tell<'a> = dyn Fn(Progress) + Sync + 'a;

/// Number of testbeds of a cell, and of runs in each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    testbeds: usize,
    runs: usize,
}

/// Times of TCP across a lossy link vary widely and are long, so it gets more testbeds with fewer
/// runs in each.
fn shape(system: &dyn SystemUnderTest, workload: &Workload) -> Shape {
    let of = |testbeds, runs| Shape { testbeds, runs };
    match (system.spread(), workload) {
        (Spread::Wide, Workload::Bulk) => of(5, 1),
        (_, Workload::Bulk) => of(3, 1),
        (_, Workload::Chromium { .. }) => of(1, 3),
        (Spread::Narrow, workload) => match workload.bytes() {
            // Two consecutive losses are rare, but not much rarer than one run in twenty.
            Some(..50_000) => of(3, 100),
            Some(..400_000) => of(1, 50),
            _ => of(2, 10),
        },
        (Spread::Slow, workload) => match workload.bytes() {
            Some(..50_000) => of(1, 40),
            Some(..400_000) => of(2, 10),
            Some(..800_000) => of(2, 5),
            Some(..1_200_000) => of(5, 2),
            _ => of(5, 1),
        },
        (Spread::Wide, workload) => match workload.bytes() {
            Some(..50_000) => of(1, 40),
            Some(..400_000) => of(1, 20),
            _ => of(2, 6),
        },
    }
}

impl Plan<'_> {
    /// The cells and their division into testbeds, the longest first.
    fn shapes(&self) -> Vec<(&'static dyn SystemUnderTest, &Workload, Shape)> {
        let mut shapes = Vec::new();
        for workload in self.workloads {
            for system in self.systems {
                let mut shape = shape(*system, workload);
                if let Some(runs) = self.runs {
                    shape.testbeds = shape.testbeds.min(runs).max(1);
                    shape.runs = runs.div_ceil(shape.testbeds);
                }
                shapes.push((*system, workload, shape));
            }
        }
        // Systems that loss slows down take longest, then larger workloads.
        shapes.sort_by_key(|(system, workload, _)| {
            (system.spread() != Spread::Slow, u64::MAX - workload.bytes().unwrap_or(0))
        });
        shapes
    }

    /// Number of runs.
    pub fn run_count(&self) -> usize {
        self.shapes().iter().map(|(_, _, shape)| shape.testbeds * shape.runs).sum()
    }

    /// Number of runs of each system under test.
    pub fn runs_by_system(&self) -> RunsBySystem {
        let mut runs = RunsBySystem::new();
        for (system, _, shape) in self.shapes() {
            *runs.entry(system).or_default() += shape.testbeds * shape.runs;
        }
        runs
    }

    /// Number of testbeds.
    pub fn testbed_count(&self) -> usize {
        self.shapes().iter().map(|(_, _, shape)| shape.testbeds).sum()
    }

    fn testbeds_at_once(&self) -> usize {
        let link = &self.profile.link;
        let rates = link.forward.rate().zip(link.return_.rate());
        rates.map_or(1, |(forward, _)| {
            (CARRIED_BPS / forward.bps().max(1)).clamp(1, TESTBEDS_AT_ONCE as u64) as usize
        })
    }

    /// Runs all cells with a progress line on a terminal.
    pub fn show(&self) -> anyhow::Result<Vec<Cell>> {
        let live = Live::new(self.run_count(), self.testbed_count(), self.runs_by_system());
        self.run(&|progress| live.tell(progress))
    }

    /// Runs all cells. Stops at the first error, because a figure from a run with an error is void.
    pub fn run(&self, tell: &Tell<'_>) -> anyhow::Result<Vec<Cell>> {
        let shapes = self.shapes();
        let mut cells = Vec::new();
        for ((system, workload, _), testbeds) in shapes.iter().zip(self.run_all(&shapes, tell)?) {
            let (system, workload) = (*system, (*workload).clone());
            let mut cell =
                Cell { system, workload, found: Found::default(), overheads: Vec::new() };
            testbeds.into_iter().for_each(|found| cell.add(found));
            cells.push(cell);
        }
        cells.sort_by_key(|cell| {
            let workload = self.workloads.iter().position(|known| *known == cell.workload);
            let system = self.systems.iter().position(|known| *known == cell.system);
            (workload, system)
        });
        Ok(cells)
    }

    /// Results of each testbed of each cell.
    fn run_all(
        &self,
        shapes: &[(&'static dyn SystemUnderTest, &Workload, Shape)],
        tell: &Tell<'_>,
    ) -> anyhow::Result<Vec<Vec<Found>>> {
        let measuring = Budget::new(MEASURED_AT_ONCE);
        let (measured, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let counts: Vec<_> = shapes.iter().map(|(_, _, shape)| shape.testbeds).collect();
        let found = by_cell(self.testbeds_at_once(), &counts, |cell, testbed| {
            let (system, workload, shape) = shapes[cell];
            let number = 1 + counts[..cell].iter().sum::<usize>() + testbed;
            let measure = measuring.take(1);
            let as_declared = || {
                drop(measure);
                tell(Progress::Measured(measured.fetch_add(1, Ordering::Relaxed) + 1));
            };
            let cell = (system, workload, shape.runs);
            let found = self.one(cell, number as u64, &stop, as_declared, tell);
            stop.fetch_or(found.is_err(), Ordering::Relaxed);
            found
        });
        found.into_iter().map(|testbeds| testbeds.into_iter().collect()).collect()
    }

    fn one(
        &self,
        (system, workload, runs): (&'static dyn SystemUnderTest, &Workload, usize),
        number: u64,
        stop: &AtomicBool,
        as_declared: impl FnOnce(),
        tell: &Tell<'_>,
    ) -> anyhow::Result<Found> {
        if stop.load(Ordering::Relaxed) {
            return Ok(Found::default());
        }
        let folder = self.folder.join(format!("{}-{number}", self.experiment));
        fs::create_dir(&folder).map_err(no_folder)?;
        let job = Job {
            system,
            workload,
            runs,
            profile: self.profile,
            // No two testbeds of any two seeds share their losses.
            seed: self.seed.wrapping_mul(1 << 16).wrapping_add(number),
            deadline: self.deadline,
            bulk_length: self.bulk_length,
            program: self.program,
            folder: &folder,
            stop,
        };
        let found = cell::run(&job, as_declared, &|sample| tell(Progress::Run(system, sample)))?;
        tell(Progress::Skipped(system, runs - found.samples.len()));
        Ok(found)
    }

    /// Rows of `cells`.
    pub fn rows(&self, cells: &[Cell]) -> Vec<Row> {
        cells.iter().flat_map(|cell| self.rows_of(cell)).collect()
    }

    fn rows_of(&self, cell: &Cell) -> Vec<Row> {
        let row = |metric: &str, unit: &str, limit| Row {
            experiment: self.experiment.into(),
            engine: "emu".into(),
            system: Some(cell.system.name().into()),
            profile: Some(self.profile.name.clone()),
            workload: Some(cell.workload.to_string()),
            metric: metric.into(),
            unit: unit.into(),
            limit,
            seed: Some(self.seed),
            ..Row::default()
        };
        let limit = limit(self.profile, &cell.workload);
        let mut rows = Vec::new();
        if cell.workload == Workload::Bulk {
            rows.push(cell.found.samples.fill(row("goodput", "bit/s", limit)));
            if let Some(limit) = limit {
                let shares = cell.found.samples.scaled(1.0 / limit);
                rows.push(shares.fill(row("utilization", "ratio", Some(1.0))));
            }
        } else {
            rows.push(cell.found.samples.fill(row(cell.workload.metric(), "s", limit)));
        }
        if !cell.overheads.is_empty() {
            let least = 1.0 / (1.0 - self.profile.forward_loss());
            let overheads = cell.overheads.iter().copied().collect::<crate::result::Samples>();
            rows.push(overheads.fill(row("overhead", "ratio", Some(least))));
        }
        rows
    }
}

impl Cell {
    fn add(&mut self, one: Found) {
        self.found.samples.0.extend(one.samples.0);
        self.found.failures.extend(one.failures);
        self.found.punctuality = self.found.punctuality.and(one.punctuality);
        self.overheads.extend(one.overhead);
    }
}

/// Physical limit: RTT + 8·bytes/((1−p)·rate), or (1−p)·rate for an endless workload. `None` if the
/// link has no rate.
pub fn limit(profile: &Profile, workload: &Workload) -> Option<f64> {
    match workload.bytes() {
        Some(bytes) => Some(profile.forward_limit(bytes)?.as_secs_f64()),
        None => Some((1.0 - profile.forward_loss()) * profile.link.forward.rate()?.bps() as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Samples;
    use crate::system::{BENTPIPE, demo};

    fn plan<'a>(
        profile: &'a Profile,
        systems: &'a [&'static dyn SystemUnderTest],
        workloads: &'a [Workload],
    ) -> Plan<'a> {
        Plan {
            experiment: "transfers",
            profile,
            systems,
            workloads,
            runs: None,
            seed: 1,
            deadline: Duration::from_secs(150),
            bulk_length: Duration::from_secs(60),
            program: Path::new("bentpipe"),
            folder: Path::new("/nowhere"),
        }
    }

    #[test]
    fn the_demos_grid_is_planned_with_the_slowest_first() {
        let (mss, workloads) = (Profile::named("mss").unwrap(), Workload::demo());
        let systems = demo();
        let plan = plan(&mss, &systems, &workloads);
        let shapes = plan.shapes();
        assert_eq!(shapes.len(), 24);
        assert_eq!(shapes[0].0.name(), "e2e-cubic");
        assert_eq!(shapes[0].1.to_string(), "file-1600k");
        assert!(plan.testbed_count() <= plan.testbeds_at_once(), "{}", plan.testbed_count());
        let clean = Profile::named("clean").unwrap();
        assert_eq!(Plan { profile: &clean, ..plan }.testbeds_at_once(), 1);
    }

    #[test]
    fn the_number_of_runs_can_be_given() {
        let (mss, workloads) = (Profile::named("mss").unwrap(), Workload::demo());
        let systems = demo();
        for runs in [1, 2, 7] {
            let plan = Plan { runs: Some(runs), ..plan(&mss, &systems, &workloads) };
            for (system, workload, shape) in plan.shapes() {
                let made = shape.testbeds * shape.runs;
                assert!(made >= runs && made < 2 * runs.max(5), "{system} {workload}: {made}");
            }
        }
    }

    #[test]
    fn cells_become_rows_in_the_units_declared() {
        let mss = Profile::named("mss").unwrap();
        let workloads = Workload::demo();
        let plan = plan(&mss, &[], &workloads);
        let cell = |workload: &str, values: &[f64]| Cell {
            system: &BENTPIPE,
            workload: workload.parse().unwrap(),
            found: Found {
                samples: values.iter().copied().collect::<Samples>(),
                ..Found::default()
            },
            overheads: vec![1.2],
        };
        let rows = plan.rows(&[cell("object-10k", &[0.9, 0.8, 1.0]), cell("bulk", &[1.6e6])]);
        let names: Vec<_> =
            rows.iter().map(|row| (row.metric.as_str(), row.unit.as_str())).collect();
        let expected = [
            ("completion", "s"),
            ("overhead", "ratio"),
            ("goodput", "bit/s"),
            ("utilization", "ratio"),
            ("overhead", "ratio"),
        ];
        assert_eq!(names, expected);
        assert_eq!((rows[0].n, rows[0].p50), (3, Some(0.9)));
        assert!((rows[0].limit.unwrap() - 0.806).abs() < 1e-3);
        assert!((rows[2].limit.unwrap() - 1_776_600.0).abs() < 1.0);
        assert!((rows[3].p50.unwrap() - 0.9006).abs() < 1e-3);
    }
}
