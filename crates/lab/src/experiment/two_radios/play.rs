//! Runs of the cells in virtual time.

use std::time::Duration;

use bentpipe_link::Settings;
use bentpipe_results::statistics::percentile;

use super::{Cell, Outcome, Play};
use crate::profile::Profile;
use crate::result::Sample;
use crate::sim::pair::Pair;
use crate::sim::parallel;
use crate::sim::trace::Digest;
use crate::sim::tunnel::Tunnel;

/// Sessions of a cell.
const SESSIONS: u64 = 10;
/// The same with small objects: in bursts of losses, the 95th percentile of ten sessions differs by
/// a tenth from seed to seed.
const SESSIONS_OF_OBJECTS: u64 = 60;
/// Maximum size of a small object.
const SMALL_BYTES: u64 = 100_000;
/// The same if the figure is the ratio of two, which differ by chance.
const SESSIONS_OF_RATIOS: u64 = 30;
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
/// Time for which a path is dead before it returns.
const DEAD: Duration = Duration::from_secs(20);
/// Time in which a path that returned should be in use again.
const RETURNED: Duration = Duration::from_secs(30);
/// Packet times in which two packets show that a path carries data again, and the share of its rate
/// over a round trip that counts as all of it.
const DATA_PACKET_TIMES: f64 = 4.0;
const FULL_SHARE: f64 = 0.9;
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
        let sessions = match cell.play {
            Play::Bulk => 3,
            Play::UselessForObject(_) => SESSIONS_OF_RATIOS,
            Play::Object(bytes) if bytes <= SMALL_BYTES => SESSIONS_OF_OBJECTS,
            _ => SESSIONS,
        };
        let alone = if cell.play.is_relative() { 2 } else { 1 };
        let seeds = (0..sessions).map(|session| seed + 1000 * session);
        jobs.extend(seeds.flat_map(|seed| (0..alone).map(move |alone| (index, seed, alone == 1))));
    }
    let parts = parallel::map(&jobs, |(index, seed, alone)| {
        let cell = &cells[*index];
        let links = if *alone { cell.bundle.only(0) } else { cell.bundle.clone() };
        one(cell.play, &links.0, runs, *seed)
    });
    let mut of_cells: Vec<[Vec<Part>; 2]> = cells.iter().map(|_| Default::default()).collect();
    for ((index, _, alone), part) in jobs.iter().zip(parts) {
        let broken = Part { samples: vec![None], ..Part::default() };
        of_cells[*index][usize::from(*alone)].push(part.unwrap_or(broken));
    }
    cells.iter().zip(of_cells).map(|(cell, parts)| outcome(cell, &parts)).collect()
}

fn outcome(cell: &Cell, [parts, alone]: &[Vec<Part>; 2]) -> Outcome {
    let (values, reference) = (sorted(parts), sorted(alone));
    let p95 = |values: &[f64]| percentile(values, 0.95).unwrap_or(f64::INFINITY);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let figure = match cell.play {
        Play::Object(bytes) => p95(&values) / cell.bundle.limit_s(bytes),
        Play::UselessForObject(_) => p95(&values) / p95(&reference),
        Play::DiesAfterRequest => p95(&values),
        Play::Bulk => mean(&values) / cell.bundle.capacity_bps(),
        Play::UselessForBulk => mean(&values) / mean(&reference),
        Play::DiesUnderBulk(_)
        | Play::Returns(_)
        | Play::Recovers(_)
        | Play::ReturnsUnnoticed(_) => values.last().copied().unwrap_or(f64::INFINITY),
    };
    let sent: u64 = parts.iter().map(|part| part.sent_bytes).sum();
    let delivered: u64 = parts.iter().map(|part| part.delivered_bytes).sum();
    Outcome {
        cell: cell.clone(),
        figure: Some(figure).filter(|figure| figure.is_finite()),
        overhead: sent as f64 / delivered.max(1) as f64,
        samples: values.len(),
    }
}

