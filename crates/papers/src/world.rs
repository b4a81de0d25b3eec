//! One world: brought up, measured, tuned, its contender at work, and run after run in it.

use std::path::Path;
use std::time::{Duration, Instant};

use bentpipe_lab::browser::BrowserError;
use bentpipe_lab::contender::{self, Contender, ContenderError, Running, Stage};
use bentpipe_lab::emu::{EmuError, MeasureError, Measured, Tuning, World};
use bentpipe_lab::experiment::gate::Gate;
use bentpipe_lab::traffic::{Emulator, Engine};
use bentpipe_results::Workload;
use serde::Serialize;
use tokio::runtime;

use crate::budget::Budget;
use crate::job::Ran;
use crate::lateness::{Lateness, TooLate};
use crate::link::Scene;
use crate::origin::Origin;
use crate::plan::{Plan, Worldful};
use crate::sim::{self, SimError};
use crate::workload::page::{SiteError, Sites};
use crate::workload::{self, Scope, WorkError, bulk};

/// How long the first byte may take to come through a contender: the gateways' handshake is tried
/// again every 1.5 round trips, and 40 % of all packets may be lost.
const SILENCE: Duration = Duration::from_secs(60);
/// Between two runs, so that acknowledgements and farewells of one are not in the next one's way;
/// two round trips come on top.
pub const PAUSE: Duration = Duration::from_millis(200);
/// How long what a run has left behind may take to be gone: a proxy with a buffer of 4 MB empties it
/// over 1 Mbit/s meanwhile.
const DRAIN: Duration = Duration::from_secs(40);
/// What contenders say to each other while they carry nothing stays below this, each way, and
/// always below two full packets.
const IDLE_BPS: f64 = 32_000.0;
const IDLE_BYTES: f64 = 3000.0;

/// What contenders are called that send at a rate which they are granted.
const GRANTED: &str = "bentpipe";

/// A browser keeps a core as busy as so much traffic.
const BROWSER_BPS: u64 = 20_000_000;

/// What worlds share.
pub struct Machine<'a> {
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// For keys and configs of all worlds.
    pub scratch: &'a Path,
    /// Where the archives of page loads go, if anywhere.
    pub raw: Option<&'a Path>,
    /// Whose links are measured at once.
    pub measuring: Gate,
    /// What is carried at once.
    pub budget: Budget,
}

/// What is known of the world that a cell was run in.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Conditions {
    /// The links as measured, in words.
    pub links: Vec<String>,
    /// Packets of the radio link delivered more than a millisecond late, of all.
    pub late: u64,
    /// All that were delivered.
    pub delivered: u64,
    /// The worst of the late ones, in seconds.
    pub worst_lateness: f64,
    /// How late the run's packets were on average, on all links, in seconds.
    pub mean_lateness: f64,
    /// How many worlds were brought up before this one for the same runs.
    pub attempt: u32,
    /// Whether the links ran at real-time priority.
    pub realtime: bool,
}

/// Why a world gave nothing, or nothing more.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The emulator could not be brought up.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The link is not the declared one.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// There is no such contender.
    #[error(transparent)]
    Unknown(#[from] contender::UnknownContender),
    /// A contender could not be set up, or has ended.
    #[error("{name}: {source}{said}")]
    Contender {
        /// Which.
        name: &'static str,
        /// Why.
        source: ContenderError,
        /// What it said last.
        said: String,
    },
    /// Nothing comes through a contender.
    #[error("{name}: nothing came through within {} s ({why}){said}", SILENCE.as_secs())]
    Silent {
        /// Which.
        name: &'static str,
        /// What was last seen.
        why: String,
        /// What it said last.
        said: String,
    },
    /// The emulator was late.
    #[error(transparent)]
    Late(#[from] TooLate),
    /// What a run left behind does not go.
    #[error("{name}: what a run left on the link was still under way {} s later", DRAIN.as_secs())]
    Undrained {
        /// Whose.
        name: &'static str,
    },
    /// The emulator itself lost packets.
    #[error(
        "the emulator lost {0} packets that its model let pass: this machine is too busy; run \
         fewer worlds at once (--jobs)"
    )]
    Unmodelled(u64),
    /// What is to be loaded cannot be made.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// A run gave nothing.
    #[error("{name}: {source}{said}")]
    Work {
        /// Whose.
        name: &'static str,
        /// Why.
        source: WorkError,
        /// What the contender said last.
        said: String,
    },
    /// The policy of Rural-PAWS could not be run.
    #[error(transparent)]
    Policy(#[from] SimError),
    /// A folder for keys and configs could not be made.
    #[error("cannot make a folder for keys and configs: {0}")]
    Folder(#[from] std::io::Error),
}

impl WorldError {
    /// Whether another attempt may end otherwise.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::Site(_) => false,
            Self::Contender { source, .. } => !matches!(
                source,
                ContenderError::Missing { .. }
                    | ContenderError::Setting { .. }
                    | ContenderError::Reserve { .. }
            ),
            Self::Work { source, .. } => match source {
                WorkError::Cannot(_) => false,
                WorkError::Site(error) => {
                    !matches!(error, SiteError::Browser(BrowserError::NotInstalled))
                }
                _ => true,
            },
            _ => true,
        }
    }

    /// Whether it is this machine's being busy, which may be over later.
    pub fn is_of_machine(&self) -> bool {
        matches!(self, Self::Late(_) | Self::Unmodelled(_) | Self::Measure(_))
    }

    /// Whether it concerns the run that was being made, and says nothing of others in its world.
    pub fn is_of_run(&self) -> bool {
        matches!(self, Self::Late(_) | Self::Work { .. })
    }
}

