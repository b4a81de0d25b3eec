//! Holding a claim against measured cells.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bound, Claim, Take};
use crate::measured::{Cell, Measured, Pattern};
use crate::statistics::{Statistic, percentile};

/// What measured cells say of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Whether it holds.
    pub held: Held,
    /// What was taken of all combinations, where they are decided: of `all` the one that is nearest
    /// to breaking the bound or farthest beyond it, of `fraction` the share that keeps it.
    pub found: Option<f64>,
    /// Every combination that was measured.
    pub figures: Vec<Figure>,
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// It does.
    Held,
    /// It does not.
    NotHeld,
    /// Quotients of two infinite or of two zero values leave it open.
    Undecided,
    /// No cells that judge it were measured.
    NotMeasured,
}

/// What a claim judges, for one combination.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The columns of the combination, with their values.
    pub combination: Vec<(String, String)>,
    /// The value, infinite where what should end did not; `None` where it is undecided.
    pub value: Option<f64>,
    /// Whether it keeps the bound; `None` where it is undecided.
    pub keeps: Option<bool>,
    /// The cells that it was made of.
    pub cells: Vec<Cell>,
}

/// A combination, with the cells that each pattern has of it.
pub(super) struct Combination<'a> {
    pub values: Vec<&'a str>,
    pub cells: Vec<Vec<&'a Cell>>,
}

impl Held {
    /// As reports write it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::NotHeld => "not held",
            Self::Undecided => "undecided",
            Self::NotMeasured => "not measured",
        }
    }
}

impl Bound {
    /// Whether `value` keeps it.
    pub fn keeps(self, value: f64) -> bool {
        match self {
            Self::Below(bound) => value < bound,
            Self::Above(bound) => value > bound,
            Self::Between(low, high) => (low..=high).contains(&value),
        }
    }

    /// Whether whatever lies between `low` and `high` keeps it; `None` if some does and some not.
    fn keeps_all(self, low: f64, high: f64) -> Option<bool> {
        let none = match self {
            Self::Below(bound) => low >= bound,
            Self::Above(bound) => high <= bound,
            Self::Between(from, to) => high < from || low > to,
        };
        if self.keeps(low) && self.keeps(high) { Some(true) } else { none.then_some(false) }
    }
}

impl Claim {
    /// The patterns, in the order in which their values are divided, each with what `where` adds.
    pub(super) fn patterns(&self) -> Vec<Pattern> {
        let bases = self.bases.as_ref();
        let all = [
            Some(&self.of),
            self.against.as_ref(),
            bases.map(|(of, _)| of),
            bases.map(|(_, against)| against),
        ];
        all.into_iter().flatten().map(|pattern| pattern.or(&self.cells)).collect()
    }

