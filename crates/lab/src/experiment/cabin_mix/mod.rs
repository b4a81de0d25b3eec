//! A cabin of fifty passengers: pages, films, messages, calls, downloads and one heavy user at
//! once, and the service that each of them gets.

mod habits;

use std::time::Duration;

use bentpipe_link::Class;
use bentpipe_results::statistics::jain;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::choice::Choice;
use super::report::{Goal, Report, delay, percent, row};
use super::table::{align, megabits, table, written};
use crate::experiment::call::speech::{GAP, LATEST, speech};
use crate::experiment::engine::Engine;
use crate::profile::Profile;
use crate::result::{Row, Sample, Samples};
use crate::traffic::{ClassLimits, DOWN, Passing, Traffic, UP};
use crate::workload::content::page_bytes;
use habits::{Kind, MESSAGE_BYTES, PAGE_OBJECTS, Passenger, RECEIPT_BYTES, SEGMENT_BYTES};

/// Default link. Fifty passengers, some with films, can share it.
pub const DEFAULT_PROFILE: &str = "geo-satl";
/// Default number of runs.
pub const DEFAULT_RUNS: u16 = 2;
/// Default length of each measurement.
pub const DEFAULT_LENGTH: Duration = Duration::from_secs(120);

/// Warm-up before the measurement: a page's reading time, which desynchronizes the passengers.
const WARM: Duration = Duration::from_secs(30);
/// Time for jobs that began during the measurement to finish.
const PATIENCE: Duration = Duration::from_secs(60);
/// Tolerance of the heavy user's rate against other downloads'.
const HOG_TOLERANCE: f64 = 0.05;
/// Minimum of Jain's index among passengers with backlogged traffic.
const MIN_JAIN: f64 = 0.98;

/// Result of one passenger in one run.
struct Found {
    kind: Kind,
    bps: f64,
    took: Vec<Sample>,
    /// Fraction of the film's time during which it stalled.
    stalled: f64,
    /// Number of late segments.
    late: usize,
    /// Delays beyond propagation of a call's packets, towards the aircraft and from it. Late
    /// packets count as lost.
    waits: [Samples; 2],
}

/// Results of a run's passengers, by number.
type Cabinful = Vec<Found>;

/// Runs the experiment.
pub fn run(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    let runs = engine.map(&choice.profile, &choice.seeds(), |&seed| {
        let one = |cabin: &mut dyn Traffic| one(choice, cabin, seed);
        engine.carry(&choice.profile, &ClassLimits::default(), seed, one)
    });
    let runs: Vec<Cabinful> = runs.into_iter().collect::<Result<_, _>>()?;
    let report =
        Report { text: text(choice, &runs), rows: rows(choice, &runs), goals: goals(&runs) };
    Ok(report.found_by(engine.name()))
}

fn one(choice: &Choice, cabin: &mut dyn Traffic, seed: u64) -> Cabinful {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let kinds = Kind::ALL.iter().flat_map(|&kind| (0..kind.passengers()).map(move |_| kind));
    let passenger = |(number, kind)| Passenger::new(kind, number, ChaCha8Rng::from_rng(&mut rng));
    let mut passengers: Vec<_> = (1..).zip(kinds).map(passenger).collect();
    let packets = ((WARM + choice.length).as_nanos() / GAP.as_nanos()) as usize;
    let mut calls = Vec::new();
    for (number, passenger) in (1..).zip(&mut passengers) {
        passenger.settle(cabin);
        if passenger.kind == Kind::Call {
            let mut talk = speech(Class::Network, number, packets, seed + u64::from(number));
            talk.phase = GAP.mul_f64(rng.random());
            calls.push((number, cabin.talk(talk)));
        }
    }
    let from = cabin.now() + WARM;
    live(cabin, &mut passengers, from, false);
    let before = bytes(cabin, &passengers);
    let to = from + choice.length;
    live(cabin, &mut passengers, to, true);
    let after = bytes(cabin, &passengers);
    while cabin.now() < to + PATIENCE && passengers.iter().any(Passenger::is_busy) {
        let end = cabin.now() + Duration::from_secs(1);
        live(cabin, &mut passengers, end, false);
    }
    cabin.pass(2 * choice.profile.rtt());
    let now = cabin.now();
    passengers.iter_mut().for_each(|passenger| passenger.stop(now));
    let found = (1..).zip(passengers).zip(after.iter().zip(&before));
    found
        .map(|((number, passenger), (after, before))| {
            let call = calls.iter().find(|(of, _)| *of == number).map(|(_, call)| *call);
            Found {
                kind: passenger.kind,
                bps: 8.0 * (after - before) as f64 / choice.length.as_secs_f64(),
                took: passenger.took,
                stalled: passenger.stalled.as_secs_f64() / choice.length.as_secs_f64(),
                late: passenger.late,
                waits: call.map_or_else(Default::default, |call| {
                    [DOWN, UP].map(|way| heard(choice, cabin, call, way, from..to))
                }),
            }
        })
        .collect()
}

