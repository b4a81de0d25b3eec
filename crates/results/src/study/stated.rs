//! A value from a paper, and the corresponding measurement.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Planned;
use super::pool::common;
use crate::measured::{Cell, Measured, Pattern};
use crate::statistics::Statistic;

/// A value from the paper.
#[derive(Debug, Clone, PartialEq)]
pub struct Stated {
    /// Cells to which it refers.
    pub cells: Pattern,
    /// For a quotient, the columns in which the divisor's cells differ.
    pub against: Option<Pattern>,
    /// Metric.
    pub metric: String,
    /// Unit: that of the metric, or `ratio` for a quotient.
    pub unit: String,
    /// Reduction of the cells to one number.
    pub kind: Kind,
    /// Column over whose cells a 95th percentile is averaged, from the section.
    pub pool: Option<String>,
    /// The number.
    pub value: StatedValue,
    /// Paraphrase of the paper's words, and their place.
    pub text: String,
    /// Reason why the measurement differs, if it differs much.
    pub differs: Option<String>,
}

/// A number from a paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StatedValue {
    /// A single number.
    Number(f64),
    /// A range, open if one bound is missing.
    Range(Option<f64>, Option<f64>),
    /// The number is missing in our copy of the text.
    Lost,
}

/// Reduction of the runs of cells, or of quotients of cells, to one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their own names")]
pub enum Kind {
    #[default]
    Median,
    Mean,
    Max,
    Min,
    P95,
    /// The smallest time.
    Best,
}

/// Measurements for a value from a paper.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<'a> {
    /// The resulting number.
    pub value: f64,
    /// Values behind the number: the runs of all cells, or the quotients of pairs of cells.
    pub values: Vec<f64>,
    /// Cells behind the number.
    pub cells: Vec<&'a Measured>,
}

impl Stated {
    /// Pattern of the cells to which it refers, among those `shown`. `contender`, if given,
    /// replaces the system that it names.
    fn asked(&self, shown: &Pattern, system: Option<&str>) -> Pattern {
        let asked = self.cells.or(shown);
        match system {
            Some(system) => Pattern::of([("contender", &[system][..])]).or(&asked),
            None => asked,
        }
    }

    /// Returns `true` if some of `cells` would show the value, by the rules of [`Stated::found`].
    pub fn is_in(&self, cells: &[Planned], shown: &Pattern, system: Option<&str>) -> bool {
        let asked = self.asked(shown, system);
        let there = |cell: &Cell| cells.iter().any(|planned| planned.cell == *cell);
        let mut mine = cells.iter().filter(|planned| asked.matches(&planned.cell));
        mine.any(|one| self.against.as_ref().is_none_or(|other| there(&other.moved(&one.cell))))
    }

    /// Finds the measurements for this value, in its cells among those `shown` by its section.
    /// `contender`, if given, replaces the system that the value names. `among` are all measured
    /// cells of the grid. Returns `None` if there is no measurement.
    pub fn found<'a>(
        &self,
        among: &BTreeMap<&Cell, &'a Measured>,
        shown: &Pattern,
        system: Option<&str>,
    ) -> Option<Found<'a>> {
        let asked = self.asked(shown, system);
        match self.pooled() {
            Some(column) => self.found_pooled(among, &asked, column),
            None => self.found_of_all(among, &asked),
        }
    }

    /// Column over whose cells the value is averaged.
    pub fn pooled(&self) -> Option<&str> {
        self.pool.as_deref().filter(|_| self.kind == Kind::P95)
    }

    /// Value over all runs together, or over the quotients of cells.
    fn found_of_all<'a>(
        &self,
        among: &BTreeMap<&Cell, &'a Measured>,
        asked: &Pattern,
    ) -> Option<Found<'a>> {
        let mut used = Vec::new();
        let mut values = Vec::new();
        let statistic = if self.kind == Kind::P95 { Statistic::P95 } else { Statistic::Median };
        for (cell, measured) in among.iter().filter(|(cell, _)| asked.matches(cell)) {
            let Some(against) = &self.against else {
                values.extend(measured.values(&self.metric));
                used.push(*measured);
                continue;
            };
            let Some(other) = among.get(&against.moved(cell)) else { continue };
            let of = |one: &Measured| statistic.of(&one.values(&self.metric));
            if let (Some(one), Some(two)) = (of(measured), of(other)) {
                values.push(one / two);
                used.extend([*measured, *other]);
            }
        }
        values.retain(|value| !value.is_nan());
        let value = self.kind.of(&values, self.against.is_some())?;
        Some(Found { value, values, cells: used })
    }

    /// Mean of the cells' 95th percentiles, over the values of `column` that all have. Or the
    /// quotient of two such means, as in claims, so that a site counts in proportion to its time.
    fn found_pooled<'a>(
        &self,
        among: &BTreeMap<&Cell, &'a Measured>,
        asked: &Pattern,
        column: &str,
    ) -> Option<Found<'a>> {
        let p95 = |one: &Measured| Statistic::P95.of(&one.values(&self.metric));
        let mut cells: Vec<&Cell> =
            among.keys().copied().filter(|cell| asked.matches(cell)).collect();
        let other = |cell: &Cell| among.get(&self.against.as_ref()?.moved(cell)).copied();
        cells.retain(|cell| p95(among[cell]).is_some());
        if self.against.is_some() {
            cells.retain(|cell| other(cell).and_then(p95).is_some());
        }
        let common = common(cells.iter().copied(), column);
        cells.retain(|cell| cell.on(column).is_some_and(|on| common.contains(on)));
        let ones: Vec<f64> = cells.iter().filter_map(|cell| p95(among[cell])).collect();
        let twos: Vec<f64> = cells.iter().filter_map(|cell| p95(other(cell)?)).collect();
        let mean = |values: &[f64]| Statistic::Mean.of(values);
        let (value, values) = match mean(&twos) {
            None => (mean(&ones)?, ones),
            Some(below) => {
                let quotients = ones.iter().zip(&twos).map(|(one, two)| one / two).collect();
                (mean(&ones)? / below, quotients)
            }
        };
        let used = cells.iter().flat_map(|cell| [Some(among[cell]), other(cell)]).flatten();
        (!value.is_nan()).then(|| Found { value, values, cells: used.collect() })
    }
}

impl Kind {
    /// Value over all runs or over quotients. For the kind `P95`, the quotients of the cells' 95th
    /// percentiles are averaged.
    fn of(self, values: &[f64], quotients: bool) -> Option<f64> {
        self.statistic(quotients).of(values)
    }

    /// Statistic over the values of all runs, or over quotients.
    pub fn statistic(self, quotients: bool) -> Statistic {
        match self {
            Self::P95 if quotients => Statistic::Mean,
            Self::P95 => Statistic::P95,
            Self::Median => Statistic::Median,
            Self::Mean => Statistic::Mean,
            Self::Max => Statistic::Max,
            Self::Min | Self::Best => Statistic::Min,
        }
    }
}
