//! The page of a store: one self-contained HTML document, beside the values of the paper.
//!
//! | module | contents |
//! |---|---|
//! | `along` | maps and phases of flight |
//! | `map` | maps as SVG |
//! | `chart` | line charts and scatter plots as SVG |
//! | `figures` | the figures |
//! | `objects` | HTTP objects and caches in flight |
//! | `rates` | rates and their limits |
//! | `tables` | the tables |
//! | `paper` | the paper's values, as data with their sections |

mod along;
mod chart;
mod figures;
mod map;
mod objects;
mod paper;
mod rates;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::analysis::Analysis;
use crate::clock::utc;

/// Style of the page: light and dark, and tables that scroll within a phone's width.
const STYLE: &str = include_str!("report/style.css");

/// Writes the page.
pub fn page(analysis: &Analysis) -> String {
    let title = "Internet access in flight: measured by bentpipe probe";
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    (summary(analysis))
                    (section("Beside the paper", paper::table(analysis)))
                    (section("Kind of access", tables::access(analysis)))
                    (section("Network and provider", tables::providers(analysis)))
                    (section("Targets", tables::targets(analysis)))
                    (section("Latency", figures::latency(analysis)))
                    (section("Latency and loss over time", figures::over_time(analysis)))
                    @if !analysis.tracks.is_empty() {
                        (section("Along the track", along::section(analysis)))
                    }
                    (section("Loss per 100 s", figures::loss(analysis)))
                    (section("Cabin latency", figures::cabin(analysis)))
                    (section("Hops", tables::hops(analysis)))
                    (section("DNS caches in flight", figures::lookups(analysis)))
                    (section("HTTP objects and caches in flight", objects::section(analysis)))
                    (section("Rates and their limits", rates::section(analysis)))
                    (section("ndt7", rates::ndt7(analysis)))
                    @if !analysis.rates.epb.is_empty() {
                        (section("EPB ratio", rates::epb(analysis)))
                    }
                    (section("Records", tables::records(analysis)))
                }
            }
        }
    };
    markup.into_string()
}

fn section(heading: &str, body: Markup) -> Markup {
    html! { section { h2 { (heading) } (body) } }
}

fn summary(analysis: &Analysis) -> Markup {
    let Some(first) = analysis.sessions.first() else {
        return html! { p { "The store has no sessions: nothing was measured yet." } };
    };
    let total: u64 = analysis.kinds.values().sum();
    let sessions = analysis.sessions.len();
    let minimum = analysis.minimum_rtt();
    html! {
        p {
            (total) " records of " (sessions) @if sessions == 1 { " session" } @else { " sessions" }
            ", from " (utc(first.began.wall_us)) " UTC. "
            "Nothing on this page was sent anywhere."
        }
        p {
            @match minimum {
                Some(minimum) => {
                    "Minimum round-trip time to the ground: "
                    strong { (crate::live::ms(minimum.rtt_us)) " ms" }
                    @if minimum.quiet { ", of pings in quiet windows." }
                    @else { ", of all pings: there was no quiet window yet." }
                }
                None => { "No ICMP or UDP ping to a public address was answered, so the minimum round-trip time to \
                           the ground is unknown. Figures that need it are absent." }
            }
        }
    }
}

#[cfg(test)]
mod tests;
