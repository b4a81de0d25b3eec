//! HTTP objects: times by size, and caches in flight (9, 11).

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::chart::{Axis, Chart, Marks, Series};
use super::tables::{at, percent, share};
use crate::analysis::{Analysis, Fetched};
use crate::live::ms;
use crate::objects::{Fetch, Verdict, Verdicts, Witness};
use crate::statistics::cumulative;

/// Maximum number of dots and points of a figure.
const MAX_DOTS: usize = 2000;
const MAX_POINTS: usize = 400;

/// Hits above this, in microseconds, are slow for a cache in the aircraft: section 5.3.
const SLOW_US: u64 = 100_000;

/// Times of one group of fetches, in microseconds.
#[derive(Default)]
struct Times {
    first_byte: Vec<u64>,
    complete: Vec<u64>,
}

impl Times {
    fn add(&mut self, fetch: &Fetch) {
        self.first_byte.extend(fetch.first_byte_us);
        self.complete.extend(fetch.complete_us);
    }

    fn sorted(mut self) -> Self {
        self.first_byte.sort_unstable();
        self.complete.sort_unstable();
        self
    }
}

/// The section.
pub fn section(analysis: &Analysis) -> Markup {
    if analysis.objects.is_empty() {
        return html! { p { "No HTTP object was fetched." } };
    }
    let minimum = analysis.minimum_rtt().map(|minimum| minimum.rtt_us);
    html! {
        (sizes(analysis))
        @match minimum {
            Some(minimum_us) => (caches(&analysis.objects, minimum_us)),
            None => p { "Without a minimum round-trip time to the ground, caches in flight cannot be recognized." },
        }
    }
}

fn fetches(all: &[Fetched]) -> impl Iterator<Item = &Fetch> {
    all.iter().flat_map(|one| [Some(&one.pair.first), one.pair.second.as_ref()]).flatten()
}

/// Time to fetch an object over its size.
fn sizes(analysis: &Analysis) -> Markup {
    let usable = fetches(&analysis.objects).filter(|fetch| fetch.answered() && !fetch.cut);
    let all: Vec<(f64, f64)> = usable
        .filter_map(|fetch| Some((fetch.bytes.max(1) as f64, fetch.complete_us? as f64 / 1000.0)))
        .collect();
    let failed = fetches(&analysis.objects).filter(|fetch| !fetch.answered()).count();
    let total = fetches(&analysis.objects).count();
    if all.is_empty() {
        return html! { p { "None of " (total) " fetches had a response." } };
    }
    let chart = Chart {
        x: Axis::milliseconds("bytes of the body", all.iter().map(|(bytes, _)| *bytes)),
        y: Axis::milliseconds("time in ms", all.iter().map(|(_, ms)| *ms)),
        limits: (None, analysis.minimum_rtt().map(|minimum| minimum.rtt_us as f64 / 1000.0)),
        series: vec![Series {
            name: "objects".into(),
            colour: 0,
            marks: Marks::Dots(all.iter().copied().step_by(all.len().div_ceil(MAX_DOTS)).collect()),
        }],
    };
    let caption = format!(
        "Time from the request to the end of the body, {} of {total} fetches. Dashed: the minimum round-trip time to the \
         ground; figure 9 of the paper. {failed} fetches failed or had an error as their answer.",
        all.len()
    );
    chart.draw(&caption)
}

