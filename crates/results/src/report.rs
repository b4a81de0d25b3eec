//! Report of a run next to the papers' statements: one self-contained HTML page, and a text.

mod address;
mod claims;
mod figure;
mod format;
mod index;
mod links;
mod markdown;
mod page;
mod section;
mod text;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::claim::{Claim, Claims, Verdict};
use crate::folder::Manifest;
use crate::measured::Measured;
use crate::study::Study;

pub use address::Files;
pub use markdown::markdown;
pub use page::html;
pub use text::text;

/// All that a report is made of.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The studies, in the order in which they are shown.
    pub studies: &'a [Study],
    /// Claims to judge; those of studies that are not shown are left out.
    pub claims: &'a Claims,
    /// Measurements.
    pub measured: &'a [Measured],
    /// Description of the run.
    pub manifest: &'a Manifest,
    /// Origin of the run, in pairs of name and value: the command, the date, the machine.
    pub made: &'a [(String, String)],
    /// Targets of the links in the lists of runs.
    pub files: &'a Files,
    /// The text of the bundle of Vega, Vega-Lite and Vega-Embed, which `scripts/setup.sh vega`
    /// fetches; without it the page has no figures and says so.
    pub vega: Option<&'a str>,
}

/// Results that all parts of a report share.
struct Worked<'a> {
    report: Report<'a>,
    index: index::Index<'a>,
    verdicts: Vec<(&'a Claim, Verdict)>,
}

impl<'a> Worked<'a> {
    fn new(report: &Report<'a>) -> Self {
        Self {
            report: *report,
            index: index::Index::new(report.measured),
            verdicts: report.claims.judge(report.studies, report.measured, report.manifest.quick),
        }
    }

    /// The verdicts on the claims of a study's section, Bentpipe's among them.
    fn of_section(
        &self,
        study: &str,
        section: &str,
    ) -> impl Iterator<Item = &(&'a Claim, Verdict)> {
        self.verdicts
            .iter()
            .filter(move |(claim, _)| claim.experiment == study && claim.section == section)
    }
}

/// Number of impossible values of each metric.
fn set_aside(measured: &[Measured]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    let rows = measured.iter().flat_map(|one| &one.rows).filter(|row| !row.is_possible());
    for row in rows {
        *counts.entry(row.metric.as_str()).or_default() += 1;
    }
    counts
}
