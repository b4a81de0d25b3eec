//! Cells in either engine.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::figure::{Evidence, Figure, Found, Target};
use super::plan::Plan;
use super::stage::Stage;
use super::traffic::{Other, Play, Warmth};
use super::{Cell, Lease, LeaseError};
use crate::experiment::engine::Engine;
use crate::experiment::report::Goal;
use crate::experiment::runner::sessions;
use crate::profile::Profile;
use crate::record::{OTHERS_FLOW, OWN_FLOW, Passage, Record, Span, TraceRow};
use crate::result::{Row, Sample, Samples};
use crate::sim::fleet::{Craft, Fleet};
use crate::sim::parallel;

/// Objects that warm up a session.
const WARM_OBJECTS: usize = 4;
/// Round trips between two objects, so that nothing of the first is in flight during the second.
const QUIET_ROUND_TRIPS: u32 = 3;
/// Maximum additional random time between two objects.
const QUIET_RANDOM: Duration = Duration::from_secs(2);
/// Time that an attached session is idle before its first object.
const ATTACHED: Duration = Duration::from_secs(30);
/// Time after which an object counts as lost, as a multiple of its limit, but at least
/// [`MIN_PATIENCE`].
const PATIENCE: u32 = 20;
/// Minimum time after which an object counts as lost.
const MIN_PATIENCE: Duration = Duration::from_secs(60);
/// Default number of runs of a download.
const BULK_RUNS: usize = 3;
/// Default number of objects.
const OBJECTS: usize = 200;
/// Objects of one warm session.
const OBJECTS_PER_SESSION: usize = 20;
/// Default number of runs of a download in real time, and of objects.
const EMULATED_BULK_RUNS: usize = 1;
const EMULATED_OBJECTS: usize = 20;

/// Result of a cell.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Number of the case.
    pub case: u8,
    /// Name of the cell.
    pub name: String,
    /// All targets and what was found: the worst of all runs.
    pub found: Vec<Found>,
    /// Trace of the first run.
    pub trace: Vec<TraceRow>,
    /// Reason why a run ended early, if one did.
    pub broken: Option<String>,
}

/// Selection of runs.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Cells.
    pub cells: Vec<Cell>,
    /// Origin of the rate.
    pub lease: Lease,
    /// Runs of each download, and objects of each size, instead of the defaults.
    pub runs: Option<usize>,
    /// Seed of the first run.
    pub seed: u64,
}

/// Result of one run.
struct Part {
    samples: Vec<Sample>,
    found: Vec<Found>,
    trace: Vec<TraceRow>,
    broken: Option<String>,
}

/// Runs all cells, in virtual time on as many threads as there are processors, in real time one
/// after the other.
pub fn run(choice: &Choice, engine: &Engine<'_>) -> Result<Vec<Outcome>, LeaseError> {
    choice.lease.settings(None)?;
    let threads = if let Engine::Sim = engine { parallel::processors() } else { 1 };
    let counts: Vec<_> = choice.cells.iter().map(|cell| runs(cell, choice, engine)).collect();
    let found = sessions(threads, &counts, |cell, run| {
        one(&choice.cells[cell], choice, choice.lease, engine, run)
    });
    let outcomes = choice.cells.iter().zip(found).map(|(cell, parts)| {
        let mut outcome = merge(cell, parts.into_iter().collect::<Result<_, _>>()?);
        compare_with_typed(cell, choice, engine, &mut outcome)?;
        Ok(outcome)
    });
    outcomes.collect()
}

/// Divides the objects' percentile by that with a typed rate, if the cell has that figure.
fn compare_with_typed(
    cell: &Cell,
    choice: &Choice,
    engine: &Engine<'_>,
    outcome: &mut Outcome,
) -> Result<(), LeaseError> {
    let wanted = |found: &&mut Found| found.target.figure == Figure::ObjectOfTyped;
    let Some(found) = outcome.found.iter_mut().find(wanted) else { return Ok(()) };
    let typed = (0..runs(cell, choice, engine))
        .map(|run| one(cell, choice, Lease::Static, engine, run))
        .collect::<Result<Vec<Part>, _>>()?;
    found.value = found.value.zip(object_p95(&typed)).map(|(own, typed)| own / typed);
    Ok(())
}

fn object_p95(parts: &[Part]) -> Option<f64> {
    let samples = Samples(parts.iter().flat_map(|part| part.samples.iter().copied()).collect());
    samples.known(0.95)
}

