//! Figure of a trace: rates above, the queue below, as SVG.

use std::fmt::Write;

use crate::record::TraceRow;

/// Size of the drawing, and of each panel in it.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 15.0;
const PANELS: [(f64, f64); 2] = [(40.0, 300.0), (340.0, 460.0)];
const HEIGHT: f64 = 500.0;
/// Lines of the grid in each panel.
const GRID: u32 = 4;

/// Line in a panel: its name, its colour and its values.
type Line = (&'static str, &'static str, fn(&TraceRow) -> f64);

const RATES: [Line; 4] = [
    ("capacity × (1−p)", "#888888", |row| row.capacity_bps / 1e6),
    ("sent", "#d95f02", |row| row.sent_bps / 1e6),
    ("delivered", "#1b9e77", |row| row.delivered_bps / 1e6),
    ("goodput", "#7570b3", |row| row.goodput_bps / 1e6),
];
const QUEUE: [Line; 1] = [("queue", "#d95f02", |row| row.queue_s * 1e3)];

/// Draws a trace under a title.
pub fn svg(title: &str, rows: &[TraceRow]) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{}</text>\n",
        escape(title)
    );
    panel(&mut out, PANELS[0], "Mbit/s", &RATES, rows);
    panel(&mut out, PANELS[1], "ms", &QUEUE, rows);
    let end = rows.last().map_or(0.0, |row| row.at_s);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{0}\">0 s</text>\n\
         <text x=\"{1}\" y=\"{0}\" text-anchor=\"end\">{end:.0} s</text>\n</svg>",
        HEIGHT - 15.0,
        WIDTH - RIGHT
    );
    out
}

fn panel(
    out: &mut String,
    (top, bottom): (f64, f64),
    unit: &str,
    lines: &[Line],
    rows: &[TraceRow],
) {
    let end = rows.last().map_or(1.0, |row| row.at_s).max(f64::MIN_POSITIVE);
    let values = rows.iter().flat_map(|row| lines.iter().map(|(.., of)| of(row)));
    let most = values.fold(0.0, f64::max).max(1.0);
    let x = |at: f64| LEFT + at / end * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| bottom - value / most * (bottom - top);
    for line in 0..=GRID {
        let value = most * f64::from(line) / f64::from(GRID);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{2}\" y=\"{1:.1}\" text-anchor=\"end\">{value:.1}</text>",
            WIDTH - RIGHT,
            y(value),
            LEFT - 5.0
        );
    }
    let _ = writeln!(out, "<text x=\"5\" y=\"{top:.1}\">{unit}</text>");
    for (place, (name, colour, of)) in lines.iter().enumerate() {
        let points: Vec<String> =
            rows.iter().map(|row| format!("{:.1},{:.1}", x(row.at_s), y(of(row)))).collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>\
             <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            LEFT + 140.0 * place as f64,
            top - 6.0
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_within_its_panel() {
        let row = |second: u32| TraceRow {
            at_s: f64::from(second),
            capacity_bps: 20e6,
            rate_bps: 19e6,
            sent_bps: 19e6,
            delivered_bps: 18e6,
            goodput_bps: 17e6,
            queue_s: f64::from(second) / 100.0,
            dropped: 0,
        };
        let text = svg("A < B", &(1..=10).map(row).collect::<Vec<_>>());
        assert_eq!(text.matches("<polyline").count(), 5);
        assert!(text.contains("A &lt; B") && text.contains(">20.0<") && text.contains("10 s"));
        // The highest queue is at the top of its panel, the capacity at that of the other.
        assert!(text.contains("885.0,340.0") && text.contains("885.0,40.0"));
        assert!(svg("empty", &[]).contains("</svg>"));
    }
}