    /// Every combination of the columns of `each` that all patterns have among `cells`. Pooled
    /// patterns keep those cells only that have a partner in every other one: a cell that is the
    /// same in all columns for which the patterns ask the same.
    pub(super) fn combinations<'a>(&self, cells: &[&'a Cell]) -> Vec<Combination<'a>> {
        let patterns = self.patterns();
        let matching = |pattern: &Pattern| -> Vec<&'a Cell> {
            cells.iter().copied().filter(|cell| pattern.matches(cell)).collect()
        };
        let all: Vec<Vec<&Cell>> = patterns.iter().map(matching).collect();
        let mut keys = Vec::new();
        for key in all[0].iter().filter_map(|cell| cell.key(&self.each)) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let of_key = |values: Vec<&'a str>| {
            let mine = |cell: &&Cell| cell.key(&self.each).as_ref() == Some(&values);
            let mut cells: Vec<Vec<&Cell>> =
                all.iter().map(|cells| cells.iter().copied().filter(mine).collect()).collect();
            if self.pooled {
                keep_partners(&patterns, &mut cells);
            }
            cells.iter().all(|cells| !cells.is_empty()).then_some(Combination { values, cells })
        };
        keys.into_iter().filter_map(of_key).collect()
    }

    /// Judges it by the measured cells of its grid.
    pub fn judge(&self, measured: &[&Measured]) -> Verdict {
        let usable: BTreeMap<&Cell, f64> =
            measured.iter().filter_map(|one| Some((&one.cell, self.of_cell(one)?))).collect();
        let cells = measured.iter().map(|one| &one.cell);
        let cells: Vec<&Cell> = cells.filter(|cell| usable.contains_key(cell)).collect();
        let value = |cell: &Cell| usable.get(cell).copied();
        let figure = |combination: Combination| {
            let side = |cells: &Vec<&Cell>| match cells.as_slice() {
                [one] => value(one),
                many if self.pooled => {
                    let values: Option<Vec<f64>> = many.iter().map(|cell| value(cell)).collect();
                    Statistic::Mean.of(&values?)
                }
                // Two cells where there should be one: nobody knows which is meant.
                _ => None,
            };
            let sides: Option<Vec<f64>> = combination.cells.iter().map(side).collect();
            let value = sides.map(|sides| quotient(&sides)).filter(|value| !value.is_nan());
            let values = combination.values.iter().map(|value| (*value).to_owned());
            Figure {
                combination: self.each.iter().cloned().zip(values).collect(),
                value,
                keeps: value.map(|value| self.bound.keeps(value)),
                cells: combination.cells.into_iter().flatten().cloned().collect(),
            }
        };
        let figures: Vec<Figure> = self.combinations(&cells).into_iter().map(figure).collect();
        let (held, found) = self.verdict(&figures);
        Verdict { held, found, figures }
    }

    /// What a cell gives; `None` if it lacks the metric. Undecided quotients are not numbers.
    fn of_cell(&self, measured: &Measured) -> Option<f64> {
        let value = self.statistic.of(&measured.values(&self.metric))?;
        let Some(over) = &self.over else { return Some(value) };
        Some(value / self.statistic.of(&measured.values(over))?)
    }

    /// An undecided value may be anything from nothing to infinitely much: the verdict is only open
    /// where it would differ.
    fn verdict(&self, figures: &[Figure]) -> (Held, Option<f64>) {
        if figures.is_empty() {
            return (Held::NotMeasured, None);
        }
        let with = |unknown: f64| -> Vec<f64> {
            figures.iter().map(|figure| figure.value.unwrap_or(unknown)).collect()
        };
        let known: Vec<f64> = figures.iter().filter_map(|figure| figure.value).collect();
        let decided = known.len() == figures.len();
        let share = |keeps: usize| keeps as f64 / figures.len() as f64;
        let kept = figures.iter().filter(|figure| figure.keeps == Some(true)).count();
        let open = figures.len() - known.len();
        let (keeps, found) = match self.take {
            Take::One(statistic) => {
                let (low, high) = (statistic.of(&with(0.0)), statistic.of(&with(f64::INFINITY)));
                let keeps = low.zip(high).and_then(|(low, high)| self.bound.keeps_all(low, high));
                (keeps, statistic.of(&known).filter(|_| decided))
            }
            Take::All | Take::Fraction(_) => {
                let needed = if let Take::Fraction(share) = self.take { share } else { 1.0 };
                let least = Bound::Between(needed, 1.0);
                let found = match self.take {
                    Take::All => self.nearest(&known),
                    _ => Some(share(kept)),
                };
                (least.keeps_all(share(kept), share(kept + open)), found.filter(|_| decided))
            }
        };
        let held =
            keeps.map_or(Held::Undecided, |keeps| if keeps { Held::Held } else { Held::NotHeld });
        (held, found)
    }

    /// The value that is nearest to breaking the bound, or farthest beyond it.
    fn nearest(&self, values: &[f64]) -> Option<f64> {
        let (least, most) = (percentile(values, 0.0)?, percentile(values, 1.0)?);
        Some(match self.bound {
            Bound::Below(_) => most,
            Bound::Above(_) => least,
            Bound::Between(low, high) => {
                if low - least > most - high {
                    least
                } else {
                    most
                }
            }
        })
    }
}

/// Of one value itself; of two their quotient; of four (of ÷ its base) ÷ (against ÷ its base).
fn quotient(sides: &[f64]) -> f64 {
    match sides {
        [of] => *of,
        [of, against] => of / against,
        [of, against, of_base, against_base] => (of / of_base) / (against / against_base),
        _ => f64::NAN,
    }
}

fn keep_partners(patterns: &[Pattern], sides: &mut [Vec<&Cell>]) {
    let asked_the_same =
        |column: &str| patterns.iter().all(|pattern| pattern.on(column) == patterns[0].on(column));
    let key = |cell: &Cell| -> Vec<(String, String)> {
        let shared = cell.columns().filter(|(column, _)| asked_the_same(column));
        shared.map(|(column, value)| (column.into(), value.into())).collect()
    };
    let keys: Vec<BTreeSet<_>> =
        sides.iter().map(|cells| cells.iter().map(|cell| key(cell)).collect()).collect();
    for cells in sides {
        cells.retain(|cell| keys.iter().all(|keys| keys.contains(&key(cell))));
    }
}
