//! Runs of the cells in virtual time.

use std::time::Duration;

use bentpipe_link::Settings;
use bentpipe_results::statistics::percentile;

use super::{Cell, Outcome, Play};
use crate::result::Sample;
use crate::sim::pair::Pair;
use crate::sim::parallel;
use crate::sim::trace::Digest;
use crate::sim::tunnel::Tunnel;

/// Sessions of a cell with objects.
const SESSIONS: u64 = 10;
/// Objects that warm up a session.
const WARM_OBJECTS: usize = 4;
const WARM_BYTES: u64 = 100_000;
/// Pause after an object, until nothing of it is in flight.
const QUIET: Duration = Duration::from_secs(4);
/// Time after which an object counts as lost.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time until a download is steady, and length of its measurement.
const STEADY: Duration = Duration::from_secs(30);
const MEASURED: Duration = Duration::from_secs(120);
/// Time from a request to the death of a path.
const DEATH: Duration = Duration::from_millis(200);
/// Interval at which gaps are looked for, time for which, and the latest beginning of a gap that the
/// death causes. Later ones are those of the losses of a single path.
const TICK: Duration = Duration::from_millis(5);
const WATCHED: Duration = Duration::from_secs(10);
const CAUSED: Duration = Duration::from_secs(2);
/// Bytes of the object whose path dies.
const REQUESTED_BYTES: u64 = 10_000;

/// Samples of one session.
#[derive(Debug, Default)]
struct Part {
    samples: Vec<Option<f64>>,
    sent_bytes: u64,
    delivered_bytes: u64,
}

/// Runs `cells` with `runs` objects in each session. `None` is the default number.
pub fn run(cells: &[Cell], runs: Option<usize>, seed: u64) -> Vec<Outcome> {
    let mut jobs = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let sessions = if cell.play == Play::Bulk { 3 } else { SESSIONS };
        jobs.extend((0..sessions).map(|session| (index, seed + 1000 * session)));
    }
    let parts = parallel::map(&jobs, |(index, seed)| one(&cells[*index], runs, *seed));
    let mut of_cells: Vec<Vec<Part>> = cells.iter().map(|_| Vec::new()).collect();
    for ((index, _), part) in jobs.iter().zip(parts) {
        of_cells[*index].push(part.unwrap_or(Part { samples: vec![None], ..Part::default() }));
    }
    cells.iter().zip(of_cells).map(|(cell, parts)| outcome(cell, &parts)).collect()
}

fn outcome(cell: &Cell, parts: &[Part]) -> Outcome {
    let samples: Vec<Option<f64>> = parts.iter().flat_map(|part| part.samples.clone()).collect();
    let mut values: Vec<f64> =
        samples.iter().map(|sample| sample.unwrap_or(f64::INFINITY)).collect();
    values.sort_by(f64::total_cmp);
    let p95 = percentile(&values, 0.95).unwrap_or(f64::INFINITY);
    let figure = match cell.play {
        Play::Object(bytes) => p95 / cell.bundle.limit_s(bytes),
        Play::DiesAfterRequest => p95,
        Play::Bulk => values.iter().sum::<f64>() / values.len() as f64 / cell.bundle.capacity_bps(),
        Play::DiesUnderBulk(_) => values.last().copied().unwrap_or(f64::INFINITY),
    };
    let sent: u64 = parts.iter().map(|part| part.sent_bytes).sum();
    let delivered: u64 = parts.iter().map(|part| part.delivered_bytes).sum();
    Outcome {
        cell: cell.clone(),
        figure: Some(figure).filter(|figure| figure.is_finite()),
        overhead: sent as f64 / delivered.max(1) as f64,
        samples: samples.len(),
    }
}

/// One session of a cell; `None` if it broke.
fn one(cell: &Cell, runs: Option<usize>, seed: u64) -> Option<Part> {
    let links = &cell.bundle.0;
    let pair = Pair::bundle(links, &Settings::default(), seed).with_digest(Digest::of_sizes());
    let mut tunnel = Tunnel::over(pair, &links[0]).ok()?;
    tunnel.pass(QUIET);
    for _ in 0..WARM_OBJECTS {
        finished(tunnel.fetch(WARM_BYTES, PATIENCE))?;
        tunnel.pass(QUIET);
    }
    let before = sent_bytes(&mut tunnel, links.len());
    let (samples, delivered_bytes) = match cell.play {
        Play::Object(bytes) => {
            objects(&mut tunnel, bytes, runs.unwrap_or(if bytes > 500_000 { 10 } else { 30 }))
        }
        Play::Bulk => bulk(&mut tunnel)?,
        Play::DiesAfterRequest => dies_after_request(&mut tunnel)?,
        Play::DiesUnderBulk(path) => dies_under_bulk(&mut tunnel, path)?,
    };
    let sent_bytes = sent_bytes(&mut tunnel, links.len()) - before;
    Some(Part { samples, sent_bytes, delivered_bytes })
}