/// Number of runs of a cell.
fn runs(cell: &Cell, choice: &Choice, engine: &Engine<'_>) -> usize {
    let (downloads, objects) = match engine {
        Engine::Sim => (cell.runs.unwrap_or(BULK_RUNS), cell.runs.unwrap_or(OBJECTS)),
        Engine::Emu(_) => (EMULATED_BULK_RUNS, EMULATED_OBJECTS),
    };
    match cell.play {
        Play::Bulk { .. } | Play::Hub { .. } | Play::Idle { .. } => {
            choice.runs.unwrap_or(downloads)
        }
        Play::Objects { warmth: Warmth::Warm(_), idle, .. } if idle.is_zero() => {
            choice.runs.unwrap_or(objects).div_ceil(OBJECTS_PER_SESSION)
        }
        Play::Objects { .. } => choice.runs.unwrap_or(objects),
    }
    .max(1)
}

/// Result of one run of a cell.
fn one(
    cell: &Cell,
    choice: &Choice,
    lease: Lease,
    engine: &Engine<'_>,
    run: usize,
) -> Result<Part, LeaseError> {
    lease.settings(None)?;
    let seed = choice.seed + run as u64;
    let padded = !matches!(cell.play, Play::Objects { warmth: Warmth::Cold, .. });
    let plan = Plan { cell, lease, padded, others: &[], end: Duration::MAX, seed };
    let found = match &cell.play {
        Play::Bulk { start, end, rivals } => {
            bulk(&Plan { others: rivals, end: *end, ..plan }, engine, *start)
        }
        Play::Hub { aircraft, start, end } => through_hub(&plan, *aircraft, (*start, *end)),
        Play::Idle { end } => bulk(&Plan { end: *end, ..plan }, engine, Duration::MAX),
        Play::Objects { bytes, warmth, idle } => {
            let several = matches!(warmth, Warmth::Warm(_)) && idle.is_zero();
            let count = match choice.runs {
                _ if !several => 1,
                Some(chosen) => chosen.min(OBJECTS_PER_SESSION),
                None => OBJECTS_PER_SESSION,
            };
            objects(&plan, engine, (*bytes, count), (*warmth, *idle))
        }
    };
    Ok(found.unwrap_or_else(|why| Part {
        samples: vec![Sample::Cut(0.0)],
        found: cell.bounds.iter().map(|target| Found { target: *target, value: None }).collect(),
        trace: Vec::new(),
        broken: Some(format!("{}, seed {seed}: {why}", cell.name)),
    }))
}

fn bulk(plan: &Plan<'_>, engine: &Engine<'_>, start: Duration) -> Result<Part, String> {
    let Plan { cell, others, end, .. } = *plan;
    let mut stage = plan.start(engine)?;
    stage.pass_until(start.min(end));
    let began = stage.now();
    if start < end {
        stage.start_bulk()?;
    }
    stage.pass_until(end);
    let record = stage.record()?;
    drop(stage);
    let kept = cell.bounds.iter().find_map(|target| match target.figure {
        Figure::RivalKept(span) => Some(span),
        _ => None,
    });
    let reference_bps = match kept.zip(others.first()) {
        Some((span, rival)) => Some(reference(plan, engine, *rival, span)?),
        None => None,
    };
    let evidence =
        Evidence { record: &record, start: began, rivals: others.len() as u64, reference_bps };
    Ok(part(cell, &evidence, Vec::new()))
}

/// Mean rate of two rivals of one kind without us, in bit/s. The second takes our place.
fn reference(
    plan: &Plan<'_>,
    engine: &Engine<'_>,
    (rival, from): (Other, Duration),
    span: Span,
) -> Result<f64, String> {
    let others = [(rival, from), (rival, Duration::from_secs(1))];
    let mut stage = Plan { lease: Lease::Static, others: &others, ..*plan }.start(engine)?;
    stage.pass_until(plan.end);
    let record = stage.record()?;
    let both = [OTHERS_FLOW, OTHERS_FLOW + 1].map(|flow| record.delivered_bps(flow, span));
    Ok(both.iter().sum::<f64>() / 2.0)
}

fn through_hub(
    plan: &Plan<'_>,
    aircraft: usize,
    (start, end): (Duration, Duration),
) -> Result<Part, String> {
    let (air, hub) = plan.settings()?;
    let link = &plan.cell.link.link;
    let crafts = vec![Craft { air, hub }; aircraft];
    let mut fleet = Fleet::new(link, &crafts, plan.seed);
    let passages: Arc<Mutex<Vec<Passage>>> = Arc::default();
    let tap = passages.clone();
    fleet.set_tap(Box::new(move |passage| tap.lock().push(passage)));
    fleet.run(start, |_| {});
    (0..aircraft).for_each(|craft| fleet.fill(craft, true, false));
    fleet.run(end, |_| {});
    let passages = std::mem::take(&mut *passages.lock());
    let record = Record::new(link.forward.clone(), passages, Vec::new());
    let rivals = aircraft.saturating_sub(1) as u64;
    let evidence = Evidence { record: &record, start, rivals, reference_bps: None };
    Ok(part(plan.cell, &evidence, Vec::new()))
}

