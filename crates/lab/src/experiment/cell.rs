//! One contender under one workload, in a world that is measured first.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::time::timeout;

use super::ExperimentError;
use crate::contender::{Contender, Running, Stage};
use crate::emu::{EmuError, LinkCounters, SERVER, Tuning, WireCounters, World};
use crate::profile::Profile;
use crate::result::{Sample, Samples};
use crate::workload::fetch::{Client, FetchError, Route};
use crate::workload::origin::Origin;
use crate::workload::{Workload, bulk, chromium, page};

/// Time within which the first byte must come through a contender: the gateways' handshake is tried
/// again every 1.5 round trips, and 40 % of all packets may be lost.
const SILENCE: Duration = Duration::from_secs(60);

/// An attempt to get that byte.
const ATTEMPT: Duration = Duration::from_secs(10);

/// Between two runs, so that acknowledgements and farewells of one are not in the next one's way.
const PAUSE: Duration = Duration::from_millis(100);

/// Description of a job.
#[derive(Clone)]
pub struct Job<'a> {
    /// System under test.
    pub contender: &'static dyn Contender,
    /// Workload.
    pub workload: &'a Workload,
    /// Number of runs.
    pub runs: usize,
    /// Over what.
    pub profile: &'a Profile,
    /// Seed of this world's losses.
    pub seed: u64,
    /// All runs together, from the beginning of the first.
    pub deadline: Duration,
    /// Measured part of a long download.
    pub bulk_length: Duration,
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// For keys and configs; exists and is empty.
    pub folder: &'a Path,
    /// Set when another job has failed: nothing that this one finds is of use any more.
    pub stop: &'a AtomicBool,
}

/// Results of a job.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// One for each run: seconds, or bit/s of bulk.
    pub samples: Samples,
    /// IP bytes sent into the forward link per byte delivered, where all runs finished.
    pub overhead: Option<f64>,
    /// Runs that broke, in words; each is a [`Sample::Cut`] as well.
    pub failures: Vec<String>,
    /// Punctuality of the emulator.
    pub punctuality: Punctuality,
}

/// Punctuality of deliveries.
#[derive(Debug, Clone, Copy, Default)]
pub struct Punctuality {
    /// Packets delivered.
    pub packets: u64,
    /// Number of packets more than [`LATE`](crate::emu::LATE) late.
    pub late: u64,
    /// The worst of them.
    pub worst: Duration,
}

impl Punctuality {
    /// Both taken together.
    pub fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            late: self.late + other.late,
            worst: self.worst.max(other.worst),
        }
    }

    fn of(counters: &LinkCounters) -> Self {
        let of = |wire: &WireCounters| Self {
            packets: wire.model.delivered.packets,
            late: wire.late,
            worst: wire.worst_lateness,
        };
        of(&counters.forward).and(of(&counters.return_))
    }
}

/// Listener of each sample.
pub type Tell<'a> = dyn Fn(Sample) + Sync + 'a;

/// Makes the world, measures it, says so by `measured`, and does the runs; `tell` hears of each.
pub fn run(
    job: &Job<'_>,
    measured: impl FnOnce(),
    tell: &Tell<'_>,
) -> Result<Found, ExperimentError> {
    let world = World::new(&job.profile.link, job.profile.terrestrial.as_ref(), job.seed)?;
    world.measure()?;
    measured();
    if let Some(bytes) = job.contender.receive_window() {
        let window = Tuning { receive_window_bytes: Some(bytes), ..Tuning::default() };
        world.tune_client(&window)?;
        world.tune_server(&window)?;
    }
    let origin = Origin::start(&world.server, SERVER.v4.into())?;
    let stage = Stage {
        world: &world,
        profile: job.profile,
        folder: job.folder,
        program: job.program,
        hosts: &[],
        settings: &toml::Table::new(),
    };
    let name = job.contender.name();
    let running = (job.contender.start(&stage))
        .map_err(|source| ExperimentError::Contender { contender: name, source })?;
    let congestion = job.contender.ends();
    let client = Client { route: Route::Direct, origin: origin.address(congestion), congestion };
    let mut fetching = Fetching { client, running };
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(EmuError::Thread)?;
    let drive = || runtime.block_on(drive(job, &world, &mut fetching, tell));
    let mut found = world.client.run(drive)??;
    let counters = world.radio_counters()?;
    if counters.unmodelled() > 0 {
        return Err(ExperimentError::Unmodelled(counters.unmodelled()));
    }
    found.punctuality = Punctuality::of(&counters);
    Ok(found)
}

