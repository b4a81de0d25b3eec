//! The report for a terminal of 80 columns.

use std::fmt::Write;

use super::claims::{Counts, bound, measured};
use super::format::{clipped, folded};
use super::section::Shown;
use super::values::given;
use super::{Report, Worked, set_aside};
use crate::claim::{Claim, Outcome, Verdict};
use crate::measured::Measured;
use crate::study::{Section, Study};

/// Width of a line, in columns.
const WIDTH: usize = 80;

/// Width of the label before the three numbers of a line.
const WHAT: usize = 35;
/// Width of each number.
const NUMBER: usize = 15;

/// A summary in lines of at most 80 columns. For each paper it has the paper's values next to ours,
/// and the number of reproduced claims. For each judged claim it has the number of cells and runs.
/// It ends with the impossible values.
pub fn text(report: &Report<'_>) -> String {
    let worked = Worked::new(report);
    let mut out = String::new();
    for study in report.studies {
        paper(&mut out, &worked, study);
    }
    let goals: Vec<_> =
        worked.verdicts.iter().filter(|(claim, _)| claim.paper == "bentpipe").collect();
    if !goals.is_empty() {
        line(&mut out, "Goals");
        for (claim, verdict) in &goals {
            let found = measured(claim, verdict)
                .map_or_else(String::new, |found| format!("measured {found}, "));
            let (study, bound) = (&claim.experiment, bound(claim, verdict));
            let cover = verdict.basis();
            let text = format!("{study}: {} ({found}bound {bound}; {cover})", claim.claim);
            judged(&mut out, claim, verdict, &text);
        }
        out.push('\n');
    }
    aside(&mut out, report.measured);
    let all = Counts::of(worked.verdicts.iter().map(|(_, verdict)| verdict));
    line(&mut out, &counts("All claims", all));
    out
}

/// Note on impossible measurements.
fn aside(out: &mut String, measured: &[Measured]) {
    let found = set_aside(measured);
    if found.is_empty() {
        return;
    }
    let of = |(metric, count): (&&str, &usize)| format!("{metric} {count}");
    let parts: Vec<String> = found.iter().map(of).collect();
    let text = format!(
        "more than the whole, or less than nothing: faults of measurement, in no figure and no verdict: {}",
        parts.join(", ")
    );
    wrapped(out, "Set aside: ", &text);
}

fn paper(out: &mut String, worked: &Worked<'_>, study: &Study) {
    wrapped(out, "", &study.paper);
    line(out, &"─".repeat(WIDTH));
    let heading = format!(
        "{:<WHAT$}{:>NUMBER$}{:>NUMBER$}{:>NUMBER$}",
        "", "the paper says", "today", "Bentpipe"
    );
    line(out, &heading);
    for section in &study.sections {
        if let Some(shown) = Shown::new(worked, study, section) {
            values(out, &shown, section);
        }
    }
    let own: Vec<_> =
        worked.verdicts.iter().filter(|(claim, _)| claim.paper == study.name).collect();
    line(out, &counts("Claims", Counts::of(own.iter().map(|(_, verdict)| verdict))));
    for (claim, verdict) in &own {
        let cover = verdict.basis();
        let text = match verdict.outcome {
            // These claims are counted above and need no line of their own.
            Outcome::NotMeasured => continue,
            Outcome::Reproduced => format!("{} ({cover})", claim.claim),
            Outcome::NotReproduced | Outcome::Undecided => {
                let found = measured(claim, verdict).map(|found| format!("measured {found}, "));
                let (found, bound) = (found.unwrap_or_default(), bound(claim, verdict));
                format!("{} ({found}bound {bound}; {cover})", claim.claim)
            }
        };
        judged(out, claim, verdict, &text);
    }
    out.push('\n');
}

/// A verdict in words, with the reason if it is not reproduced.
fn judged(out: &mut String, claim: &Claim, verdict: &Verdict, text: &str) {
    wrapped(out, &format!("  {:<16}", claim.words(verdict.outcome)), text);
    if let Some(why) = claim.differs(verdict.outcome) {
        wrapped(out, &" ".repeat(18), why);
    }
}

/// The paper's numbers. Empty if it gives none.
fn values(out: &mut String, shown: &Shown<'_>, section: &Section) {
    let all = given(shown);
    if all.is_empty() {
        return;
    }
    line(out, &clipped(&section.title, WIDTH));
    for one in &all {
        let paper = clipped(&one.paper, NUMBER - 1);
        let with = format!("{}{}", one.with, if one.is_of_fewer { "*" } else { "" });
        let numbers = format!("{paper:>NUMBER$}{:>NUMBER$}{with:>NUMBER$}", one.today);
        let what = folded(&one.what, WHAT - 3);
        for (place, part) in what.iter().enumerate() {
            // The numbers are on the label's last line.
            let numbers = if place + 1 < what.len() { "" } else { &numbers };
            let indent = if place == 0 { "  " } else { "   " };
            line(out, &format!("{:<WHAT$}{numbers}", format!("{indent}{part}")));
        }
        if let Some(why) = &one.differs {
            wrapped(out, "     ", why);
        }
    }
    if let Some(why) = &section.differs {
        wrapped(out, "     ", why);
    }
    if all.iter().any(|one| one.is_of_fewer) {
        line(out, "  * of fewer cells than are measured today");
    }
}

fn counts(what: &str, counts: Counts) -> String {
    let Counts { reproduced, not_reproduced, undecided, not_measured } = counts;
    format!(
        "{what}: {reproduced} reproduced, {not_reproduced} not reproduced, {undecided} undecided, {not_measured} not measured"
    )
}

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", text.trim_end());
}

/// Wraps text into lines. `before` precedes the first line, and the others are indented by its
/// width.
fn wrapped(out: &mut String, before: &str, text: &str) {
    let indent = before.chars().count();
    for (place, part) in folded(text, WIDTH - indent).iter().enumerate() {
        let start = if place == 0 { before.to_owned() } else { " ".repeat(indent) };
        line(out, &(start + part));
    }
}