/// Who hears of every run.
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
        return policy(machine, plan, worldful, attempt, tell);
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
    warm_up(&world, name, running.as_mut())?;
    let mut number = 0;
    for part in &worldful.parts {
        let job = &plan.jobs[part.job];
        for run in part.runs.clone() {
            if number > 0 {
                settle(&world, scene, name)?;
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
            };
            let outcome = workload::run(&mut scope);
            let said = || running.said();
            let values =
                outcome.map_err(|source| WorldError::Work { name, source, said: said() })?;
            running.check().map_err(|source| WorldError::Contender {
                name,
                source,
                said: running.said(),
            })?;
            let late = lateness(&world)?.since(&before);
            let conditions = sound(&world, &links)?;
            late.judge()?;
            let mean_lateness = late.mean().as_secs_f64();
            let conditions = Conditions { mean_lateness, attempt, ..conditions };
            tell(part.job, Ran { run, seed, values }, &conditions);
        }
    }
    Ok(())
}

/// The traffic of a world at its most, bit/s.
pub fn carried(scene: &Scene) -> u64 {
    let link = &scene.profile.link;
    let bps = |rate: Option<bentpipe_units::BitRate>| rate.map_or(u64::MAX, |rate| rate.bps());
    bps(link.forward.rate()).max(bps(link.return_.rate()))
}

/// How late the emulator was so far.
fn lateness(world: &World) -> Result<Lateness, EmuError> {
    let (radio, behind) = (world.radio_counters()?, world.terrestrial_counters()?);
    Ok(Lateness::of([&radio].into_iter().chain(&behind)))
}

/// Waits until nothing of the last run is on the link any more.
fn settle(world: &World, scene: &Scene, name: &'static str) -> Result<(), WorldError> {
    let look = PAUSE.max(scene.rtt());
    let bytes = || -> Result<[u64; 2], EmuError> {
        let counters = world.radio_counters()?;
        Ok([&counters.forward, &counters.return_].map(|way| way.own().offered.bytes))
    };
    let began = Instant::now();
    std::thread::sleep(scene.rtt());
    let mut before = bytes()?;
    while began.elapsed() < DRAIN {
        std::thread::sleep(look);
        let after = bytes()?;
        if [0, 1].iter().all(|&way| is_idle(after[way] - before[way], look)) {
            return Ok(());
        }
        before = after;
    }
    Err(WorldError::Undrained { name })
}

/// Whether so many bytes in a time are no transfer.
fn is_idle(bytes: u64, time: Duration) -> bool {
    bytes as f64 <= IDLE_BYTES.max(IDLE_BPS / 8.0 * time.as_secs_f64())
}

/// What the condition says of both ends, and of relays where TCP crosses the link between them;
/// what the contender leaves or does to them.
fn tune(world: &World, scene: &Scene, contender: &dyn Contender) -> Result<(), EmuError> {
    let ends = contender.ends();
    let of = |tuning: Tuning| Tuning { congestion: tuning.congestion.or(Some(ends)), ..tuning };
    let windows = [scene.client.receive_window_bytes, contender.receive_window()];
    let receive_window_bytes = windows.into_iter().flatten().min();
    world.tune_client(&Tuning { receive_window_bytes, ..of(scene.client) })?;
    world.tune_server(&of(scene.server))?;
    if contender.has_tcp_on_link() {
        world.tune_link(&scene.relays)?;
    }
    world.count_cabin_packets()
}

