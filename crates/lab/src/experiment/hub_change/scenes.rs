//! The scenes, and their figures.

use std::ops::Range;
use std::time::Duration;

use bentpipe_units::Ratio;

use super::bounds::{Bounds, FLOWS, MAX_COST, OUTAGES_S, RESET_BOUND, REST};
use super::failures;
use super::files::Roles;
use super::script::{Event, Played, Script, Stage};
use super::sim::Sim;
use super::tickets;
use super::traffic::{Course, DOWN, Load, PACE, UP};
use crate::experiment::findings::Findings;
use crate::experiment::report::Report;
use crate::profile::Profile;

/// Time of the event. The flows are settled then.
const EVENT_AT: Duration = Duration::from_secs(12);
/// Time after the event in which its effects are observed.
const EFFECTS: Duration = Duration::from_secs(15);
/// Number of flows of the egress that does not die.
const OTHERS: u16 = 50;
/// Time between the death of an egress and a new flow.
const NEW_AFTER: Duration = RESET_BOUND;
/// Number of aircraft of a ground that restarts.
const FLEET: usize = 50;
/// Number of flows that are opened while a gateway restarts, and their interval.
const NEW_FLOWS: u16 = 10;
const NEW_INTERVAL: Duration = Duration::from_millis(100);

/// A scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// The first hub leaves in an orderly way.
    Planned,
    /// The radio is out, and comes back with another address of the aircraft and another hub.
    Forced,
    /// The first hub dies.
    HubDies,
    /// The first egress dies.
    EgressDies,
    /// A ground that is hub and egress is restarted in an orderly way.
    GroundRestarts,
    /// The air gateway is restarted in an orderly way.
    AirRestarts,
    /// Tickets are stolen, replayed and used too late.
    Tickets,
    /// Nothing fails.
    Cost,
}

impl Scene {
    /// All scenes.
    pub const ALL: [Self; 8] = [
        Self::Planned,
        Self::Forced,
        Self::HubDies,
        Self::EgressDies,
        Self::GroundRestarts,
        Self::AirRestarts,
        Self::Tickets,
        Self::Cost,
    ];

    /// Name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned change",
            Self::Forced => "forced change",
            Self::HubDies => "hub dies",
            Self::EgressDies => "egress dies",
            Self::GroundRestarts => "ground restarts",
            Self::AirRestarts => "air restarts",
            Self::Tickets => "tickets",
            Self::Cost => "cost",
        }
    }

    /// Returns `true` if real gateways can play the scene.
    pub fn is_emulated(self) -> bool {
        !matches!(self, Self::Tickets | Self::Cost)
    }

    /// Returns `true` if the scene can be played in virtual time, which has no sockets to hand over.
    pub fn is_simulated(self) -> bool {
        !matches!(self, Self::GroundRestarts | Self::AirRestarts)
    }

    /// Plays the scene.
    pub fn play(self, stage: &dyn Stage, profile: &Profile, seed: u64) -> anyhow::Result<Report> {
        let (mut findings, bounds) =
            (Findings::new("hub-change", self.name()), Bounds::of(profile));
        match self {
            Self::Planned => planned(stage, &bounds, &mut findings)?,
            Self::Forced => forced(stage, &bounds, &mut findings)?,
            Self::HubDies => hub_dies(stage, &bounds, &mut findings)?,
            Self::EgressDies => egress_dies(stage, &mut findings)?,
            Self::GroundRestarts => {
                restarts(stage, (Event::HubRestarts, FLEET), &bounds, &mut findings)?;
            }
            Self::AirRestarts => {
                restarts(stage, (Event::AirRestarts, 1), &bounds, &mut findings)?;
            }
            Self::Tickets => tickets::play(seed, &mut findings)?,
            Self::Cost => cost(profile, seed, &mut findings)?,
        }
        Ok(findings.report(stage.name(), Some(&profile.name), seed))
    }
}

/// All flows from the beginning, and one event.
fn script(load: Load, event: Option<Event>) -> Script {
    Script {
        roles: Roles::Apart,
        aircraft: 1,
        load,
        until: window().end,
        openings: vec![(Duration::ZERO, 0..FLOWS)],
        events: event.map(|event| (EVENT_AT, event)).into_iter().collect(),
    }
}

