//! Claims, each with its verdict and the evidence.

use maud::{Markup, html};

use super::Worked;
use super::format::{DIGITS, digits_apart, digits_to, show_to, unit};
use crate::claim::{Bound, Claim, Compare, Figure, Outcome, PaperValue, Take, Verdict};
use crate::statistics::{MIN_FOR_P95, Statistic};

/// Number of claims with each outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub reproduced: usize,
    pub not_reproduced: usize,
    pub undecided: usize,
    pub not_measured: usize,
}

impl Counts {
    pub fn of<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Self {
        let mut counts = Self::default();
        for verdict in verdicts {
            *match verdict.outcome {
                Outcome::Reproduced => &mut counts.reproduced,
                Outcome::NotReproduced => &mut counts.not_reproduced,
                Outcome::Undecided => &mut counts.undecided,
                Outcome::NotMeasured => &mut counts.not_measured,
            } += 1;
        }
        counts
    }
}

/// The verdict as a coloured word.
pub(super) fn badge(outcome: Outcome, words: &str) -> Markup {
    let class = match outcome {
        Outcome::Reproduced => "reproduced",
        Outcome::NotReproduced => "not-reproduced",
        Outcome::Undecided => "undecided",
        Outcome::NotMeasured => "not-measured",
    };
    html! { span class={ "badge " (class) } { (words) } }
}

/// The claims about a section.
pub(super) fn claims(worked: &Worked<'_>, study: &str, section: &str) -> Markup {
    let mine: Vec<_> = worked.of_section(study, section).collect();
    html! {
        @if !mine.is_empty() {
            h4 { "Claims" }
            ul.claims { @for (claim, verdict) in mine {
                li id={ "claim-" (claim.id.replace('/', "-")) } { (one(worked, claim, verdict)) }
            } }
        }
    }
}

fn one(worked: &Worked<'_>, claim: &Claim, verdict: &Verdict) -> Markup {
    html! {
        (badge(verdict.outcome, claim.words(verdict.outcome)))
        p {
            @if claim.paper == "bentpipe" { strong { "Bentpipe: " } }
            (claim.claim)
            " " span.at { "(" (claim.at) ")" }
            span.beside { (verdict.basis()) }
        }
        @if let Some(why) = claim.differs(verdict.outcome) { p.differs { (why) } }
        details {
            summary {
                @match verdict.found {
                    Some(found) => {
                        "measured " b { (value(claim, found)) } (interval(claim, verdict)) ", "
                    }
                    None => {}
                }
                "it must be " (bound(claim, verdict))
                @if let Some(paper) = claim.paper_value { "; the paper: " (paper_value(claim, paper)) }
            }
            @if let Some(note) = &claim.note { p.note { (note) } }
            @if !verdict.figures.is_empty() {
                ul.figures { @for figure in &verdict.figures { li { (combination(worked, claim, figure)) } } }
            }
        }
    }
}

fn combination(worked: &Worked<'_>, claim: &Claim, figure: &Figure) -> Markup {
    let values: Vec<&str> = figure.combination.iter().map(|(_, value)| value.as_str()).collect();
    let grid = worked
        .report
        .studies
        .iter()
        .find(|study| study.name == claim.experiment)
        .and_then(|study| study.section(&claim.section))
        .map_or("", |section| section.grid.as_str());
    let anchors =
        figure.cells.iter().filter_map(|cell| worked.index.anchor(&claim.experiment, grid, cell));
    let missing = figure.missing.len();
    let kept = match figure.keeps {
        Some(true) => "keeps it".to_owned(),
        Some(false) => "does not".into(),
        None if missing == 0 => "undecided".into(),
        None => format!("open, {missing} of its cells missing"),
    };
    html! {
        @if values.is_empty() { "All: " } @else { (values.join(" · ")) ": " }
        @match figure.value {
            Some(value) => { b { (value_of_one(claim, value, apart(claim, value))) } " " }
            None => {}
        }
        (kept)
        @for (place, anchor) in anchors.enumerate() {
            (if place == 0 { ", runs of " } else { ", " })
            a href={ "#" (anchor) } { "cell " (place + 1) }
        }
    }
}

/// Number of digits needed to show if a combination's value satisfies the bound.
fn apart(claim: &Claim, value: f64) -> usize {
    match claim.bound {
        Bound::Below(bound) | Bound::Above(bound) => {
            digits_apart(value, &[bound], unit_of_one(claim))
        }
        Bound::Between(low, high) => digits_apart(value, &[low, high], unit_of_one(claim)),
    }
}

