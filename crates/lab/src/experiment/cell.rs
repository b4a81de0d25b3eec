//! One system under test with one workload, in a testbed that is measured first.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use tokio::time::timeout;

use super::stand::{Spec, Stand, Tunings};
use crate::browser::Browser;
use crate::emu::{EmuError, Lateness, Testbed};
use crate::profile::Profile;
use crate::result::{Sample, Samples};
use crate::system::SystemUnderTest;
use crate::workload::client::{Connection, HttpError};
use crate::workload::origin::Origin;
use crate::workload::{Workload, bulk, content, page};

/// Pause between two runs, so that acknowledgements and connection ends of one do not disturb the
/// next.
const PAUSE: Duration = Duration::from_millis(100);

/// Description of a job.
#[derive(Clone)]
pub struct Job<'a> {
    /// System under test.
    pub system: &'static dyn SystemUnderTest,
    /// Workload.
    pub workload: &'a Workload,
    /// Number of runs.
    pub runs: usize,
    /// Profile of the link.
    pub profile: &'a Profile,
    /// Seed of this testbed's losses.
    pub seed: u64,
    /// Maximum time of all runs together, from the beginning of the first.
    pub deadline: Duration,
    /// Measured length of a long download.
    pub bulk_length: Duration,
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// Existing empty folder for keys and configuration files.
    pub folder: &'a Path,
    /// Set when another job has failed, because the results of this one are then useless.
    pub stop: &'a AtomicBool,
}

/// Results of a job.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// One sample for each run: seconds, or bit/s for bulk.
    pub samples: Samples,
    /// IP bytes sent into the forward link per byte delivered, if all runs finished.
    pub overhead: Option<f64>,
    /// Descriptions of failed runs. Each failure is also a [`Sample::Cut`].
    pub failures: Vec<String>,
    /// Punctuality of the emulator.
    pub punctuality: Lateness,
}

/// Callback for each sample.
pub type Tell<'a> = dyn Fn(Sample) + Sync + 'a;

/// Brings up a stand, calls `measured` once its link is measured, and makes the runs. `tell`
/// receives each sample.
pub fn run(job: &Job<'_>, measured: impl FnOnce(), tell: &Tell<'_>) -> anyhow::Result<Found> {
    let Job { system, profile, seed, program, folder, .. } = *job;
    let spec = Spec {
        system,
        profile,
        beside: &[],
        granted: profile,
        seed,
        tunings: Tunings::default(),
        program,
        folder,
        hosts: &[],
        settings: &toml::Table::new(),
    };
    let stand = Stand::start(&spec, measured)?;
    let found =
        stand.testbed.client.block_on(async || drive(job, &stand.testbed, tell).await)??;
    Ok(Found { punctuality: stand.finish()?, ..found })
}

/// Makes run after run in the client.
async fn drive(job: &Job<'_>, testbed: &Testbed, tell: &Tell<'_>) -> anyhow::Result<Found> {
    let sent = || Ok::<_, EmuError>(testbed.radio_counters()?.forward.model.offered.bytes);
    let (mut found, began) = (Found::default(), Instant::now());
    let (sent_before, mut longest) = (sent()?, Duration::ZERO);
    for index in 0..job.runs {
        let left = job.deadline.saturating_sub(began.elapsed());
        if index > 0 && left < longest {
            // Another run would probably be cut off.
            break;
        }
        let run_began = Instant::now();
        let outcome = tokio::select! {
            outcome = timeout(left, one_run(job, testbed, index)) => outcome,
            () = stopped(job.stop) => break,
        };
        let took = run_began.elapsed();
        longest = longest.max(took);
        let sample = match outcome {
            Ok(Ok(Outcome { value, overhead })) => {
                found.overhead = overhead.or(found.overhead);
                Sample::Finished(value)
            }
            Ok(Err(failure)) if failure.downcast_ref().is_some_and(HttpError::is_damage) => {
                return Err(anyhow!("{}: {failure}", job.system));
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

struct Outcome {
    value: f64,
    overhead: Option<f64>,
}

async fn one_run(job: &Job<'_>, testbed: &Testbed, index: usize) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let took = match job.workload {
        Workload::Object { bytes, .. } => {
            Connection::open().await?.get(*bytes, &Cell::default()).await?;
            began.elapsed()
        }
        Workload::Page { objects } => {
            let tallies = vec![Cell::default(); page::CONNECTIONS.min(*objects)];
            let document = format!("/page/{objects}");
            page::load(&document, content::page_paths(*objects), &tallies).await?;
            began.elapsed()
        }
        Workload::Chromium { objects } => {
            let folder = job.folder.join(format!("chromium-{index}"));
            let url = format!("http://{}/page/{objects}", Origin::address());
            let (shell, flags) = (testbed.client.command("sh"), ["--disable-quic".to_owned()]);
            Browser::load_time(shell, &flags, &folder, &url).await?
        }
        Workload::Bulk => {
            let mut sent = Vec::new();
            let mark = || {
                let counters = testbed.radio_counters();
                sent.extend(counters.map(|counters| counters.forward.model.offered.bytes));
            };
            let stretch = bulk::run(job.profile.rtt(), job.bulk_length, mark).await?;
            let overhead = match sent[..] {
                [from, to] => Some((to - from) as f64 / stretch.bytes.max(1) as f64),
                _ => None,
            };
            return Ok(Outcome { value: stretch.goodput_bps(), overhead });
        }
    };
    Ok(Outcome { value: took.as_secs_f64(), overhead: None })
}
