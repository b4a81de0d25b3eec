//! Cells in virtual time.

use std::time::Duration;

use bentpipe_lab::experiment::rural_paws;
use bentpipe_lab::result::Sample;
use bentpipe_lab::sim::aerotcp::{self, Files};
use bentpipe_lab::sim::traffic::SimTraffic;
use bentpipe_lab::sim::transfer::NoSession;
use bentpipe_lab::traffic::{Carry, Counted, DOWN, Engine, EngineError, Traffic, UP};
use bentpipe_link::{Class, Settings};
use bentpipe_results::{Content, Workload};

use crate::figures::{Transfer, jain};
use crate::job::{Job, Ran, Value};
use crate::link::Scene;
use crate::plan::{Plan, Worldful};

/// Payload in a full IP packet of a kernel's TCP with timestamps, which stands for the cabin's side
/// of a gateway where there is none.
const CABIN_BYTES_PER_PAYLOAD: f64 = 1500.0 / 1448.0;
/// How far apart looks at a transfer are: its times are right to this.
const LOOK: Duration = Duration::from_millis(1);
/// A request that travels with the flow's opening.
const REQUEST_BYTES: u64 = 400;

/// Why a simulated cell gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// No session came up.
    #[error(transparent)]
    NoSession(#[from] NoSession),
    /// The policy could not be run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The requests did not get through.
    #[error("no file's request got through within a minute of virtual time")]
    NoFlows,
    /// The simulator does not do that.
    #[error(
        "the simulator has no {what}: cells of engine \"sim\" may have bentpipe and bentpipe-aerotcp in workload files, bentpipe in sequence and rural-policy"
    )]
    Unknown {
        /// What it lacks.
        what: String,
    },
}

/// Does all runs of a bundle of simulated cells, and tells of each.
pub fn run(
    plan: &Plan<'_>,
    worldful: &Worldful,
    tell: &mut dyn FnMut(usize, Ran),
) -> Result<(), SimError> {
    let first = worldful.parts[0].job;
    let (job, scene) = (&plan.jobs[first], &plan.scenes[first]);
    let runs = worldful.parts.iter().map(|part| part.runs.end).max().unwrap_or(0);
    for run in 0..runs {
        let seed = worldful.seed + u64::from(run);
        if job.grid.workload != Workload::RuralPolicy {
            tell(first, Ran { run, seed, values: one(job, scene, seed)? });
            continue;
        }
        let found = policy(&Engine::Sim, job, scene, seed)?;
        for part in worldful.parts.iter().filter(|part| part.runs.contains(&run)) {
            tell(part.job, Ran { run, seed, values: of_class(&plan.jobs[part.job], &found) });
        }
    }
    Ok(())
}

/// One run of a cell.
fn one(job: &Job<'_>, scene: &Scene, seed: u64) -> Result<Vec<Value>, SimError> {
    match (job.grid.workload, job.contender()) {
        (Workload::Files, name @ ("bentpipe" | "bentpipe-aerotcp")) => {
            files(job, scene, name == "bentpipe-aerotcp", seed)
        }
        (Workload::Sequence, "bentpipe") => sequence(job, scene, seed),
        (workload, contender) => {
            Err(SimError::Unknown { what: format!("{contender} in {workload:?}") })
        }
    }
}

fn files(
    job: &Job<'_>,
    scene: &Scene,
    is_aerotcp: bool,
    seed: u64,
) -> Result<Vec<Value>, SimError> {
    let Some(Content::Objects { count: 1, bytes }) = job.page().map(|page| page.content) else {
        return Err(SimError::Unknown { what: "page but one of a single object".into() });
    };
    let files = Files {
        count: job.whole("connections").unwrap_or(1) as usize,
        bytes: bytes as usize,
        limit: job.planned.deadline,
    };
    let found =
        aerotcp::download(&scene.profile, is_aerotcp, &files, seed).ok_or(SimError::NoFlows)?;
    let cut = found.files.iter().any(|file| matches!(file, Sample::Cut(_)));
    let took = found.took.as_secs_f64();
    let behind = scene.profile.terrestrial.as_ref().map_or(Duration::ZERO, |path| path.rtt());
    let mut values = vec![
        Value::of("utilization", 8.0 * found.bytes as f64 / took / scene.rate_bps(false), !cut),
        Value::of("ceiling", 1.0 - scene.loss(false), true),
        Value::of("jain", jain(&found.abreast), true),
        Value::of("failed", f64::from(u8::from(cut)), true),
        Value::of("goodput", 8.0 * found.bytes as f64 / took, !cut),
    ];
    let passed = found.bytes as f64 * CABIN_BYTES_PER_PAYLOAD;
    values.push(Value::of("extra-traffic", found.offered_bytes as f64 / passed - 1.0, !cut));
    for (number, file) in found.files.iter().enumerate() {
        let (seconds, finished) = match *file {
            Sample::Finished(seconds) => (seconds + behind.as_secs_f64(), true),
            Sample::Cut(seconds) => (seconds, false),
        };
        values.push(Value::of("response-time", seconds, finished).in_series(number.to_string()));
    }
    Ok(values)
}

