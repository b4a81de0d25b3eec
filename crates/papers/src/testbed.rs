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

use bentpipe_lab::emu::{
    self, Capture, Congestion, EmuError, Lateness, LinkCounters, Measured, Testbed, WireCounters,
};
use bentpipe_lab::experiment::stand::{Spec, Stand, StandError, Tunings};
use bentpipe_lab::system;
use bentpipe_results::LinkMeasured;
use serde::Serialize;

pub use error::TestbedError;

use crate::job::{Job, Ran};
use crate::link::Scene;
use crate::plan::{Plan, TestbedRun};
use crate::raw::{self, RawError};
use crate::settle::{radio_counters, settle};
use crate::workload::{self, Scope, Sites, WorkError};
use bentpipe_lab::experiment::budget::{Budget, Portion};

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
    /// Limit on concurrent measurements of links.
    pub measuring: Budget,
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

/// Performs the runs of `testbed_run`. Reports each as soon as it is complete and its measurement is
/// valid. After an error, the reported runs remain valid. The losses depend on `attempt`.
pub fn run(
    machine: &Machine<'_>,
    plan: &Plan<'_>,
    testbed_run: &TestbedRun,
    attempt: u32,
    tell: &mut Tell<'_>,
) -> Result<(), TestbedError> {
    let seed = testbed_run.seed_of(attempt);
    let first = testbed_run.parts[0].job;
    let (job, scene) = (&plan.jobs[first], &plan.scenes[first]);
    // Without a system under test, the link itself is measured.
    let system = match job.system() {
        "" => system::named("e2e-cubic")?,
        name => system::named(name)?,
    };
    let sites = Sites::new(testbed_run.parts.iter().map(|part| &plan.jobs[part.job]))?;
    let folder = tempfile::tempdir_in(machine.scratch)?;
    let spec = Spec {
        system,
        profile: &scene.profile,
        beside: &scene.beside,
        granted: &scene.granted(),
        seed,
        tunings: Tunings { client: scene.client, server: scene.server, relays: scene.relays },
        program: machine.program,
        folder: folder.path(),
        hosts: &sites.hosts,
        settings: &job.grid.settings,
    };
    let pass = machine.measuring.take(1);
    let mut stand = Stand::set_up(&spec, || drop(pass))?;
    // A system under test that passes no data fails the first run.
    let mut ended = match stand.warm_up() {
        Ok(()) => None,
        Err(StandError::Emulator(error)) => return Err(error.into()),
        Err(error) => Some(TestbedError::from(error)),
    };
    if ended.is_some() {
        // Unless the machine was the cause.
        sound(&stand.testbed, &stand.measured, &Lateness::default())?;
    }
    let ends = system.ends();
    let mut bed =
        Bed { machine, scene, stand, sites, folder: folder.path(), ends, seed, attempt, number: 0 };
    let runs =
        testbed_run.parts.iter().flat_map(|part| part.runs.clone().map(move |run| (part.job, run)));
    for (place, run) in runs {
        let (ran, conditions) = bed.run(&plan.jobs[place], run, &mut ended)?;
        tell(place, ran, &conditions);
        if let Some(error) = ended {
            return Err(error);
        }
    }
    Ok(())
}

/// A testbed in which runs are made.
struct Bed<'a> {
    machine: &'a Machine<'a>,
    scene: &'a Scene,
    stand: Stand,
    sites: Sites,
    folder: &'a Path,
    ends: Congestion,
    seed: u64,
    attempt: u32,
    /// Number of runs so far.
    number: u64,
}

impl Bed<'_> {
    /// Performs one run of `job`. If the system under test ends meanwhile, `ended` is set.
    fn run(
        &mut self,
        job: &Job<'_>,
        run: u32,
        ended: &mut Option<TestbedError>,
    ) -> Result<(Ran, Conditions), TestbedError> {
        let (name, seed) = (self.stand.name, self.seed);
        if self.number > 0 {
            ready(&self.stand.testbed, self.scene, name)?;
        }
        self.number += 1;
        let before = lateness(&self.stand.testbed)?;
        let mut scope = Scope {
            testbed: &self.stand.testbed,
            measured: &self.stand.measured.radio,
            scene: self.scene,
            job,
            running: self.stand.running.as_ref(),
            origin: &self.stand.origin,
            sites: &mut self.sites,
            ends: self.ends,
            folder: self.folder,
            raw: self.machine.raw,
            run,
            number: self.number,
            failed: None,
        };
        let capture = capture(self.machine, &self.stand.testbed, job, run)?;
        let outcome = workload::run(&mut scope);
        drop(capture);
        let found = outcome.map(|values| Ran { run, seed, values, failed: scope.failed });
        let sound = sound(&self.stand.testbed, &self.stand.measured, &before)?;
        let conditions = Conditions { attempt: self.attempt, ..sound };
        if ended.is_none() {
            *ended = self.stand.check().err().map(TestbedError::from);
        }
        let nothing = || Ran::of(run, seed, workload::nothing(job));
        let said = || self.stand.running.said();
        let ran = counted(found, nothing, ended.as_ref()).map_err(|source| TestbedError::Work {
            name,
            source,
            said: said(),
        })?;
        Ok((ran, conditions))
    }
}