/// Lets all passengers act until `end`.
fn live(cabin: &mut dyn Traffic, passengers: &mut [Passenger], end: Duration, measured: bool) {
    while cabin.now() < end {
        passengers.iter_mut().for_each(|passenger| passenger.act(cabin, measured));
        let next = passengers.iter().filter_map(Passenger::next_at).min().unwrap_or(end);
        cabin.step(next.max(cabin.now()).min(end));
    }
}

/// Bytes received by each passenger.
fn bytes(cabin: &dyn Traffic, passengers: &[Passenger]) -> Vec<u64> {
    let of = |passenger: &Passenger| -> u64 {
        passenger.streams.iter().map(|&stream| cabin.course(stream).got[DOWN]).sum()
    };
    passengers.iter().map(of).collect()
}

/// Delays of a call's packets beyond propagation. A packet that arrives too late for the listener
/// counts as lost.
fn heard(
    choice: &Choice,
    cabin: &dyn Traffic,
    call: usize,
    way: usize,
    during: std::ops::Range<Duration>,
) -> Samples {
    let link = &choice.profile.link;
    let propagation = [&link.forward, &link.return_][way].mean_delay();
    let transits = cabin.transits(call, way).into_iter();
    let sent = transits.filter(|(left, _)| during.contains(left));
    let wait = |transit: Option<Duration>| {
        let wait = transit.map(|transit| transit.saturating_sub(propagation));
        let in_time = wait.filter(|wait| *wait <= LATEST);
        in_time.map_or(Sample::Cut(0.0), |wait| Sample::Finished(wait.as_secs_f64()))
    };
    Samples(sent.map(|(_, transit)| wait(transit)).collect())
}

/// Minimum time of a kind's job on an idle link.
fn limit(profile: &Profile, kind: Kind) -> Option<f64> {
    let upload = || Some(profile.link.return_.rate()?.time_for(MESSAGE_BYTES));
    let limit = match kind {
        // The objects are known one round trip later.
        Kind::Pages => profile.forward_limit(page_bytes(PAGE_OBJECTS))? + profile.rtt(),
        Kind::Video => profile.forward_limit(SEGMENT_BYTES)?,
        Kind::Messages => profile.forward_limit(RECEIPT_BYTES)? + upload()?,
        Kind::Call | Kind::Download | Kind::Hog => return None,
    };
    Some(limit.as_secs_f64())
}

/// Fair share of a run: the mean rate of the passengers with backlogged traffic.
fn fair_bps(run: &Cabinful) -> f64 {
    let all: Vec<_> =
        run.iter().filter(|one| one.kind.is_backlogged()).map(|one| one.bps).collect();
    all.iter().sum::<f64>() / all.len() as f64
}

/// All results of a kind.
fn of(runs: &[Cabinful], kind: Kind) -> impl Iterator<Item = &Found> {
    runs.iter().flatten().filter(move |found| found.kind == kind)
}

