//! Rough duration of a run, to start the longest first and to estimate the remaining time.

use std::time::Duration;

use bentpipe_lab::system::{self, Spread};
use bentpipe_results::{Content, Workload};

use crate::job::Job;
use crate::link::{Scene, duration};

/// Setup of a testbed: its start, the measurement of its link, and the start of the system under
/// test.
pub const TESTBED: Duration = Duration::from_secs(12);

/// Payload of a TCP segment, in bits.
const SEGMENT_BITS: f64 = 8.0 * 1448.0;
/// Constant of TCP's rate under random loss: segment × C / (RTT × √p) (Mathis et al. 1997).
const MATHIS: f64 = 1.2;
/// Objects that HTTP/1.1 fetches in parallel.
const AT_ONCE: f64 = 6.0;
/// Chromium's start and its first paint, in seconds.
const BROWSER: f64 = 4.0;

/// Estimates one run of a cell, limited by its deadline.
pub fn run(job: &Job<'_>, scene: &Scene) -> Duration {
    let up = job.planned.cell.on("direction") == Some("up");
    let seconds = match job.grid.workload {
        Workload::MeasureLink => 1.0,
        Workload::Bulk => span(job, "warm") + span(job, "measured"),
        Workload::Mixed | Workload::Call => span(job, "length"),
        Workload::RuralPolicy => 300.0,
        Workload::Files => transfer(job, scene, up, connections(job)),
        Workload::Sequence => transfer(job, scene, up, 1.0),
        Workload::Page | Workload::Archive => page(job, scene),
    };
    Duration::from_secs_f64(seconds.clamp(1.0, job.planned.deadline.as_secs_f64()))
}

fn span(job: &Job<'_>, key: &'static str) -> f64 {
    duration(job.grid, key).ok().flatten().map_or(0.0, |span| span.as_secs_f64())
}

fn connections(job: &Job<'_>) -> f64 {
    job.whole("connections").unwrap_or(1) as f64
}

/// Returns the bytes and the number of objects of the cell's page.
fn content(job: &Job<'_>) -> (f64, f64) {
    match job.page().map(|page| page.content) {
        Some(Content::Objects { count, bytes }) => (f64::from(count) * bytes as f64, count.into()),
        Some(Content::Site { kilobytes, requests, .. }) => (1e3 * kilobytes, requests),
        Some(Content::Mix) | None => (0.0, 1.0),
    }
}

/// Total rate of these connections, bit/s.
fn rate(job: &Job<'_>, scene: &Scene, up: bool, connections: f64) -> f64 {
    let (loss, rtt) = (scene.loss(up), scene.rtt().as_secs_f64().max(1e-3));
    let link = scene.rate_bps(up) * (1.0 - loss) * scene.fair_share();
    // A system that does not exist has no runs.
    let system = system::named(job.system()).ok();
    let slows_down = system.is_some_and(|system| system.spread() == Spread::Slow);
    let bound = if !slows_down || loss <= 0.0 {
        f64::INFINITY
    } else {
        connections * SEGMENT_BITS * MATHIS / (rtt * loss.sqrt())
    };
    let window = system.and_then(|system| system.receive_window());
    let window = window.map_or(bound, |bytes| connections * 8.0 * f64::from(bytes) / rtt);
    link.min(bound).min(window).max(1e3)
}

fn transfer(job: &Job<'_>, scene: &Scene, up: bool, connections: f64) -> f64 {
    let (bytes, _) = content(job);
    let others = if scene.changes.cross_flows.unwrap_or(0) > 0 { 20.0 } else { 0.0 };
    let bits = 8.0 * bytes * if job.grid.workload == Workload::Files { connections } else { 1.0 };
    others + 6.0 * scene.rtt().as_secs_f64() + bits / rate(job, scene, up, connections)
}

fn page(job: &Job<'_>, scene: &Scene) -> f64 {
    let (bytes, objects) = content(job);
    let rtt = scene.rtt().as_secs_f64();
    let protocol = job.planned.cell.on("protocol").unwrap_or_default();
    let (trips, connections) = match protocol {
        "http/1.1-close" => (2.0 * objects / AT_ONCE, AT_ONCE),
        _ if protocol.starts_with("http/1.1") => (objects / AT_ONCE, AT_ONCE),
        _ => (0.0, 1.0),
    };
    let browser = match job.planned.cell.on("loader") {
        // A repeat view requests only the document.
        Some("chromium") if job.grid.metrics.iter().any(|metric| metric == "repeat-plt") => {
            2.0 * BROWSER + 3.0 * rtt
        }
        Some("chromium") => BROWSER,
        _ => 0.0,
    };
    let visits =
        if protocol.ends_with("0rtt") || protocol.ends_with("resumed") { 2.0 } else { 1.0 };
    let sending = 8.0 * bytes / rate(job, scene, false, connections);
    visits * (browser + rtt * (6.0 + trips) + sending)
}