/// A client, and the contender between it and the origin.
struct Fetching {
    client: Client,
    running: Box<dyn Running>,
}

/// The client's part: wait until the contender carries anything, then run after run.
async fn drive(
    job: &Job<'_>,
    world: &World,
    fetching: &mut Fetching,
    tell: &Tell<'_>,
) -> Result<Found, ExperimentError> {
    if job.contender.starts_cold() {
        warm_up(job, fetching).await?;
    }
    let sent = || Ok::<_, EmuError>(world.radio_counters()?.forward.model.offered.bytes);
    let (mut found, began) = (Found::default(), Instant::now());
    let (sent_before, mut longest) = (sent()?, Duration::ZERO);
    for index in 0..job.runs {
        let left = job.deadline.saturating_sub(began.elapsed());
        if index > 0 && left < longest {
            // It would most likely only be cut off.
            break;
        }
        let run_began = Instant::now();
        let outcome = tokio::select! {
            outcome = timeout(left, one_run(job, world, &fetching.client, index)) => outcome,
            () = stopped(job.stop) => break,
        };
        let took = run_began.elapsed();
        longest = longest.max(took);
        let sample = match outcome {
            Ok(Ok(Outcome { value, overhead })) => {
                found.overhead = overhead.or(found.overhead);
                Sample::Finished(value)
            }
            Ok(Err(Failure::Fetch(source @ FetchError::Damaged { .. }))) => {
                return Err(ExperimentError::Damaged { contender: job.contender.name(), source });
            }
            Ok(Err(failure)) => {
                found.failures.push(failure.to_string());
                Sample::Cut(took.as_secs_f64())
            }
            Err(_) => Sample::Cut(took.as_secs_f64()),
        };
        found.samples.0.push(sample);
        tell(sample);
        tokio::time::sleep(PAUSE).await;
    }
    if let Some(bytes) = job.workload.bytes()
        && found.samples.mean().is_some()
    {
        let delivered = bytes * found.samples.len() as u64;
        found.overhead = Some((sent()? - sent_before) as f64 / delivered as f64);
    }
    Ok(found)
}

/// Waits until `stop` is set.
async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks for a byte until it comes: gateways have a handshake before their first flow, and the
/// contest is between tunnels that are up.
async fn warm_up(job: &Job<'_>, fetching: &mut Fetching) -> Result<(), ExperimentError> {
    let (began, mut why) = (Instant::now(), String::new());
    while began.elapsed() < SILENCE {
        match timeout(ATTEMPT, fetching.client.fetch("/object/1")).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => {
                why = format!(" ({error})");
                tokio::time::sleep(PAUSE).await;
            }
            Err(_) => {}
        }
        if let Err(source) = fetching.running.check() {
            return Err(ExperimentError::Contender { contender: job.contender.name(), source });
        }
    }
    let (contender, seconds) = (job.contender.name(), SILENCE.as_secs());
    Err(ExperimentError::Silent { contender, seconds, why: why + &fetching.running.said() })
}

struct Outcome {
    value: f64,
    overhead: Option<f64>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Chromium(#[from] chromium::ChromiumError),
}

async fn one_run(
    job: &Job<'_>,
    world: &World,
    client: &Client,
    index: usize,
) -> Result<Outcome, Failure> {
    let took = match job.workload {
        Workload::Object { bytes, .. } => client.fetch(&format!("/object/{bytes}")).await?,
        Workload::Page { objects } => page::load(client, *objects).await?,
        Workload::Chromium { objects } => {
            let folder = job.folder.join(format!("chromium-{index}"));
            chromium::load(&world.client, client.origin, *objects, &folder).await?
        }
        Workload::Bulk => {
            let mut sent = Vec::new();
            let mark = || {
                let counters = world.radio_counters();
                sent.extend(counters.map(|counters| counters.forward.model.offered.bytes));
            };
            let stretch = bulk::run(client, job.profile.rtt(), job.bulk_length, mark).await?;
            let overhead = match sent[..] {
                [from, to] => Some((to - from) as f64 / stretch.bytes.max(1) as f64),
                _ => None,
            };
            return Ok(Outcome { value: stretch.goodput_bps(), overhead });
        }
    };
    Ok(Outcome { value: took.as_secs_f64(), overhead: None })
}
