//! Maps of a track, with a value at each window. The base is a graticule and the coast of Natural Earth
//! (1:110 million, in the public domain), so nothing is loaded.

use std::fmt::Write;

use maud::{Markup, html};

use crate::track::{Fix, Track};

/// Size in user units, as that of charts.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 320.0;

/// Least height of a map in degrees of latitude, and margin around the track in parts of its extent.
const MIN_DEGREES: f64 = 4.0;
const MARGIN: f64 = 0.12;

/// Smallest factor of longitudes: near the poles a map of this kind is not true to shape.
const MIN_FACTOR: f64 = 0.2;

/// Maximum number of points of a drawn track.
const MAX_POINTS: usize = 600;

/// Distance of fixes in time beyond which the line between them is dashed.
const DASHED_US: i64 = 300_000_000;

/// Coast: a line of text is a line of the coast, with its first point and then differences, in tenths of a
/// degree, longitude before latitude.
const COAST: &str = include_str!("coast.txt");

/// Classes of values, from good to bad.
pub const CLASSES: usize = 5;

/// A value on a map.
#[derive(Clone, Debug)]
pub struct Dot {
    /// Latitude and longitude in degrees.
    pub place: (f64, f64),
    /// Class of the value, below [`CLASSES`].
    pub class: usize,
    /// The place is interpolated over a long gap.
    pub hollow: bool,
}

/// Projection of degrees to user units.
struct View {
    /// Longitude in the middle, from which others are at most 180° away.
    middle: f64,
    west: f64,
    north: f64,
    /// User units of a degree of latitude.
    scale: f64,
    factor: f64,
}

/// Draws a map. `classes` names the classes for the key.
pub fn draw(track: &Track, dots: &[Dot], classes: &[String; CLASSES], caption: &str) -> Markup {
    let view = View::around(&track.fixes);
    let (solid, dashed) = view.track(&track.fixes);
    html! {
        figure {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(caption) {
                path.grid d=(view.graticule()) {}
                path.coast d=(view.coast()) {}
                @for (x, y, text) in view.labels() { text.place x=(round(x)) y=(round(y)) { (text) } }
                path.track d=(solid) {}
                path.track.gap d=(dashed) {}
                @for dot in dots {
                    @let (x, y) = view.project(dot.place);
                    circle cx=(round(x)) cy=(round(y)) r=(2.5 + 0.6 * dot.class as f64)
                        class=(format!("c{}{}", dot.class, if dot.hollow { " hollow" } else { "" })) {}
                }
            }
            figcaption {
                (caption) br;
                @for (class, name) in classes.iter().enumerate() {
                    span.entry { span.key style=(format!("background:var(--c{class})")) {} (name) } " "
                }
            }
        }
    }
}

impl View {
    /// A view of all fixes.
    fn around(fixes: &[Fix]) -> Self {
        let mut east = Unwrapped::default();
        let longitudes: Vec<f64> = fixes.iter().map(|fix| east.next(fix.longitude)).collect();
        let (west, east) = extent(longitudes.into_iter());
        let (south, north) = extent(fixes.iter().map(|fix| fix.latitude));
        let middle_latitude = f64::midpoint(south, north);
        let factor = middle_latitude.to_radians().cos().max(MIN_FACTOR);
        let high = ((north - south) * (1.0 + 2.0 * MARGIN)).max(MIN_DEGREES);
        let wide = (east - west) * (1.0 + 2.0 * MARGIN) * factor;
        let scale = (HEIGHT / high).min(WIDTH / wide.max(1e-9));
        let middle = f64::midpoint(west, east);
        let west = middle - WIDTH / 2.0 / scale / factor;
        let north = middle_latitude + HEIGHT / 2.0 / scale;
        Self { middle, west, north, scale, factor }
    }

    /// The place of a point in degrees. Longitudes are those nearest to the middle of the map.
    fn project(&self, (latitude, longitude): (f64, f64)) -> (f64, f64) {
        self.flat(latitude, nearest(longitude, self.middle))
    }

    fn flat(&self, latitude: f64, longitude: f64) -> (f64, f64) {
        ((longitude - self.west) * self.factor * self.scale, (self.north - latitude) * self.scale)
    }