fn took(runs: &[Cabinful], kind: Kind) -> Samples {
    Samples(of(runs, kind).flat_map(|found| found.took.iter().copied()).collect())
}

fn waits(runs: &[Cabinful], way: usize) -> Samples {
    Samples(of(runs, Kind::Call).flat_map(|found| found.waits[way].0.iter().copied()).collect())
}

/// Fraction of packets that never arrived, or arrived too late.
fn residual(waits: &Samples) -> f64 {
    let lost = waits.0.iter().filter(|wait| matches!(wait, Sample::Cut(_))).count();
    lost as f64 / waits.len().max(1) as f64
}

/// For each run: the heavy user's rate ÷ the mean of the other downloads', and Jain's index over
/// all of them.
fn among_backlogged(runs: &[Cabinful]) -> [Samples; 2] {
    let rates = |run: &Cabinful, kind| -> Vec<f64> {
        run.iter().filter(|one| one.kind == kind).map(|one| one.bps).collect()
    };
    let figures = runs.iter().map(|run| {
        let (hog, others) = (rates(run, Kind::Hog), rates(run, Kind::Download));
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        (hog[0] / mean, jain([hog, others].concat()))
    });
    let (hog, index): (Vec<_>, Vec<_>) = figures.unzip();
    [hog.into_iter().collect(), index.into_iter().collect()]
}

fn goals(runs: &[Cabinful]) -> Vec<Goal> {
    let [hog, index] = among_backlogged(runs).map(|samples| samples.mean());
    let name = "hog with 32 connections off a download with 1";
    vec![
        Goal::off_by_at_most(name, hog, HOG_TOLERANCE),
        Goal::ratio_at_least("Jain's index among the backlogged", index, MIN_JAIN),
    ]
}

fn rows(choice: &Choice, runs: &[Cabinful]) -> Vec<Row> {
    let new = |workload: String, metric: &str| {
        row("cabin-mix", &choice.profile, workload, metric, choice.seed)
    };
    let mut rows = Vec::new();
    for (kind, metric) in
        [(Kind::Pages, "plt"), (Kind::Video, "completion"), (Kind::Messages, "completion")]
    {
        let row = new(kind.name().into(), metric);
        rows.push(took(runs, kind).fill(Row { limit: limit(&choice.profile, kind), ..row }));
    }
    let stalled: Samples = of(runs, Kind::Video).map(|found| found.stalled).collect();
    rows.push(stalled.fill(new(Kind::Video.name().into(), "stalled")));
    for (name, way) in [("down", DOWN), ("up", UP)] {
        let waits = waits(runs, way);
        rows.push(waits.fill(new(format!("call, {name}"), "delay")));
        let residual: Samples = [residual(&waits)].into_iter().collect();
        rows.push(residual.fill(new(format!("call, {name}"), "residual-loss")));
    }
    for number in 0..runs.first().map_or(0, Vec::len) {
        let kind = runs[0][number].kind;
        let shares: Samples = runs.iter().map(|run| run[number].bps / fair_bps(run)).collect();
        let workload = format!("passenger {}, {}", number + 1, kind.name());
        rows.push(shares.fill(Row { limit: Some(1.0), ..new(workload, "share") }));
    }
    let [_, index] = among_backlogged(runs);
    rows.push(index.fill(new("downloads and hog".into(), "jain")));
    rows
}

