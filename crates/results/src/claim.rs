//! A direction that a paper found, judged by what was measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::measured::{Cell, Measured};
use crate::statistics::{Statistic, percentile};

/// One claim.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// Its name, which no other has.
    pub id: String,
    /// Whose it is: a study's name.
    pub paper: String,
    /// Whose rows judge it: this study's, where it is not the paper's own.
    pub study: Option<String>,
    /// The section whose rows they are.
    pub section: String,
    /// Where the paper says so.
    pub at: String,
    /// What it says, in our words.
    pub claim: String,
    /// The metric of the rows.
    pub metric: String,
    /// What is made of the runs of a cell.
    #[serde(default)]
    pub statistic: Statistic,
    /// The cells that the claim is about.
    pub of: Cell,
    /// The cells they are set against: the claim is of the ratio then, else of the figure itself.
    pub against: Option<Cell>,
    /// The figure, or the ratio, is formed for every combination of values on these axes …
    #[serde(default)]
    pub each: Vec<String>,
    /// … and of all these this is taken.
    #[serde(default)]
    pub take: Take,
    /// What is taken must be less than this …
    pub below: Option<f64>,
    /// … and more than this.
    pub above: Option<f64>,
    /// What the paper found, where it gives a number.
    pub paper_value: Option<f64>,
    /// What should be known of it.
    pub note: Option<String>,
}

/// How several figures become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Take {
    /// Their median.
    #[default]
    Median,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// Their mean.
    Mean,
}

/// All claims.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// In the order of their file.
    #[serde(rename = "claim")]
    pub all: Vec<Claim>,
}

/// Why there are no claims.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct ClaimError {
    path: PathBuf,
    why: String,
}

/// What the rows say of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What was taken; infinite where that never ended. `None` where no rows are about it.
    pub found: Option<f64>,
    /// The figure of every combination that was measured.
    pub figures: Vec<(Vec<String>, f64)>,
    /// Whether it holds; `None` where nobody can tell.
    pub held: Option<bool>,
}

impl Claims {
    /// Reads the claims of a file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ClaimError> {
        let wrong = |why: String| ClaimError { path: path.into(), why };
        let claims: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mut seen = BTreeSet::new();
        for claim in &claims.all {
            if !seen.insert(&claim.id) {
                return Err(wrong(format!("there are two claims {:?}", claim.id)));
            }
            if claim.below.is_none() && claim.above.is_none() {
                return Err(wrong(format!("claim {:?} needs below or above", claim.id)));
            }
        }
        Ok(claims)
    }
}

impl Claim {
    /// Whose rows judge it.
    pub fn judged_by(&self) -> &str {
        self.study.as_deref().unwrap_or(&self.paper)
    }

    /// Judges it by `rows`, of which only those of its section and metric count.
    pub fn judge(&self, rows: &[Measured]) -> Verdict {
        let figures = self.figures(rows);
        let values: Vec<f64> = figures.iter().map(|(_, figure)| *figure).collect();
        let found = self.take.of(&values);
        let held = found.map(|found| {
            self.below.is_none_or(|below| found < below)
                && self.above.is_none_or(|above| found > above)
        });
        Verdict { found, figures, held }
    }

    /// A figure for every combination of [`each`](Self::each) that both sides have, where there are
    /// two. A ratio of two that never ended is unknown and left out.
    fn figures(&self, rows: &[Measured]) -> Vec<(Vec<String>, f64)> {
        let of = self.by_combination(rows, &self.of);
        let Some(against) = &self.against else {
            return of.into_iter().collect();
        };
        let against = self.by_combination(rows, against);
        let ratio = |(key, of): (Vec<String>, f64)| {
            let ratio = of / against.get(&key)?;
            (!ratio.is_nan()).then_some((key, ratio))
        };
        of.into_iter().filter_map(ratio).collect()
    }

    fn by_combination(&self, rows: &[Measured], part: &Cell) -> BTreeMap<Vec<String>, f64> {
        let mut values: BTreeMap<Vec<String>, Vec<f64>> = BTreeMap::new();
        for row in rows {
            let mine = row.study == self.judged_by()
                && row.section == self.section
                && row.metric == self.metric
                && row.cell.lies_in(part);
            let key = if mine { row.cell.key(&self.each) } else { None };
            if let Some(key) = key {
                let key = key.into_iter().map(str::to_owned).collect();
                values.entry(key).or_default().push(row.ranked());
            }
        }
        let figure = |(key, values): (_, Vec<f64>)| Some((key, self.statistic.of(&values)?));
        values.into_iter().filter_map(figure).collect()
    }
}

impl Take {
    fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Median => percentile(values, 0.5),
            Self::Min => percentile(values, 0.0),
            Self::Max => percentile(values, 1.0),
            Self::Mean => Statistic::Mean.of(values),
        }
    }
}
