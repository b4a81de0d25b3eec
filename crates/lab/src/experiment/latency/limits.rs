//! Guarantees of classes: their rates and ceilings under full load, and the share of lower effort.

use bentpipe_link::{Class, Limits, PerClass};
use bentpipe_units::BitRate;

use super::Choice;
use super::parts::{WAYS, left, of_run};
use crate::experiment::engine::Engine;
use crate::experiment::report::{Goal, Report, millis, row};
use crate::experiment::table::{align, table};
use crate::profile::Profile;
use crate::result::{Row, Samples};
use crate::traffic::{Carry, ClassLimits, DOWN, ENDLESS, Passing, Traffic, UP};

/// Guaranteed rate of each class and its ceiling, in per cent of the link. The values are ours. The
/// operator's traffic stays within its rate, and best effort takes the rest.
const OPERATOR_RATE: u64 = 10;
const NETWORK_RATE: u64 = 15;
const ASSURED_RATE: u64 = 20;
const ASSURED_CEIL: u64 = 30;
const LOWER_RATE: u64 = 5;
/// Expected shares if all classes except the operator's are saturated.
const PROMISED: [(Class, u64); 3] = [
    (Class::Network, NETWORK_RATE),
    (Class::Assured, ASSURED_CEIL),
    (Class::LowerEffort, LOWER_RATE),
];
/// Tolerance of the shares.
const TOLERANCE: f64 = 0.02;
/// Passenger number of the operator's packets.
const OPERATOR: u32 = 7;
/// Passenger of the first class's bulk. The others' follow.
const BULK: u32 = 100;

/// Range of lower effort's share next to best effort alone, if it has no configured rate: about a
/// twentieth.
const FLOOR: [f64; 2] = [0.04, 0.06];
/// Minimum rate of lower effort on an idle link, as a fraction of best effort's.
const MIN_OF_IDLE: f64 = 0.95;

#[derive(Default)]
struct Found {
    /// IP bytes ÷ guarantee of every class that has one, in each direction.
    promised: [[Samples; 2]; PROMISED.len()],
    /// For every run, p95 of the delays of the operator's packets that the link did not lose.
    operator_p95: [Samples; 2],
    /// p95 over all of the operator's packets.
    operator_all: [Samples; 2],
    /// Fraction of the operator's packets that arrived.
    operator_came: [Samples; 2],
    /// Lower effort alone ÷ best effort alone, in payload towards the aircraft.
    idle: Samples,
    /// Lower effort's fraction of both classes' bytes, from one round trip after the start of best
    /// effort on.
    beside: Samples,
}

pub fn run(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    let mut all = Found::default();
    for found in engine.map(&choice.profile, &choice.seeds(), |&seed| one(engine, choice, seed)) {
        let found = found?;
        for (_, way) in WAYS {
            for (all, found) in all.promised.iter_mut().zip(&found.promised) {
                all[way].0.extend(&found[way].0);
            }
            all.operator_p95[way].0.extend(&found.operator_p95[way].0);
            all.operator_all[way].0.extend(&found.operator_all[way].0);
            all.operator_came[way].0.extend(&found.operator_came[way].0);
        }
        all.idle.0.extend(found.idle.0);
        all.beside.0.extend(found.beside.0);
    }
    Ok(Report { text: text(&all), rows: rows(choice, &all), goals: goals(choice, &all) })
}

fn one(engine: &Engine<'_>, choice: &Choice, seed: u64) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let limits = rates(&choice.profile).map(limits);
    engine.carry(&choice.profile, &limits, seed, |cabin| promises(choice, cabin, &mut found))?;
    let none = ClassLimits::default();
    let best = engine
        .carry(&choice.profile, &none, seed, |cabin| idle(choice, cabin, Class::BestEffort))?;
    engine.carry(&choice.profile, &none, seed, |cabin| {
        let lower = idle(choice, cabin, Class::LowerEffort);
        found.idle.push(lower / best);
        found.beside.push(yielding(choice, cabin));
    })?;
    Ok(found)
}

