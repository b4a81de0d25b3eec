//! Measured properties of a study's links.

use maud::{Markup, html};

use super::Worked;
use super::section::label;
use crate::folder::LinkRange;
use crate::measured::COLUMNS;
use crate::study::Study;

/// The links of a study, one line for each direction. Empty if none was measured.
pub(super) fn links(worked: &Worked<'_>, study: &Study) -> Markup {
    let own: Vec<&LinkRange> =
        worked.report.manifest.links.iter().filter(|link| link.paper == study.name).collect();
    html! {
        @if !own.is_empty() {
            details.links {
                summary { "The links as measured: " (own.len()) " directions" }
                p { "Probes and bursts cross every link before its cells are run, and a link that is not as \
                     declared gives no result. Of more than one cell the least and the most; a rate stands \
                     where the bursts kept the link busy." }
                div.scroll tabindex="0" role="region" aria-label={ "Links as measured, " (study.name) } { table {
                    thead { tr {
                        th scope="col" { "Grid" } th scope="col" { "Link" } th scope="col" { "Direction" }
                        th.number scope="col" { "One-way delay, ms" } th.number scope="col" { "Rate, Mbit/s" }
                        th.number scope="col" { "Probes lost, %" } th.number scope="col" { "cells" }
                    } }
                    tbody { @for link in own { tr {
                        td { code { (link.grid) } }
                        th scope="row" { (place(link)) }
                        td { (link.path) ", " (link.direction) }
                        td.number { (link.delay_ms.map_or_else(none, |range| between(range, 1))) }
                        td.number { (link.rate_mbps.map_or_else(none, |range| between(range, 3))) }
                        td.number { (between(link.loss.map(|part| part * 100.0), 2)) }
                        td.number { (link.cells) }
                    } } }
                } }
            }
        }
    }
}

fn place(link: &LinkRange) -> String {
    let there = COLUMNS.iter().filter_map(|column| Some((*column, link.place.get(*column)?)));
    there.map(|(column, value)| label(column, value)).collect::<Vec<_>>().join(", ")
}

fn none() -> String {
    "–".into()
}

/// A range: `1.0` or `1.0 to 1.2`.
fn between([least, most]: [f64; 2], digits: usize) -> String {
    let (least, most) = (format!("{least:.digits$}"), format!("{most:.digits$}"));
    if least == most { least } else { format!("{least} to {most}") }
}
