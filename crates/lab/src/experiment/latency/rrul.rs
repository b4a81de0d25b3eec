//! Bulk and a probe in every class, each from a different passenger, in both directions; and the
//! probes without the bulk.

use bentpipe_link::Class;

use super::Choice;
use super::parts::{WAYS, got, left};
use crate::experiment::engine::Engine;
use crate::experiment::report::{Report, delay, percent, row};
use crate::experiment::table::{align, table};
use crate::result::Samples;
use crate::traffic::{Carry, ClassLimits, ENDLESS, Passing, Traffic};

/// Passenger of the first class's bulk. The others' follow.
const BULK: u32 = 100;
/// Passenger of the first class's probe. The others' follow.
const PROBE: u32 = 200;
/// Number of classes. The probes of consecutive classes are offset by this fraction of their
/// interval.
const CLASSES: u32 = Class::ALL.len() as u32;

/// One class in one direction.
#[derive(Default)]
struct Line {
    rate_bps: Samples,
    alone: Samples,
    loaded: Samples,
}

type Lines = [[Line; 2]; Class::ALL.len()];

pub fn run(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    let jobs: Vec<_> =
        choice.seeds().into_iter().flat_map(|seed| [(seed, false), (seed, true)]).collect();
    let mut lines = Lines::default();
    let found = engine.map(&choice.profile, &jobs, |&(seed, bulk)| {
        let one = |cabin: &mut dyn Traffic| one(choice, bulk, cabin);
        engine.carry(&choice.profile, &ClassLimits::default(), seed, one)
    });
    for (found, (_, bulk)) in found.into_iter().zip(&jobs) {
        for (of, (rates, waits)) in lines.iter_mut().zip(found?) {
            for ((line, rate_bps), waits) in of.iter_mut().zip(rates).zip(waits) {
                if *bulk {
                    line.rate_bps.push(rate_bps);
                    line.loaded.0.extend(waits.0);
                } else {
                    line.alone.0.extend(waits.0);
                }
            }
        }
    }
    Ok(Report { text: text(choice, &lines), rows: rows(choice, &lines), goals: Vec::new() })
}

/// Results of each class in each direction: rate of its bulk, and delays of its probe's packets.
type Found = Vec<([f64; 2], [Samples; 2])>;

fn one(choice: &Choice, bulk: bool, cabin: &mut dyn Traffic) -> Found {
    let mut streams = Vec::new();
    let mut probes = Vec::new();
    for (index, class) in (0..).zip(Class::ALL) {
        if bulk {
            let passenger = BULK + index;
            streams.push(cabin.open(Carry { class, passenger, up: ENDLESS, down: ENDLESS }));
        }
        let phase = super::parts::PROBE_GAP * index / CLASSES;
        probes.push(cabin.talk(choice.probe(class, PROBE + index, phase)));
    }
    cabin.pass(choice.warm());
    let (from, before) = (cabin.now(), rates(cabin, &streams));
    cabin.pass(choice.length);
    let (to, after) = (cabin.now(), rates(cabin, &streams));
    cabin.pass(super::parts::AFTERWARDS);
    let seconds = choice.length.as_secs_f64();
    let of = |index: usize| {
        let rate = |way: usize| {
            let (after, before) = (after.get(index)?, before.get(index)?);
            Some(8.0 * (after[way] - before[way]) as f64 / seconds)
        };
        let waits = WAYS.map(|(_, way)| choice.waits(cabin, probes[index], way, from, to));
        (WAYS.map(|(_, way)| rate(way).unwrap_or(0.0)), waits)
    };
    (0..Class::ALL.len()).map(of).collect()
}

fn rates(cabin: &dyn Traffic, streams: &[usize]) -> Vec<[u64; 2]> {
    streams.iter().map(|&stream| got(cabin, &[stream])).collect()
}

fn rows(choice: &Choice, lines: &Lines) -> Vec<crate::result::Row> {
    let mut rows = Vec::new();
    for (class, line) in Class::ALL.into_iter().zip(lines) {
        for (name, way) in WAYS {
            let line = &line[way];
            let mut add = |what: &str, metric: &str, samples: &Samples| {
                let workload = format!("{what}, {class}, {name}");
                let row = row("latency-under-load", &choice.profile, workload, metric, choice.seed);
                rows.push(samples.fill(row));
            };
            add("bulk", "rate", &line.rate_bps);
            for (what, samples) in [("probe", &line.alone), ("probe beside bulk", &line.loaded)] {
                add(what, "delay", samples);
                add(what, "residual-loss", &[left(samples)].into_iter().collect());
            }
        }
    }
    rows
}

fn text(choice: &Choice, lines: &Lines) -> String {
    let header =
        ["class", "", "bulk", "p50", "p95", "p99", "left", "+p50", "+p95", "+p99", "+left"];
    let mut table = table(&header);
    for (class, of) in Class::ALL.into_iter().zip(lines) {
        for (name, way) in WAYS {
            let line = &of[way];
            let mut fields = vec![
                if name == "down" { class.to_string() } else { String::new() },
                name.to_owned(),
                line.rate_bps.mean().map_or("–".into(), |bps| format!("{:.0}", bps / 1e3)),
            ];
            for samples in [&line.alone, &line.loaded] {
                fields.extend([0.5, 0.95, 0.99].map(|q| short(&delay(samples, q))));
                fields.push(short(&percent(left(samples))));
            }
            table.add_row(fields);
        }
    }
    align(&mut table, &(2..header.len()).collect::<Vec<_>>());
    format!(
        "{}\nEvery class at once, both ways: one passenger's bulk (kbit/s of payload) and\n\
         another's packet each {} ms: how long these take beyond propagation, in ms,\n\
         and % that never come, without the bulk and with it (+); {} runs of {} s.\n\n{}\n",
        choice.profile.about,
        super::parts::PROBE_GAP.as_millis(),
        choice.runs,
        choice.length.as_secs(),
        table.trim_fmt()
    )
}

/// A figure without its unit, which is in the table's header.
fn short(figure: &str) -> String {
    figure.trim_end_matches([' ', '%', 'm', 's']).to_owned()
}