/// Saturates all classes except the operator's, which sends at a constant interval.
fn promises(choice: &Choice, cabin: &mut dyn Traffic, found: &mut Found) {
    for (passenger, class) in (BULK..).zip(Class::ALL) {
        if class != Class::Operator {
            cabin.open(Carry { class, passenger, up: ENDLESS, down: ENDLESS });
        }
    }
    let operator = cabin.talk(choice.probe(Class::Operator, OPERATOR, Default::default()));
    cabin.pass(choice.warm());
    let from = cabin.now();
    let before = PROMISED.map(|(class, _)| cabin.class_bytes(class));
    cabin.pass(choice.length);
    let to = cabin.now();
    let after = PROMISED.map(|(class, _)| cabin.class_bytes(class));
    cabin.pass(super::parts::AFTERWARDS);
    for (_, way) in WAYS {
        let possible = rates(&choice.profile)[way].bytes_in(choice.length) as f64;
        for (index, (_, percent)) in PROMISED.iter().enumerate() {
            let sent = (after[index][way] - before[index][way]) as f64;
            found.promised[index][way].push(sent / possible * 100.0 / *percent as f64);
        }
        let waits = choice.waits(cabin, operator, way, from, to);
        let p95 = choice.p95_in_order(cabin, operator, way, from, to);
        found.operator_p95[way].0.push(of_run(p95));
        let all = waits.known(0.95);
        found.operator_all[way].0.push(of_run(all));
        found.operator_came[way].push(1.0 - left(&waits));
    }
}

/// Rate of one class's download alone, in bit/s. The download continues.
fn idle(choice: &Choice, cabin: &mut dyn Traffic, class: Class) -> f64 {
    let stream = cabin.open(super::parts::bulk_down(class, BULK));
    cabin.pass(choice.warm());
    let before = cabin.course(stream).got[DOWN];
    cabin.pass(choice.length);
    let got = cabin.course(stream).got[DOWN] - before;
    8.0 * got as f64 / choice.length.as_secs_f64()
}

/// Starts best effort next to lower effort. Returns lower effort's fraction of both classes' bytes
/// from one round trip later on.
fn yielding(choice: &Choice, cabin: &mut dyn Traffic) -> f64 {
    let best = cabin.open(super::parts::bulk_down(Class::BestEffort, BULK + 1));
    cabin.wait(super::parts::AFTERWARDS, |cabin| cabin.course(best).first_transits()[UP].is_some());
    cabin.pass(choice.profile.link.rtt());
    let both = [Class::LowerEffort, Class::BestEffort];
    let before = both.map(|class| cabin.class_bytes(class)[DOWN]);
    cabin.pass(choice.length);
    let after = both.map(|class| cabin.class_bytes(class)[DOWN]);
    let [lower, best] = [0, 1].map(|at| (after[at] - before[at]) as f64);
    lower / (lower + best)
}

fn rates(profile: &Profile) -> [BitRate; 2] {
    [&profile.link.forward, &profile.link.return_]
        .map(|way| way.rate().unwrap_or(BitRate::from_bps(0)))
}

fn limits(link: BitRate) -> PerClass<Limits> {
    let part = |percent: u64| Some(BitRate::from_bps(link.bps() / 100 * percent));
    let mut limits = PerClass::<Limits>::default();
    limits[Class::Operator] = Limits { rate: part(OPERATOR_RATE), ceil: None };
    limits[Class::Network] = Limits { rate: part(NETWORK_RATE), ceil: None };
    limits[Class::Assured] = Limits { rate: part(ASSURED_RATE), ceil: part(ASSURED_CEIL) };
    limits[Class::LowerEffort] = Limits { rate: part(LOWER_RATE), ceil: None };
    limits
}