/// Captures the packets offered to the radio link in a run of `job` to a file, if requested.
pub(crate) fn capture(
    machine: &Machine<'_>,
    testbed: &Testbed,
    job: &Job<'_>,
    run: u32,
) -> Result<Option<Capture>, RawError> {
    let capture = |folder| raw::make(folder, job, run, ".pcapng", |path| testbed.capture(path));
    machine.raw.map(capture).transpose()
}

/// Result of a run with a valid measurement. If the system under test has `ended`, the run failed,
/// regardless of its values, and even without values.
fn counted(
    found: Result<Ran, WorkError>,
    nothing: impl FnOnce() -> Ran,
    ended: Option<&TestbedError>,
) -> Result<Ran, WorkError> {
    let Some(why) = ended else { return found };
    let ran = found.unwrap_or_else(|_| nothing());
    let (values, why) = (workload::failed(ran.values), why.to_string());
    let failed = Some(ran.failed.map_or(why.clone(), |own| format!("{own}; {why}")));
    Ok(Ran { values, failed, ..ran })
}

/// Waits until the machine can carry the traffic of `testbed_run` too.
pub fn portion<'a>(
    machine: &'a Machine<'_>,
    plan: &Plan<'_>,
    testbed_run: &TestbedRun,
) -> Portion<'a> {
    let in_browser = testbed_run.parts.iter().any(|part| plan.jobs[part.job].is_in_browser());
    let browser = if in_browser { BROWSER_BPS } else { 0 };
    machine.budget.take(carried(&plan.scenes[testbed_run.parts[0].job]).saturating_add(browser))
}

/// Maximum traffic of a testbed, bit/s.
pub fn carried(scene: &Scene) -> u64 {
    let bps = |rate: Option<bentpipe_units::BitRate>| rate.map_or(u64::MAX, |rate| rate.bps());
    let links = [&scene.profile].into_iter().chain(&scene.beside).map(|profile| &profile.link);
    let rates = links.map(|link| bps(link.forward.rate()).max(bps(link.return_.rate())));
    rates.fold(0, u64::saturating_add)
}

/// Waits until the next run may start.
fn ready(testbed: &Testbed, scene: &Scene, name: &'static str) -> Result<(), TestbedError> {
    if settle(testbed, scene.rtt())? { Ok(()) } else { Err(TestbedError::Undrained { name }) }
}

/// Lateness of the emulator so far.
pub(crate) fn lateness(testbed: &Testbed) -> Result<Lateness, EmuError> {
    let (radios, behind) = (radio_counters(testbed)?, testbed.terrestrial_counters()?);
    Ok(Lateness::of(radios.iter().chain(&behind)))
}

/// Checks the links. Returns an error if the emulator did not follow its model, or was late since
/// `before`.
pub(crate) fn sound(
    testbed: &Testbed,
    measured: &Measured,
    before: &Lateness,
) -> Result<Conditions, TestbedError> {
    let since = lateness(testbed)?.since(before);
    let radios = radio_counters(testbed)?;
    let behind = testbed.terrestrial_counters()?.map_or(0, |counters| counters.unmodelled());
    match radios.iter().map(LinkCounters::unmodelled).sum::<u64>() + behind {
        0 => {}
        lost => return Err(TestbedError::Unmodelled(lost)),
    }
    since.judge()?;
    let ways: Vec<&WireCounters> =
        radios.iter().flat_map(|radio| [&radio.forward, &radio.return_]).collect();
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
    use bentpipe_lab::system::SystemError;
    use bentpipe_results::Row;

    fn missing(source: SystemError) -> TestbedError {
        StandError::SystemUnderTest { name: "kcptun", source, said: String::new() }.into()
    }

    #[test]
    fn a_run_in_which_the_system_crashed_failed() {
        let ended = SystemError::Ended { program: "kcptun-server", said: String::new() };
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