fn sequence(job: &Job<'_>, scene: &Scene, seed: u64) -> Result<Vec<Value>, SimError> {
    let Some(Content::Objects { count, bytes }) = job.page().map(|page| page.content) else {
        return Err(SimError::Unknown { what: "sequence of anything but objects".into() });
    };
    let (all, up) = (u64::from(count) * bytes, job.is_up());
    let settings = Settings::default();
    let mut cabin = SimTraffic::new(&scene.profile, &settings, &settings, seed)?;
    let way = if up { UP } else { DOWN };
    let (up_bytes, down_bytes) = if up { (all, 1) } else { (REQUEST_BYTES, all) };
    let (began, before) = (cabin.now(), cabin.counted());
    let class = Class::BestEffort;
    let stream = cabin.open(Carry { class, passenger: 1, up: up_bytes, down: down_bytes });
    let (mut first, mut last, mut got) = (None, began, 0);
    let deadline = job.planned.deadline;
    while got < all && cabin.now() < began + deadline {
        let end = cabin.now() + LOOK;
        cabin.step(end);
        let has = cabin.course(stream).got[way];
        if has > got {
            first.get_or_insert(cabin.now());
            (last, got) = (cabin.now(), has);
        }
    }
    let after = cabin.counted();
    let behind = scene.profile.terrestrial.as_ref().map_or(Duration::ZERO, |path| path.rtt());
    let finished = got >= all;
    let end = if finished { last } else { began + deadline };
    let transfer = Transfer {
        bytes: got,
        took: end - began + behind,
        receiving: end - first.unwrap_or(end),
        offered_bytes: offered(&after, way).1 - offered(&before, way).1,
        cabin_bytes: (got as f64 * CABIN_BYTES_PER_PAYLOAD) as u64,
        lost: lost_share(&before, &after, way),
        resets: 0,
        finished,
    };
    Ok(transfer.values(scene, up))
}

/// Packets and bytes offered to the link.
fn offered(counted: &Counted, way: usize) -> (u64, u64) {
    let offered = counted.link[way].offered;
    (offered.packets, offered.bytes)
}

fn lost_share(before: &Counted, after: &Counted, way: usize) -> f64 {
    let lost = |counted: &Counted| {
        let link = &counted.link[way];
        link.lost.packets + link.queue_dropped.packets
    };
    let packets = offered(after, way).0 - offered(before, way).0;
    (lost(after) - lost(before)) as f64 / packets.max(1) as f64
}

/// One run of the policy of Rural-PAWS in either engine, for all classes and directions of the
/// job's condition.
pub fn policy(
    engine: &Engine<'_>,
    job: &Job<'_>,
    scene: &Scene,
    seed: u64,
) -> Result<rural_paws::Policy, EngineError> {
    let loaded = scene.changes.lower_effort_passengers.unwrap_or(0) > 0;
    let pages = job.whole("pages").and_then(|pages| u16::try_from(pages).ok()).unwrap_or(10);
    rural_paws::policy(engine, &scene.profile, pages, seed, loaded)
}

/// What a run of the policy gives to a cell: to each class and direction its own.
pub fn of_class(job: &Job<'_>, found: &rural_paws::Policy) -> Vec<Value> {
    let way = if job.is_up() { UP } else { DOWN };
    let assured = job.planned.cell.on("class") == Some("assured");
    let fill = if assured { found.assured_fill } else { found.lower_fill };
    let mut values = vec![Value::of("rate-fill", fill[way], true)];
    if assured && way == DOWN {
        for (number, page) in found.pages.0.iter().enumerate() {
            let (seconds, finished) = match *page {
                Sample::Finished(seconds) => (seconds, true),
                Sample::Cut(seconds) => (seconds, false),
            };
            values.push(Value::of("plt", seconds, finished).in_series(number.to_string()));
        }
    }
    values
}
