//! Does a plan: what is simulated first, on all cores; then worlds, as many at once as are on time.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_lab::experiment::gate::Gate;
use bentpipe_lab::sim::parallel;
use bentpipe_results::{Folder, FolderError, Shard};
use serde::Serialize;

use crate::budget::{Budget, CARRIED_BPS};
use crate::cost;
use crate::job::Ran;
use crate::plan::{Bundle, Kind, Plan, Worldful};
use crate::progress::{Progress, minutes};
use crate::sim;
use crate::world::{self, Conditions, Machine};

/// Worlds whose links are measured at once: each sends bursts and wants its packets on time.
const MEASURED_AT_ONCE: usize = 8;
/// Worlds at once for each core, unless told otherwise: most of the time they wait.
const WORLDS_PER_CORE: usize = 8;
/// How often a world is brought up before its cells count as not measured.
const ATTEMPTS: u32 = 3;
/// Characters of an error that are shown and kept.
const MOST_WORDS: usize = 600;

/// How a plan is done.
#[derive(Debug)]
pub struct Options<'a> {
    /// Which part of it.
    pub shard: Shard,
    /// Where the results go.
    pub folder: &'a Folder,
    /// For keys and configs.
    pub scratch: &'a Path,
    /// The `bentpipe` program, where the gateways come from.
    pub program: &'a Path,
    /// Where the archives of page loads go, if anywhere.
    pub raw: Option<&'a Path>,
    /// Worlds at once; as many as the cores carry unless said.
    pub jobs: Option<usize>,
}

/// A cell that gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Missed {
    /// Of which study.
    pub paper: String,
    /// Of which grid.
    pub grid: String,
    /// Which.
    pub cell: String,
    /// Why.
    pub not_measured: String,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Cells that were there before.
    pub had: usize,
    /// Cells that were measured now.
    pub measured: usize,
    /// Cells that were not.
    pub missed: Vec<Missed>,
}

/// Why nothing more could be done.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The results could not be kept.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// A line of the log.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Line<'a> {
    paper: &'a str,
    grid: &'a str,
    cell: String,
    /// Seconds since 1970.
    at: u64,
    host: &'a Host,
    #[serde(flatten)]
    conditions: &'a Conditions,
}

/// The machine.
#[derive(Debug, Clone, Serialize)]
struct Host {
    name: String,
    kernel: String,
    cores: usize,
}

/// What is done so far, for whoever does more.
struct Desk<'a> {
    plan: &'a Plan<'a>,
    folder: &'a Folder,
    progress: Progress,
    host: Host,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ran: BTreeMap<usize, Vec<Ran>>,
    measured: usize,
    missed: BTreeMap<usize, String>,
    error: Option<FolderError>,
}

/// Does what is left of the plan's shard. Cells that give nothing do not end it: they are told of,
/// in the outcome and in the log.
pub fn run(plan: &Plan<'_>, options: &Options<'_>) -> Result<Outcome, RunError> {
    let left = plan.left(options.shard, options.folder)?;
    let to_do: usize = left.iter().map(|bundle| bundle.jobs().len()).sum();
    let all = plan.cells(options.shard);
    let costs = left.iter().flat_map(|bundle| &bundle.worlds).map(|world| world.cost);
    let desk = Desk {
        plan,
        folder: options.folder,
        progress: Progress::new(to_do, costs.sum()),
        host: Host::here(),
        state: Mutex::default(),
    };
    let (simulated, emulated): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|bundle| bundle.kind == Kind::Sim);
    parallel::map(&simulated, |bundle| desk.simulate(bundle));
    // The bundles come with the longest first. Worlds of one stay together, so that its cells are whole, and
    // kept, as soon as may be.
    let worlds: Vec<&Worldful> = emulated.iter().flat_map(|bundle| &bundle.worlds).collect();
    let machine = Machine {
        program: options.program,
        scratch: options.scratch,
        raw: options.raw,
        measuring: Gate::new(MEASURED_AT_ONCE),
        budget: Budget::new(CARRIED_BPS * desk.host.cores.max(2) as u64 / 2),
    };
    let jobs = options.jobs.unwrap_or(WORLDS_PER_CORE * desk.host.cores).max(1);
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some(world) = worlds.get(next.fetch_add(1, Ordering::Relaxed)) {
            desk.emulate(&machine, world);
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.min(worlds.len()) {
            scope.spawn(worker);
        }
    });
    desk.outcome(all - to_do)
}

