//! The flights and the hub in Boise of NetForecast ("Implications for Aircraft Wi-Fi Services").

use std::time::Duration;

use bentpipe_choice::{Choice, Leg, Query, Site};
use bentpipe_results::outcome::table;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cells::{self, Cell, MIN_EPB};
use super::globe::{self, Place};
use super::seeds::Seeds;
use super::worlds::JITTER;
use crate::experiment::findings::Findings;

const FRANKFURT: Place = Place(50.11, 8.68);
const NEW_YORK: Place = Place(40.71, -74.01);
const LONDON: Place = Place(51.51, -0.13);
const LISBON: Place = Place(38.72, -9.14);
const MADRID: Place = Place(40.42, -3.70);
const CHICAGO: Place = Place(41.88, -87.63);
const DALLAS: Place = Place(32.78, -96.80);

/// The hubs of the flight from Paris to Washington, in their order.
const HUBS: [(&str, Place); 2] = [("Frankfurt", FRANKFURT), ("New York", NEW_YORK)];
/// Homes of the passengers, and whether the report calls their service good at each hub.
const HOMES: [(&str, Place, [bool; 2]); 4] = [
    ("London", LONDON, [true, false]),
    ("Lisbon", LISBON, [true, false]),
    ("Chicago", CHICAGO, [false, true]),
    ("Dallas", DALLAS, [false, false]),
];
/// Egresses of the mesh.
const EGRESSES: [(&str, Place); 4] =
    [("London", LONDON), ("Madrid", MADRID), ("Chicago", CHICAGO), ("Dallas", DALLAS)];
/// Service is good from this EPB on.
const GOOD: f64 = 0.5;
/// The report's radius of good service.
const RADIUS_KM: f64 = 2100.0;
/// Backhaul between Boise and the peering point in Seattle.
const BACKHAUL_KM: f64 = 640.0;
/// Distances from the peering point in Seattle.
const FROM_SEATTLE_KM: [f64; 3] = [0.0, RADIUS_KM - BACKHAUL_KM, RADIUS_KM];

/// The hub table, and the hub in Boise.
pub fn play(seeds: Seeds, findings: &mut Findings) -> anyhow::Result<()> {
    hub_table(seeds, findings)?;
    boise(seeds, findings)
}

fn hub_table(seeds: Seeds, findings: &mut Findings) -> anyhow::Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(seeds.first);
    let (mut cells, mut names) = (Vec::new(), Vec::new());
    for (home, place, paper) in HOMES {
        for ((hub, at), good) in HUBS.into_iter().zip(paper) {
            let egress = chosen(at, place, &mut rng);
            let (via, egress) = EGRESSES[egress];
            cells.push(download(globe::rtt(at.distance_km(place)), None));
            let dial = globe::rtt(egress.distance_km(place));
            cells.push(download(globe::rtt(at.distance_km(egress)), Some(dial)));
            names.push((home, hub, via, at.distance_km(place), good));
        }
    }
    let found = cells::measure(&cells, seeds)?;
    let header = ["home", "hub", "km", "paper", "hub alone", "EPB", "by egress", "EPB"];
    let mut lines = table::table(&header);
    let mut same = 0;
    for ((home, hub, via, km, good), epb) in names.iter().zip(found.chunks(2)) {
        let is_good = epb[0].elapsed >= GOOD;
        same += u32::from(is_good == *good);
        lines.add_row([
            (*home).to_owned(),
            (*hub).into(),
            format!("{km:.0}"),
            verdict(*good).into(),
            verdict(is_good).into(),
            format!("{:.3}", epb[0].elapsed),
            (*via).into(),
            format!("{:.3}", epb[1].elapsed),
        ]);
        findings.at_least(&format!("{home} over {hub}, mesh"), epb[1].elapsed, MIN_EPB);
    }
    table::align(&mut lines, &[2, 5, 7]);
    findings.say("Paris to Washington, the report's hub table beside ours:");
    findings.say(&format!("{}\n", lines.trim_fmt()));
    findings.say(&format!("Hub alone: {same} of {} verdicts are the report's.", names.len()));
    Ok(())
}

fn verdict(is_good: bool) -> &'static str {
    if is_good { "good" } else { "poor" }
}

/// A download over the hub alone, or with an egress that is so far from the server.
fn download(distance: Duration, dial: Option<Duration>) -> Cell {
    let beyond = dial.unwrap_or_default();
    Cell { beyond, ..Cell::quiet(distance, false, dial.is_some()) }
}

/// The egress that new passengers get for content at `home`, after three dials of each with jitter.
fn chosen(hub: Place, home: Place, rng: &mut ChaCha8Rng) -> usize {
    let mut choice = Choice::new(EGRESSES.len());
    let site = Site::of(&"home.example:443".parse().expect("it is a target"));
    let site = site.expect("a name has a site");
    for (egress, (_, at)) in EGRESSES.iter().enumerate() {
        let rtt = globe::rtt(hub.distance_km(*at));
        choice.set_leg(egress, Leg { rtt, loss: 0.0 });
    }
    let query = Query { who: ([1; 32], 1), site: &site, now: Duration::ZERO, random: 0.5 };
    choice.choose(&query, |_| true);
    for (egress, (_, at)) in EGRESSES.iter().enumerate() {
        for _ in 0..3 {
            let took = globe::rtt(at.distance_km(home)) + cells::NEAR;
            let took = took.mul_f64(rng.random_range(1.0 - JITTER..1.0 + JITTER));
            choice.dialled(egress, (&site, 443), Some(took), Duration::ZERO);
        }
    }
    choice.expected(&site, Duration::ZERO, |_| true).expect("all egresses are up")
}

/// A hub in Boise, whose way to the Internet begins in Seattle.
fn boise(seeds: Seeds, findings: &mut Findings) -> anyhow::Result<()> {
    let backhaul = globe::rtt(BACKHAUL_KM);
    let at = |km| {
        let whole = globe::rtt(BACKHAUL_KM + km);
        // An egress near the content; and one in Seattle, as far from the content as the peering.
        [
            download(whole, None),
            download(whole, Some(Duration::ZERO)),
            download(backhaul, Some(globe::rtt(km))),
        ]
    };
    let cells: Vec<Cell> = FROM_SEATTLE_KM.into_iter().flat_map(at).collect();
    let found = cells::measure(&cells, seeds)?;
    let mut lines =
        table::table(&["km from Seattle", "hub alone", "egress at content", "egress in Seattle"]);
    for (km, epb) in FROM_SEATTLE_KM.iter().zip(found.chunks(3)) {
        let figures = epb.iter().map(|it| format!("{:.3}", it.elapsed));
        lines.add_row([format!("{km:.0}")].into_iter().chain(figures));
        findings.at_least(
            &format!("Boise, {km:.0} km from Seattle, mesh"),
            epb[1].elapsed,
            MIN_EPB,
        );
    }
    table::align(&mut lines, &[0, 1, 2, 3]);
    findings.say("EPB over a hub in Boise, 640 km from Seattle:");
    findings.say(&lines.trim_fmt());
    Ok(())
}
