//! One testbed: its start, measurement, TCP settings, system under test, and all its runs.
//!
//! - An error of the measurement (the emulator was late, no socket was free) invalidates a run, and
//!   the run is repeated.
//! - An error of the system under test is its result. If it ends during a run, or passes no data,
//!   that run counts as failed; only the following runs get another testbed.
//! - If the link does not become idle before a run, that run is repeated, because the origin of the
//!   packets is unknown.

mod error;

use std::path::Path;

use bentpipe_lab::contender::{self, Contender, Running, Stage};
use bentpipe_lab::emu::{self, Capture, EmuError, Lateness, Measured, Tuning, World};
use bentpipe_lab::experiment::gate::Gate;
use bentpipe_lab::experiment::stand::SILENCE;
use bentpipe_lab::workload::client::first_byte;
use bentpipe_lab::workload::origin::Origin;
use bentpipe_results::LinkMeasured;
use serde::Serialize;

pub use error::WorldError;

use crate::budget::{Budget, Portion};
use crate::job::{Job, Ran};
use crate::link::Scene;
use crate::plan::{Plan, Worldful};
use crate::raw::{self, RawError};
use crate::settle::settle;
use crate::workload::{self, Scope, Sites, WorkError};

/// Name prefix of systems that send at a granted rate.
const GRANTED: &str = "bentpipe";

/// Traffic that keeps a core as busy as a browser does.
const BROWSER_BPS: u64 = 20_000_000;

/// State shared by testbeds.
pub struct Machine<'a> {
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// Folder for keys and configurations of all testbeds.
    pub scratch: &'a Path,
    /// Folder of the raw data of single runs, if any.
    pub raw: Option<&'a Path>,
    /// Gate that limits concurrent measurements of links.
    pub measuring: Gate,
    /// Budget of concurrent traffic.
    pub budget: Budget,
}

/// Conditions in the testbed of a cell.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Conditions {
    /// Measured links.
    pub links: Vec<LinkMeasured>,
    /// Number of packets that the radio link delivered more than a millisecond late.
    pub late: u64,
    /// Number of packets that the radio link delivered.
    pub delivered: u64,
    /// Maximum lateness, in seconds.
    pub worst_lateness: f64,
    /// Mean lateness of the run's packets on all links, in seconds.
    pub mean_lateness: f64,
    /// Number of testbeds started before this one for the same runs.
    pub attempt: u32,
    /// `true` if the links ran at real-time priority.
    pub realtime: bool,
}

/// Callback for every completed run.
pub type Tell<'a> = dyn FnMut(usize, Ran, &Conditions) + 'a;

