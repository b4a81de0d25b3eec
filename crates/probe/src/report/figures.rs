//! The figures: numbers in brackets are those of the paper.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Marks, Series};
use crate::analysis::{Analysis, Resolver, TargetFigures};
use crate::statistics::{cumulative, quantile};

/// Maximum number of points of a line, and most dots of a scatter plot: 2,000 dots take 60 kB of the page.
const MAX_POINTS: usize = 400;
const MAX_DOTS: usize = 2000;

/// Maximum number of lines in one figure.
const MAX_LINES: usize = 6;

/// Distribution of round-trip times of each target (2).
pub fn latency(analysis: &Analysis) -> Markup {
    let lines: Vec<_> = analysis
        .pings
        .targets
        .iter()
        .filter(|(_, figures)| !figures.rtts_us.is_empty())
        .take(MAX_LINES)
        .map(|(key, figures)| (format!("{} ({})", key.name, key.method), figures.sorted()))
        .collect();
    if lines.is_empty() {
        return html! { p { "No ping was answered." } };
    }
    let ends = lines.iter().flat_map(|(_, rtts)| [rtts[0], rtts[rtts.len() - 1]]).map(to_ms);
    let x = Axis::milliseconds("round-trip time in ms", ends);
    let series = lines.iter().enumerate().map(|(colour, (name, rtts))| Series {
        name: name.clone(),
        colour,
        marks: Marks::Line(shares(rtts)),
    });
    let chart = Chart {
        x,
        y: share_axis("share of pings"),
        series: series.collect(),
        limits: (None, None),
    };
    chart.draw("Distribution of round-trip times; figure 2 of the paper.")
}

/// Distribution of the loss per window of the main target (4).
pub fn loss(analysis: &Analysis) -> Markup {
    let Some((key, figures)) = analysis.pings.main() else {
        return html! { p { "No ping to a public address was answered." } };
    };
    let losses = figures.window_losses();
    let n = losses.len() as f64;
    let mut points = vec![(0.0, 0.0)];
    for (i, loss) in losses.iter().enumerate() {
        points.push((loss * 100.0, i as f64 / n));
        points.push((loss * 100.0, (i + 1) as f64 / n));
    }
    let x = Axis { label: "loss in %", from: 0.0, to: 100.0, logarithmic: false };
    let series = vec![Series { name: key.name.clone(), colour: 0, marks: Marks::Line(points) }];
    let chart = Chart { x, y: share_axis("share of windows"), series, limits: (None, None) };
    let caption = format!(
        "Loss in {} windows of 100 s, pings to {} by {}; figure 4 of the paper.",
        losses.len(),
        key.name,
        key.method
    );
    chart.draw(&caption)
}

/// Median, 95th percentile and loss of each window of the main target.
pub fn over_time(analysis: &Analysis) -> Markup {
    let Some((key, figures)) = analysis.pings.main() else {
        return html! { p { "No ping to a public address was answered." } };
    };
    let start = figures.windows.values().map(|window| window.wall_us).min().unwrap_or(0);
    let minutes = |wall_us: i64| (wall_us - start) as f64 / 60e6;
    let end = figures.windows.values().map(|window| minutes(window.wall_us)).fold(1.0, f64::max);
    let x = Axis { label: "minutes since the start", from: 0.0, to: end, logarithmic: false };
    let lines = [("minimum", 0.0, 2), ("median", 0.5, 0), ("95th percentile", 0.95, 1)];
    let series = lines.map(|(name, q, colour)| {
        let marks = Marks::Line(thin(quantiles_over_time(figures, q, &minutes)));
        Series { name: name.into(), colour, marks }
    });
    let all = analysis.pings.main().map(|(_, figures)| figures.sorted()).unwrap_or_default();
    let y = Axis::milliseconds("round-trip time in ms", all.iter().copied().map(to_ms));
    let latency = Chart { x, y, series: series.into(), limits: (None, None) };
    let lost = figures.windows.values().filter_map(|window| {
        window.counts.loss().map(|loss| (minutes(window.wall_us), 100.0 * loss))
    });
    let top = lost.clone().map(|(_, loss)| loss).fold(10.0, f64::max);
    let y = Axis { label: "loss per 100 s in %", from: 0.0, to: top, logarithmic: false };
    let bars = Marks::Bars(lost.collect(), 100.0 / 60.0);
    let series = vec![Series { name: "loss".into(), colour: 5, marks: bars }];
    let losses = Chart { x, y, series, limits: (None, None) };
    html! {
        (latency.draw(&format!("Round-trip time to {} in windows of 100 s.", key.name)))
        (losses.draw(&format!("Loss of pings to {} in windows of 100 s.", key.name)))
    }
}

