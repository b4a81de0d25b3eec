//! Fairness among passengers with backlogged traffic: one of two on many connections, and twenty
//! passengers.

use bentpipe_link::Class;
use bentpipe_results::statistics::jain;

use super::Choice;
use super::parts::{bulk_down, got};
use crate::experiment::engine::Engine;
use crate::experiment::report::{Goal, Report, row};
use crate::experiment::table::pairs;
use crate::result::{Row, Samples};
use crate::sim::share::of_fair;
use crate::traffic::{ClassLimits, DOWN, Passing, Traffic};

/// Connections of a heavy user.
const HOG_CONNECTIONS: usize = 32;
/// Tolerance of the heavy user's share against the other's.
const HOG_TOLERANCE: f64 = 0.05;
/// Number of concurrently downloading passengers.
pub const PASSENGERS: usize = 20;
/// Maximum connections of one of these passengers.
const MAX_CONNECTIONS: usize = 8;
/// Minimum of Jain's index over these passengers.
const MIN_JAIN: f64 = 0.98;

pub fn run(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    let hog = rates(engine, choice, &[HOG_CONNECTIONS, 1])?;
    let connections: Vec<_> = (0..PASSENGERS).map(|number| 1 + number % MAX_CONNECTIONS).collect();
    let many = rates(engine, choice, &connections)?;
    let new = |workload: String, metric: &str| {
        row("latency-under-load", &choice.profile, workload, metric, choice.seed)
    };
    let hog_ratio: Samples = hog.iter().map(|bps| bps[0] / bps[1]).collect();
    let index: Samples = many.iter().map(|bps| jain(bps.iter().copied())).collect();
    let mut rows = shares(&hog, |number| match number {
        0 => new(format!("hog, {HOG_CONNECTIONS} connections"), "share"),
        _ => new("beside the hog, 1 connection".into(), "share"),
    });
    rows.extend(shares(&many, |number| {
        new(format!("passenger {}, {} connections", number + 1, connections[number]), "share")
    }));
    rows.push(index.fill(new(format!("{PASSENGERS} downloads"), "jain")));
    let part = hog_ratio.mean();
    let name = format!("hog with {HOG_CONNECTIONS} connections ÷ a passenger with 1");
    let goals = vec![
        Goal::off_by_at_most("hog with 32 connections off a passenger with 1", part, HOG_TOLERANCE),
        Goal::ratio_at_least(
            format!("Jain's index over {PASSENGERS} passengers"),
            index.mean(),
            MIN_JAIN,
        ),
    ];
    let all = of_all(&many);
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    let figure = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.3}"));
    let text = pairs(&[
        (name, figure(part)),
        (format!("Jain's index over {PASSENGERS} passengers"), figure(index.mean())),
        ("least and most of a fair share among them".into(), format!("{least:.3}, {most:.3}")),
    ]);
    let head = "Downloads without end, all best effort:\n";
    Ok(Report { text: format!("{head}{text}"), rows, goals })
}

/// Rates of passengers with these numbers of connections in every run, in bit/s.
fn rates(
    engine: &Engine<'_>,
    choice: &Choice,
    connections: &[usize],
) -> anyhow::Result<Vec<Vec<f64>>> {
    let runs = engine.map(&choice.profile, &choice.seeds(), |&seed| {
        let one = |cabin: &mut dyn Traffic| one(choice, connections, cabin);
        engine.carry(&choice.profile, &ClassLimits::default(), seed, one)
    });
    runs.into_iter().collect()
}

fn one(choice: &Choice, connections: &[usize], cabin: &mut dyn Traffic) -> Vec<f64> {
    let mut streams = Vec::new();
    for (passenger, &connections) in (1..).zip(connections) {
        let open = |_| cabin.open(bulk_down(Class::BestEffort, passenger));
        streams.push((0..connections).map(open).collect::<Vec<_>>());
    }
    cabin.pass(choice.warm());
    let bytes = |cabin: &dyn Traffic| -> Vec<u64> {
        streams.iter().map(|streams| got(cabin, streams)[DOWN]).collect()
    };
    let before = bytes(cabin);
    cabin.pass(choice.length);
    let seconds = choice.length.as_secs_f64();
    let bps = bytes(cabin).into_iter().zip(before);
    bps.map(|(after, before)| 8.0 * (after - before) as f64 / seconds).collect()
}

/// A row for each passenger.
fn shares(runs: &[Vec<f64>], new: impl Fn(usize) -> Row) -> Vec<Row> {
    let passengers = runs.first().map_or(0, Vec::len);
    let of = |number: usize| {
        let samples: Samples = runs.iter().map(|bps| of_fair(bps)[number]).collect();
        samples.fill(Row { limit: Some(1.0), ..new(number) })
    };
    (0..passengers).map(of).collect()
}

/// Shares of all passengers, each averaged over its runs.
fn of_all(runs: &[Vec<f64>]) -> Vec<f64> {
    shares(runs, |_| Row::default()).iter().filter_map(|row| row.mean).collect()
}