/// The contest is between tunnels that are up.
fn warm_up(world: &World, name: &'static str, running: &mut dyn Running) -> Result<(), WorldError> {
    let first = world.client.run(|| {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        Ok::<_, EmuError>(runtime.map_err(EmuError::Thread)?.block_on(bulk::first_byte(SILENCE)))
    })??;
    match (first, running.check()) {
        (Ok(()), Ok(())) => Ok(()),
        (_, Err(source)) => Err(WorldError::Contender { name, source, said: running.said() }),
        (Err(why), _) => {
            Err(WorldError::Silent { name, why: why.to_string(), said: running.said() })
        }
    }
}

/// What is known of the links; an error where the emulator did what its model did not say.
fn sound(world: &World, measured: &Measured) -> Result<Conditions, WorldError> {
    let counters = world.radio_counters()?;
    let behind = world.terrestrial_counters()?.map_or(0, |counters| counters.unmodelled());
    match counters.unmodelled() + behind {
        0 => {}
        lost => return Err(WorldError::Unmodelled(lost)),
    }
    let ways = [&counters.forward, &counters.return_];
    let mut links = vec![format!("radio: {}", measured.radio)];
    links.extend(measured.terrestrial.iter().map(|path| format!("terrestrial: {path}")));
    Ok(Conditions {
        links,
        late: ways.iter().map(|way| way.late).sum(),
        delivered: ways.iter().map(|way| way.model.delivered.packets).sum(),
        worst_lateness: ways.iter().map(|way| way.worst_lateness.as_secs_f64()).fold(0.0, f64::max),
        realtime: ways.iter().all(|way| way.realtime),
        ..Conditions::default()
    })
}

/// The policy of Rural-PAWS, which brings up worlds of its own: all classes and directions of a
/// condition come from the same run.
fn policy(
    machine: &Machine<'_>,
    plan: &Plan<'_>,
    worldful: &Worldful,
    attempt: u32,
    tell: &mut Tell<'_>,
) -> Result<(), WorldError> {
    let begun = worldful.parts.iter().map(|part| part.runs.start).min().unwrap_or(0);
    let runs = worldful.parts.iter().map(|part| part.runs.end).max().unwrap_or(0);
    for run in begun..runs {
        let first = worldful.parts[0].job;
        let seed = worldful.seed_of(attempt) + u64::from(run);
        let engine = Engine::Emu(Emulator { folder: machine.scratch });
        let found = sim::policy(&engine, &plan.jobs[first], &plan.scenes[first], seed)?;
        for part in worldful.parts.iter().filter(|part| part.runs.contains(&run)) {
            let values = sim::of_class(&plan.jobs[part.job], &found);
            let conditions = Conditions { attempt, ..Conditions::default() };
            tell(part.job, Ran { run, seed, values }, &conditions);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(source: ContenderError) -> WorldError {
        WorldError::Contender { name: "kcptun", source, said: String::new() }
    }

    fn work(source: WorkError) -> WorldError {
        WorldError::Work { name: "bentpipe", source, said: String::new() }
    }

    #[test]
    fn what_is_not_installed_is_not_tried_again() {
        let error = missing(ContenderError::Missing { program: "kcptun-server" });
        assert!(!error.may_pass() && error.to_string().contains("scripts/setup.sh kcptun"));
        let ended = ContenderError::Ended { program: "kcptun-server", said: String::new() };
        assert!(missing(ended).may_pass());
        let error = work(SiteError::Browser(BrowserError::NotInstalled).into());
        assert!(!error.may_pass() && error.to_string().contains("scripts/setup.sh browser"));
        assert!(error.is_of_run());
        let late = WorldError::from(TooLate { mean_ms: 2.0, stalled: 0, delivered: 9 });
        assert!(late.may_pass() && late.is_of_machine() && late.is_of_run());
    }

    #[test]
    fn reports_are_no_transfer() {
        let time = Duration::from_millis(500);
        assert!(is_idle(0, time) && is_idle(3000, time));
        assert!(!is_idle(3001, time) && is_idle(4000, Duration::from_secs(1)));
    }
}