/// Performs the runs of `worldful`. Reports each as soon as it is complete and its measurement is
/// valid. After an error, the reported runs remain valid. The losses depend on `attempt`.
pub fn run(
    machine: &Machine<'_>,
    plan: &Plan<'_>,
    worldful: &Worldful,
    attempt: u32,
    tell: &mut Tell<'_>,
) -> Result<(), WorldError> {
    let seed = worldful.seed_of(attempt);
    let first = worldful.parts[0].job;
    let (job, scene) = (&plan.jobs[first], &plan.scenes[first]);
    // Without a system under test, the link itself is measured.
    let contender = match job.contender() {
        "" => contender::named("e2e-cubic")?,
        name => contender::named(name)?,
    };
    let world = World::new(&scene.profile.link, scene.profile.terrestrial.as_ref(), seed)?;
    let links = {
        let _pass = machine.measuring.enter();
        world.measure()?
    };
    tune(&world, scene, contender)?;
    let origin = Origin::start(&world.server)?;
    let mut sites = Sites::new(worldful.parts.iter().map(|part| &plan.jobs[part.job]))?;
    let folder = tempfile::tempdir_in(machine.scratch)?;
    let granted = scene.granted();
    let is_granted = contender.name().starts_with(GRANTED);
    let stage = Stage {
        world: &world,
        profile: if is_granted { &granted } else { &scene.profile },
        folder: folder.path(),
        program: machine.program,
        hosts: &sites.hosts,
        settings: &job.grid.settings,
    };
    let name = contender.name();
    let running = contender.start(&stage);
    let mut running =
        running.map_err(|source| WorldError::Contender { name, source, said: String::new() })?;
    let mut ended = warm_up(&world, name, running.as_mut())?;
    if ended.is_some() {
        // Unless the machine was the cause.
        sound(&world, &links, &Lateness::default())?;
    }
    let mut number = 0;
    for part in &worldful.parts {
        let job = &plan.jobs[part.job];
        for run in part.runs.clone() {
            if number > 0 {
                ready(&world, scene, name)?;
            }
            number += 1;
            let before = lateness(&world)?;
            let mut scope = Scope {
                world: &world,
                measured: &links.radio,
                scene,
                job,
                running: running.as_ref(),
                origin: &origin,
                sites: &mut sites,
                ends: contender.ends(),
                folder: folder.path(),
                raw: machine.raw,
                run,
                number,
                failed: None,
            };
            let capture = capture(machine, &world, job, run)?;
            let outcome = workload::run(&mut scope);
            drop(capture);
            let found = outcome.map(|values| Ran { run, seed, values, failed: scope.failed });
            let conditions = Conditions { attempt, ..sound(&world, &links, &before)? };
            ended = ended.or(check(name, running.as_mut()).err());
            let nothing = || Ran::of(run, seed, workload::nothing(job));
            let counted = counted(found, nothing, ended.as_ref());
            let said = || running.said();
            let ran = counted.map_err(|source| WorldError::Work { name, source, said: said() })?;
            tell(part.job, ran, &conditions);
            if let Some(error) = ended {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Captures the packets offered to the radio link in a run of `job` to a file, if requested.
pub(crate) fn capture(
    machine: &Machine<'_>,
    world: &World,
    job: &Job<'_>,
    run: u32,
) -> Result<Option<Capture>, RawError> {
    let capture = |folder| raw::make(folder, job, run, ".pcapng", |path| world.capture(path));
    machine.raw.map(capture).transpose()
}

/// Result of a run with a valid measurement. If the system under test has `ended`, the run failed,
/// regardless of its values, and even without values.
fn counted(
    found: Result<Ran, WorkError>,
    nothing: impl FnOnce() -> Ran,
    ended: Option<&WorldError>,
) -> Result<Ran, WorkError> {
    let Some(why) = ended else { return found };
    let ran = found.unwrap_or_else(|_| nothing());
    let (values, why) = (workload::failed(ran.values), why.to_string());
    let failed = Some(ran.failed.map_or(why.clone(), |own| format!("{own}; {why}")));
    Ok(Ran { values, failed, ..ran })
}

/// Waits until the machine can carry the traffic of `worldful` too.
pub fn portion<'a>(machine: &'a Machine<'_>, plan: &Plan<'_>, worldful: &Worldful) -> Portion<'a> {
    let in_browser = worldful.parts.iter().any(|part| plan.jobs[part.job].is_in_browser());
    let browser = if in_browser { BROWSER_BPS } else { 0 };
    machine.budget.take(carried(&plan.scenes[worldful.parts[0].job]).saturating_add(browser))
}

/// Maximum traffic of a testbed, bit/s.
pub fn carried(scene: &Scene) -> u64 {
    let link = &scene.profile.link;
    let bps = |rate: Option<bentpipe_units::BitRate>| rate.map_or(u64::MAX, |rate| rate.bps());
    bps(link.forward.rate()).max(bps(link.return_.rate()))
}

/// Returns an error if the system under test has ended.
fn check(name: &'static str, running: &mut dyn Running) -> Result<(), WorldError> {
    let checked = running.check();
    checked.map_err(|source| WorldError::Contender { name, source, said: running.said() })
}

/// Waits until the next run may start.
fn ready(world: &World, scene: &Scene, name: &'static str) -> Result<(), WorldError> {
    if settle(world, scene.rtt())? { Ok(()) } else { Err(WorldError::Undrained { name }) }
}

/// Lateness of the emulator so far.
pub(crate) fn lateness(world: &World) -> Result<Lateness, EmuError> {
    let (radio, behind) = (world.radio_counters()?, world.terrestrial_counters()?);
    Ok(Lateness::of([&radio].into_iter().chain(&behind)))
}

/// Applies the condition's TCP settings to both ends, and to relays if TCP crosses the link between
/// them, within the limits of the system under test.
fn tune(world: &World, scene: &Scene, contender: &dyn Contender) -> Result<(), EmuError> {
    let ends = contender.ends();
    let of = |tuning: Tuning| {
        let windows = [tuning.receive_window_bytes, contender.receive_window()];
        let receive_window_bytes = windows.into_iter().flatten().min();
        let congestion = tuning.congestion.or(Some(ends));
        Tuning { congestion, receive_window_bytes, ..tuning }
    };
    world.tune_client(&of(scene.client))?;
    world.tune_server(&of(scene.server))?;
    if contender.has_tcp_on_link() {
        world.tune_link(&scene.relays)?;
    }
    Ok(())
}

/// Waits until the system passes data, because only established tunnels are compared. Returns an
/// error if it does not.
fn warm_up(
    world: &World,
    name: &'static str,
    running: &mut dyn Running,
) -> Result<Option<WorldError>, EmuError> {
    let first = world.client.block_on(async || first_byte(SILENCE).await)?;
    Ok(match (first, check(name, running)) {
        (Ok(()), Ok(())) => None,
        (_, Err(error)) => Some(error),
        (Err(why), _) => {
            Some(WorldError::Silent { name, why: why.to_string(), said: running.said() })
        }
    })
}

/// Checks the links. Returns an error if the emulator did not follow its model, or was late since
/// `before`.
pub(crate) fn sound(
    world: &World,
    measured: &Measured,
    before: &Lateness,
) -> Result<Conditions, WorldError> {
    let since = lateness(world)?.since(before);
    let counters = world.radio_counters()?;
    let behind = world.terrestrial_counters()?.map_or(0, |counters| counters.unmodelled());
    match counters.unmodelled() + behind {
        0 => {}
        lost => return Err(WorldError::Unmodelled(lost)),
    }
    since.judge()?;
    let ways = [&counters.forward, &counters.return_];
    let links = [Some(("radio", &measured.radio))]
        .into_iter()
        .chain([measured.terrestrial.as_ref().map(|behind| ("terrestrial", behind))])
        .flatten()
        .flat_map(|(path, link)| both_ways(path, link))
        .collect();
    Ok(Conditions {
        links,
        late: ways.iter().map(|way| way.late).sum(),
        delivered: ways.iter().map(|way| way.model.delivered.packets).sum(),
        worst_lateness: ways.iter().map(|way| way.worst_lateness.as_secs_f64()).fold(0.0, f64::max),
        realtime: ways.iter().all(|way| way.realtime),
        mean_lateness: since.mean().as_secs_f64(),
        attempt: 0,
    })
}

fn both_ways(path: &str, link: &emu::LinkMeasured) -> [LinkMeasured; 2] {
    [("forward", &link.forward), ("return", &link.return_)].map(|(direction, way)| LinkMeasured {
        path: path.into(),
        direction: direction.into(),
        delay_ms: way.delay_s.map(|delay| delay.measured * 1e3),
        rate_mbps: way.rate_bps.map(|rate| rate.measured / 1e6).filter(|rate| rate.is_finite()),
        filled: way.is_filled,
        loss: way.loss.measured,
        probes: way.probes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_lab::contender::ContenderError;
    use bentpipe_results::Row;

    fn missing(source: ContenderError) -> WorldError {
        WorldError::Contender { name: "kcptun", source, said: String::new() }
    }

    #[test]
    fn a_run_in_which_the_contender_ended_failed_whatever_it_gave() {
        let ended = ContenderError::Ended { program: "kcptun-server", said: String::new() };
        let ended = missing(ended);
        let plt = |finished| Row::of("plt", 3.0, finished);
        let whole = || Ran::of(2, 7, vec![plt(true), Row::of("failed", 0.0, true)]);
        let nothing = || Ran::of(2, 7, vec![Row::of("plt", 60.0, false)]);
        let ran = counted(Ok(whole()), nothing, Some(&ended)).unwrap();
        assert_eq!(ran.values, [plt(false), Row::of("failed", 1.0, true)]);
        assert!(ran.failed.unwrap().contains("kcptun-server ended"));
        let broken = || Err(WorkError::Cannot("do it".into()));
        let ran = counted(broken(), nothing, Some(&ended)).unwrap();
        assert_eq!(ran.values, [Row::of("plt", 60.0, false), Row::of("failed", 1.0, true)]);
        // If it has not ended, the result is unchanged.
        assert_eq!(counted(Ok(whole()), nothing, None).unwrap(), whole());
        assert!(counted(broken(), nothing, None).is_err());
    }
}
