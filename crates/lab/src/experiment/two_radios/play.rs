//! Runs of the cells in either engine.

use std::time::Duration;

use anyhow::Context;
use bentpipe_link::Class;

use super::bundle::Death;
use super::call::{self, Heard};
use super::death::{self, dies_after_request, dies_under_bulk, returned};
use super::figures::{Part, outcome};
use super::flight;
use super::stage::{
    Cabin, NEIGHBOUR, PATIENCE, QUIET, Radios, STEADY, Stage, Start, WARM_BYTES, WARM_OBJECTS,
};
use super::{Cell, Outcome, Play};
use crate::experiment::engine::Engine;
use crate::experiment::pages::{self, Page};
use crate::experiment::runner;
use crate::profile::Profile;
use crate::result::Sample;
use crate::sim::parallel;
use crate::system::SystemUnderTest;
use crate::traffic::emu::FurtherRates;
use crate::traffic::{Carry, ENDLESS, Passing, REQUEST_BYTES};

/// Sessions of a cell.
const SESSIONS: u64 = 10;
/// The same with small objects: in bursts of losses, the 95th percentile of ten sessions differs by
/// a tenth from seed to seed.
const SESSIONS_OF_OBJECTS: u64 = 60;
/// Maximum size of a small object.
const SMALL_BYTES: u64 = 100_000;
/// The same if the figure is the ratio of two, which differ by chance.
const SESSIONS_OF_RATIOS: u64 = 30;
/// Loads of a page.
const PAGES: u64 = 20;
/// Sessions of a cell in the emulator, which takes real time.
const EMULATED_SESSIONS: u64 = 4;
/// Maximum concurrent testbeds. A bundle of the paper's links carries 2.4 Mbit/s, and each testbed has
/// as many threads with high priority as links.
const TESTBEDS_AT_ONCE: usize = 4;
/// Length of the measurement of a download.
const MEASURED: Duration = Duration::from_secs(120);
/// The same with cells that have edges: two of them. A flow whose request nobody reads ends after 600 s, and
/// the simulated server does not read it.
const THROUGH_EDGES: Duration = Duration::from_secs(500);
/// Interval at which the memory is measured.
const MEMORY_TICK: Duration = Duration::from_millis(50);

/// Number and seeds of the runs.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// Sessions of each cell. `None` is the default number.
    pub sessions: Option<u64>,
    /// Objects in each session. `None` is the default number.
    pub runs: Option<usize>,
    /// Seed of the first session.
    pub seed: u64,
    /// Origin of the rates at which the ground sends on paths besides the first.
    pub rates: FurtherRates,
    /// Baseline that crosses the emulated links instead of the gateways.
    pub baseline: Option<&'static dyn SystemUnderTest>,
}

impl Play {
    /// Time for which the goodput of a download is measured.
    fn measured(self) -> Duration {
        match self {
            Self::BulkThroughEdges => THROUGH_EDGES,
            Self::BulkInFlight => flight::CELL_TIME,
            _ => MEASURED,
        }
    }
}

/// Runs `cells`. A figure that is relative to the first path alone has twice the sessions.
///
/// # Errors
///
/// Returns an error if the emulator did not follow its model, or could not run.
pub fn run(cells: &[Cell], choice: Choice, engine: &Engine<'_>) -> anyhow::Result<Vec<Outcome>> {
    let ways = |cell: &Cell| if cell.play.is_relative() { 2 } else { 1 };
    let counts = cells.iter().map(|cell| {
        let sessions = choice.sessions.unwrap_or_else(|| sessions(cell.play, engine));
        sessions as usize * ways(cell)
    });
    let threads = match engine {
        Engine::Sim => parallel::processors(),
        Engine::Emu(_) => TESTBEDS_AT_ONCE,
    };
    let found = runner::sessions(threads, &counts.collect::<Vec<_>>(), |index, session| {
        let cell = &cells[index];
        let seed = choice.seed + 1000 * (session / ways(cell)) as u64;
        let is_alone = session % ways(cell) == 1;
        let links = if is_alone { cell.bundle.only(0) } else { cell.bundle.clone() };
        let part = one(cell.play, &links.0, &choice, seed, engine);
        anyhow::Ok((is_alone, part.with_context(|| format!("{}, seed {seed}", cell.name))?))
    });
    let outcomes = cells.iter().zip(found).map(|(cell, found)| {
        let mut parts: [Vec<Part>; 2] = Default::default();
        for one in found {
            let (is_alone, part) = one?;
            parts[usize::from(is_alone)].push(part);
        }
        Ok(outcome(cell, &parts))
    });
    outcomes.collect()
}

