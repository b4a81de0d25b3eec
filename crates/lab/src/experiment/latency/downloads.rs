//! Three passengers download on eight connections each. The experiment measures the effect on a
//! call and on the first bytes of new flows, and then on another passenger's page objects.

use std::time::Duration;

use bentpipe_link::Class;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Choice;
use super::parts::{WAYS, bulk_down, left, of_run, p95_at_first, wait};
use crate::experiment::engine::Engine;
use crate::experiment::report::{Goal, Report, delay, millis, percent, row};
use crate::experiment::table::{align, pairs, seconds, table};
use crate::result::{Row, Sample, Samples};
use crate::traffic::{Carry, ClassLimits, DOWN, Passing, REQUEST_BYTES, Traffic};

/// Number of downloading passengers.
const DOWNLOADERS: u32 = 3;
/// Connections of each downloading passenger.
const CONNECTIONS: usize = 8;
/// Passenger of the call.
const CALLER: u32 = 50;
/// Passenger who fetches objects one at a time.
const READER: u32 = 60;
/// First passenger of the new flows, each of which has a different passenger.
const NEWCOMERS: u32 = 1000;
/// Size of a page's object.
const OBJECT_BYTES: u64 = 100_000;
/// Size of the first bytes of a response: one packet.
const FIRST_BYTES: u64 = 1_000;
/// Minimum interval between two new flows. The maximum is half as long again.
const NEWCOMER_GAP: Duration = Duration::from_millis(500);
/// Minimum time between the end of an object and the request for the next. The maximum is twice as
/// long.
const OBJECT_GAP: Duration = Duration::from_secs(1);
/// Time after which an object counts as lost, as a multiple of its limit.
const PATIENCE: u32 = 20;
/// Maximum time of an object, as a multiple of the limit for its share of the rate.
const MAX_OF_LIMIT: f64 = 1.5;

/// Results, pooled over runs.
#[derive(Default)]
struct Found {
    /// Delays of the call's packets, towards the aircraft and from it.
    call: [Samples; 2],
    /// Delays of new flows' first bytes, towards the aircraft and from it.
    first: [Samples; 2],
    /// p95 of the packets that were not lost, for each run. This is pure waiting time.
    call_p95: [Samples; 2],
    first_p95: [Samples; 2],
    object: Samples,
}

pub fn run(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    let mut all = Found::default();
    let found = engine.map(&choice.profile, &choice.seeds(), |&seed| {
        let one = |cabin: &mut dyn Traffic| one(choice, cabin, seed);
        engine.carry(&choice.profile, &ClassLimits::default(), seed, one)
    });
    for found in found {
        let found = found?;
        for (_, way) in WAYS {
            all.call[way].0.extend(&found.call[way].0);
            all.first[way].0.extend(&found.first[way].0);
            all.call_p95[way].0.extend(&found.call_p95[way].0);
            all.first_p95[way].0.extend(&found.first_p95[way].0);
        }
        all.object.0.extend(&found.object.0);
    }
    Ok(Report { text: text(choice, &all), rows: rows(choice, &all), goals: goals(choice, &all) })
}

fn one(choice: &Choice, cabin: &mut dyn Traffic, seed: u64) -> Found {
    for passenger in 1..=DOWNLOADERS {
        for _ in 0..CONNECTIONS {
            cabin.open(bulk_down(Class::BestEffort, passenger));
        }
    }
    let call = cabin.talk(choice.probe(Class::Network, CALLER, Duration::ZERO));
    cabin.pass(choice.warm());
    let (from, before) = (cabin.now(), cabin.counted());
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let flows = newcomers(cabin, from + choice.length, &mut rng);
    let (to, lost) = (cabin.now(), cabin.counted().lost_since(&before));
    let objects = objects(choice, cabin, to + choice.length, &mut rng);
    cabin.pass(super::parts::AFTERWARDS);
    let mut found = Found::default();
    for (_, way) in WAYS {
        let transits = flows.iter().map(|&flow| cabin.course(flow).first_transits()[way]);
        let waits = transits.map(|transit| wait(transit, choice.propagation()[way]));
        found.first[way] = Samples(waits.collect());
        found.call[way] = choice.waits(cabin, call, way, from, to);
        let call = choice.p95_in_order(cabin, call, way, from, to);
        found.call_p95[way] = Samples(vec![of_run(call)]);
        let first = p95_at_first(&found.first[way], lost[way]);
        found.first_p95[way] = Samples(vec![of_run(first)]);
    }
    found.object = Samples(
        objects
            .iter()
            .map(|&object| {
                let stream = cabin.course(object);
                let seen = (cabin.now() - stream.opened_at).as_secs_f64();
                stream.took().map_or(Sample::Cut(seen), |took| Sample::Finished(took.as_secs_f64()))
            })
            .collect(),
    );
    found
}

