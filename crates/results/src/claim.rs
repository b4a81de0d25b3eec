//! Claims of the papers and goals of Bentpipe: `experiments/claims.toml`, whose schema is in
//! `experiments/README.md`.

mod check;
#[cfg(test)]
mod interval_tests;
mod judge;
mod pilot;
#[cfg(test)]
mod pilot_tests;
mod sample;
#[cfg(test)]
mod tests;
mod verdict;

use std::fs;
use std::path::Path;

use serde::Deserialize;

pub use verdict::{Cover, Figure, MAX_RUNS, Outcome, Verdict};

use crate::measured::{Cell, Measured, Pattern, least_of};
use crate::statistics::Statistic;
use crate::study::Study;

/// The built-in file.
const BUILT_IN: &str = include_str!("../../../experiments/claims.toml");

/// One claim.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Claim {
    /// Unique name.
    pub id: String,
    /// Origin of the claim: an experiment's name, or `bentpipe` for a goal of Bentpipe.
    pub paper: String,
    /// Experiment whose cells decide the claim.
    pub experiment: String,
    /// Section whose grid contains these cells.
    pub section: String,
    /// Place in the paper that states it.
    pub at: String,
    /// Statement, in our words.
    pub claim: String,
    /// Metric to be judged.
    pub metric: String,
    /// If present, the quotient of `metric` and this metric of the same cell is judged.
    pub over: Option<String>,
    /// Statistic over all values of a cell, from all its runs.
    pub statistic: Statistic,
    /// Cells to be judged.
    pub of: Pattern,
    /// Cells with which they are compared.
    pub against: Option<Pattern>,
    /// Comparison of the two sides.
    pub compare: Compare,
    /// Baselines by which the values of `of` and `against` are divided first.
    pub bases: Option<(Pattern, Pattern)>,
    /// Further restriction on the cells of all patterns.
    pub cells: Pattern,
    /// Columns for whose every combination a value is formed, if all patterns have cells for it.
    pub each: Vec<String>,
    /// `true` if several cells of a pattern are averaged. Otherwise a pattern must match one cell.
    pub pooled: bool,
    /// Reduction of the combinations to one value.
    pub take: Take,
    /// Bound on that value.
    pub bound: Bound,
    /// Value from the paper, if it gives a number.
    pub paper_value: Option<PaperValue>,
    /// Interpretation of the claim, and origin of the bound.
    pub note: Option<String>,
    /// Reason for the difference in the reference run, as far as known. Shown wherever the claim is
    /// not reproduced or undecided.
    pub differs: Option<String>,
}

/// Comparison of the values of two patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compare {
    /// One divided by the other.
    #[default]
    Quotient,
    /// One minus the other, for values that may be zero or negative. A quotient would lose the
    /// sign.
    Difference,
}

/// Reduction of the values of the combinations to one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Take {
    /// One statistic over all values.
    One(Statistic),
    /// Every value must satisfy the bound.
    All,
    /// At least this fraction of the values must satisfy the bound.
    Fraction(f64),
}

/// Bound on a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Less than this.
    Below(f64),
    /// More than this.
    Above(f64),
    /// Between these two values, both inclusive.
    Between(f64, f64),
}

/// Value from a paper.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum PaperValue {
    /// One number.
    Number(f64),
    /// A range.
    Range([f64; 2]),
}

/// All claims.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Claims in the order of the file.
    #[serde(rename = "claim")]
    pub all: Vec<Claim>,
}

/// Error that prevents the reading of claims.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {why}")]
pub struct ClaimError {
    place: String,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    id: String,
    paper: String,
    experiment: Option<String>,
    section: String,
    at: String,
    claim: String,
    metric: String,
    over: Option<String>,
    #[serde(default)]
    statistic: Statistic,
    of: Pattern,
    of_base: Option<Pattern>,
    against: Option<Pattern>,
    against_base: Option<Pattern>,
    compare: Option<Compare>,
    #[serde(default, rename = "where")]
    cells: Pattern,
    #[serde(default)]
    each: Vec<String>,
    pool: Option<Pool>,
    take: Option<WrittenTake>,
    holds_for: Option<f64>,
    below: Option<f64>,
    above: Option<f64>,
    between: Option<[f64; 2]>,
    paper_value: Option<PaperValue>,
    note: Option<String>,
    differs: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Pool {
    Mean,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenTake {
    Median,
    Mean,
    Max,
    Min,
    All,
    Fraction,
}

impl TryFrom<Written> for Claim {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let id = written.id.clone();
        let why = |why: &str| format!("claim {id:?}: {why}");
        let take = take(&written).map_err(why)?;
        let compare = compare(&written).map_err(why)?;
        let bound = match (written.below, written.above, written.between) {
            (Some(bound), None, None) => Bound::Below(bound),
            (None, Some(bound), None) => Bound::Above(bound),
            (None, None, Some([low, high])) if low <= high => Bound::Between(low, high),
            _ => return Err(why("write one of below, above, between = [low, high]")),
        };
        let bases = match (written.of_base, written.against_base) {
            (None, None) => None,
            (Some(of), Some(against)) if written.against.is_some() => Some((of, against)),
            _ => return Err(why("of-base and against-base go with each other and with against")),
        };
        let experiment = match written.experiment {
            Some(experiment) => experiment,
            None if written.paper == "bentpipe" => {
                return Err(why("write the experiment whose cells judge it"));
            }
            None => written.paper.clone(),
        };
        Ok(Self {
            id: written.id,
            paper: written.paper,
            experiment,
            section: written.section,
            at: written.at,
            claim: written.claim,
            metric: written.metric,
            over: written.over,
            statistic: written.statistic,
            of: written.of,
            against: written.against,
            compare,
            bases,
            cells: written.cells,
            each: written.each,
            pooled: matches!(written.pool, Some(Pool::Mean)),
            take,
            bound,
            paper_value: written.paper_value,
            note: written.note,
            differs: written.differs,
        })
    }
}

fn compare(written: &Written) -> Result<Compare, &'static str> {
    let compare = written.compare.unwrap_or_default();
    let is_signed = |metric: &String| least_of(metric) < 0.0;
    match compare {
        _ if written.over.as_ref().is_some_and(is_signed) => {
            Err("its metric in over may be less than nothing: nothing can be divided by it")
        }
        _ if written.compare.is_some() && written.against.is_none() => {
            Err("compare goes with against")
        }
        Compare::Difference if written.of_base.is_some() => {
            Err("of-base and against-base go with quotients")
        }
        Compare::Quotient if written.against.is_some() && is_signed(&written.metric) => {
            Err("its metric may be less than nothing: write compare = \"difference\"")
        }
        compare => Ok(compare),
    }
}