fn objects(
    plan: &Plan<'_>,
    engine: &Engine<'_>,
    (bytes, count): (u64, usize),
    (warmth, idle): (Warmth, Duration),
) -> Result<Part, String> {
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
    let link = &plan.cell.link;
    let mut stage = plan.start(engine)?;
    match warmth {
        Warmth::Cold => {}
        Warmth::Attached => stage.pass(ATTACHED),
        Warmth::Warm(bytes) => {
            for _ in 0..WARM_OBJECTS {
                fetch(&mut *stage, link, bytes)?;
                quiet(&mut *stage, link, &mut random);
            }
        }
    }
    let start = stage.now();
    let mut samples = Vec::new();
    for _ in 0..count {
        stage.pass(idle);
        samples.push(fetch(&mut *stage, link, bytes)?);
        quiet(&mut *stage, link, &mut random);
    }
    let record = stage.record()?;
    let evidence = Evidence { record: &record, start, rivals: 0, reference_bps: None };
    Ok(part(plan.cell, &evidence, samples))
}

/// Completion of one object ÷ its limit at the rate of the link now.
fn fetch(stage: &mut dyn Stage, link: &Profile, bytes: u64) -> Result<Sample, String> {
    let forward = &link.link.forward;
    let rate = forward.rate_at(stage.now()).ok_or("the link has no rate")?;
    let share = 1.0 - link.forward_loss();
    let sending_s = 8.0 * bytes as f64 / (share * rate.bps() as f64).max(1.0);
    let limit_s = link.link.rtt().as_secs_f64() + sending_s;
    let patience = (Duration::from_secs_f64(limit_s) * PATIENCE).max(MIN_PATIENCE);
    Ok(match stage.fetch(bytes, patience) {
        Sample::Finished(took_s) => Sample::Finished(took_s / limit_s),
        Sample::Cut(took_s) => Sample::Cut(took_s / limit_s),
    })
}

fn quiet(stage: &mut dyn Stage, link: &Profile, random: &mut ChaCha8Rng) {
    let settled = link.link.rtt() * QUIET_ROUND_TRIPS;
    stage.pass(settled + QUIET_RANDOM.mul_f64(random.random()));
}

fn part(cell: &Cell, evidence: &Evidence<'_>, samples: Vec<Sample>) -> Part {
    let found = cell.bounds.iter().map(|target| {
        let value = target.figure.of(evidence);
        Found { target: *target, value }
    });
    let trace = evidence.record.trace(OWN_FLOW);
    Part { samples, found: found.collect(), trace, broken: None }
}

/// The worst of all runs; objects of all runs together.
fn merge(cell: &Cell, mut parts: Vec<Part>) -> Outcome {
    let broken = parts.iter_mut().find_map(|part| part.broken.take());
    let p95 = object_p95(&parts);
    let mut found: Vec<Found> = Vec::new();
    for part in &parts {
        match found.is_empty() {
            true => found.clone_from(&part.found),
            false => {
                for (worst, other) in found.iter_mut().zip(&part.found) {
                    *worst = worst.worse(*other);
                }
            }
        }
    }
    for one in &mut found {
        if matches!(one.target.figure, Figure::ObjectP95 | Figure::ObjectOfTyped) {
            one.value = p95;
        }
    }
    let trace = parts.into_iter().next().map(|part| part.trace).unwrap_or_default();
    Outcome { case: cell.case, name: cell.name.clone(), found, trace, broken }
}

impl Outcome {
    /// Rows of the result file.
    pub fn rows(&self, engine: &str, lease: Lease, seed: u64) -> Vec<Row> {
        let row = |found: &Found| Row {
            experiment: "learned".into(),
            engine: engine.into(),
            system: Some(format!("bentpipe-{lease}")),
            workload: Some(format!("{}: {}", self.case, self.name)),
            metric: found.target.figure.name().into(),
            unit: found.target.figure.unit().into(),
            n: 1,
            mean: found.value,
            limit: Some(found.target.bound.value()),
            seed: Some(seed),
            ..Row::default()
        };
        self.found.iter().map(row).collect()
    }

    /// Goals of the report.
    pub fn goals(&self) -> impl Iterator<Item = Goal> {
        self.found.iter().map(|found| {
            let Target { figure, bound } = found.target;
            let name = format!("{}. {}: {}", self.case, self.name, figure.name());
            Goal::new(name, found.value, bound, figure.unit())
        })
    }
}