fn window() -> Range<Duration> {
    EVENT_AT..EVENT_AT + EFFECTS
}

/// Number of ends of all flows that failed or did not finish.
fn failed(course: &Course) -> f64 {
    (2 * usize::from(FLOWS)).saturating_sub(course.finished) as f64
}

fn planned(stage: &dyn Stage, bounds: &Bounds, findings: &mut Findings) -> anyhow::Result<()> {
    let play = |load, event| Ok::<_, anyhow::Error>(stage.play(&script(load, event))?.course);
    let still = play(Load::Bulk, None)?;
    let moved = play(Load::Bulk, Some(Event::HubLeaves))?;
    failures::add(findings, "failed flows", moved.failures.len() as f64, &moved);
    for (way, name) in [(DOWN, "down"), (UP, "up")] {
        let [without, with] = [&still, &moved].map(|course| course.bytes(way, &window()));
        let rate = without as f64 / EFFECTS.as_secs_f64();
        let lost = without.saturating_sub(with) as f64 / rate;
        let lost = Some(Duration::from_secs_f64(lost));
        findings.time(&format!("goodput lost {name}, as time"), lost, bounds.rtt);
        let gap = moved.gap(way, &window());
        findings.time(&format!("longest gap {name}"), Some(gap), bounds.gap());
    }
    let still = play(Load::Paced, None)?;
    let moved = play(Load::Paced, Some(Event::HubLeaves))?;
    failures::add(findings, "failed paced flows", failed(&moved), &moved);
    let added = moved.delay(&window()).zip(still.delay(&window()));
    let added = added.map(|(with, without)| with.saturating_sub(without));
    findings.time("added delay of a piece", added, bounds.gap());
    Ok(())
}

fn forced(stage: &dyn Stage, bounds: &Bounds, findings: &mut Findings) -> anyhow::Result<()> {
    for outage_s in OUTAGES_S {
        let outage = Duration::from_secs(outage_s);
        let script = Script {
            until: EVENT_AT + outage + EFFECTS,
            events: vec![
                (Duration::ZERO, Event::SecondHubOut),
                (EVENT_AT, Event::RadioOut),
                (EVENT_AT + outage, Event::RadioElsewhere),
            ],
            ..script(Load::Paced, None)
        };
        let course = stage.play(&script)?.course;
        failures::add(findings, &format!("failed flows, {outage_s} s"), failed(&course), &course);
        // Packets that were under way still arrive.
        let from = EVENT_AT + outage.max(bounds.rtt);
        let first = course.first_after(from).map(|at| at - EVENT_AT);
        let bound = outage + bounds.first_byte();
        findings.time(&format!("first byte, {outage_s} s"), first, bound);
    }
    Ok(())
}

fn hub_dies(stage: &dyn Stage, bounds: &Bounds, findings: &mut Findings) -> anyhow::Result<()> {
    let course = stage.play(&script(Load::Paced, Some(Event::HubDies)))?.course;
    failures::add(findings, "failed flows", failed(&course), &course);
    // What was under way has arrived.
    let from = EVENT_AT + bounds.rtt;
    let since = |at: Option<Duration>| at.map(|at| at - EVENT_AT);
    findings.time("first byte", since(course.first_after(from)), bounds.recovery());
    // A piece of every flow is written in each interval.
    let all = since(course.all_after(from, 0..FLOWS));
    findings.time("all flows go on", all, bounds.recovery() + PACE);
    Ok(())
}