/// Default number of sessions.
fn sessions(play: Play, engine: &Engine<'_>) -> u64 {
    match (engine, play) {
        (Engine::Emu(_), _) => EMULATED_SESSIONS,
        (_, Play::Bulk | Play::BulkAfter(..) | Play::Memory) => 3,
        (_, Play::BulkThroughEdges | Play::BulkInFlight) => 3,
        (_, Play::Reports | Play::ReportsOn(_)) => 3,
        (_, Play::Page | Play::PageAgainstOne) => PAGES,
        (_, Play::UselessForObject(_)) => SESSIONS_OF_RATIOS,
        (_, Play::DiesAfterRequest(_)) => SESSIONS_OF_OBJECTS,
        (_, Play::Object(bytes)) if bytes <= SMALL_BYTES => SESSIONS_OF_OBJECTS,
        _ => SESSIONS,
    }
}

/// One session of a cell. In virtual time, a session that broke has one sample that did not end.
fn one(
    play: Play,
    links: &[Profile],
    choice: &Choice,
    seed: u64,
    engine: &Engine<'_>,
) -> anyhow::Result<Part> {
    let rates = if play.is_in_flight() { FurtherRates::Learned } else { choice.rates };
    let start = Start { engine, baseline: choice.baseline, links, rates, seed };
    if let Play::CallLost(dies) | Play::CallDelay(dies) = play {
        return call(play, &start, dies);
    }
    if let Play::Page | Play::PageAgainstOne | Play::PageSlower = play {
        let time_s = pages::time_over(links, rates, Page::LARGE, seed)?;
        return Ok(Part { samples: vec![Some(time_s)], ..Part::default() });
    }
    if play == Play::Memory {
        let most = memory(start.cabin()?.as_mut());
        return Ok(Part { samples: vec![Some(most as f64 / products(links))], ..Part::default() });
    }
    let mut stage = match (start.stage(), engine) {
        (Err(_), Engine::Sim) => return Ok(Part::broken()),
        (stage, _) => stage?,
    };
    let part = played(stage.as_mut(), play, links, choice.runs);
    stage.finish()?;
    Ok(part.unwrap_or_else(Part::broken))
}

/// One call.
fn call(play: Play, start: &Start<'_>, dies: usize) -> anyhow::Result<Part> {
    let (links, mut cabin) = (start.links, start.cabin()?);
    let before = sent_bytes(cabin.as_mut(), links.len());
    let heard = call::play(cabin.as_mut(), links, dies, start.seed);
    let sent_bytes = sent_bytes(cabin.as_mut(), links.len()) - before;
    cabin.finish()?;
    let Some(Heard { lost, added_s, delivered_bytes }) = heard else { return Ok(Part::broken()) };
    let values = if matches!(play, Play::CallLost(_)) { lost } else { added_s };
    let samples = values.into_iter().map(Some).collect();
    Ok(Part { samples, sent_bytes, delivered_bytes })
}

/// Maximum bytes in the memory of an end during a download.
fn memory(cabin: &mut dyn Cabin) -> u64 {
    let (class, down) = (Class::BestEffort, ENDLESS);
    cabin.open(Carry { class, passenger: NEIGHBOUR, up: REQUEST_BYTES, down });
    let (mut most, end) = (0, cabin.now() + STEADY + MEASURED);
    while cabin.now() < end {
        cabin.pass(MEMORY_TICK);
        let of_ends = cabin.counted().sent.map(|end| end.held_bytes + end.coded_bytes);
        most = most.max(of_ends[0]).max(of_ends[1]);
    }
    most
}

/// Sum of the links' rates times the longest round trip, in bytes.
fn products(links: &[Profile]) -> f64 {
    let rates = links.iter().filter_map(|link| link.link.forward.rate());
    let bps: u64 = rates.map(|rate| rate.bps()).sum();
    let rtts = links.iter().map(|link| link.rtt().as_secs_f64());
    bps as f64 / 8.0 * rtts.fold(0.0, f64::max)
}