fn text(choice: &Choice, runs: &[Cabinful]) -> String {
    let mut table =
        table(&["", "who", "what", "n", "median", "÷ limit", "p95", "÷ limit", "rate", "of fair"]);
    for kind in Kind::ALL {
        let what = match kind {
            Kind::Pages => "490 kB",
            Kind::Video => "750 kB",
            Kind::Messages => "1 kB up",
            Kind::Call | Kind::Download | Kind::Hog => "",
        };
        let samples = took(runs, kind);
        let limit = limit(&choice.profile, kind);
        let mut fields = vec![kind.name().into(), kind.passengers().to_string(), what.to_owned()];
        fields.push(if samples.is_empty() { String::new() } else { samples.len().to_string() });
        for q in [0.5, 0.95] {
            let percentile = samples.percentile(q);
            let figure = |times: f64| match percentile {
                Some(value) => written(Some(value), |value| format!("{:.2}", value * times)),
                None => String::new(),
            };
            fields.push(figure(1.0));
            fields.push(limit.map_or(String::new(), |limit| figure(1.0 / limit)));
        }
        let mean = |figure: &dyn Fn(&Found, &Cabinful) -> f64| {
            let all = runs.iter().flat_map(|run| run.iter().map(move |one| (one, run)));
            let all: Samples = all
                .filter(|(one, _)| one.kind == kind)
                .map(|(one, run)| figure(one, run))
                .collect();
            all.mean()
        };
        let rate = mean(&|one, _| one.bps).filter(|_| kind != Kind::Call);
        let share = mean(&|one, run| one.bps / fair_bps(run)).filter(|_| kind != Kind::Call);
        fields.push(rate.map_or(String::new(), |bps| format!("{:.0}", bps / 1e3)));
        fields.push(share.map_or(String::new(), |share| format!("{share:.2}")));
        table.add_row(fields);
    }
    align(&mut table, &[1, 3, 4, 5, 6, 7, 8, 9]);
    let fair: Samples = runs.iter().map(fair_bps).collect();
    format!(
        "{}\n{} runs of {} s. Times in s; rates towards the aircraft, of each, in kbit/s and\n\
         of what a passenger gets who downloads all the time, {}.\n\n{}\n\n{}",
        choice.profile.about,
        choice.runs,
        choice.length.as_secs(),
        fair.mean().map_or("–".into(), megabits),
        table.trim_fmt(),
        notes(runs)
    )
}

/// Results that do not fit into the table.
fn notes(runs: &[Cabinful]) -> String {
    let late: usize = of(runs, Kind::Video).map(|found| found.late).sum();
    let stalled: Samples = of(runs, Kind::Video).map(|found| found.stalled).collect();
    let mut text = format!(
        "Video: {late} of {} segments came late; films stood still for {} of the time.\n",
        took(runs, Kind::Video).len(),
        stalled.mean().map_or("–".into(), percent)
    );
    for (name, way) in [("down", DOWN), ("up", UP)] {
        let waits = waits(runs, way);
        text.push_str(&format!(
            "Calls {name}: median {} beyond propagation, p95 {}; {:.2} % lost or late.\n",
            delay(&waits, 0.5),
            delay(&waits, 0.95),
            100.0 * residual(&waits)
        ));
    }
    let [hog, index] = among_backlogged(runs).map(|samples| samples.mean());
    let figure = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.3}"));
    text.push_str(&format!(
        "Hog ÷ another download: {}; Jain's index of the four: {}.\n",
        figure(hog),
        figure(index)
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_passenger_has_a_row_and_nobody_beats_physics_whatever_the_seed() {
        assert_eq!(Kind::ALL.iter().map(|kind| kind.passengers()).sum::<u32>(), 50);
        for seed in [1, 40] {
            let profile = Profile::named(DEFAULT_PROFILE).unwrap();
            let choice = Choice { profile, length: Duration::from_secs(6), runs: 1, seed };
            let report = run(&Engine::Sim, &choice).unwrap();
            let rows = |metric: &str| -> Vec<_> {
                report.rows.iter().filter(|row| row.metric == metric).collect()
            };
            assert_eq!(rows("share").len(), 50);
            for row in rows("completion").into_iter().chain(rows("plt")) {
                assert!(row.p50.is_none_or(|p50| p50 >= row.limit.unwrap()), "{row:?}");
            }
            for row in rows("residual-loss") {
                assert!(row.mean.unwrap() < 0.01, "more is left than was lost: {row:?}");
            }
            let jain = rows("jain")[0].mean.unwrap();
            assert!((0.25..=1.0).contains(&jain), "{jain}");
            let text = format!("{}{}", report.text, report.goals_text());
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= 80, "{widest}\n{text}");
        }
    }
}