fn caches(pairs: &[Fetched], minimum_us: u64) -> Markup {
    let mut groups: BTreeMap<Verdict, Times> = BTreeMap::new();
    let sessions = pairs.chunk_by(|one, next| one.session == next.session);
    let verdicts = sessions.map(|all| Verdicts::of(all.iter().map(|one| &one.pair), minimum_us));
    let all: Vec<Verdict> = verdicts.flat_map(|one| one.all().collect::<Vec<_>>()).collect();
    for (verdict, fetch) in all.iter().zip(fetches(pairs)) {
        groups.entry(*verdict).or_default().add(fetch);
    }
    let groups: BTreeMap<Verdict, Times> =
        groups.into_iter().map(|(verdict, times)| (verdict, times.sorted())).collect();
    let mut hits: Vec<u64> = Vec::new();
    for (verdict, times) in &groups {
        if matches!(verdict, Verdict::Hit(_)) {
            hits.extend(&times.complete);
        }
    }
    let slow = hits.iter().filter(|us| **us > SLOW_US).count() as u64;
    let count = |verdict: Verdict| all.iter().filter(|found| **found == verdict).count();
    let proxies: BTreeMap<String, u64> = fetches(pairs)
        .filter_map(|fetch| fetch.signs.private_proxy())
        .fold(BTreeMap::new(), |mut seen, proxy| {
            *seen.entry(proxy.to_string()).or_default() += 1;
            seen
        });
    html! {
        div.wide { table {
            tr { th { "finding" } th.text { "by" } th { "fetches" } th { "first byte, median ms" } th { "complete, median ms" }
                 th { "complete, p95 ms" } }
            @for (verdict, times) in &groups {
                @let (finding, by) = named(*verdict);
                tr {
                    td { (finding) } td.text { (by) } td { (count(*verdict)) } td { (at(&times.first_byte, 0.5)) }
                    td { (at(&times.complete, 0.5)) } td { (at(&times.complete, 0.95)) }
                }
            }
        } }
        p.note {
            "Hits that took more than 100 ms: " (percent(share(slow, hits.len() as u64))) " of " (hits.len())
            "; on one flight of the paper it was more than 80 %. A response is a hit by time if its first byte came within "
            (ms(minimum_us)) " ms. A cache that neither names itself nor answers within that time shows on an own origin \
            alone."
            @if !proxies.is_empty() {
                " Proxies in the aircraft: "
                @for (index, (proxy, seen)) in proxies.iter().take(8).enumerate() {
                    @if index > 0 { ", " } (proxy) " (" (seen) " responses)"
                }
                "."
            }
        }
        (distributions(groups))
    }
}

/// Distribution of the times of hits and of all others.
fn distributions(groups: BTreeMap<Verdict, Times>) -> Markup {
    let (mut hits, mut others) = (Vec::new(), Vec::new());
    for (verdict, times) in groups {
        match verdict {
            Verdict::Hit(_) => hits.extend(times.complete),
            Verdict::Miss(_) | Verdict::None => others.extend(times.complete),
            Verdict::Failed => {}
        }
    }
    let lines: Vec<(&str, usize, Vec<u64>)> =
        [("hits", 2, hits), ("not from a cache in flight", 5, others)]
            .into_iter()
            .filter(|(.., times)| !times.is_empty())
            .map(|(name, colour, mut times)| {
                times.sort_unstable();
                (name, colour, times)
            })
            .collect();
    let ends = lines.iter().flat_map(|(.., times)| [times[0], times[times.len() - 1]]);
    let x = Axis::milliseconds("time in ms", ends.map(|us| us as f64 / 1000.0));
    let y = Axis { label: "share of fetches", from: 0.0, to: 1.0, logarithmic: false };
    let series = lines.iter().map(|(name, colour, times)| {
        let points = cumulative(times, MAX_POINTS).into_iter();
        let points = points.map(|(us, share)| (us as f64 / 1000.0, share)).collect();
        Series { name: (*name).into(), colour: *colour, marks: Marks::Line(points) }
    });
    let chart =
        Chart { x, y, series: series.collect(), limits: (Some(SLOW_US as f64 / 1000.0), None) };
    chart.draw("Time to fetch an object, with a mark at 100 ms; figure 11 of the paper.")
}

fn named(verdict: Verdict) -> (&'static str, &'static str) {
    let by = |witness| match witness {
        Witness::Time => "time",
        Witness::Proxy => "the proxy's own word",
        Witness::Serial => "serial number",
    };
    match verdict {
        Verdict::Hit(witness) => ("hit in flight", by(witness)),
        Verdict::Miss(witness) => ("miss in flight", by(witness)),
        Verdict::None => ("no sign of a cache in flight", "–"),
        Verdict::Failed => ("failed", "–"),
    }
}