/// Opens flows of new passengers at random intervals until `end`. Returns the flows.
fn newcomers(cabin: &mut dyn Traffic, end: Duration, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut flows = Vec::new();
    while cabin.now() < end {
        let passenger = NEWCOMERS + flows.len() as u32;
        let (class, up, down) = (Class::BestEffort, REQUEST_BYTES, FIRST_BYTES);
        flows.push(cabin.open(Carry { class, passenger, up, down }));
        let gap = NEWCOMER_GAP.mul_f64(1.0 + 0.5 * rng.random::<f64>());
        cabin.pass(gap.min(end - cabin.now()));
    }
    flows
}

/// Fetches objects one after the other until `end`. Returns their streams.
fn objects(
    choice: &Choice,
    cabin: &mut dyn Traffic,
    end: Duration,
    rng: &mut ChaCha8Rng,
) -> Vec<usize> {
    let mut objects = Vec::new();
    while cabin.now() < end {
        let (class, up, down) = (Class::BestEffort, REQUEST_BYTES, OBJECT_BYTES);
        let object = cabin.open(Carry { class, passenger: READER, up, down });
        objects.push(object);
        cabin.wait(limit(choice) * PATIENCE, |cabin| cabin.course(object).is_done());
        cabin.pass(OBJECT_GAP.mul_f64(1.0 + rng.random::<f64>()));
    }
    objects
}

/// Minimum time of an object at its fair share of the rate next to the downloads.
fn limit(choice: &Choice) -> Duration {
    let shared = choice.profile.forward_limit(OBJECT_BYTES * u64::from(DOWNLOADERS + 1));
    shared.unwrap_or_default()
}

fn rows(choice: &Choice, found: &Found) -> Vec<Row> {
    let row = |workload: String, metric: &str| {
        row("latency-under-load", &choice.profile, workload, metric, choice.seed)
    };
    let mut rows = Vec::new();
    for (name, way) in WAYS {
        let of = [("call", &found.call[way]), ("first of flow", &found.first[way])];
        for (what, samples) in of {
            let workload = || format!("{what} beside downloads, {name}");
            rows.push(Row {
                limit: Some(choice.two_packets()[way]),
                ..samples.fill(row(workload(), "delay"))
            });
            let left: Samples = [left(samples)].into_iter().collect();
            rows.push(left.fill(row(workload(), "residual-loss")));
        }
    }
    let completion = row("object-100k beside downloads".into(), "completion");
    let limit = Some(limit(choice).as_secs_f64());
    rows.push(found.object.fill(Row { limit, ..completion }));
    rows
}

fn goals(choice: &Choice, found: &Found) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (name, way) in WAYS {
        let of = [("call", &found.call_p95[way]), ("first of flow", &found.first_p95[way])];
        for (what, p95) in of {
            let name = format!("{what} beside downloads, {name}: wait p95");
            goals.push(Goal::time_at_most(name, p95.mean(), choice.two_packets()[way]));
        }
    }
    let p95 = found.object.known(0.95);
    let ratio = p95.map(|p95| p95 / limit(choice).as_secs_f64());
    let name = "object-100k beside downloads ÷ limit, p95";
    goals.push(Goal::ratio_at_most(name, ratio, MAX_OF_LIMIT));
    goals
}

fn text(choice: &Choice, found: &Found) -> String {
    let mut table = table(&["", "", "p50", "p95", "p99", "left", "p95, not lost", "n"]);
    for (what, all, at_first) in
        [("call", &found.call, &found.call_p95), ("first of flow", &found.first, &found.first_p95)]
    {
        for (name, way) in WAYS {
            let samples = &all[way];
            table.add_row([
                if way == DOWN { what.to_owned() } else { String::new() },
                name.into(),
                delay(samples, 0.5),
                delay(samples, 0.95),
                delay(samples, 0.99),
                percent(left(samples)),
                at_first[way].mean().map_or("–".into(), millis),
                samples.len().to_string(),
            ]);
        }
    }
    align(&mut table, &[2, 3, 4, 5, 6, 7]);
    let limit_s = limit(choice).as_secs_f64();
    let known = |q| found.object.known(q);
    let written =
        |q| known(q).map_or("–".to_owned(), |s| format!("{} ({:.2}×)", seconds(s), s / limit_s));
    let objects = [
        ("median".to_owned(), written(0.5)),
        ("p95".to_owned(), written(0.95)),
        ("objects".to_owned(), found.object.len().to_string()),
    ];
    format!(
        "{DOWNLOADERS} passengers download on {CONNECTIONS} connections each, best effort. Beyond propagation\n\
         take, with what recovery takes of those that were lost, and without those:\n\n{}\n\n100 kB of another passenger, whose share-adjusted limit is {}:\n{}",
        table.trim_fmt(),
        seconds(limit_s),
        pairs(&objects)
    )
}