fn rows(choice: &Choice, found: &Found) -> Vec<Row> {
    let new = |workload: String, metric: &str| {
        row("latency-under-load", &choice.profile, workload, metric, choice.seed)
    };
    let mut rows = Vec::new();
    for (name, way) in WAYS {
        for ((class, percent), of) in PROMISED.iter().zip(&found.promised) {
            let bps = rates(&choice.profile)[way].bps() as f64 * *percent as f64 / 100.0;
            let row = new(format!("saturated, {class}, {name}"), "rate");
            rows.push(of[way].scaled(bps).fill(Row { limit: Some(bps), ..row }));
        }
        let limit = Some(choice.two_packets()[way]);
        let row = new(format!("operator beside saturated classes, p95, {name}"), "delay");
        rows.push(found.operator_p95[way].fill(Row { limit, ..row }));
        let name_all = format!("operator beside saturated classes, p95 with recovery, {name}");
        rows.push(found.operator_all[way].fill(new(name_all, "delay")));
        let left: Samples =
            found.operator_came[way].mean().map(|came| 1.0 - came).into_iter().collect();
        let row = new(format!("operator beside saturated classes, {name}"), "residual-loss");
        rows.push(left.fill(row));
    }
    rows.push(found.idle.fill(new("lower-effort alone ÷ best-effort alone".into(), "share")));
    rows.push(found.beside.fill(new("lower-effort beside best-effort".into(), "share")));
    rows
}

fn goals(choice: &Choice, found: &Found) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (name, way) in WAYS {
        for ((class, _), of) in PROMISED.iter().zip(&found.promised) {
            let name = format!("{class} off its configured rate, {name}");
            goals.push(Goal::off_by_at_most(name, of[way].mean(), TOLERANCE));
        }
        let (p95, came) = (found.operator_p95[way].mean(), found.operator_came[way].mean());
        let name = format!("operator, classes saturated, {name}");
        goals.push(Goal::time_at_most(format!("{name}: wait p95"), p95, choice.two_packets()[way]));
        goals.push(Goal::ratio_at_least(format!("{name}: share that came"), came, 1.0 - TOLERANCE));
    }
    let (idle, beside) = (found.idle.mean(), found.beside.mean());
    let name = "lower-effort ÷ best-effort, each alone";
    goals.push(Goal::ratio_at_least(name, idle, MIN_OF_IDLE));
    let name = "lower-effort's part 1 RTT after best-effort";
    goals.push(Goal::ratio_at_least(name, beside, FLOOR[0]));
    goals.push(Goal::ratio_at_most(name, beside, FLOOR[1]));
    goals
}

fn text(found: &Found) -> String {
    let mut table = table(&["", "of the link", "down ÷ that", "up ÷ that"]);
    let ratio =
        |samples: &Samples| samples.mean().map_or("–".to_owned(), |it| format!("{it:.3}"));
    for ((class, percent), of) in PROMISED.iter().zip(&found.promised) {
        let what = if *class == Class::Assured { "ceil" } else { "rate" };
        let part = format!("{percent} %");
        table.add_row([format!("{class}, its {what}"), part, ratio(&of[DOWN]), ratio(&of[UP])]);
    }
    align(&mut table, &[1, 2, 3]);
    let figure = |samples: &[Samples; 2], write: fn(f64) -> String| {
        [DOWN, UP].map(|way| samples[way].mean().map_or("–".into(), write)).join(" down, ")
    };
    format!(
        "Classes with rates and ceilings, all but the operator's saturated, IP bytes:\n\n{}\n\n\
         The operator's packets beside that, p95 of those not lost: {} up;\n\
         with what recovery takes of those that were: {} up.\n\
         Lower effort alone gets {} of what best effort gets alone, and {} of the\n\
         bytes from a round trip after best effort has come.\n",
        table.trim_fmt(),
        figure(&found.operator_p95, millis),
        figure(&found.operator_all, millis),
        ratio(&found.idle),
        ratio(&found.beside),
    )
}
