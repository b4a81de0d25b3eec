//! Executes a plan: first the simulated cells on all cores, then as many parallel testbeds as this
//! machine emulates on time.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_lab::experiment::stand::MEASURED_AT_ONCE;
use bentpipe_lab::sim::parallel;
use bentpipe_results::{Folder, FolderError, Host, Shard, Workload};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use crate::cost;
use crate::host;
use crate::job::Ran;
use crate::left::{Left, Next};
use crate::plan::{Bundle, Part, Plan, TestbedRun};
use crate::policy;
use crate::progress::{Progress, Work, minutes};
use crate::sim;
use crate::testbed::{self, Conditions, Machine};
use bentpipe_lab::experiment::budget::{Budget, CARRIED_BPS};
use bentpipe_lab::experiment::engine::Kind;

/// Default number of parallel testbeds for each core; most of the time they wait.
const TESTBEDS_PER_CORE: usize = 10;
/// Number of parallel testbeds for each core when repeating those for which the machine was too
/// busy.
const LATER_PER_CORE: usize = 2;
/// Assumed pace of the simulator before it is measured: virtual seconds per second and core.
const SIMULATED_IN_A_SECOND: f64 = 50.0;
/// Maximum length of an error that is shown and stored, in characters.
const MAX_WORDS: usize = 600;

/// Options of a run.
#[derive(Debug)]
pub struct Options<'a> {
    /// Part of the plan.
    pub shard: Shard,
    /// Folder of the results.
    pub folder: &'a Folder,
    /// Folder for keys and configurations.
    pub scratch: &'a Path,
    /// The `bentpipe` program, which runs the gateways.
    pub program: &'a Path,
    /// Folder of the raw data of single runs, if any.
    pub raw: Option<&'a Path>,
    /// Maximum number of parallel testbeds; the default depends on the cores.
    pub jobs: Option<usize>,
}

/// A cell without results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Missed {
    /// Study.
    pub paper: String,
    /// Grid.
    pub grid: String,
    /// Cell.
    pub cell: String,
    /// Reason.
    pub not_measured: String,
}

/// Outcome of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of cells with earlier results.
    pub had: usize,
    /// Number of cells measured in this run.
    pub measured: usize,
    /// Cells that could not be measured.
    pub missed: Vec<Missed>,
}

/// Reason why the run had to end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The results could not be stored.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// Log line of a cell.
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
    runs: &'a [RunLine],
}

/// Log line of a run.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct RunLine {
    run: u32,
    seed: u64,
    /// Number of testbeds started before for this run.
    attempt: u32,
    /// Mean lateness of the run's packets, in seconds.
    mean_lateness: f64,
    /// Reason why the run counts as failed, if it is not visible in the values.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// State shared by the workers of a run.
struct Desk<'a> {
    plan: &'a Plan<'a>,
    folder: &'a Folder,
    progress: Progress,
    host: Host,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ran: BTreeMap<usize, (Vec<Ran>, Vec<RunLine>)>,
    measured: usize,
    missed: BTreeMap<usize, String>,
    error: Option<FolderError>,
}

/// Performs the remaining part of the plan's shard. Cells without results do not end the run; they
/// are reported in the outcome and in the log.
pub fn run(plan: &Plan<'_>, options: &Options<'_>) -> Result<Outcome, RunError> {
    let left = plan.left(options.shard, options.folder)?;
    let to_do: usize = left.iter().map(|bundle| bundle.jobs().len()).sum();
    let all = plan.cells(options.shard);
    let cores = host::here().cores;
    let jobs = options.jobs.unwrap_or(TESTBEDS_PER_CORE * cores).max(1);
    let carried = CARRIED_BPS * cores.max(2) as u64 / 2;
    let desk = Desk {
        plan,
        folder: options.folder,
        progress: Progress::new(to_do, work(plan, &left, cores, jobs, carried)),
        host: host::here(),
        state: Mutex::default(),
    };
    let (simulated, emulated): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|bundle| bundle.kind == Kind::Sim);
    desk.progress.begin(Kind::Sim);
    parallel::map(&simulated, |bundle| desk.simulate(bundle));
    desk.progress.begin(Kind::Emu);
    // Bundles are ordered longest first. Testbeds of a bundle stay together, so that its cells are
    // complete and stored early.
    let testbeds: Vec<&TestbedRun> = emulated.iter().flat_map(|bundle| &bundle.testbeds).collect();
    let machine = Machine {
        program: options.program,
        scratch: options.scratch,
        raw: options.raw,
        measuring: Budget::new(MEASURED_AT_ONCE),
        budget: Budget::new(carried),
    };
    let later = Mutex::default();
    let first: Vec<Left> = testbeds.into_iter().cloned().map(Left::new).collect();
    parallel::map_on(jobs, first, |left| desk.emulate(&machine, left, Some(&later)));
    // Testbeds for which the machine was too busy now get more of it.
    let later = later.into_inner();
    let jobs = jobs.min(LATER_PER_CORE * cores);
    parallel::map_on(jobs, later, |left| desk.emulate(&machine, left, None));
    desk.outcome(all - to_do)
}