    /// Paths of the track: one with fixes close to each other, and one of gaps, on great circles.
    fn track(&self, fixes: &[Fix]) -> (String, String) {
        let step = fixes.len().div_ceil(MAX_POINTS).max(1);
        let (mut solid, mut dashed) = (String::new(), String::new());
        let mut last: Option<&Fix> = None;
        for (index, fix) in fixes.iter().enumerate() {
            let new = last.is_none_or(|_| fix.new_leg);
            // The edges of gaps are kept, however many fixes there are.
            let gap = |a: &Fix, b: &Fix| b.wall_us - a.wall_us > DASHED_US;
            let edge = new
                || index > 0 && gap(&fixes[index - 1], fix)
                || fixes.get(index + 1).is_none_or(|next| next.new_leg || gap(fix, next));
            if !edge && !index.is_multiple_of(step) {
                continue;
            }
            let before = last.replace(fix).filter(|_| !new);
            let (x, y) = self.project((fix.latitude, fix.longitude));
            match before {
                Some(before) if index > 0 && gap(&fixes[index - 1], fix) => {
                    self.circle(&mut dashed, before, fix);
                    _ = write!(solid, "M{} {}", round(x), round(y));
                }
                Some(_) => _ = write!(solid, "L{} {}", round(x), round(y)),
                None => _ = write!(solid, "M{} {}", round(x), round(y)),
            }
        }
        (solid, dashed)
    }

    fn circle(&self, path: &mut String, from: &Fix, to: &Fix) {
        for k in 0..=24 {
            let place = crate::track::between(from, to, f64::from(k) / 24.0);
            let (x, y) = self.project(place);
            _ = write!(path, "{}{} {}", if k == 0 { 'M' } else { 'L' }, round(x), round(y));
        }
    }

    /// Lines of the coast that touch the map, once for each turn of the globe that it shows.
    fn coast(&self) -> String {
        let mut path = String::new();
        for turn in [-360.0, 0.0, 360.0] {
            for line in COAST.lines() {
                let mut numbers = line.split(' ').filter_map(|text| text.parse::<f64>().ok());
                let (mut longitude, mut latitude) = (turn, 0.0);
                let (mut before, mut pen_down) = (None, false);
                while let (Some(east), Some(north)) = (numbers.next(), numbers.next()) {
                    longitude += east / 10.0;
                    latitude += north / 10.0;
                    let point = self.flat(latitude, longitude);
                    if let Some(from) = before.replace(point)
                        && visible(from, point)
                    {
                        if !pen_down {
                            _ = write!(path, "M{} {}", round(from.0), round(from.1));
                        }
                        _ = write!(path, "L{} {}", round(point.0), round(point.1));
                        pen_down = true;
                    } else {
                        pen_down = false;
                    }
                }
            }
        }
        path
    }

    /// Meridians and parallels on the map.
    fn lines(&self) -> (Vec<f64>, Vec<f64>) {
        let step = step(HEIGHT / self.scale / 4.0);
        let multiples = |from: f64, to: f64| {
            let (first, last) = ((from / step).ceil() as i32, (to / step).floor() as i32);
            (first..=last).map(|k| f64::from(k) * step).collect::<Vec<_>>()
        };
        let east = self.west + WIDTH / self.scale / self.factor;
        let south = self.north - HEIGHT / self.scale;
        (multiples(self.west, east), multiples(south.max(-90.0), self.north.min(90.0)))
    }

    fn graticule(&self) -> String {
        let (meridians, parallels) = self.lines();
        let mut path = String::new();
        for longitude in meridians {
            let x = round(self.flat(0.0, longitude).0);
            _ = write!(path, "M{x} 0V{HEIGHT}");
        }
        for latitude in parallels {
            let y = round(self.flat(latitude, 0.0).1);
            _ = write!(path, "M0 {y}H{WIDTH}");
        }
        path
    }

    fn labels(&self) -> Vec<(f64, f64, String)> {
        let (meridians, parallels) = self.lines();
        let named = |degrees: f64, positive: char, negative: char| match degrees {
            0.0 => "0°".into(),
            degrees if degrees.abs() == 180.0 => "180°".into(),
            degrees if degrees > 0.0 => format!("{degrees}°{positive}"),
            degrees => format!("{}°{negative}", -degrees),
        };
        let below = meridians.into_iter().map(|longitude| {
            let x = self.flat(0.0, longitude).0;
            (x + 3.0, HEIGHT - 5.0, named(nearest(longitude, 0.0), 'E', 'W'))
        });
        let beside = parallels
            .into_iter()
            .map(|latitude| (4.0, self.flat(latitude, 0.0).1 - 3.0, named(latitude, 'N', 'S')));
        let inside = |(x, y, _): &(f64, f64, String)| *x < WIDTH - 40.0 && *y > 12.0;
        let corner = |(x, y, _): &(f64, f64, String)| *x > 45.0 || *y < HEIGHT - 22.0;
        below.chain(beside).filter(inside).filter(corner).collect()
    }
}

