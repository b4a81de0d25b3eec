//! Cells in virtual time.

use std::time::Duration;

use anyhow::{Context, anyhow};
use bentpipe_lab::experiment::engine::Engine;
use bentpipe_lab::experiment::rural_paws;
use bentpipe_lab::result::Sample;
use bentpipe_lab::sim::aerotcp::{self, Files};
use bentpipe_lab::sim::traffic::SimTraffic;
use bentpipe_lab::system::aerotcp::AeroTcp;
use bentpipe_lab::system::roomy;
use bentpipe_lab::traffic::{Carry, Counted, DOWN, Traffic, UP};
use bentpipe_link::{Class, Settings};
use bentpipe_results::statistics::jain;
use bentpipe_results::{Content, Row, Workload};
use bentpipe_units::Span;

use crate::figures::{Transfer, extra_traffic};
use crate::job::{Job, Ran};
use crate::link::{Scene, SceneError, duration, rate, value};
use crate::plan::{Plan, TestbedRun};

/// Polling interval of a transfer, which is the resolution of its times.
const LOOK: Duration = Duration::from_millis(1);
/// Size of a request, which travels with the opening of the flow.
const REQUEST_BYTES: u64 = 400;

/// Performs and reports all runs of a bundle of simulated cells.
pub fn run(
    plan: &Plan<'_>,
    testbed_run: &TestbedRun,
    tell: &mut dyn FnMut(usize, Ran),
) -> anyhow::Result<()> {
    let first = testbed_run.parts[0].job;
    let (job, scene) = (&plan.jobs[first], &plan.scenes[first]);
    let runs = testbed_run.parts.iter().map(|part| part.runs.end).max().unwrap_or(0);
    for run in 0..runs {
        let seed = testbed_run.seed + u64::from(run);
        if job.grid.workload != Workload::RuralPolicy {
            tell(first, Ran::of(run, seed, one(job, scene, seed)?));
            continue;
        }
        let spec = policy_of(job, scene)?;
        let found = rural_paws::policy(&Engine::Sim, &scene.profile, &spec, seed)?;
        for part in testbed_run.parts.iter().filter(|part| part.runs.contains(&run)) {
            tell(part.job, Ran::of(run, seed, of_class(&plan.jobs[part.job], &found)));
        }
    }
    Ok(())
}

/// Performs one run of a cell.
fn one(job: &Job<'_>, scene: &Scene, seed: u64) -> anyhow::Result<Vec<Row>> {
    match (job.grid.workload, job.system()) {
        (Workload::Files, name @ ("bentpipe" | "bentpipe-aerotcp")) => {
            files(job, scene, name == "bentpipe-aerotcp", seed)
        }
        (Workload::Sequence, "bentpipe") => sequence(job, scene, seed),
        (workload, system) => Err(unknown(&format!("{system} in {workload:?}"))),
    }
}

fn unknown(what: &str) -> anyhow::Error {
    anyhow!(
        "the simulator has no {what}: cells of engine \"sim\" may have bentpipe and bentpipe-aerotcp \
         in workload files, bentpipe in sequence and rural-policy"
    )
}

fn files(job: &Job<'_>, scene: &Scene, is_aerotcp: bool, seed: u64) -> anyhow::Result<Vec<Row>> {
    let Some(Content::Objects { count: 1, bytes }) = job.page().map(|page| page.content) else {
        return Err(unknown("page but one of a single object"));
    };
    let files = Files {
        count: job.whole("connections").unwrap_or(1) as usize,
        bytes: bytes as usize,
        limit: job.planned.deadline,
    };
    let told = is_aerotcp.then(|| AeroTcp::declared(&job.grid.settings, &scene.profile));
    let told = told.transpose()?;
    let found = aerotcp::download(&scene.profile, told.as_ref(), &files, seed);
    let found = found.context("no file's request got through within a minute of virtual time")?;
    let cut = found.files.iter().any(|file| matches!(file, Sample::Cut(_)));
    let took = found.took.as_secs_f64();
    let behind = scene.profile.terrestrial.as_ref().map_or(Duration::ZERO, |path| path.rtt());
    let mut values = vec![
        Row::of("utilization", 8.0 * found.bytes as f64 / took / scene.rate_bps(false), !cut),
        Row::of("ceiling", 1.0 - scene.loss(false), true),
        Row::of("jain", jain(found.abreast.iter().map(|&bytes| bytes as f64)), true),
        Row::of("failed", f64::from(u8::from(cut)), true),
        Row::of("goodput", 8.0 * found.bytes as f64 / took, !cut),
    ];
    let extra = extra_traffic(found.offered_bytes, found.bytes);
    values.extend(extra.map(|extra| Row::of("extra-traffic", extra, !cut)));
    for (number, file) in found.files.iter().enumerate() {
        let (seconds, finished) = match *file {
            Sample::Finished(seconds) => (seconds + behind.as_secs_f64(), true),
            Sample::Cut(seconds) => (seconds, false),
        };
        values.push(Row::of("response-time", seconds, finished).in_series(number.to_string()));
    }
    Ok(values)
}