fn finished(sample: Sample) -> Option<f64> {
    match sample {
        Sample::Finished(value) => Some(value),
        Sample::Cut(_) => None,
    }
}

/// Bytes offered to all links towards the aircraft.
fn sent_bytes(tunnel: &mut Tunnel, paths: usize) -> u64 {
    let counters = (0..paths).filter_map(|path| tunnel.pair().counters_of(path));
    counters.map(|(forward, _)| forward.offered.bytes).sum()
}

fn objects(tunnel: &mut Tunnel, bytes: u64, count: usize) -> (Vec<Option<f64>>, u64) {
    let samples: Vec<Option<f64>> = (0..count)
        .map(|_| {
            let sample = finished(tunnel.fetch(bytes, PATIENCE));
            tunnel.pass(QUIET);
            sample
        })
        .collect();
    let delivered = bytes * samples.iter().flatten().count() as u64;
    (samples, delivered)
}

/// Goodput of a download in bit/s. All that it delivered counts, as all that was sent does.
fn bulk(tunnel: &mut Tunnel) -> Option<(Vec<Option<f64>>, u64)> {
    let flow = tunnel.start_bulk()?;
    tunnel.pass(STEADY);
    let before = tunnel.bytes_read(flow);
    tunnel.pass(MEASURED);
    let after = tunnel.bytes_read(flow);
    Some((vec![Some(8.0 * (after - before) as f64 / MEASURED.as_secs_f64())], after))
}

fn dies_after_request(tunnel: &mut Tunnel) -> Option<(Vec<Option<f64>>, u64)> {
    let flow = tunnel.start(1, REQUESTED_BYTES)?;
    let began = tunnel.pair().now();
    tunnel.pass(DEATH);
    tunnel.pair().set_path_mtu(0, Some(0));
    let end = began + PATIENCE;
    while tunnel.bytes_read(flow) < REQUESTED_BYTES && tunnel.pair().now() < end {
        tunnel.pass(TICK);
    }
    let came = tunnel.bytes_read(flow) >= REQUESTED_BYTES;
    let took = (tunnel.pair().now() - began).as_secs_f64();
    Some((vec![came.then_some(took)], tunnel.bytes_read(flow)))
}

/// Longest time without a byte that begins soon after the death of a path.
fn dies_under_bulk(tunnel: &mut Tunnel, path: usize) -> Option<(Vec<Option<f64>>, u64)> {
    let flow = tunnel.start_bulk()?;
    tunnel.pass(STEADY);
    tunnel.pair().set_path_mtu(path, Some(0));
    let (mut read, mut at) = (tunnel.bytes_read(flow), tunnel.pair().now());
    let (end, caused) = (at + WATCHED, at + CAUSED);
    let mut longest = Duration::ZERO;
    while tunnel.pair().now() < end {
        tunnel.pass(TICK);
        let now = tunnel.pair().now();
        if at <= caused {
            longest = longest.max(now - at);
        }
        if tunnel.bytes_read(flow) > read {
            (read, at) = (tunnel.bytes_read(flow), now);
        }
    }
    Some((vec![Some(longest.as_secs_f64())], read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::two_radios::bundle::Bundle;

    /// Steps that 10 KB and 30 s take at most. A timer that nothing handles takes one per nanosecond.
    const MAX_STEPS: u32 = 2000;

    #[test]
    fn an_object_over_two_radios_takes_few_steps() {
        let links = Bundle::of_paper(1.0).expect("they have losses").0;
        let mut pair = Pair::bundle(&links, &Settings::default(), 1);
        let (end, mut flow, mut steps) = (Duration::from_secs(30), None, 0);
        while pair.now() < end {
            flow = flow.or_else(|| pair.open(b"x"));
            if let Some(at_hub) = pair.accept() {
                assert_eq!(pair.serve(at_hub, &[7; 10_000]), 10_000);
                pair.finish(at_hub);
            }
            pair.step_within(end);
            steps += 1;
            assert!(steps < MAX_STEPS, "{steps} steps until {:?}", pair.now());
        }
    }
}