/// The longitude, by whole turns, that is nearest to another.
fn nearest(longitude: f64, to: f64) -> f64 {
    longitude + 360.0 * ((to - longitude) / 360.0).round()
}

/// Longitudes without jumps at the antimeridian.
#[derive(Default)]
struct Unwrapped(Option<f64>);

impl Unwrapped {
    fn next(&mut self, longitude: f64) -> f64 {
        let here = self.0.map_or(longitude, |last| nearest(longitude, last));
        self.0 = Some(here);
        here
    }
}

fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
}

/// Returns `true` if a segment may touch the map.
fn visible(a: (f64, f64), b: (f64, f64)) -> bool {
    let outside = |a: f64, b: f64, most: f64| a.max(b) < 0.0 || a.min(b) > most;
    !outside(a.0, b.0, WIDTH) && !outside(a.1, b.1, HEIGHT)
}

/// The smallest distance of lines that is at least `least` degrees.
fn step(least: f64) -> f64 {
    let steps = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
    steps.into_iter().find(|step| *step >= least).unwrap_or(45.0)
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fix(minute: i64, latitude: f64, longitude: f64) -> Fix {
        let wall_us = minute * 60_000_000;
        Fix { wall_us, latitude, longitude, altitude_ft: None, ground: false, new_leg: false }
    }

    #[test]
    fn a_track_over_the_antimeridian_is_on_one_map() {
        let fixes =
            [fix(0, 35.0, 140.0), fix(4, 50.0, 179.0), fix(8, 50.0, -170.0), fix(12, 37.0, -122.0)];
        let view = View::around(&fixes);
        let xs: Vec<f64> =
            fixes.iter().map(|f| view.project((f.latitude, f.longitude)).0).collect();
        assert!(xs.is_sorted() && xs[0] > 0.0 && xs[3] < WIDTH, "{xs:?}");
        assert!(view.labels().iter().any(|(.., text)| text == "180°" || text == "150°W"));
        // Japan and California are on it.
        assert!(view.coast().matches('M').count() > 10);
    }

    #[test]
    fn gaps_are_dashed_and_legs_are_apart() {
        let mut fixes =
            vec![fix(0, 0.0, 0.0), fix(1, 0.0, 1.0), fix(60, 0.0, 9.0), fix(61, 0.0, 10.0)];
        let view = View::around(&fixes);
        let (solid, dashed) = view.track(&fixes);
        assert_eq!((solid.matches('M').count(), solid.matches('L').count()), (2, 2));
        assert_eq!(dashed.matches('M').count(), 1);
        fixes[2].new_leg = true;
        assert_eq!(view.track(&fixes).1, "", "nothing is known between legs");
        let dense: Vec<Fix> =
            (0..50_000).map(|k| Fix { wall_us: k * 1000, ..fix(0, 0.0, k as f64 / 1e4) }).collect();
        assert!(view.track(&dense).0.len() < 20_000);
    }

    #[test]
    fn a_point_is_a_map_too() {
        let view = View::around(&[fix(0, 89.9, 12.0), fix(1, 89.9, 12.0)]);
        let (x, y) = view.project((89.9, 12.0));
        assert!((x - WIDTH / 2.0).abs() < 1e-6 && (y - HEIGHT / 2.0).abs() < 1e-6);
        assert!(!view.graticule().contains("NaN") && !view.graticule().contains("inf"));
    }

    #[test]
    fn the_coast_is_where_it_should_be() {
        let mut points = 0;
        for line in COAST.lines() {
            let numbers: Vec<i32> = line.split(' ').map(|text| text.parse().unwrap()).collect();
            assert!(numbers.len() >= 4 && numbers.len().is_multiple_of(2), "{line}");
            let (mut east, mut north) = (0, 0);
            for pair in numbers.chunks(2) {
                (east, north) = (east + pair[0], north + pair[1]);
                assert!(east.abs() <= 1800 && north.abs() <= 900, "{line}");
                assert!(points == 0 || pair[0].abs() <= 900 || pair == &numbers[..2], "{line}");
                points += 1;
            }
        }
        assert!(points > 5000);
    }
}
