//! The specification of a figure, without its data.

use serde_json::{Value, json};

use super::{COLOURS, Drawing, FOOT};
use crate::measured::unit_of;
use crate::report::format::{folded, name};
use crate::statistics::percentile;
use crate::study::FigureKind;

impl Drawing<'_> {
    /// The specification without its data, size and text colours, which the page adds.
    pub(super) fn spec(&self, rows: &[Value]) -> Value {
        let figure = &self.shown.section.figure;
        let colours = self.colours();
        let range: Vec<String> =
            (0..colours.len()).map(|slot| format!("var(--c{})", slot % COLOURS + 1)).collect();
        let colour = json!({
            "field": "c", "type": "nominal", "legend": null,
            "scale": { "domain": colours, "range": range },
        });
        let tooltip = json!({ "field": "t", "type": "nominal" });
        let title = match unit_of(&figure.y) {
            Some("s") => format!("{}, s", name(&figure.y)),
            Some("bit/s") => format!("{}, Mbit/s", name(&figure.y)),
            _ => name(&figure.y).to_owned(),
        };
        // The title is vertical, next to a panel that is not much higher.
        let y_title = folded(&title, 20);
        let y = json!({
            "field": "y", "type": "quantitative", "title": y_title,
            "axis": axis(unit_of(&figure.y)), "scale": { "zero": true },
        });
        match figure.kind {
            FigureKind::Lines if self.is_over_time() => self.over_time(&colour, &y),
            FigureKind::Lines => self.lines(rows, &colour, &y, &tooltip),
            FigureKind::Cdf => self.cdf(&colour),
            FigureKind::Scatter => self.scatter(rows, &colour, &tooltip),
            FigureKind::Waterfall => waterfall(&colour, &tooltip),
            FigureKind::Bars | FigureKind::Box | FigureKind::Table => {
                self.bars(rows, &colour, &y, &tooltip)
            }
        }
    }

    fn over_time(&self, colour: &Value, y: &Value) -> Value {
        json!({
            // A connection that carried data only for a moment is a point.
            "mark": { "type": "line", "strokeWidth": 1, "opacity": 0.75, "point": { "filled": true, "size": 8 } },
            "encoding": {
                "x": { "field": "x", "type": "quantitative", "title": self.x_title() },
                "y": y, "color": colour, "detail": { "field": "s" },
            },
        })
    }

    fn lines(&self, rows: &[Value], colour: &Value, y: &Value, tooltip: &Value) -> Value {
        let interval =
            json!({ "y": { "field": "low", "type": "quantitative" }, "y2": { "field": "high" } });
        json!({
            "encoding": { "x": self.x(rows), "color": colour },
            "layer": [
                { "mark": { "type": "rule", "opacity": 0.5 }, "encoding": interval },
                { "mark": { "type": "line", "strokeWidth": 2 }, "encoding": { "y": y } },
                { "mark": { "type": "point", "filled": true, "size": 40 }, "encoding": { "y": y, "tooltip": tooltip } },
            ],
        })
    }

    fn cdf(&self, colour: &Value) -> Value {
        let title = format!("{}, s", name(&self.shown.section.figure.x));
        json!({
            "mark": { "type": "line", "interpolate": "step-after", "strokeWidth": 2 },
            "encoding": {
                "x": { "field": "x", "type": "quantitative", "title": title, "scale": { "type": "symlog", "constant": 0.1 } },
                "y": { "field": "y", "type": "quantitative", "title": "share of objects", "axis": axis(Some("ratio")), "scale": { "domain": [0, 1] } },
                "color": colour,
            },
        })
    }

    fn scatter(&self, rows: &[Value], colour: &Value, tooltip: &Value) -> Value {
        let figure = &self.shown.section.figure;
        let log = |field: &str, metric: &str| {
            let max = rows.iter().filter_map(|row| row[field].as_f64()).fold(1.0, f64::max);
            json!({
                "field": field, "type": "quantitative", "title": name(metric),
                "axis": { "format": "~%", "values": [0.001, 0.01, 0.1, 1.0, 10.0] },
                "scale": { "type": "log", "domainMin": FOOT, "domainMax": max },
            })
        };
        json!({
            "mark": { "type": "point", "filled": true, "size": 50, "opacity": 0.8 },
            "encoding": { "x": log("x", &figure.x), "y": log("y", &figure.y), "color": colour, "tooltip": tooltip },
        })
    }

    fn bars(&self, rows: &[Value], colour: &Value, y: &Value, tooltip: &Value) -> Value {
        let mut shared = json!({ "x": self.x(rows), "color": colour });
        if self.colours().len() > 1 {
            shared["xOffset"] = json!({ "field": "c", "sort": self.colours() });
        }
        let span = |low: &str, high: &str| {
            let low = json!({ "field": low, "type": "quantitative", "title": y["title"] });
            json!({ "y": low, "y2": { "field": high } })
        };
        let ink = |mut encoding: Value| {
            encoding["color"] = json!({ "value": "var(--ink)" });
            encoding
        };
        let layers = if self.shown.section.figure.kind == FigureKind::Box {
            json!([
                { "mark": "rule", "encoding": span("q5", "q95") },
                { "mark": { "type": "bar", "opacity": 0.8 }, "encoding": span("q1", "q3") },
                { "mark": { "type": "tick", "thickness": 2 }, "encoding": ink(json!({ "y": y, "tooltip": tooltip })) },
            ])
        } else {
            let bar = json!({ "mark": { "type": "bar", "cornerRadiusEnd": 2 }, "encoding": { "y": y, "tooltip": tooltip } });
            let interval = json!({ "mark": { "type": "rule", "opacity": 0.7 }, "encoding": ink(span("low", "high")) });
            let word = json!({
                "transform": [{ "filter": "datum.word" }],
                "mark": { "type": "text", "angle": 270, "align": "left", "dx": 4 },
                "encoding": ink(json!({ "y": { "datum": 0 }, "text": { "field": "word" } })),
            });
            // A mean of cells has no confidence interval.
            match self.shown.section.figure.pool {
                Some(_) => json!([bar, word]),
                None => json!([bar, interval, word]),
            }
        };
        json!({ "encoding": shared, "layer": layers })
    }

    /// Encoding of the x axis: names, or numbers, with a logarithmic scale for a wide range.
    fn x(&self, rows: &[Value]) -> Value {
        let figure = &self.shown.section.figure;
        let title = self.x_title();
        let numbers: Vec<f64> = rows.iter().filter_map(|row| row["x"].as_f64()).collect();
        if figure.kind != FigureKind::Lines || numbers.is_empty() {
            let names = self.order(&figure.x);
            let short = names.iter().map(|name| name.chars().count()).sum::<usize>() <= 24;
            let turned = if figure.x == "x" || short { 0 } else { -35 };
            return json!({
                "field": "x", "type": if figure.x == "x" { "ordinal" } else { "nominal" },
                "title": title, "sort": if figure.x == "x" { json!("ascending") } else { json!(self.order(&figure.x)) },
                "axis": { "labelAngle": turned, "labelOverlap": false },
            });
        }
        let (least, most) = (percentile(&numbers, 0.0), percentile(&numbers, 1.0));
        match least.zip(most) {
            Some((least, most)) if least > 0.0 && most / least >= 1000.0 => json!({
                "field": "x", "type": "quantitative", "title": title,
                "scale": { "type": "log", "nice": false }, "axis": { "format": ".0e", "tickCount": 5 },
            }),
            Some((least, most)) if least == 0.0 && most < 0.1 => {
                json!({ "field": "x", "type": "ordinal", "title": title, "axis": { "labelAngle": -35 } })
            }
            _ => {
                json!({ "field": "x", "type": "quantitative", "title": title, "axis": { "tickCount": 8 } })
            }
        }
    }
}

fn waterfall(colour: &Value, tooltip: &Value) -> Value {
    json!({
        "mark": { "type": "bar", "height": { "band": 0.8 } },
        "encoding": {
            "x": { "field": "x", "type": "quantitative", "title": "seconds since the page's start", "scale": { "nice": false } },
            "x2": { "field": "x2" },
            "y": { "field": "y", "type": "ordinal", "title": "objects, in the order asked for", "axis": { "labels": false, "ticks": false, "grid": false } },
            "color": colour, "tooltip": tooltip,
        },
    })
}

fn axis(unit: Option<&str>) -> Value {
    match unit {
        Some("ratio") => json!({ "format": "~%", "tickCount": 5 }),
        _ => json!({ "tickCount": 5 }),
    }
}