/// Number of digits needed to show the verdict, for the measured value and the bound.
fn telling(claim: &Claim, found: f64) -> usize {
    match claim.take {
        Take::Fraction(share) => digits_apart(found, &[share], "ratio"),
        _ => apart(claim, found),
    }
}

fn value_of_one(claim: &Claim, value: f64, count: usize) -> String {
    show_to(value, unit_of_one(claim), count)
}

/// Unit of a combination's value.
fn unit_of_one(claim: &Claim) -> &str {
    let is_difference = claim.against.is_some() && claim.compare == Compare::Difference;
    let is_quotient = claim.over.is_some() || (claim.against.is_some() && !is_difference);
    match unit(&claim.metric, is_quotient) {
        "ratio" if is_difference => "percentage points",
        unit => unit,
    }
}

/// Value over all combinations: a fraction if the claim is about one.
fn value(claim: &Claim, found: f64) -> String {
    let count = telling(claim, found);
    match claim.take {
        Take::Fraction(_) => format!("{} of the cells", show_to(found, "ratio", count)),
        _ => value_of_one(claim, found, count),
    }
}

/// Measured value with its interval, in words: `0.289 × (0.27 × to 0.31 ×)`.
pub(super) fn measured(claim: &Claim, verdict: &Verdict) -> Option<String> {
    let found = verdict.found?;
    Some(format!("{}{}", value(claim, found), interval(claim, verdict)))
}

/// Interval of the measured value in brackets, or nothing if there is no spread to show.
fn interval(claim: &Claim, verdict: &Verdict) -> String {
    let (Some(found), Some((low, high))) = (verdict.found, verdict.interval) else {
        return String::new();
    };
    let count = telling(claim, found);
    let one = |value| match claim.take {
        Take::Fraction(_) => show_to(value, "ratio", count),
        _ => value_of_one(claim, value, count),
    };
    let (low, high) = (one(low), one(high));
    if low == high { String::new() } else { format!(" ({low} to {high})") }
}

/// Bound of the claim, in words.
pub(super) fn bound(claim: &Claim, verdict: &Verdict) -> String {
    let count = verdict.found.map_or(DIGITS, |found| telling(claim, found));
    let (of_value, of_share) = match claim.take {
        Take::Fraction(_) => (DIGITS, count),
        _ => (count, DIGITS),
    };
    let one = |value| value_of_one(claim, value, of_value);
    let bound = match claim.bound {
        Bound::Below(bound) => format!("below {}", one(bound)),
        Bound::Above(bound) => format!("above {}", one(bound)),
        Bound::Between(low, high) if low == high => format!("exactly {}", one(low)),
        Bound::Between(low, high) => format!("{} to {}", one(low), one(high)),
    };
    let statistic = match claim.statistic {
        Statistic::Median => String::new(),
        Statistic::Mean => ", means of runs".into(),
        Statistic::P95 => p95(verdict.cover.values),
        Statistic::Min => ", least of runs".into(),
        Statistic::Max => ", greatest of runs".into(),
    };
    let take = match claim.take {
        _ if claim.each.is_empty() => String::new(),
        Take::All => " in every cell".into(),
        Take::Fraction(share) => {
            format!(" in at least {} % of the cells", digits_to(share * 100.0, of_share))
        }
        Take::One(Statistic::Median) => " at the median of the cells".into(),
        Take::One(Statistic::Mean) => " on average of the cells".into(),
        Take::One(Statistic::Max) => " in the cell with the most".into(),
        Take::One(_) => " in the cell with the least".into(),
    };
    format!("{bound}{take}{statistic}")
}

/// Meaning of the 95th percentile for a number of values between these limits.
fn p95((least, most): (usize, usize)) -> String {
    match (least, most) {
        (_, 0) | (MIN_FOR_P95.., _) => ", 95th percentiles of runs".into(),
        (least, most) => {
            let count = if least == most { most.to_string() } else { format!("{least} to {most}") };
            format!(", 95th percentiles, or maxima ({count} values in a cell)")
        }
    }
}

fn paper_value(claim: &Claim, value: PaperValue) -> String {
    let one = |value| value_of_one(claim, value, DIGITS);
    match value {
        PaperValue::Number(value) => one(value),
        PaperValue::Range([low, high]) => format!("{} to {}", one(low), one(high)),
    }
}