/// Samples of all sessions, ascending. One that did not end is infinite.
fn sorted(parts: &[Part]) -> Vec<f64> {
    let samples = parts.iter().flat_map(|part| &part.samples);
    let mut values: Vec<f64> = samples.map(|sample| sample.unwrap_or(f64::INFINITY)).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// One session of a cell; `None` if it broke.
fn one(play: Play, links: &[Profile], runs: Option<usize>, seed: u64) -> Option<Part> {
    let pair = Pair::bundle(links, &Settings::default(), seed).with_digest(Digest::of_sizes());
    let mut tunnel = Tunnel::over(pair, &links[0]).ok()?;
    tunnel.pass(QUIET);
    for _ in 0..WARM_OBJECTS {
        finished(tunnel.fetch(WARM_BYTES, PATIENCE))?;
        tunnel.pass(QUIET);
    }
    let before = sent_bytes(&mut tunnel, links.len());
    let (samples, delivered_bytes) = match play {
        Play::Object(bytes) | Play::UselessForObject(bytes) => {
            objects(&mut tunnel, bytes, runs.unwrap_or(if bytes > 500_000 { 10 } else { 30 }))
        }
        Play::Bulk | Play::UselessForBulk => bulk(&mut tunnel)?,
        Play::DiesAfterRequest => dies_after_request(&mut tunnel)?,
        Play::DiesUnderBulk(path) => dies_under_bulk(&mut tunnel, path)?,
        Play::Returns(path) => returned(&mut tunnel, path, &links[path], |it| Some(it.used_s))?,
        Play::Recovers(path) => returned(&mut tunnel, path, &links[path], |it| it.full_rtts)?,
        Play::ReturnsUnnoticed(path) => {
            returned(&mut tunnel, path, &links[path], |it| Some(it.gap_s))?
        }
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

/// The return of a path.
#[derive(Debug, Default)]
struct Return {
    /// Time until it carried data.
    used_s: f64,
    /// Round trips from then until it carried its full rate.
    full_rtts: Option<f64>,
    /// Longest time without a byte of the download.
    gap_s: f64,
}

/// A figure of the return of a path that was dead for a while under a download.
fn returned(
    tunnel: &mut Tunnel,
    path: usize,
    link: &Profile,
    figure: impl Fn(&Return) -> Option<f64>,
) -> Option<(Vec<Option<f64>>, u64)> {
    let flow = tunnel.start_bulk()?;
    tunnel.pass(STEADY);
    tunnel.pair().set_path_mtu(path, Some(0));
    tunnel.pass(DEAD);
    tunnel.pair().set_path_mtu(path, None);
    let bps = link.link.forward.rate()?.bps() as f64;
    let packet_s = 8.0 * link_mtu() / bps;
    let (began, rtt_s) = (tunnel.pair().now(), link.rtt().as_secs_f64());
    let offered = |tunnel: &mut Tunnel| {
        tunnel.pair().counters_of(path).map_or(0, |(forward, _)| forward.offered.bytes) as f64
    };
    // Bytes offered to the path, by tick.
    let mut sent = vec![offered(tunnel)];
    let (mut read, mut at, mut gap) = (tunnel.bytes_read(flow), began, Duration::ZERO);
    while tunnel.pair().now() < began + RETURNED {
        tunnel.pass(TICK);
        sent.push(offered(tunnel));
        let now = tunnel.pair().now();
        if now < began + WATCHED {
            gap = gap.max(now - at);
        }
        if tunnel.bytes_read(flow) > read {
            (read, at) = (tunnel.bytes_read(flow), now);
        }
    }
    let within = |from: usize, time_s: f64| {
        let end = from + (time_s / TICK.as_secs_f64()).ceil() as usize;
        sent.get(end).map(|bytes| bytes - sent[from])
    };
    let is_data = |from: &usize| {
        within(*from, DATA_PACKET_TIMES * packet_s).is_some_and(|it| it > 1.5 * link_mtu())
    };
    let used = (0..sent.len()).find(is_data)?;
    let is_full = |from: &usize| {
        within(*from, rtt_s).is_some_and(|bytes| 8.0 * bytes >= FULL_SHARE * bps * rtt_s)
    };
    let full = (used..sent.len()).find(is_full);
    let ticks_s = |ticks: usize| ticks as f64 * TICK.as_secs_f64();
    let full_rtts = full.map(|full| ticks_s(full - used) / rtt_s);
    let found = Return { used_s: ticks_s(used), full_rtts, gap_s: gap.as_secs_f64() };
    Some((vec![figure(&found)], read))
}

/// Bytes of a full packet.
fn link_mtu() -> f64 {
    Settings::default().mtu_bytes as f64
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
