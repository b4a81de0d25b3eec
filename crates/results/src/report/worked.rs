//! Input of a report, and results shared by all its parts.

use std::collections::BTreeMap;

use super::{Files, index};
use crate::claim::{Claim, Claims, Verdict};
use crate::folder::Manifest;
use crate::measured::Measured;
use crate::study::Study;

/// Input of a report.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// Studies in the order of the report.
    pub studies: &'a [Study],
    /// Claims to judge. Claims of studies that are not in the report are left out.
    pub claims: &'a Claims,
    /// Measurements.
    pub measured: &'a [Measured],
    /// Description of the run.
    pub manifest: &'a Manifest,
    /// Origin of the run as pairs of name and value: the command, the date, the machine.
    pub made: &'a [(String, String)],
    /// Targets of the links in the lists of runs.
    pub files: &'a Files,
    /// Source of the bundle of Vega, Vega-Lite and Vega-Embed, which `scripts/setup.sh vega`
    /// downloads. Without it, the page has a note instead of figures.
    pub vega: Option<&'a str>,
}

/// Results shared by all parts of a report.
pub(super) struct Worked<'a> {
    pub(super) report: Report<'a>,
    pub(super) index: index::Index<'a>,
    pub(super) verdicts: Vec<(&'a Claim, Verdict)>,
}

impl<'a> Worked<'a> {
    pub(super) fn new(report: &Report<'a>) -> Self {
        Self {
            report: *report,
            index: index::Index::new(report.measured),
            verdicts: report.claims.judge(report.studies, report.measured, report.manifest.quick),
        }
    }

    /// Verdicts on the claims of a study's section, including Bentpipe's goals.
    pub(super) fn of_section(
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
pub(super) fn set_aside(measured: &[Measured]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    let rows = measured.iter().flat_map(|one| &one.rows).filter(|row| !row.is_possible());
    for row in rows {
        *counts.entry(row.metric.as_str()).or_default() += 1;
    }
    counts
}
