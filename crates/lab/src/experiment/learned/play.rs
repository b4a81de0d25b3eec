//! Cells in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bentpipe_link::Settings;
use bentpipe_units::ByteSize;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::figure::{Evidence, Figure, Found};
use super::traffic::{Other, Play, Warmth};
use super::{Cell, Lease, LeaseError};
use crate::profile::Profile;
use crate::result::{Percentile, Row, Sample, Samples};
use crate::sim::fleet::{Craft, Fleet};
use crate::sim::pair::OWN_FLOW;
use crate::sim::parallel;
use crate::sim::record::{Record, Span, TraceRow};
use crate::sim::rival::bulk::{Bulk, Controller};
use crate::sim::rival::{Call, End, Rival, Session};
use crate::sim::scene::Scene;
use crate::sim::way::Passage;

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

/// Runs all cells, on as many threads as there are processors. `tell` receives the number of
/// finished runs and their total number.
pub fn run(
    choice: &Choice,
    tell: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Outcome>, LeaseError> {
    choice.lease.settings(None)?;
    let jobs: Vec<(usize, usize)> = (choice.cells.iter().enumerate())
        .flat_map(|(index, cell)| (0..runs(cell, choice.runs)).map(move |run| (index, run)))
        .collect();
    let done = AtomicUsize::new(0);
    let parts = parallel::map(&jobs, |(index, run)| {
        let part = one(&choice.cells[*index], choice.lease, choice.runs, choice.seed + *run as u64);
        tell(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        part
    });
    let mut by_cell: BTreeMap<usize, Vec<Part>> = BTreeMap::new();
    for ((index, _), part) in jobs.iter().zip(parts) {
        by_cell.entry(*index).or_default().push(part?);
    }
    let outcomes = by_cell.into_iter().map(|(index, parts)| {
        let cell = &choice.cells[index];
        let mut outcome = merge(cell, parts);
        compare_with_typed(cell, choice, &mut outcome)?;
        Ok(outcome)
    });
    outcomes.collect()
}

/// Divides the objects' percentile by that with a typed rate, if the cell has that figure.
fn compare_with_typed(
    cell: &Cell,
    choice: &Choice,
    outcome: &mut Outcome,
) -> Result<(), LeaseError> {
    let wanted = |found: &&mut Found| found.target.figure == Figure::ObjectOfTyped;
    let Some(found) = outcome.found.iter_mut().find(wanted) else { return Ok(()) };
    let typed = (0..runs(cell, choice.runs))
        .map(|run| one(cell, Lease::Static, choice.runs, choice.seed + run as u64))
        .collect::<Result<Vec<Part>, _>>()?;
    found.value = found.value.zip(object_p95(&typed)).map(|(own, typed)| own / typed);
    Ok(())
}

fn object_p95(parts: &[Part]) -> Option<f64> {
    let samples = Samples(parts.iter().flat_map(|part| part.samples.iter().copied()).collect());
    samples.percentile(0.95).and_then(Percentile::known)
}

/// Number of runs of a cell.
fn runs(cell: &Cell, chosen: Option<usize>) -> usize {
    match cell.play {
        Play::Bulk { .. } | Play::Hub { .. } | Play::Idle { .. } => {
            chosen.or(cell.runs).unwrap_or(BULK_RUNS)
        }
        Play::Objects { warmth: Warmth::Warm(_), idle, .. } if idle.is_zero() => {
            chosen.unwrap_or(OBJECTS).div_ceil(OBJECTS_PER_SESSION)
        }
        Play::Objects { .. } => chosen.or(cell.runs).unwrap_or(OBJECTS),
    }
    .max(1)
}

/// Result of one run of a cell.
fn one(cell: &Cell, lease: Lease, chosen: Option<usize>, seed: u64) -> Result<Part, LeaseError> {
    let link = &cell.link.link;
    let air = lease.settings(link.return_.rate())?;
    let hub = lease.settings(cell.first_rate.or(link.forward.rate()))?;
    let (air, hub) = match cell.play {
        Play::Objects { warmth: Warmth::Cold, .. } => (unpadded(air), unpadded(hub)),
        _ => (air, hub),
    };
    let found = match &cell.play {
        Play::Bulk { start, end, rivals } => bulk(cell, (&air, &hub), (*start, *end), rivals, seed),
        Play::Hub { aircraft, start, end } => {
            Ok(through_hub(cell, (&air, &hub), *aircraft, (*start, *end), seed))
        }
        Play::Idle { end } => bulk(cell, (&air, &hub), (Duration::MAX, *end), &[], seed),
        Play::Objects { bytes, warmth, idle } => {
            let several = matches!(warmth, Warmth::Warm(_)) && idle.is_zero();
            let count = match chosen {
                _ if !several => 1,
                Some(chosen) => chosen.min(OBJECTS_PER_SESSION),
                None => OBJECTS_PER_SESSION,
            };
            objects(cell, (&air, &hub), (*bytes, count), (*warmth, *idle), seed)
        }
    };
    Ok(found.unwrap_or_else(|why| Part {
        samples: vec![Sample::Cut(0.0)],
        found: cell.bounds.iter().map(|target| Found { target: *target, value: None }).collect(),
        trace: Vec::new(),
        broken: Some(format!("{}, seed {seed}: {why}", cell.name)),
    }))
}

/// The same end without padding: it learns nothing before the first data.
fn unpadded(settings: Settings) -> Settings {
    Settings { learn_bytes: ByteSize::from_bytes(0), ..settings }
}

fn bulk(
    cell: &Cell,
    (air, hub): (&Settings, &Settings),
    (start, end): (Duration, Duration),
    others: &[(Other, Duration)],
    seed: u64,
) -> Result<Part, String> {
    let rivals = rivals(others, (air, hub), end, seed)?;
    let mut scene = Scene::new(&cell.link, air, hub, rivals, seed).map_err(|it| it.to_string())?;
    scene.pass_until(start.min(end));
    let began = scene.now();
    if start < end {
        scene.start_bulk().ok_or("the session ended before the download")?;
    }
    scene.pass_until(end);
    let record = scene.record();
    let kept = cell.bounds.iter().find_map(|target| match target.figure {
        Figure::RivalKept(span) => Some(span),
        _ => None,
    });
    let reference_bps = match kept.zip(others.first()) {
        Some((span, (rival, from))) => Some(reference(cell, *rival, *from, end, span, seed)?),
        None => None,
    };
    let evidence =
        Evidence { record: &record, start: began, rivals: others.len() as u64, reference_bps };
    Ok(part(cell, &evidence, Vec::new()))
}

/// Mean rate of two rivals of one kind without us, in bit/s. The second takes our place.
fn reference(
    cell: &Cell,
    rival: Other,
    from: Duration,
    end: Duration,
    span: Span,
    seed: u64,
) -> Result<f64, String> {
    let typed =
        Lease::Static.settings(cell.link.link.forward.rate()).map_err(|it| it.to_string())?;
    let others = [(rival, from), (rival, Duration::from_secs(1))];
    let rivals = rivals(&others, (&typed, &typed), end, seed)?;
    let mut scene =
        Scene::new(&cell.link, &typed, &typed, rivals, seed).map_err(|it| it.to_string())?;
    scene.pass_until(end);
    let record = scene.record();
    Ok((record.delivered_bps(1, span) + record.delivered_bps(2, span)) / 2.0)
}

fn rivals(
    others: &[(Other, Duration)],
    (air, hub): (&Settings, &Settings),
    end: Duration,
    seed: u64,
) -> Result<Vec<Box<dyn Rival>>, String> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let rivals = others.iter().map(|(other, from)| -> Result<Box<dyn Rival>, String> {
        let seed = random.random();
        let bulk = |controller| Bulk::new(controller, *from, seed).map_err(|it| it.to_string());
        Ok(match other {
            Other::Cubic => Box::new(bulk(Controller::Cubic)?),
            Other::Bbr => Box::new(bulk(Controller::Bbr)?),
            Other::Session => Box::new(Session::new(air, hub, *from, seed)),
            Other::Call => Box::new(Call::new(End::Hub, *from, end)),
        })
    });
    rivals.collect()
}

fn through_hub(
    cell: &Cell,
    (air, hub): (&Settings, &Settings),
    aircraft: usize,
    (start, end): (Duration, Duration),
    seed: u64,
) -> Part {
    let crafts = vec![Craft { air: air.clone(), hub: hub.clone() }; aircraft];
    let mut fleet = Fleet::new(&cell.link.link, &crafts, seed);
    let passages: Arc<Mutex<Vec<Passage>>> = Arc::default();
    let tap = passages.clone();
    fleet.set_tap(Box::new(move |passage| tap.lock().push(passage)));
    fleet.run(start, |_| {});
    (0..aircraft).for_each(|craft| fleet.fill(craft, true, false));
    fleet.run(end, |_| {});
    let passages = std::mem::take(&mut *passages.lock());
    let record = Record::new(cell.link.link.forward.clone(), passages, Vec::new());
    let rivals = aircraft.saturating_sub(1) as u64;
    part(cell, &Evidence { record: &record, start, rivals, reference_bps: None }, Vec::new())
}

fn objects(
    cell: &Cell,
    (air, hub): (&Settings, &Settings),
    (bytes, count): (u64, usize),
    (warmth, idle): (Warmth, Duration),
    seed: u64,
) -> Result<Part, String> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut scene =
        Scene::new(&cell.link, air, hub, Vec::new(), seed).map_err(|it| it.to_string())?;
    match warmth {
        Warmth::Cold => {}
        Warmth::Attached => scene.pass(ATTACHED),
        Warmth::Warm(bytes) => {
            for _ in 0..WARM_OBJECTS {
                fetch(&mut scene, &cell.link, bytes)?;
                quiet(&mut scene, &cell.link, &mut random);
            }
        }
    }
    let start = scene.now();
    let mut samples = Vec::new();
    for _ in 0..count {
        scene.pass(idle);
        samples.push(fetch(&mut scene, &cell.link, bytes)?);
        quiet(&mut scene, &cell.link, &mut random);
    }
    let record = scene.record();
    let evidence = Evidence { record: &record, start, rivals: 0, reference_bps: None };
    Ok(part(cell, &evidence, samples))
}