fn sequence(job: &Job<'_>, scene: &Scene, seed: u64) -> anyhow::Result<Vec<Row>> {
    let Some(Content::Objects { count, bytes }) = job.page().map(|page| page.content) else {
        return Err(unknown("sequence of anything but objects"));
    };
    let (all, up) = (u64::from(count) * bytes, job.is_up());
    let mut cabin = SimTraffic::new(&scene.profile, &Settings::default(), &roomy(), seed)?;
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

/// The Rural-PAWS policy as the cell specifies it: its page, its grid's settings and its condition.
/// Other values are the lab's defaults.
pub fn policy_of(job: &Job<'_>, scene: &Scene) -> Result<rural_paws::Spec, SceneError> {
    let mut spec = rural_paws::Spec::default();
    let (grid, changes) = (job.grid, &scene.changes);
    if let Some(Content::Objects { count, bytes }) = job.page().map(|page| page.content) {
        spec.objects = (count as usize, bytes);
    }
    if let Some(pages) = job.whole("pages") {
        spec.pages =
            u16::try_from(pages).map_err(|_| value("pages", pages, "write up to 65535"))?;
    }
    if let Some(reading) = reading(job)? {
        spec.reading = reading;
    }
    for (way, key) in [(DOWN, "lower-effort-ceil-down"), (UP, "lower-effort-ceil-up")] {
        spec.ceil[way] = rate(grid, key)?.unwrap_or(spec.ceil[way]);
    }
    if let Some(rate) = rate(grid, "lower-effort-rate")? {
        spec.rate = [rate; 2];
    }
    spec.warm = duration(grid, "warm")?.unwrap_or(spec.warm);
    spec.measured = duration(grid, "measured")?.unwrap_or(spec.measured);
    let (_, connections) = spec.others;
    spec.others = (
        changes.lower_effort_passengers.unwrap_or(0),
        changes.connections_each.unwrap_or(connections),
    );
    Ok(spec)
}

/// Parses `think-time`, for example `"3 s to 6 s"`.
fn reading(job: &Job<'_>) -> Result<Option<[Duration; 2]>, SceneError> {
    const KEY: &str = "think-time";
    let Some(text) = job.grid.settings.get(KEY).and_then(toml::Value::as_str) else {
        return Ok(None);
    };
    let span = |text: &str| text.trim().parse::<Span>().ok().map(|span| span.duration());
    let (least, most) = text.split_once(" to ").unwrap_or((text, text));
    match (span(least), span(most)) {
        (Some(least), Some(most)) if least <= most => Ok(Some([least, most])),
        _ => Err(value(KEY, text, "write two times, the lesser first, like \"3 s to 6 s\"")),
    }
}

/// Values of a cell from a run of the policy, for the cell's class and direction.
pub fn of_class(job: &Job<'_>, found: &rural_paws::Policy) -> Vec<Row> {
    let way = if job.is_up() { UP } else { DOWN };
    let assured = job.planned.cell.on("class") == Some("assured");
    let fill = if assured { found.assured_fill } else { found.lower_fill };
    let mut values = vec![Row::of("rate-fill", fill[way], true)];
    if assured && way == DOWN {
        for (number, page) in found.pages.0.iter().enumerate() {
            let (seconds, finished) = match *page {
                Sample::Finished(seconds) => (seconds, true),
                Sample::Cut(seconds) => (seconds, false),
            };
            values.push(Row::of("plt", seconds, finished).in_series(number.to_string()));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Wanted;
    use bentpipe_results::Study;

    #[test]
    fn the_policy_is_what_its_cells_declare() {
        let studies = [Study::named("rural-paws").unwrap()];
        let wanted = Wanted { quick: true, grids: vec!["policy".into()], ..Wanted::default() };
        let plan = Plan::new(&studies, &wanted).unwrap();
        let of = |condition| {
            let is_it = |job: &&Job<'_>| job.planned.cell.on("condition") == Some(condition);
            let place = plan.jobs.iter().position(|job| is_it(&job)).unwrap();
            policy_of(&plan.jobs[place], &plan.scenes[place]).unwrap()
        };
        let declared = rural_paws::Spec::default();
        assert_eq!(of("loaded"), declared);
        assert_eq!(of("calm"), rural_paws::Spec { others: (0, declared.others.1), ..declared });
    }

    #[test]
    fn another_grid_is_another_policy() {
        let mut studies = [Study::named("rural-paws").unwrap()];
        let grid = studies[0].grids.iter_mut().find(|grid| grid.id == "policy").unwrap();
        for (key, value) in [
            ("think-time", "1 s to 2 s"),
            ("warm", "4 s"),
            ("measured", "5 s"),
            ("lower-effort-ceil-up", "1 Mbit/s"),
            ("lower-effort-rate", "64 kbit/s"),
        ] {
            grid.settings.insert(key.into(), value.into());
        }
        grid.settings.insert("pages".into(), 3.into());
        let plan = Plan::new(&studies, &Wanted { quick: true, ..Wanted::default() }).unwrap();
        let job = plan.jobs.iter().position(|job| job.grid.id == "policy").unwrap();
        let spec = policy_of(&plan.jobs[job], &plan.scenes[job]).unwrap();
        assert_eq!(spec.reading, [Duration::from_secs(1), Duration::from_secs(2)]);
        assert_eq!((spec.warm, spec.measured), (Duration::from_secs(4), Duration::from_secs(5)));
        assert_eq!((spec.pages, spec.ceil[UP].bps()), (3, 1_000_000));
        assert_eq!(spec.rate.map(|rate| rate.bps()), [64_000; 2]);
        let mut wrong = studies;
        let grid = wrong[0].grids.iter_mut().find(|grid| grid.id == "policy").unwrap();
        grid.settings.insert("think-time".into(), "6 s to 3 s".into());
        let plan = Plan::new(&wrong, &Wanted { quick: true, ..Wanted::default() }).unwrap();
        let error = policy_of(&plan.jobs[job], &plan.scenes[job]).unwrap_err().to_string();
        assert!(error.contains("think-time"), "{error}");
    }
}