/// Remaining work, and its estimated duration before the pace is known.
fn work(plan: &Plan<'_>, left: &[Bundle], cores: usize, jobs: usize, carried: u64) -> [Work; 2] {
    let mut all = [Work::default(), Work::default()];
    let (mut simulated, mut emulated, mut bits) = (Duration::ZERO, Duration::ZERO, 0.0);
    let mut longest = Duration::ZERO;
    for bundle in left {
        for testbed in &bundle.testbeds {
            if bundle.kind == Kind::Sim {
                simulated += testbed.cost;
                continue;
            }
            emulated += testbed.cost;
            longest = longest.max(testbed.cost);
            let bps = testbed::carried(&plan.scenes[testbed.parts[0].job]).min(carried);
            bits += bps as f64 * testbed.cost.as_secs_f64();
        }
    }
    let shared = emulated / u32::try_from(jobs).unwrap_or(u32::MAX);
    let rationed = Duration::from_secs_f64(bits / carried as f64);
    let pace = SIMULATED_IN_A_SECOND * cores as f64;
    all[Kind::Sim as usize] = Work { cost: simulated, takes: simulated.div_f64(pace) };
    let takes = longest.max(shared).max(rationed);
    all[Kind::Emu as usize] = Work { cost: emulated, takes };
    all
}

impl Desk<'_> {
    fn simulate(&self, bundle: &Bundle) {
        for testbed in &bundle.testbeds {
            let mut tell = |job, ran| self.take(job, ran, &Conditions::default());
            if let Err(error) = sim::run(self.plan, testbed, &mut tell) {
                self.miss(testbed.parts.iter().cloned(), &error.to_string());
            }
        }
    }

    /// Runs a testbed, and repeats it if necessary with only the missing runs and other losses. If
    /// this machine was too busy and `later` exists, the rest is deferred to it.
    fn emulate(&self, machine: &Machine<'_>, mut left: Left, later: Option<&Mutex<Vec<Left>>>) {
        while !left.testbed.parts.is_empty() && self.lock().error.is_none() {
            let mut done = Vec::new();
            let mut tell = |job: usize, ran: Ran, conditions: &Conditions| {
                done.push(job);
                self.take(job, ran, conditions);
            };
            let first = &self.plan.jobs[left.testbed.parts[0].job];
            let run = match first.grid.workload {
                Workload::RuralPolicy => policy::run,
                _ => testbed::run,
            };
            let portion = testbed::portion(machine, self.plan, &left.testbed);
            let over = run(machine, self.plan, &left.testbed, left.attempt, &mut tell);
            drop(portion);
            if left.attempt == 0 {
                self.progress.spent(Kind::Emu, cost::TESTBED);
            }
            let Err(error) = over else { return };
            let why = clipped(&error.to_string());
            match left.after(&done, &error) {
                Next::Over => return,
                Next::Missed(lost) => self.miss(lost.into_iter(), &why),
                Next::Again => {
                    let job = &self.plan.jobs[left.testbed.parts[0].job];
                    let (study, grid) = (&job.study.name, &job.grid.id);
                    self.progress.say(&format!("{study} {grid}: another testbed: {why}"));
                    if let Some(later) = later.filter(|_| error.is_of_machine()) {
                        later.lock().push(left);
                        return;
                    }
                }
            }
        }
    }

    /// Records a completed run. The last run of a cell stores the cell.
    fn take(&self, job: usize, ran: Ran, conditions: &Conditions) {
        let planned = self.plan.jobs[job];
        let kind = if planned.is_simulated() { Kind::Sim } else { Kind::Emu };
        let took = cost::run(&planned, &self.plan.scenes[job]);
        self.progress.ran(kind, took, &planned.study.name);
        let mut state = self.lock();
        let (runs, lines) = state.ran.entry(job).or_default();
        let Conditions { attempt, mean_lateness, .. } = *conditions;
        let failed = ran.failed.as_deref().map(clipped);
        lines.push(RunLine { run: ran.run, seed: ran.seed, attempt, mean_lateness, failed });
        runs.push(ran);
        if runs.len() < planned.planned.runs as usize {
            return;
        }
        let (runs, lines) = state.ran.remove(&job).unwrap_or_default();
        let measured = planned.measured(&runs);
        let line = Line {
            paper: &measured.paper,
            grid: &measured.grid,
            cell: measured.cell.to_string(),
            at: now(),
            host: &self.host,
            conditions,
            runs: &lines,
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

    fn miss(&self, parts: impl Iterator<Item = Part>, why: &str) {
        for part in parts {
            let job = &self.plan.jobs[part.job];
            let cell = &job.planned.cell;
            self.progress
                .say(&format!("{} {} {cell}: not measured: {why}", job.study.name, job.grid.id));
            let runs = part.runs.end - part.runs.start;
            let kind = if job.is_simulated() { Kind::Sim } else { Kind::Emu };
            self.progress.spent(kind, cost::run(job, &self.plan.scenes[part.job]) * runs);
            self.lock().missed.insert(part.job, why.into());
        }
    }

    fn outcome(self, had: usize) -> Result<Outcome, RunError> {
        let state = self.state.into_inner();
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
        self.state.lock()
    }
}

impl Outcome {
    /// Formats the outcome as a sentence.
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

/// Truncates a long text.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.into(),
    }
}