fn egress_dies(stage: &dyn Stage, findings: &mut Findings) -> anyhow::Result<()> {
    let (its, new) = (OTHERS..FLOWS - 1, FLOWS - 1);
    let dies_at = EVENT_AT + EFFECTS / 3;
    let script = Script {
        openings: vec![
            (Duration::from_secs(3), 0..OTHERS),
            (EVENT_AT, its.clone()),
            (dies_at + NEW_AFTER, new..FLOWS),
        ],
        events: vec![
            (Duration::ZERO, Event::EgressDies),
            (Duration::from_secs(5), Event::EgressComes),
            (dies_at, Event::EgressDies),
        ],
        ..script(Load::Paced, None)
    };
    let course = stage.play(&script)?.course;
    let at_client = |flow| course.failures.iter().filter(move |it| it.0 == flow && it.2 == UP);
    let reset = |flow| at_client(flow).map(|failure| failure.1).min();
    let last = its.clone().map(reset).try_fold(Duration::ZERO, |last, at| Some(last.max(at?)));
    let last = last.map(|at| at.saturating_sub(dies_at));
    findings.time("its flows are reset", last, RESET_BOUND);
    let early = course.failures.iter().filter(|failure| failure.1 < dies_at).count();
    failures::add(findings, "resets before", early as f64, &course);
    let others = course.failures.iter().filter(|failure| !its.contains(&failure.0)).count();
    findings.at_most("failed flows of the other egress", others as f64, 0.0);
    let arrived = course.arrivals.iter().filter(|it| it.flow == new).count();
    findings.at_least("arrivals of a new flow", arrived as f64, 1.0);
    Ok(())
}

/// A gateway is restarted by its service manager, while new flows are opened.
fn restarts(
    stage: &dyn Stage,
    (event, aircraft): (Event, usize),
    bounds: &Bounds,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let new = FLOWS - NEW_FLOWS..FLOWS;
    let mut script = script(Load::Paced, Some(event));
    (script.roles, script.aircraft) = (Roles::Kept, aircraft);
    script.openings = vec![(Duration::ZERO, 0..new.start)];
    let times = (0..).map(|number| EVENT_AT + NEW_INTERVAL * number);
    script.openings.extend(times.zip(new.clone().map(|flow| flow..flow + 1)));
    let course = stage.play(&script)?.course;
    let refused = course.failures.iter().filter(|failure| new.contains(&failure.0)).count();
    failures::add(findings, "new flows that failed", refused as f64, &course);
    failures::add(findings, "resets", (course.failures.len() - refused) as f64, &course);
    let ended = course.finished + course.failures.len();
    let unfinished = (2 * usize::from(FLOWS)).saturating_sub(ended);
    findings.at_most("ends that do not finish", unfinished as f64, 0.0);
    for (way, name) in [(DOWN, "down"), (UP, "up")] {
        let of = |number: usize| {
            let is_its = move |flow: u16| usize::from(flow) % aircraft == number;
            course.gap_of(way, &window(), is_its)
        };
        let longest = (0..aircraft).map(of).max();
        findings.time(&format!("longest gap {name} of an aircraft"), longest, bounds.restart());
    }
    Ok(())
}

/// Compares flows with and without another hub, over the link of `profile` without its losses: the two
/// send different packets, so that other ones would be lost.
fn cost(profile: &Profile, seed: u64, findings: &mut Findings) -> anyhow::Result<()> {
    let mut lossless = profile.clone();
    for way in [&mut lossless.link.forward, &mut lossless.link.return_] {
        *way = way.clone().with_loss(Ratio::ZERO, 1.0)?;
    }
    let stage = Sim { profile: &lossless, seed };
    for load in [Load::Bulk, Load::Paced] {
        let play = |roles| {
            stage.play(&Script { roles, until: Duration::from_secs(60), ..script(load, None) })
        };
        let (plain, anchored) = (play(Roles::One)?, play(Roles::Anchored)?);
        let more = per_byte(&anchored) / per_byte(&plain) - 1.0;
        let name = if load == Load::Bulk { "bulk" } else { "paced" };
        findings.at_most(&format!("more bytes on the radio, {name}"), more, MAX_COST);
        if load == Load::Paced {
            let [with, without] = [&anchored, &plain].map(|it| it.course.mean_delay());
            let added = with.saturating_sub(without);
            findings.time("added delay", Some(added), Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Bytes on the radio per byte that arrived.
fn per_byte(played: &Played) -> f64 {
    let whole = Duration::ZERO..Duration::from_secs(60) + REST;
    let read = played.course.bytes(DOWN, &whole) + played.course.bytes(UP, &whole);
    played.radio_bytes as f64 / read as f64
}
