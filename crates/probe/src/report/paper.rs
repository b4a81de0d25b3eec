//! One's own values beside those of the paper.

use maud::{Markup, html};
use serde::Deserialize;

use super::tables::{percent, share};
use crate::analysis::Analysis;
use crate::live::ms;
use crate::trace::TraceEnd;

/// The paper's values, each with its section.
const PAPER: &str = include_str!("paper.json");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    paper: String,
    link: String,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    name: String,
    da2gc: Option<String>,
    mss: Option<String>,
    source: String,
}

/// The table.
pub fn table(analysis: &Analysis) -> Markup {
    let Ok(paper) = serde_json::from_str::<Paper>(PAPER) else { return html! {} };
    html! {
        div.wide { table {
            tr { th { "value" } th { "measured here" } th { "paper: air-to-ground" } th { "paper: satellite" }
                 th.text { "source" } }
            @for row in &paper.rows {
                tr {
                    td.wrap { (row.name) }
                    td { (measured(analysis, &row.id).unwrap_or_else(|| "–".into())) }
                    td.wrap { (row.da2gc.as_deref().unwrap_or("–")) }
                    td.wrap { (row.mss.as_deref().unwrap_or("–")) }
                    td.text.wrap { (row.source) }
                }
            }
        } }
        p.note { "Paper: " a href=(paper.link) { (paper.paper) } ". Loss and latency here are of the public target \
                  with the most replies; DNS is that of the local resolvers." }
    }
}

/// The value of a row, if it was measured.
fn measured(analysis: &Analysis, id: &str) -> Option<String> {
    let main = analysis.pings.main().map(|(_, figures)| figures);
    let minimum = analysis.minimum_rtt().map(|minimum| minimum.rtt_us);
    let losses = main.map(|figures| figures.window_losses()).unwrap_or_default();
    let windows = |wanted: &dyn Fn(f64) -> bool| {
        let found = losses.iter().filter(|loss| wanted(**loss)).count() as u64;
        share(found, losses.len() as u64).map(|share| percent(Some(share)))
    };
    match id {
        "rtt_min" => minimum.map(|us| format!("{} ms", ms(us))),
        "rtt_mean" => moments(&main?.rtts_us).map(|(mean, _)| format!("{mean:.0} ms")),
        "rtt_deviation" => {
            moments(&main?.rtts_us).map(|(_, deviation)| format!("{deviation:.0} ms"))
        }
        "cabin_below_2ms" => {
            let cabin = &analysis.paths.cabin_us;
            let below = cabin.iter().filter(|rtt| **rtt < 2000).count() as u64;
            share(below, cabin.len() as u64).map(|share| percent(Some(share)))
        }
        "loss_mean" => {
            let n = losses.len();
            (n > 0).then(|| percent(Some(losses.iter().sum::<f64>() / n as f64)))
        }
        "loss_zero" => windows(&|loss| loss == 0.0),
        "loss_over_30" => windows(&|loss| loss > 0.3),
        "dns_first_hits" => local(analysis)?.first_hits().map(|share| percent(Some(share))),
        "dns_second_hits" => local(analysis)?.second_hits().map(|share| percent(Some(share))),
        "dns_double_misses" => local(analysis)?.double_misses().map(|share| percent(Some(share))),
        "trace_death" => deaths(analysis),
        _ => None,
    }
}

/// Quadrants of all local resolvers.
fn local(analysis: &Analysis) -> Option<crate::dns::Quadrants> {
    let minimum = analysis.minimum_rtt()?.rtt_us;
    let resolvers = analysis.lookups.resolvers.values();
    let local = resolvers.filter(|resolver| resolver.kind == crate::dns::ResolverKind::Local);
    Some(crate::dns::Quadrants::of(local.flat_map(|resolver| &resolver.listed), minimum))
}

/// Range of hops after which traceroutes died.
fn deaths(analysis: &Analysis) -> Option<String> {
    let hops = analysis.paths.deaths().filter_map(|trace| match trace.end {
        TraceEnd::Died { after_ttl } => Some(after_ttl),
        _ => None,
    });
    let (low, high) = (hops.clone().min()?, hops.clone().max()?);
    let count = hops.count();
    let hops = if low == high { format!("{low}") } else { format!("{low}–{high}") };
    Some(format!("{hops} hops, {count} of {}", count as u64 + analysis.paths.reached()))
}

/// Mean and standard deviation in milliseconds.
fn moments(rtts_us: &[u64]) -> Option<(f64, f64)> {
    let n = rtts_us.len() as f64;
    (n > 0.0).then(|| {
        let mean = rtts_us.iter().map(|us| *us as f64 / 1000.0).sum::<f64>() / n;
        let squares = rtts_us.iter().map(|us| (*us as f64 / 1000.0 - mean).powi(2)).sum::<f64>();
        (mean, (squares / n).sqrt())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_source_and_a_measured_counterpart() {
        let paper: Paper = serde_json::from_str(PAPER).unwrap();
        let known = [
            "rtt_min",
            "rtt_mean",
            "rtt_deviation",
            "cabin_below_2ms",
            "loss_mean",
            "loss_zero",
            "loss_over_30",
            "dns_first_hits",
            "dns_second_hits",
            "dns_double_misses",
            "trace_death",
        ];
        let ids: Vec<&str> = paper.rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, known);
        assert!(paper.rows.iter().all(|row| row.source.starts_with("section")));
        assert!(
            known.iter().all(|id| measured(&Analysis::default(), id).is_none()),
            "nothing is invented"
        );
    }

    #[test]
    fn moments_of_two_values() {
        assert_eq!(moments(&[1000, 3000]), Some((2.0, 1.0)));
        assert_eq!(moments(&[]), None);
    }
}
