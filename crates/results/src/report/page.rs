//! The page: an overview, a part for each paper, and finally a list of every run.

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::claims::{Counts, badge, claims};
use super::figure::figure;
use super::format::{name, show, unit};
use super::index::anchor;
use super::links::links;
use super::section::Shown;
use super::{Report, Worked, set_aside};
use crate::claim::Outcome;
use crate::measured::{Measured, Row};
use crate::statistics::{MIN_FOR_P95, RESAMPLES, Statistic};
use crate::study::{Grid, Planned, Section, Study};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");

/// Content security policy: the page may only use its own contents. Vega compiles its expressions
/// into functions, hence `unsafe-eval`. Without `connect-src`, nothing on the page can reach a
/// network.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
                      script-src 'unsafe-inline' 'unsafe-eval'; img-src data:";

/// Note for a copy of a run that has only its tables.
const NO_CELLS: &str = "This copy of the run has no raw files of its cells. The lists have the values of each run, \
                        or the median of many values. The table of the grid has all of them.";

/// The complete report as one self-contained HTML file.
pub fn html(report: &Report<'_>) -> String {
    let worked = Worked::new(report);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                title { "Bentpipe beside the papers" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#overview" { "To the content" }
                header.top {
                    p.name { "Bentpipe" }
                    nav aria-label="Papers" {
                        a href="#overview" { "Overview" }
                        @for study in report.studies { a href={ "#" (study.name) } { (study.name) } }
                    }
                }
                main {
                    (overview(&worked))
                    @for study in report.studies { (paper(&worked, study)) }
                }
                footer { p { "Made by " code { "bentpipe report" } " " (report.manifest.version) "." } }
                @if let Some(vega) = report.vega { script type="module" { (script(vega)) } }
                script type="module" { (script(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// Source of a script, in which sequences that end the element or open a comment are escaped. In
/// strings and patterns of a script, a character after `\` stands for itself.
fn script(text: &str) -> PreEscaped<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, after) = rest.split_at(at + 1);
        out.push_str(before);
        let starts =
            |what: &str| after.get(..what.len()).is_some_and(|it| it.eq_ignore_ascii_case(what));
        if starts("/script") || starts("!--") {
            out.push('\\');
        }
        rest = after;
    }
    out.push_str(rest);
    PreEscaped(out)
}

fn overview(worked: &Worked<'_>) -> Markup {
    let report = worked.report;
    let studies: Vec<_> = report
        .manifest
        .studies
        .iter()
        .map(|(name, digest)| format!("{name} {digest:.12}"))
        .collect();
    html! {
        article #overview {
            h1 { "Published results, the same measurements today, and Bentpipe" }
            p.lead {
                "Each study of Internet access in flight or over geostationary satellites is repeated on one \
                 machine, with today's software and through Bentpipe. Every measured number links to its runs. \
                 The data alone decide whether a claim is reproduced."
            }
            @if report.vega.is_none() {
                p.missing {
                    "This page has no figures: run " code { "scripts/setup.sh vega" }
                    " and generate it again. The tables have all numbers."
                }
            }
            (papers(worked))
            (goals(worked))
            h2 { "About this run" }
            dl.made {
                dt { "version" } dd { (report.manifest.version) }
                dt { "seed" } dd { (report.manifest.seed) }
                dt { "extent" } dd { @if report.manifest.quick { "quick: a part of each grid" } @else { "full" } }
                @for (name, value) in report.made { dt { (name) } dd { (value) } }
                dt { "experiments" } dd.digests { (studies.join(", ")) }
            }
            h2 { "How to read it" }
            ul {
                li {
                    "A blue number links to the list of its runs, with seed, value and file. "
                    @if !report.files.has_cells() { (NO_CELLS) }
                }
                li {
                    "Below it are the 95 % bootstrap interval, the 95th percentile and the number of values. With fewer than "
                    (MIN_FOR_P95) " values, the maximum replaces the 95th percentile and is marked " b { "max" } "."
                }
                li {
                    b { "set aside" } ": impossible values, such as a part that exceeds its whole or a negative time. They are "
                    "measurement errors, and no figure, median or verdict uses them. "
                    (aside(report.measured))
                }
                li {
                    "The 95 % interval in brackets, from " (RESAMPLES) " resamples of the runs, decides a claim. A cell with one run gets "
                    "the spread of other cells of its system, or of all systems. Student's t widens the interval of few runs. "
                    "An exact bound needs no spread."
                }
                li { "Each verdict states how many of its planned cells have results, and how many runs each cell has." }
                li { b { "never" } ": the run did not finish before the deadline." }
                li { b { "∞" } " or " b { "0 ×" } ": a ratio of two times, of which one run did not finish." }
                li { b { "–" } ", " b { "not in the quick part" } ": only the full run has it." }
                li { b { "lost" } ": the paper states the value, but our copy of its text does not contain it." }
                li {
                    (badge(Outcome::Undecided, Outcome::Undecided.words())) " its 95 % interval contains the bound; at most three "
                    "runs are within 2 % of it; cells are missing; no cell has several runs; the ratio is of two infinite or two zero values; "
                    "or later runs might exceed a minimum or maximum (or a 95th percentile of few values). "
                    (badge(Outcome::NotMeasured, Outcome::NotMeasured.words())) " this run has no cells that judge it."
                }
            }
        }
    }
}

/// Note on impossible measurements, in words.
fn aside(measured: &[Measured]) -> String {
    let found = set_aside(measured);
    if found.is_empty() {
        return "Here there are none.".into();
    }
    let parts: Vec<String> =
        found.iter().map(|(metric, count)| format!("{} of {}", count, name(metric))).collect();
    format!("Here: {}.", parts.join(", "))
}

fn papers(worked: &Worked<'_>) -> Markup {
    html! {
        h2 { "The papers" }
        div.scroll tabindex="0" role="region" aria-label="The papers and their claims" {
            table.papers {
                thead { tr {
                    th scope="col" { "Paper" } th.number scope="col" { "Its claims: reproduced" }
                    th.number scope="col" { "not reproduced" } th.number scope="col" { "undecided" } th.number scope="col" { "not measured" }
                    th.number scope="col" { "cells" }
                } }
                tbody { @for study in worked.report.studies {
                    @let own = worked.verdicts.iter().filter(|(claim, _)| claim.paper == study.name);
                    @let counts = Counts::of(own.map(|(_, verdict)| verdict));
                    @let cells: usize = study.grids.iter().map(|grid| worked.index.grid(&study.name, &grid.id).len()).sum();
                    tr {
                        th scope="row" {
                            a href={ "#" (study.name) } { (study.paper) }
                            span.beside { (byline(study)) }
                        }
                        td.number data-label="reproduced" { (counts.reproduced) } td.number data-label="not reproduced" { (counts.not_reproduced) }
                        td.number data-label="undecided" { (counts.undecided) } td.number data-label="not measured" { (counts.not_measured) }
                        td.number data-label="cells" { (cells) }
                    }
                } }
            }
        }
    }
}

fn goals(worked: &Worked<'_>) -> Markup {
    let goals: Vec<_> =
        worked.verdicts.iter().filter(|(claim, _)| claim.paper == "bentpipe").collect();
    html! {
        @if !goals.is_empty() {
            h2 { "Goals" }
            ul.claims.goals { @for (claim, verdict) in goals {
                li {
                    (badge(verdict.outcome, claim.words(verdict.outcome)))
                    p {
                        a href={ "#claim-" (claim.id.replace('/', "-")) } { (claim.claim) }
                        @if let Some(found) = super::claims::measured(claim, verdict) {
                            span.beside { "measured " (found) "; bound: " (super::claims::bound(claim, verdict)) }
                        }
                        span.beside { (verdict.basis()) }
                    }
                }
            } }
        }
    }
}

fn byline(study: &Study) -> String {
    let year = study.year.map(|year| year.to_string());
    let parts = [Some(study.authors.clone()), study.venue.clone(), year];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn paper(worked: &Worked<'_>, study: &Study) -> Markup {
    html! {
        article id=(study.name) {
            h2.title { (study.paper) }
            p.byline { (byline(study)) }
            p.lead { (study.about) }
            @if let Some(note) = &study.note { p.note { (note) } }
            nav.sections aria-label="Sections" { ul {
                @for section in &study.sections {
                    li { a href={ "#" (study.name) "-" (section.id) } { (section.title) } }
                }
            } }
            @for section in &study.sections { (section_part(worked, study, section)) }
            @if !study.unchecked.is_empty() {
                section {
                    h3 { "Not run here" }
                    dl.unchecked { @for one in &study.unchecked {
                        dt { (one.claim) " " span.at { "(" (one.at) ")" } }
                        dd { (one.why) }
                    } }
                }
            }
            section.runs {
                h3 { "All runs" }
                (links(worked, study))
                @if !worked.report.files.has_cells() { p.note { (NO_CELLS) } }
                @for grid in &study.grids { (runs(worked, study, grid)) }
            }
        }
    }
}

fn section_part(worked: &Worked<'_>, study: &Study, section: &Section) -> Markup {
    let Some(shown) = Shown::new(worked, study, section) else { return html! {} };
    html! {
        section id={ (study.name) "-" (section.id) } {
            h3 { (section.title) }
            p.at { (section.at) }
            (shown.stated_table())
            (figure(&shown))
            (shown.cells_table())
            (claims(worked, &study.name, &section.id))
            details.method {
                summary { "Method, ours and theirs" }
                dl {
                    dt { "The paper" } dd { (section.method) }
                    dt { "Ours" } dd { (section.ours) }
                    dt { "This run" } dd { (extent(&shown)) }
                    @if !section.deviations.is_empty() {
                        dt { "Differences" }
                        dd { ul { @for one in &section.deviations { li { (one) } } } }
                    }
                    @if !shown.grid.settings.is_empty() {
                        dt { "Settings" }
                        dd { (settings(shown.grid)) }
                    }
                }
            }
            @if let Some(note) = &section.note { p.note { (note) } }
        }
    }
}

/// Number of the section's cells in this run, and in the full run.
fn extent(shown: &Shown<'_>) -> String {
    let of = |planned: &[Planned]| {
        let own: Vec<&Planned> =
            planned.iter().filter(|one| shown.section.cells.matches(&one.cell)).collect();
        let range = |values: &mut dyn Iterator<Item = u64>| {
            let (least, most) =
                values.fold((u64::MAX, 0), |(low, high), it| (low.min(it), high.max(it)));
            if least == most { most.to_string() } else { format!("{least} to {most}") }
        };
        let runs = range(&mut own.iter().map(|one| u64::from(one.runs)));
        let until = range(&mut own.iter().map(|one| one.deadline.as_secs()));
        format!("{} cells of {runs} runs, each cut off after {until} s", own.len())
    };
    let full = of(&shown.grid.cells);
    match shown.worked.report.manifest.quick {
        false => format!("The full one: {full}."),
        true => format!("The quick part: {}. The full run: {full}.", of(&shown.grid.quick)),
    }
}

fn settings(grid: &Grid) -> String {
    grid.settings
        .iter()
        .map(|(key, value)| format!("{key} = {value}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn runs(worked: &Worked<'_>, study: &Study, grid: &Grid) -> Markup {
    let cells = worked.index.grid(&study.name, &grid.id);
    let files = worked.report.files;
    html! {
        @if !cells.is_empty() {
            details.grid {
                summary { code { (grid.id) } ": " (cells.len()) " of " (grid.cells.len()) " cells" }
                @for (place, (cell, measured)) in cells.iter().enumerate() {
                    div.run id=(anchor(&study.name, &grid.id, place)) tabindex="-1" {
                        h4 { @for (column, value) in cell.columns() { span title=(column) { (super::section::label(column, value)) } " " } }
                        (run_table(grid, measured))
                        p { a href=(files.of(measured)) {
                            @if files.has_cells() { "the file of this cell" } @else { "the table of its grid" }
                        } }
                    }
                }
            }
        }
    }
}

/// Table with a row for each run and a column for each metric. For a metric with many values in a
/// run, it shows the median and their number.
fn run_table(grid: &Grid, measured: &Measured) -> Markup {
    let mut runs: BTreeMap<(u32, u64), BTreeMap<&str, Vec<&Row>>> = BTreeMap::new();
    for row in &measured.rows {
        let run = runs.entry((row.run, row.seed)).or_default();
        run.entry(&row.metric).or_default().push(row);
    }
    let there = |metric: &&String| runs.values().any(|run| run.contains_key(metric.as_str()));
    let metrics: Vec<&String> = grid.metrics.iter().filter(there).collect();
    html! {
        div.scroll { table {
            thead { tr {
                th.number scope="col" { "run" } th.number scope="col" { "seed" }
                @for metric in &metrics { th.number scope="col" { (metric) } }
            } }
            tbody { @for ((run, seed), values) in &runs { tr {
                td.number { (run) } td.number { (seed) }
                @for metric in &metrics { td.number { (run_value(values.get(metric.as_str()).map_or(&[], Vec::as_slice))) } }
            } } }
        } }
    }
}

fn run_value(rows: &[&Row]) -> String {
    let Some(first) = rows.first() else { return "–".into() };
    let unit = unit(&first.metric, false);
    if let [one] = rows {
        let cut = if one.finished { "" } else { ", cut off" };
        let aside = if one.is_possible() { "" } else { ", cannot be: set aside" };
        return format!("{}{cut}{aside}", show(one.value, unit));
    }
    let possible = rows.iter().filter(|row| row.is_possible());
    let values: Vec<f64> = possible.map(|row| row.ranked()).collect();
    let median = Statistic::Median.of(&values);
    let median = median.map(|one| format!("{}, median of {}", show(one, unit), values.len()));
    let aside = super::format::aside(rows.len() - values.len());
    let parts = median.into_iter().chain([aside]).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}