/// Distribution of round-trip times to the first hop (3).
pub fn cabin(analysis: &Analysis) -> Markup {
    let mut rtts = analysis.paths.cabin_us.clone();
    rtts.sort_unstable();
    let (Some(first), Some(last)) = (rtts.first(), rtts.last()) else {
        return html! { p { "No traceroute had a reply from its first hop." } };
    };
    let x = Axis::milliseconds("round-trip time in ms", [*first, *last].into_iter().map(to_ms));
    let series =
        vec![Series { name: "first hop".into(), colour: 0, marks: Marks::Line(shares(&rtts)) }];
    let chart = Chart { x, y: share_axis("share of probes"), series, limits: (Some(2.0), None) };
    let caption = format!(
        "Cabin latency: {} probes to the first hop of traceroutes, with a mark at 2 ms; figure 3 of the paper.",
        rtts.len()
    );
    chart.draw(&caption)
}

/// Times of both lookups of each resolver, in quadrants (10).
pub fn lookups(analysis: &Analysis) -> Markup {
    let resolvers = &analysis.lookups.resolvers;
    if resolvers.is_empty() {
        return html! { p { "No name was looked up." } };
    }
    let minimum_us = analysis.minimum_rtt().map(|minimum| minimum.rtt_us);
    html! {
        (super::tables::resolvers(analysis))
        @for (address, resolver) in resolvers { (scatter(&address.to_string(), resolver, minimum_us)) }
    }
}

fn scatter(address: &str, resolver: &Resolver, minimum_us: Option<u64>) -> Markup {
    let times = resolver.times();
    if times.is_empty() {
        return html! { p { "No pair of lookups at " (address) " had two responses." } };
    }
    let axis = |label| {
        let both = times.iter().flat_map(|(first, second)| [*first, *second]);
        Axis::milliseconds(label, both.map(to_ms))
    };
    let step = times.len().div_ceil(MAX_DOTS);
    let dots = times.iter().step_by(step).map(|(first, second)| (to_ms(*first), to_ms(*second)));
    let limit = minimum_us.map(to_ms);
    let chart = Chart {
        x: axis("first lookup in ms"),
        y: axis("second lookup in ms"),
        series: vec![Series {
            name: address.into(),
            colour: 3,
            marks: Marks::Dots(dots.collect()),
        }],
        limits: (limit, limit),
    };
    let caption = format!(
        "Pairs of lookups at {address}, {} of {} pairs. Dashed: the minimum round-trip time to the ground; \
         figure 10 of the paper.",
        times.len().div_ceil(step),
        times.len()
    );
    chart.draw(&caption)
}

fn quantiles_over_time(
    figures: &TargetFigures,
    q: f64,
    minutes: &impl Fn(i64) -> f64,
) -> Vec<(f64, f64)> {
    let value = |rtts_us: &[u64]| {
        let mut sorted = rtts_us.to_vec();
        sorted.sort_unstable();
        // Where nothing was answered, the line has a gap.
        quantile(&sorted, q).map_or(f64::NAN, to_ms)
    };
    figures
        .windows
        .values()
        .map(|window| (minutes(window.wall_us), value(&window.rtts_us)))
        .collect()
}

fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(MAX_POINTS).max(1);
    points.into_iter().step_by(step).collect()
}

fn shares(sorted_us: &[u64]) -> Vec<(f64, f64)> {
    cumulative(sorted_us, MAX_POINTS).into_iter().map(|(us, share)| (to_ms(us), share)).collect()
}

fn share_axis(label: &'static str) -> Axis {
    Axis { label, from: 0.0, to: 1.0, logarithmic: false }
}

fn to_ms(us: u64) -> f64 {
    us as f64 / 1000.0
}
