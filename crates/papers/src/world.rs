//! One world: brought up, measured, tuned, its contender at work, and run after run in it.
//!
//! What is wrong with the measurement (the emulator was late, no socket was free) makes a run
//! nothing, and it is made again. What is wrong with a contender is its result: where one ends in a
//! run, or nothing ever comes through it, the run counts as failed, and only those behind it have
//! another world. One exception: a link that does not fall quiet before a run has that run made again,
//! since whose packets those are is not known.

mod error;

use std::path::Path;
use std::time::Duration;

use bentpipe_lab::contender::{self, Contender, Running, Stage};
use bentpipe_lab::emu::{self, Capture, EmuError, Measured, Tuning, World};
use bentpipe_lab::experiment::gate::Gate;
use bentpipe_results::{LinkMeasured, Workload};
use serde::Serialize;
use tokio::runtime;

pub use error::WorldError;

use crate::budget::Budget;
use crate::job::{Job, Ran};
use crate::lateness::Lateness;
use crate::link::Scene;
use crate::origin::Origin;
use crate::plan::{Plan, Worldful};
use crate::policy;
use crate::raw::{self, RawError};
use crate::settle::settle;
use crate::workload::page::Sites;
use crate::workload::{self, Scope, WorkError, bulk};

/// Time within which the first byte must come through a contender: the gateways' handshake is tried
/// again every 1.5 round trips, and 40 % of all packets may be lost.
const SILENCE: Duration = Duration::from_secs(60);
/// Name prefix of contenders that send at a granted rate.
const GRANTED: &str = "bentpipe";

/// A browser keeps a core as busy as so much traffic.
const BROWSER_BPS: u64 = 20_000_000;

/// State shared by worlds.
pub struct Machine<'a> {
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// For keys and configs of all worlds.
    pub scratch: &'a Path,
    /// Folder of the raw data of single runs, if any.
    pub raw: Option<&'a Path>,
    /// Gate for the measurement of links, one world at a time.
    pub measuring: Gate,
    /// Budget of concurrent traffic.
    pub budget: Budget,
}

/// Conditions of the world in which a cell was run.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Conditions {
    /// The links as measured.
    pub links: Vec<LinkMeasured>,
    /// Packets of the radio link delivered more than a millisecond late, of all.
    pub late: u64,
    /// All that were delivered.
    pub delivered: u64,
    /// The worst of the late ones, in seconds.
    pub worst_lateness: f64,
    /// Mean lateness of the run's packets on all links, in seconds.
    pub mean_lateness: f64,
    /// Number of worlds that were brought up before this one for the same runs.
    pub attempt: u32,
    /// `true` if the links ran at real-time priority.
    pub realtime: bool,
}

/// Listener of every run.
pub type Tell<'a> = dyn FnMut(usize, Ran, &Conditions) + 'a;

/// Does the runs of `worldful` and tells of each as soon as it is over and known to be sound. After
/// an error those told of stand. Its losses are those of this attempt.
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
    // A link without a contender is measured as it lies there.
    let contender = match job.contender() {
        "" => contender::named("e2e-cubic")?,
        name => contender::named(name)?,
    };
    let in_browser = worldful.parts.iter().any(|part| plan.jobs[part.job].is_in_browser());
    let browser = if in_browser { BROWSER_BPS } else { 0 };
    let _portion = machine.budget.take(carried(scene).saturating_add(browser));
    if job.grid.workload == Workload::RuralPolicy {
        return policy::run(machine, plan, worldful, attempt, tell);
    }
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
        // Unless it was the machine.
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

/// Captures the packets offered to the radio link in a run of `job`, into its file, if requested.
pub(crate) fn capture(
    machine: &Machine<'_>,
    world: &World,
    job: &Job<'_>,
    run: u32,
) -> Result<Option<Capture>, RawError> {
    let capture = |folder| raw::make(folder, job, run, ".pcapng", |path| world.capture(path));
    machine.raw.map(capture).transpose()
}

/// Counts a soundly measured run: its values stand, unless its contender `ended`. Then it failed,
/// whatever was found, and also if nothing was.
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

/// The traffic of a world at its most, bit/s.
pub fn carried(scene: &Scene) -> u64 {
    let link = &scene.profile.link;
    let bps = |rate: Option<bentpipe_units::BitRate>| rate.map_or(u64::MAX, |rate| rate.bps());
    bps(link.forward.rate()).max(bps(link.return_.rate()))
}

/// A contender that has ended is an error.
fn check(name: &'static str, running: &mut dyn Running) -> Result<(), WorldError> {
    let checked = running.check();
    checked.map_err(|source| WorldError::Contender { name, source, said: running.said() })
}

/// The next run may begin.
fn ready(world: &World, scene: &Scene, name: &'static str) -> Result<(), WorldError> {
    if settle(world, scene.rtt())? { Ok(()) } else { Err(WorldError::Undrained { name }) }
}

/// Lateness of the emulator so far.
pub(crate) fn lateness(world: &World) -> Result<Lateness, EmuError> {
    let (radio, behind) = (world.radio_counters()?, world.terrestrial_counters()?);
    Ok(Lateness::of([&radio].into_iter().chain(&behind)))
}

/// Sets the condition's TCP settings at both ends, and at relays if TCP crosses the link between
/// them, within the limits of the contender.
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

/// The contest is between tunnels that are up; why this one is not.
fn warm_up(
    world: &World,
    name: &'static str,
    running: &mut dyn Running,
) -> Result<Option<WorldError>, EmuError> {
    let first = world.client.run(|| {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        Ok::<_, EmuError>(runtime.map_err(EmuError::Thread)?.block_on(bulk::first_byte(SILENCE)))
    })??;
    Ok(match (first, check(name, running)) {
        (Ok(()), Ok(())) => None,
        (_, Err(error)) => Some(error),
        (Err(why), _) => {
            Some(WorldError::Silent { name, why: why.to_string(), said: running.said() })
        }
    })
}

/// Checks the links; an error if the emulator did not follow its model, or was late since `before`.
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
    use crate::job::Value;
    use bentpipe_lab::contender::ContenderError;

    fn missing(source: ContenderError) -> WorldError {
        WorldError::Contender { name: "kcptun", source, said: String::new() }
    }

    #[test]
    fn a_run_in_which_the_contender_ended_failed_whatever_it_gave() {
        let ended = ContenderError::Ended { program: "kcptun-server", said: String::new() };
        let ended = missing(ended);
        let plt = |finished| Value::of("plt", 3.0, finished);
        let whole = || Ran::of(2, 7, vec![plt(true), Value::of("failed", 0.0, true)]);
        let nothing = || Ran::of(2, 7, vec![Value::of("plt", 60.0, false)]);
        let ran = counted(Ok(whole()), nothing, Some(&ended)).unwrap();
        assert_eq!(ran.values, [plt(false), Value::of("failed", 1.0, true)]);
        assert!(ran.failed.unwrap().contains("kcptun-server ended"));
        let broken = || Err(WorkError::Cannot("do it".into()));
        let ran = counted(broken(), nothing, Some(&ended)).unwrap();
        assert_eq!(ran.values, [Value::of("plt", 60.0, false), Value::of("failed", 1.0, true)]);
        // Without that it is as it was.
        assert_eq!(counted(Ok(whole()), nothing, None).unwrap(), whole());
        assert!(counted(broken(), nothing, None).is_err());
    }
}