impl Desk<'_> {
    fn simulate(&self, bundle: &Bundle) {
        for world in &bundle.worlds {
            let mut tell = |job, ran| self.take(job, ran, &Conditions::default());
            if let Err(error) = sim::run(self.plan, world, &mut tell) {
                self.miss(world, &error.to_string());
            }
        }
    }

    /// Does a world, again if it must be: only the runs that it has not done.
    fn emulate(&self, machine: &Machine<'_>, world: &Worldful) {
        let mut left = world.clone();
        for attempt in 1..=ATTEMPTS {
            if self.lock().error.is_some() {
                return;
            }
            let mut done = Vec::new();
            let mut tell = |job: usize, ran: Ran, conditions: &Conditions| {
                done.push((job, ran.run));
                self.take(job, ran, conditions);
            };
            let Err(error) = world::run(machine, self.plan, &left, &mut tell) else { return };
            for part in &mut left.parts {
                let over = done.iter().filter(|(job, _)| *job == part.job).count();
                part.runs.start += u32::try_from(over).unwrap_or(u32::MAX);
            }
            left.parts.retain(|part| !part.runs.is_empty());
            let why = clipped(&error.to_string());
            let job = &self.plan.jobs[world.parts[0].job];
            let (study, grid) = (&job.study.name, &job.grid.id);
            if attempt == ATTEMPTS || !error.may_pass() {
                return self.miss(&left, &why);
            }
            self.progress.say(&format!("{study} {grid}: a world is tried again: {why}"));
        }
    }

    /// A run is over; with the last of its cell, that is kept.
    fn take(&self, job: usize, ran: Ran, conditions: &Conditions) {
        let planned = self.plan.jobs[job];
        self.progress.ran(cost::run(&planned, &self.plan.scenes[job]), &planned.study.name);
        let mut state = self.lock();
        let runs = state.ran.entry(job).or_default();
        runs.push(ran);
        if runs.len() < planned.planned.runs as usize {
            return;
        }
        let runs = state.ran.remove(&job).unwrap_or_default();
        let measured = planned.measured(&runs);
        let line = Line {
            paper: &measured.paper,
            grid: &measured.grid,
            cell: measured.cell.to_string(),
            at: now(),
            host: &self.host,
            conditions,
        };
        match self.folder.keep(&measured, &line) {
            Ok(()) => state.measured += 1,
            Err(error @ FolderError::NotFinite { .. }) => {
                state.missed.insert(job, error.to_string());
            }
            Err(error) => state.error = Some(error),
        }
        drop(state);
        self.progress.cell();
    }

    fn miss(&self, world: &Worldful, why: &str) {
        for part in &world.parts {
            let job = &self.plan.jobs[part.job];
            let cell = &job.planned.cell;
            self.progress
                .say(&format!("{} {} {cell}: not measured: {why}", job.study.name, job.grid.id));
            self.lock().missed.insert(part.job, why.into());
        }
    }

    fn outcome(self, had: usize) -> Result<Outcome, RunError> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.error {
            return Err(error.into());
        }
        let mut missed = Vec::new();
        for (job, why) in state.missed {
            let job = &self.plan.jobs[job];
            let one = Missed {
                paper: job.study.name.clone(),
                grid: job.grid.id.clone(),
                cell: job.planned.cell.to_string(),
                not_measured: why,
            };
            self.folder.note(&one)?;
            missed.push(one);
        }
        Ok(Outcome { had, measured: state.measured, missed })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    fn here() -> Self {
        let system = nix::sys::utsname::uname();
        let word = |what: &std::ffi::OsStr| what.to_string_lossy().into_owned();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        match system {
            Ok(system) => {
                Self { name: word(system.nodename()), kernel: word(system.release()), cores }
            }
            Err(_) => Self { name: String::new(), kernel: String::new(), cores },
        }
    }
}

impl Outcome {
    /// What a person is told.
    pub fn words(&self, took: Duration) -> String {
        let Self { had, measured, missed } = self;
        let before = if *had > 0 { format!(", {had} were there before") } else { String::new() };
        let without = match missed.len() {
            0 => String::new(),
            count => format!(", {count} could not be measured"),
        };
        format!("{measured} cells measured in {}{before}{without}", minutes(took))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The beginning of it.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(MOST_WORDS) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.into(),
    }
}
