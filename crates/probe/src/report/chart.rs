//! Line charts and scatter plots as SVG. They scale with the page and take its colours.

use maud::{Markup, html};

/// Size in user units: text of 13 units is legible when the page is 360 pixels wide.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 280.0;

/// Margins around the plot.
const LEFT: f64 = 46.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;

/// Colours of the style sheet.
const COLOURS: usize = 6;

/// Scale of an axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Quantity and unit.
    pub label: &'static str,
    /// First value.
    pub from: f64,
    /// Last value.
    pub to: f64,
    /// Logarithmic; both ends are then positive.
    pub logarithmic: bool,
}

/// Marks of a chart.
#[derive(Debug)]
pub enum Marks {
    /// A line through points. A gap is a point with a value that is not a number.
    Line(Vec<(f64, f64)>),
    /// Dots.
    Dots(Vec<(f64, f64)>),
    /// Bars from the axis, with the width of a bar in units of x.
    Bars(Vec<(f64, f64)>, f64),
}

/// A series with its name and the number of its colour.
#[derive(Debug)]
pub struct Series {
    /// Name in the key.
    pub name: String,
    /// Colour.
    pub colour: usize,
    /// Marks.
    pub marks: Marks,
}

/// A chart.
#[derive(Debug)]
pub struct Chart {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series.
    pub series: Vec<Series>,
    /// Vertical and horizontal lines at limits.
    pub limits: (Option<f64>, Option<f64>),
}

impl Axis {
    /// A logarithmic axis of milliseconds around values, in whole decades.
    pub fn milliseconds(label: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        if !low.is_finite() {
            (low, high) = (1.0, 1000.0);
        }
        // Times below 10 µs are those of a machine's own loopback.
        let from = 10f64.powf(low.max(0.01).log10().floor());
        let to = 10f64.powf(high.max(0.01).log10().ceil()).max(from * 10.0);
        Self { label, from, to, logarithmic: true }
    }

    /// Share of the axis at which `value` lies, within the plot.
    fn at(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        if self.logarithmic {
            let decades = (self.to / self.from).log10().round() as i32;
            return (0..=decades)
                .map(|k| self.from * 10f64.powi(k))
                .map(|v| (v, number(v)))
                .collect();
        }
        let step = step((self.to - self.from) / 4.0);
        let count = ((self.to - self.from) / step + 1e-9).floor() as u32;
        (0..=count).map(|k| self.from + step * f64::from(k)).map(|v| (v, number(v))).collect()
    }
}

/// The smallest round number that is at least `least`: 1, 2, 2.5 or 5 times a power of ten.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
    factors
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

/// A number without superfluous digits.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Chart {
    /// Draws the chart with its key. `caption` says what it shows.
    pub fn draw(&self, caption: &str) -> Markup {
        let px = |x: f64| LEFT + self.x.at(x) * (WIDTH - LEFT - RIGHT);
        let py = |y: f64| HEIGHT - BOTTOM - self.y.at(y) * (HEIGHT - TOP - BOTTOM);
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        html! {
            figure {
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(caption) {
                    @for (value, text) in self.y.ticks() {
                        line.grid x1=(LEFT) x2=(right) y1=(round(py(value))) y2=(round(py(value))) {}
                        text x=(LEFT - 5.0) y=(round(py(value) + 4.0)) text-anchor="end" { (text) }
                    }
                    @for (value, text) in self.x.ticks() {
                        line.grid y1=(TOP) y2=(bottom) x1=(round(px(value))) x2=(round(px(value))) {}
                        @let anchor = if px(value) > right - 20.0 { "end" } else { "middle" };
                        text x=(round(px(value))) y=(bottom + 16.0) text-anchor=(anchor) { (text) }
                    }
                    text x=((LEFT + right) / 2.0) y=(HEIGHT - 6.0) text-anchor="middle" { (self.x.label) }
                    @for series in &self.series { (series.draw(&px, &py, bottom)) }
                    @if let Some(x) = self.limits.0 {
                        line.limit y1=(TOP) y2=(bottom) x1=(round(px(x))) x2=(round(px(x))) {}
                    }
                    @if let Some(y) = self.limits.1 {
                        line.limit x1=(LEFT) x2=(right) y1=(round(py(y))) y2=(round(py(y))) {}
                    }
                }
                figcaption {
                    (caption) " Vertical: " (self.y.label) "."
                    @if self.series.len() > 1 {
                        br;
                        @for series in &self.series {
                            span.entry {
                                span.key style=(format!("background:var(--s{})", series.colour % COLOURS)) {}
                                (series.name)
                            }
                            " "
                        }
                    }
                }
            }
        }
    }
}

impl Series {
    fn draw(&self, px: &impl Fn(f64) -> f64, py: &impl Fn(f64) -> f64, bottom: f64) -> Markup {
        let colour = format!("var(--s{})", self.colour % COLOURS);
        match &self.marks {
            Marks::Line(points) => html! {
                path.line d=(path(points, px, py)) style=(format!("stroke:{colour}")) {}
            },
            Marks::Dots(points) => html! {
                g style=(format!("fill:{colour};fill-opacity:.55")) {
                    @for (x, y) in points { circle cx=(round(px(*x))) cy=(round(py(*y))) r="2.5" {} }
                }
            },
            Marks::Bars(points, width) => html! {
                g.bar style=(format!("fill:{colour};fill-opacity:.7")) {
                    @for (x, y) in points {
                        rect x=(round(px(*x))) y=(round(py(*y))) height=(round(bottom - py(*y)))
                            width=(round((px(x + width) - px(*x)).max(1.0))) {}
                    }
                }
            },
        }
    }
}

/// Path data; a point that is not a number interrupts the line.
fn path(points: &[(f64, f64)], px: &impl Fn(f64) -> f64, py: &impl Fn(f64) -> f64) -> String {
    let mut data = String::new();
    let mut pen_down = false;
    for (x, y) in points {
        if !y.is_finite() {
            pen_down = false;
            continue;
        }
        let command = if pen_down { 'L' } else { 'M' };
        data.push_str(&format!("{command}{} {}", round(px(*x)), round(py(*y))));
        pen_down = true;
    }
    data
}

/// A tenth of a unit is finer than a pixel.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_cover_their_values_in_decades() {
        let axis = Axis::milliseconds("ms", [3.0, 761.0].into_iter());
        assert_eq!((axis.from, axis.to), (1.0, 1000.0));
        assert_eq!(axis.at(1.0), 0.0);
        assert!((axis.at(31.622_776) - 0.5).abs() < 1e-6);
        assert_eq!(axis.at(0.0), 0.0, "no value leaves the plot");
        assert_eq!(axis.ticks().len(), 4);
        let none = Axis::milliseconds("ms", std::iter::empty());
        assert_eq!((none.from, none.to), (1.0, 1000.0));
    }

    #[test]
    fn gaps_interrupt_a_line() {
        let identity = |value: f64| value;
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 4.0)];
        assert_eq!(path(&points, &identity, &identity), "M0 1L1 2M3 4");
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([0.25, 12.5, 179.6, 0.9].map(step), [0.25, 20.0, 200.0, 1.0]);
        let minutes = Axis { label: "minutes", from: 0.0, to: 718.3, logarithmic: false };
        let texts: Vec<String> = minutes.ticks().into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["0", "200", "400", "600"]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.5, 1.0, 1000.0, 0.01].map(number), ["0.5", "1", "1000", "0.01"]);
    }
}