/// The part of a session after its start; `None` if it broke.
fn played(
    stage: &mut dyn Stage,
    play: Play,
    links: &[Profile],
    runs: Option<usize>,
) -> Option<Part> {
    stage.pass(QUIET);
    for _ in 0..WARM_OBJECTS {
        finished(stage.fetch(WARM_BYTES, PATIENCE))?;
        stage.pass(QUIET);
    }
    let before = sent_bytes(stage, links.len());
    let (samples, delivered_bytes) = match play {
        Play::Object(bytes) | Play::UselessForObject(bytes) => {
            objects(stage, bytes, runs.unwrap_or(if bytes > 500_000 { 10 } else { 30 }))
        }
        Play::ObjectBesideBulk(bytes) => {
            let download = stage.start(Class::BestEffort, NEIGHBOUR, ENDLESS)?;
            stage.pass(STEADY);
            let (samples, delivered) = objects(stage, bytes, runs.unwrap_or(30));
            (samples, delivered + stage.bytes_read(download))
        }
        Play::Bulk | Play::UselessForBulk | Play::BulkThroughEdges | Play::BulkInFlight => {
            bulk(stage, play.measured())?
        }
        Play::BulkAfter(path, death) => {
            stage.kill(path, death);
            bulk(stage, MEASURED)?
        }
        Play::Reports => reports(stage, links)?,
        Play::ReportsOn(path) => reports_on(stage, path, &links[path])?,
        Play::DiesAfterRequest(class) => dies_after_request(stage, class)?,
        Play::CallLost(_)
        | Play::CallDelay(_)
        | Play::Page
        | Play::PageAgainstOne
        | Play::PageSlower
        | Play::Memory => return None,
        Play::DiesUnderBulk(path, death) => dies_under_bulk(stage, path, death)?,
        Play::Edges => death::edges(stage)?,
        Play::Flight => death::in_flight(stage, flight::CELL_TIME)?,
        Play::Returns(path, death) => {
            returned(stage, (path, death), &links[path], |it| Some(it.used_s))?
        }
        Play::Recovers(path) => {
            returned(stage, (path, Death::Silent), &links[path], |it| it.full_rtts)?
        }
        Play::ReturnsUnnoticed(path) => {
            returned(stage, (path, Death::Silent), &links[path], |it| Some(it.gap_s))?
        }
    };
    let sent_bytes = sent_bytes(stage, links.len()) - before;
    Some(Part { samples, sent_bytes, delivered_bytes })
}

fn finished(sample: Sample) -> Option<f64> {
    match sample {
        Sample::Finished(value) => Some(value),
        Sample::Cut(_) => None,
    }
}

/// Bytes offered to all links towards the aircraft.
fn sent_bytes<R: Radios + ?Sized>(radios: &mut R, paths: usize) -> u64 {
    (0..paths).map(|path| radios.sent_bytes(path)).sum()
}

fn objects(stage: &mut dyn Stage, bytes: u64, count: usize) -> (Vec<Option<f64>>, u64) {
    let samples: Vec<Option<f64>> = (0..count)
        .map(|_| {
            let sample = finished(stage.fetch(bytes, PATIENCE));
            stage.pass(QUIET);
            sample
        })
        .collect();
    let delivered = bytes * samples.iter().flatten().count() as u64;
    (samples, delivered)
}

/// Goodput of a download in bit/s. All that it delivered counts, as all that was sent does.
fn bulk(stage: &mut dyn Stage, measured: Duration) -> Option<(Vec<Option<f64>>, u64)> {
    let flow = stage.start(Class::BestEffort, NEIGHBOUR, ENDLESS)?;
    stage.pass(STEADY);
    let before = stage.bytes_read(flow);
    stage.pass(measured);
    let after = stage.bytes_read(flow);
    let bytes = after.checked_sub(before)?;
    Some((vec![Some(8.0 * bytes as f64 / measured.as_secs_f64())], after))
}

/// Bytes back on all paths per byte towards the aircraft, during a download.
fn reports(stage: &mut dyn Stage, links: &[Profile]) -> Option<(Vec<Option<f64>>, u64)> {
    let download = stage.start(Class::BestEffort, NEIGHBOUR, ENDLESS)?;
    stage.pass(STEADY);
    let count = |stage: &mut dyn Stage| {
        let back: u64 = (0..links.len()).map(|path| stage.returned_bytes(path)).sum();
        [sent_bytes(stage, links.len()), back]
    };
    let before = count(stage);
    stage.pass(MEASURED);
    let after = count(stage);
    let [sent, back] = [0, 1].map(|way| (after[way] - before[way]) as f64);
    Some((vec![Some(back / sent)], stage.bytes_read(download)))
}

/// Share of the rate back of a path that is used during a download.
fn reports_on(
    stage: &mut dyn Stage,
    path: usize,
    link: &Profile,
) -> Option<(Vec<Option<f64>>, u64)> {
    let download = stage.start(Class::BestEffort, NEIGHBOUR, ENDLESS)?;
    stage.pass(STEADY);
    let before = stage.returned_bytes(path);
    stage.pass(MEASURED);
    let bytes = stage.returned_bytes(path) - before;
    let possible = link.link.return_.rate()?.bytes_in(MEASURED);
    Some((vec![Some(bytes as f64 / possible as f64)], stage.bytes_read(download)))
}

#[cfg(test)]
mod tests {
    use bentpipe_link::Settings;

    use super::*;
    use crate::experiment::two_radios::bundle::Bundle;
    use crate::sim::pair::Pair;

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
