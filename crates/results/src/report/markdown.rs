//! The report as a Markdown page: Bentpipe's goals, each paper's numbers next to ours, and every
//! claim that is not reproduced.

use std::fmt::Write;

use super::claims::{Counts, bound, measured};
use super::format::folded;
use super::section::Shown;
use super::values::{Given, given};
use super::{Report, Worked};
use crate::claim::{Claim, Outcome, Verdict};
use crate::study::Study;

/// Width of a line outside tables, in columns.
const WIDTH: usize = 112;

type Judged<'a> = (&'a Claim, Verdict);

/// The complete report as Markdown, with tables in GitHub's syntax.
pub fn markdown(report: &Report<'_>) -> String {
    let worked = Worked::new(report);
    let mut out = String::new();
    head(&mut out, report);
    goals(&mut out, &worked);
    for study in report.studies {
        paper(&mut out, &worked, study);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn head(out: &mut String, report: &Report<'_>) {
    let extent = if report.manifest.quick { "the quick part of each grid" } else { "all grids" };
    heading(out, "#", "Results of the studies");
    paragraph(
        out,
        &format!(
            "What each paper reported, what the same method gives today, and what it gives through Bentpipe, by one \
             run of {extent}. `bentpipe report` wrote this page; its page of HTML has the figures, every cell and \
             every run besides."
        ),
    );
    for (name, value) in report.made {
        item(out, &format!("{name}: {}", plain(value)));
    }
    let planned: usize =
        report.studies.iter().map(|study| study.plan(report.manifest.quick).count()).sum();
    let (seed, cells) = (report.manifest.seed, report.measured.len());
    let of =
        if cells < planned { format!(" of {planned} that were planned") } else { String::new() };
    item(out, &format!("seed {seed}, {cells} cells{of}"));
    out.push('\n');
}

fn goals(out: &mut String, worked: &Worked<'_>) {
    let goals: Vec<&Judged<'_>> = of_paper(worked, "bentpipe").collect();
    if goals.is_empty() {
        return;
    }
    heading(out, "##", "Goals");
    paragraph(out, &format!("{}.", counts(&goals, ["met", "missed"])));
    row(out, &["study", "goal", "measured", "bound", "verdict", "basis"]);
    row(out, &["---", "---", "---", "---", "---", "---"]);
    for (claim, verdict) in &goals {
        let found = measured(claim, verdict).unwrap_or_else(|| "–".into());
        let (bound, by) = (bound(claim, verdict), verdict.basis());
        let outcome = claim.words(verdict.outcome);
        row(out, &[&claim.experiment, &claim.claim, &found, &bound, outcome, &by]);
    }
    out.push('\n');
    let why: Vec<_> =
        goals.iter().filter(|(_, verdict)| verdict.outcome == Outcome::NotReproduced).collect();
    if !why.is_empty() {
        paragraph(out, "Reasons for the goals that are missed:");
        for (claim, verdict) in why {
            let why = claim.differs(verdict.outcome).unwrap_or("It is not known why.");
            item(out, &format!("*{}: {}* {}", claim.experiment, plain(&claim.claim), plain(why)));
        }
        out.push('\n');
    }
}

fn paper(out: &mut String, worked: &Worked<'_>, study: &Study) {
    heading(out, "##", &study.paper);
    let own: Vec<&Judged<'_>> = of_paper(worked, &study.name).collect();
    paragraph(
        out,
        &format!(
            "`experiments/{}.toml`. Of the paper's claims: {}.",
            study.name,
            counts(&own, ["reproduced", "not reproduced"])
        ),
    );
    numbers(out, worked, study);
    let open: Vec<_> =
        own.iter().filter(|(_, verdict)| verdict.outcome != Outcome::Reproduced).collect();
    if !open.is_empty() {
        paragraph(out, "Its claims that are not reproduced or undecided:");
    }
    for (claim, verdict) in open {
        item(out, &open_claim(claim, verdict));
    }
    out.push('\n');
}

/// The paper's numbers, by section.
fn numbers(out: &mut String, worked: &Worked<'_>, study: &Study) {
    let shown = study.sections.iter().filter_map(|section| Shown::new(worked, study, section));
    let sections: Vec<_> =
        shown.map(|shown| (given(&shown), shown)).filter(|(given, _)| !given.is_empty()).collect();
    if sections.is_empty() {
        return;
    }
    row(out, &["", "the paper says", "today", "with Bentpipe"]);
    row(out, &["---", "---:", "---:", "---:"]);
    let mut any_fewer = false;
    for (given, shown) in &sections {
        let section = shown.section;
        let by = |system: &Option<String>| {
            system.as_ref().map_or_else(String::new, |name| format!("`{name}`"))
        };
        let title = format!("**{}** ({})", plain(&section.title), plain(&section.at));
        raw_row(out, &[&title, "", &by(&section.today), &by(&section.with)]);
        for one in given {
            any_fewer |= one.is_of_fewer;
            let with = format!("{}{}", one.with, if one.is_of_fewer { "¹" } else { "" });
            row(out, &[&one.what, &one.paper, &one.today, &with]);
        }
    }
    out.push('\n');
    let differ: Vec<String> =
        sections.iter().flat_map(|(given, shown)| differences(given, shown)).collect();
    if any_fewer {
        paragraph(out, "¹ Of fewer cells than are measured today.");
    }
    if !differ.is_empty() {
        paragraph(out, "Where what is measured today differs much from what the paper says:");
        differ.iter().for_each(|one| item(out, one));
        out.push('\n');
    }
}

/// Reasons why a section's numbers differ, for all of them or for some.
fn differences(given: &[Given], shown: &Shown<'_>) -> Vec<String> {
    let section = shown.section;
    let all =
        section.differs.as_ref().map(|why| format!("*{}:* {}", plain(&section.title), plain(why)));
    let some = given.iter().filter_map(|one| {
        let why = one.differs.as_ref()?;
        Some(format!("*{}, {}:* {}", plain(&one.what), plain(&one.paper), plain(why)))
    });
    all.into_iter().chain(some).collect()
}

/// A claim that is not reproduced or undecided.
fn open_claim(claim: &Claim, verdict: &Verdict) -> String {
    let said = plain(&claim.claim);
    if verdict.outcome == Outcome::NotMeasured {
        let why = if verdict.cover.planned == 0 { "In the full run only" } else { "Not measured" };
        return format!("*{why}:* {said}");
    }
    let found = measured(claim, verdict).map(|found| format!("measured {found}, "));
    let (found, bound) = (found.unwrap_or_default(), bound(claim, verdict));
    let why = claim.differs(verdict.outcome).map(|why| format!(" {}", plain(why)));
    let outcome = match verdict.outcome {
        Outcome::Undecided => "Undecided",
        _ => "Not reproduced",
    };
    let cover = verdict.basis();
    format!("*{outcome}:* {said} ({found}bound {bound}; {cover}.){}", why.unwrap_or_default())
}

fn of_paper<'a>(worked: &'a Worked<'a>, paper: &'a str) -> impl Iterator<Item = &'a Judged<'a>> {
    worked.verdicts.iter().filter(move |(claim, _)| claim.paper == paper)
}

/// Counts such as `3 reproduced, 1 not reproduced, 2 undecided, 4 not measured`, with these words for
/// the first two.
fn counts(of: &[&Judged<'_>], [yes, no]: [&str; 2]) -> String {
    let counts = Counts::of(of.iter().map(|(_, verdict)| verdict));
    let Counts { reproduced, not_reproduced, undecided, not_measured } = counts;
    format!(
        "{reproduced} {yes}, {not_reproduced} {no}, {undecided} undecided, {not_measured} not measured"
    )
}

fn heading(out: &mut String, level: &str, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{level} {}\n", plain(text));
}

/// Adds a paragraph of text that is already Markdown, wrapped into lines.
fn paragraph(out: &mut String, text: &str) {
    let _ = writeln!(out, "{}\n", lines(text, WIDTH).join("\n"));
}

/// Adds an item of a list, from text that is already Markdown.
fn item(out: &mut String, text: &str) {
    let _ = writeln!(out, "- {}", lines(text, WIDTH - 2).join("\n  "));
}

/// Adds a row of a table, from plain text.
fn row(out: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
    raw_row(out, &cells.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Adds a row of a table, from Markdown.
fn raw_row(out: &mut String, cells: &[&str]) {
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

/// Escapes text for Markdown, in one line. Text between backticks is already code; there, only the
/// column separator needs escaping.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_code = false;
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        // This could begin an entity.
        let begins = sign == '&' && signs.peek().is_some_and(|next| !next.is_whitespace());
        match sign {
            '`' => {
                is_code = !is_code;
                out.push(sign);
            }
            '|' => out.push_str("\\|"),
            '*' | '<' | '~' | '[' | ']' | '\\' if !is_code => out.extend(['\\', sign]),
            '&' if begins && !is_code => out.push_str("\\&"),
            '\n' => out.push(' '),
            sign => out.push(sign),
        }
    }
    out
}

/// Wraps Markdown into lines. No line may begin with a marker that turns it into a list or a
/// heading.
fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = folded(text, width);
    for line in lines.iter_mut().skip(1) {
        if line.starts_with(['-', '+', '#', '>', '=']) {
            line.insert(0, '\\');
        } else if let Some((number, _)) = line.split_once(['.', ')'])
            && !number.is_empty()
            && number.bytes().all(|sign| sign.is_ascii_digit())
        {
            line.insert(number.len(), '\\');
        }
    }
    lines
}