/// Completion of one object ÷ its limit at the rate of the link now.
fn fetch(scene: &mut Scene, link: &Profile, bytes: u64) -> Result<Sample, String> {
    let forward = &link.link.forward;
    let rate = forward.rate_at(scene.now()).ok_or("the link has no rate")?;
    let share = 1.0 - link.forward_loss();
    let sending_s = 8.0 * bytes as f64 / (share * rate.bps() as f64).max(1.0);
    let limit_s = link.link.rtt().as_secs_f64() + sending_s;
    let patience = (Duration::from_secs_f64(limit_s) * PATIENCE).max(MIN_PATIENCE);
    Ok(match scene.fetch(bytes, patience) {
        Sample::Finished(took_s) => Sample::Finished(took_s / limit_s),
        Sample::Cut(took_s) => Sample::Cut(took_s / limit_s),
    })
}

fn quiet(scene: &mut Scene, link: &Profile, random: &mut ChaCha8Rng) {
    let settled = link.link.rtt() * QUIET_ROUND_TRIPS;
    scene.pass(settled + QUIET_RANDOM.mul_f64(random.random()));
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
    /// Returns `true` if all targets are met.
    pub fn holds(&self) -> bool {
        self.found.iter().all(Found::holds)
    }

    /// Rows of the result file.
    pub fn rows(&self, engine: &str, lease: Lease, seed: u64) -> Vec<Row> {
        let row = |found: &Found| Row {
            experiment: "learned".into(),
            engine: engine.into(),
            contender: Some(format!("bentpipe-{lease}")),
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
}