fn take(written: &Written) -> Result<Take, &'static str> {
    if written.holds_for.is_some() && !matches!(written.take, Some(WrittenTake::Fraction)) {
        return Err("holds-for goes with take = \"fraction\"");
    }
    if written.each.is_empty() != written.take.is_none() {
        return Err("each and take go with each other");
    }
    let share = written.holds_for.filter(|share| (0.0..=1.0).contains(share));
    Ok(match (written.take, share) {
        (None, _) | (Some(WrittenTake::Median), _) => Take::One(Statistic::Median),
        (Some(WrittenTake::Mean), _) => Take::One(Statistic::Mean),
        (Some(WrittenTake::Max), _) => Take::One(Statistic::Max),
        (Some(WrittenTake::Min), _) => Take::One(Statistic::Min),
        (Some(WrittenTake::All), _) => Take::All,
        (Some(WrittenTake::Fraction), Some(share)) => Take::Fraction(share),
        (Some(WrittenTake::Fraction), None) => {
            return Err("take = \"fraction\" needs holds-for, a share from 0 to 1");
        }
    })
}

impl Claim {
    /// An outcome in words: a claim is reproduced, a goal of Bentpipe is met.
    pub fn words(&self, outcome: Outcome) -> &'static str {
        if self.paper == "bentpipe" { outcome.goal_words() } else { outcome.words() }
    }

    /// Reason for the difference, if the claim is not reproduced or undecided, and the reason is
    /// known.
    pub fn differs(&self, outcome: Outcome) -> Option<&str> {
        let is_open = matches!(outcome, Outcome::NotReproduced | Outcome::Undecided);
        self.differs.as_deref().filter(|_| is_open)
    }
}

impl Claims {
    /// Built-in claims, which match the [built-in studies](Study::all).
    pub fn all() -> Result<Self, ClaimError> {
        Self::parse("experiments/claims.toml", BUILT_IN)
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, ClaimError> {
        let place = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|error| ClaimError { place: place.clone(), why: error.to_string() })?;
        Self::parse(&place, &text)
    }

    /// Parses the text of a file. Errors refer to it as `place`.
    pub fn parse(place: &str, text: &str) -> Result<Self, ClaimError> {
        let claims: Self = crate::toml_text::parse_toml(text)
            .map_err(|(line, why)| ClaimError { place: format!("{place}:{line}"), why })?;
        crate::study::once("claim", claims.all.iter().map(|claim| claim.id.as_str()))
            .map_err(|why| ClaimError { place: place.into(), why })?;
        Ok(claims)
    }

    /// Checks that `studies` have everything that the claims name: sections, metrics, columns and
    /// values. Every combination needs one cell of each pattern, or several if they are pooled.
    /// Claims about other studies are ignored.
    pub fn check(&self, studies: &[Study]) -> Result<(), ClaimError> {
        for claim in &self.all {
            let Some(study) = studies.iter().find(|study| study.name == claim.experiment) else {
                continue;
            };
            claim
                .check(study)
                .map_err(|why| ClaimError { place: format!("claim {:?}", claim.id), why })?;
        }
        Ok(())
    }

    /// Judges every claim about `studies` by the results in `measured`, of a full or a quick run,
    /// in the order of the file.
    pub fn judge<'a>(
        &'a self,
        studies: &[Study],
        measured: &[Measured],
        quick: bool,
    ) -> Vec<(&'a Claim, Verdict)> {
        let judge = |claim: &'a Claim| {
            let study = studies.iter().find(|study| study.name == claim.experiment)?;
            let grid = study.grid(&study.section(&claim.section)?.grid)?;
            let mine = |one: &&Measured| one.paper == study.name && one.grid == grid.id;
            let cells: Vec<&Measured> = measured.iter().filter(mine).collect();
            let full: Vec<&Cell> = grid.cells.iter().map(|one| &one.cell).collect();
            let part: Vec<&Cell> = grid.quick.iter().map(|one| &one.cell).collect();
            let mut verdict = claim.judge(&cells, if quick { &part } else { &full });
            verdict.cover.full = claim.needs(&full);
            Some((claim, verdict))
        };
        self.all.iter().filter_map(judge).collect()
    }
}
