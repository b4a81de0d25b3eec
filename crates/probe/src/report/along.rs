//! Latency and loss along flight tracks: maps, phases of flight, altitude (6).

use maud::{Markup, html};

use super::chart::{Axis, Chart, Marks, Series};
use super::map::{self, CLASSES, Dot};
use super::tables::{at, percent, share};
use crate::analysis::{Analysis, Place};
use crate::clock::utc;
use crate::live::ms;
use crate::loss::WINDOW_S;
use crate::statistics::quantile;
use crate::track::Track;

/// Upper bounds of the classes of loss but the last, as shares.
const LOSSES: [f64; CLASSES - 1] = [0.0, 0.02, 0.05, 0.15];

/// Maximum number of points of the line of altitude.
const MAX_POINTS: usize = 400;

/// Maximum number of dots of a map. At 6 units each they hardly overlap along a map's width.
const MAX_DOTS: usize = 80;

/// The section.
pub fn section(analysis: &Analysis) -> Markup {
    let places = analysis.along();
    html! {
        @for track in &analysis.tracks { (one(track, &places)) }
        (phases(analysis))
    }
}

fn one(track: &Track, all: &[Place]) -> Markup {
    let times = track.fixes[0].wall_us..=track.fixes[track.fixes.len() - 1].wall_us;
    let places: Vec<&Place> = all.iter().filter(|place| times.contains(&place.wall_us)).collect();
    let dots = grouped(&places);
    let seconds = places.len().div_ceil(dots.len().max(1)) as u64 * WINDOW_S;
    html! {
        p {
            (track.name) ": " (track.format.name()) ", " (track.fixes.len()) " positions from "
            (utc(*times.start())) " to " (utc(*times.end())) " UTC"
            @if track.left_out > 0 { ", " (track.left_out) " left out because they are stale, incomplete or impossible" }
            "."
        }
        @if places.is_empty() {
            p { strong { "No ping was sent at a time of this track. " } "Compare its times with those of the records: \
                both are UTC, and a laptop's clock may be wrong." }
        } @else {
            (latencies(track, &dots, seconds)) (losses(track, &dots, seconds)) (altitude(track, &places))
        }
    }
}

/// Consecutive windows together: at most so many dots. A dot has the median of their medians, their mean loss, and
/// the position in their middle.
fn grouped(places: &[&Place]) -> Vec<Place> {
    let group = |group: &[&Place]| {
        let mut medians: Vec<u64> = group.iter().filter_map(|place| place.median_us).collect();
        medians.sort_unstable();
        let losses: Vec<f64> = group.iter().filter_map(|place| place.loss).collect();
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        Place {
            median_us: quantile(&medians, 0.5),
            loss: (!losses.is_empty()).then_some(loss),
            ..group[group.len() / 2].clone()
        }
    };
    places.chunks(places.len().div_ceil(MAX_DOTS).max(1)).map(group).collect()
}

fn latencies(track: &Track, places: &[Place], seconds: u64) -> Markup {
    let mut medians: Vec<u64> = places.iter().filter_map(|place| place.median_us).collect();
    medians.sort_unstable();
    // Bounds between fifths of this flight's windows.
    let bounds: Vec<u64> =
        (1..CLASSES).filter_map(|k| quantile(&medians, k as f64 / CLASSES as f64)).collect();
    let dots: Vec<Dot> = places
        .iter()
        .filter_map(|place| {
            let median_us = place.median_us?;
            let class = bounds.partition_point(|bound| *bound < median_us);
            Some(dot(place, class))
        })
        .collect();
    if bounds.is_empty() {
        return html! { p { "No ping on this track was answered." } };
    }
    let name = |class: usize| match bounds.get(class) {
        Some(bound) => format!("to {} ms", ms(*bound)),
        None => format!("to {} ms", ms(medians[medians.len() - 1])),
    };
    let caption = format!(
        "Median round-trip time of each {seconds} s along the track, in fifths of this flight; figure 6 of the paper. \
         Hollow and dashed: interpolated over more than 5 minutes."
    );
    map::draw(track, &dots, &std::array::from_fn(name), &caption)
}

fn losses(track: &Track, places: &[Place], seconds: u64) -> Markup {
    let dots: Vec<Dot> = places
        .iter()
        .filter_map(|place| {
            let loss = place.loss?;
            let class = LOSSES.partition_point(|bound| *bound < loss);
            Some(dot(place, class))
        })
        .collect();
    let names = ["none", "to 2 %", "to 5 %", "to 15 %", "more"].map(String::from);
    let caption = format!("Loss of each {seconds} s along the track; figure 6 of the paper.");
    map::draw(track, &dots, &names, &caption)
}

fn dot(place: &Place, class: usize) -> Dot {
    let position = &place.position;
    Dot { place: (position.latitude, position.longitude), class, hollow: position.interpolated }
}

/// Altitude over the times of the measured windows.
fn altitude(track: &Track, places: &[&Place]) -> Markup {
    let start = places[0].wall_us;
    let end = places[places.len() - 1].wall_us;
    let step = ((end - start) / MAX_POINTS as i64).max(10_000_000);
    let points: Vec<(f64, f64)> = (0..)
        .map(|k| start + k * step)
        .take_while(|wall_us| *wall_us <= end)
        .map(|wall_us| {
            let altitude = track.position(wall_us).and_then(|position| position.altitude_ft);
            ((wall_us - start) as f64 / 60e6, altitude.map_or(f64::NAN, |feet| feet / 1000.0))
        })
        .collect();
    let top =
        points.iter().map(|(_, feet)| *feet).filter(|feet| feet.is_finite()).fold(0.0, f64::max);
    if top <= 0.0 {
        return html! {};
    }
    let minutes = ((end - start) as f64 / 60e6).max(1.0);
    let x = Axis { label: "minutes on the track", from: 0.0, to: minutes, logarithmic: false };
    let y = Axis { label: "altitude in 1,000 ft", from: 0.0, to: top, logarithmic: false };
    let series = vec![Series { name: "altitude".into(), colour: 2, marks: Marks::Line(points) }];
    Chart { x, y, series, limits: (None, None) }.draw("Altitude while pings were sent.")
}

fn phases(analysis: &Analysis) -> Markup {
    let phases = analysis.phases();
    if phases.is_empty() {
        return html! {};
    }
    html! {
        div.wide { table {
            tr { th { "phase of flight" } th { "windows" } th { "pings" } th { "median ms" } th { "p95 ms" }
                 th { "lost" } }
            @for (phase, figures) in &phases {
                @let sorted = { let mut rtts = figures.rtts_us.clone(); rtts.sort_unstable(); rtts };
                tr {
                    td { (phase.map_or("altitude unknown", |phase| phase.name())) }
                    td { (figures.windows) } td { (figures.pings.0) }
                    td { (at(&sorted, 0.5)) } td { (at(&sorted, 0.95)) }
                    td { (percent(share(figures.pings.1, figures.pings.0))) }
                }
            }
        } }
        p.note { "A climb or a descent is faster than 300 feet a minute; cruise is level flight above 10,000 feet." }
    }
}
