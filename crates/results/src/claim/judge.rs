//! Judges a claim by measured cells.

use std::collections::{BTreeMap, BTreeSet};

use super::verdict::{Cover, Figure, Outcome, Verdict};
use super::{Bound, Claim, Compare, Take};
use crate::measured::{Cell, Measured, Pattern, least_of};
use crate::statistics::{Statistic, percentile};

/// A combination, with its cells for each pattern.
pub(super) struct Combination<'a> {
    pub values: Vec<&'a str>,
    pub cells: Vec<Vec<&'a Cell>>,
}

/// Value of a cell, as the claim uses it.
struct Seen {
    value: f64,
    /// Number of runs behind the value.
    runs: usize,
    /// Number of values in these runs.
    values: usize,
}

impl Bound {
    /// Returns `true` if `value` satisfies the bound.
    pub fn keeps(self, value: f64) -> bool {
        match self {
            Self::Below(bound) => value < bound,
            Self::Above(bound) => value > bound,
            Self::Between(low, high) => (low..=high).contains(&value),
        }
    }

    /// Returns `true` if all values between `low` and `high` satisfy the bound, `false` if none
    /// does, and `None` if only some do.
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
    /// The patterns in the order in which their values are divided, each extended by the
    /// restriction of `where`.
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

    /// Every combination of the columns of `each` for which all patterns have cells among `cells`.
    /// Pooled patterns keep only cells with a partner in every other pattern. A partner has the
    /// same value in every column, except those for which the patterns differ.
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

    /// Number of distinct `cells` that the claim needs.
    pub(super) fn needs(&self, cells: &[&Cell]) -> usize {
        needed(&self.combinations(cells)).len()
    }

    /// Judges the claim by the measured cells of its grid. `planned` are the planned cells.
    pub fn judge(&self, measured: &[&Measured], planned: &[&Cell]) -> Verdict {
        let seen: BTreeMap<&Cell, Seen> =
            measured.iter().filter_map(|one| Some((&one.cell, self.of_cell(one)?))).collect();
        let combinations = self.combinations(planned);
        let needed = needed(&combinations);
        let used: Vec<&Seen> = needed.iter().filter_map(|cell| seen.get(*cell)).collect();
        let ends = |of: fn(&Seen) -> usize| {
            let all = || used.iter().map(|one| of(one));
            (all().min().unwrap_or(0), all().max().unwrap_or(0))
        };
        let cover = Cover {
            measured: used.len(),
            planned: needed.len(),
            full: needed.len(),
            runs: ends(|one| one.runs),
            values: ends(|one| one.values),
            faulty: measured.iter().filter(|one| self.is_faulty(one, &needed)).count(),
        };
        if used.is_empty() {
            return Verdict {
                outcome: Outcome::NotMeasured,
                found: None,
                figures: Vec::new(),
                cover,
            };
        }
        let figures: Vec<Figure> =
            combinations.into_iter().map(|one| self.figure(one, &seen)).collect();
        let (outcome, found) = self.verdict(&figures);
        Verdict { outcome, found, figures, cover }
    }

    /// Figure of one combination, from its measured cells.
    fn figure(&self, combination: Combination<'_>, seen: &BTreeMap<&Cell, Seen>) -> Figure {
        let (mut sides, mut missing) = (combination.cells, Vec::new());
        for side in &mut sides {
            missing.extend(side.iter().filter(|cell| !seen.contains_key(*cell)).copied().cloned());
            side.retain(|cell| seen.contains_key(cell));
        }
        if self.pooled {
            keep_partners(&self.patterns(), &mut sides);
        }
        let of_side = |cells: &Vec<&Cell>| {
            let values: Vec<f64> =
                cells.iter().filter_map(|cell| seen.get(cell)).map(|one| one.value).collect();
            match values.as_slice() {
                [one] => Some(*one),
                many if self.pooled => Statistic::Mean.of(many),
                // There are two cells instead of one, so the choice is ambiguous.
                _ => None,
            }
        };
        let values: Option<Vec<f64>> = sides.iter().map(of_side).collect();
        let value = values.map(|values| self.compared(&values)).filter(|value| !value.is_nan());
        let columns = combination.values.iter().map(|value| (*value).to_owned());
        let is_whole = missing.is_empty();
        Figure {
            combination: self.each.iter().cloned().zip(columns).collect(),
            value,
            keeps: value.filter(|_| is_whole).map(|value| self.bound.keeps(value)),
            cells: sides.into_iter().flatten().cloned().collect(),
            missing,
        }
    }

    /// Value of a cell. `None` if it lacks the metric. Undecided quotients are NaN.
    fn of_cell(&self, measured: &Measured) -> Option<Seen> {
        let values = measured.values(&self.metric);
        let mut value = self.statistic.of(&values)?;
        if let Some(over) = &self.over {
            value /= self.statistic.of(&measured.values(over))?;
        }
        let rows = measured.of(&self.metric).filter(|row| row.is_possible());
        let runs = rows.map(|row| row.run).collect::<BTreeSet<u32>>().len();
        Some(Seen { value, runs, values: values.len() })
    }

    fn is_faulty(&self, measured: &Measured, needed: &BTreeSet<&Cell>) -> bool {
        let metrics = [Some(&self.metric), self.over.as_ref()];
        let is_any = metrics.into_iter().flatten().any(|metric| measured.set_aside(metric) > 0);
        is_any && needed.contains(&measured.cell)
    }

    /// Compares the sides. A single value is returned unchanged. Two values give their quotient or
    /// difference. Four values give (of ÷ its base) ÷ (against ÷ its base).
    fn compared(&self, sides: &[f64]) -> f64 {
        match (self.compare, sides) {
            (_, [of]) => *of,
            (Compare::Difference, [of, against]) => of - against,
            (Compare::Quotient, [of, against]) => of / against,
            (Compare::Quotient, [of, against, of_base, against_base]) => {
                (of / of_base) / (against / against_base)
            }
            _ => f64::NAN,
        }
    }

    /// Smallest possible value of a combination.
    fn least(&self) -> f64 {
        let is_signed = self.compare == Compare::Difference || least_of(&self.metric) < 0.0;
        if is_signed { f64::NEG_INFINITY } else { 0.0 }
    }

    /// Judges the figures. A figure that is undecided or lacks cells may have any value; the
    /// verdict is open only if that matters. While cells are missing, no claim counts as
    /// reproduced, because unmeasured cells support nothing.
    fn verdict(&self, figures: &[Figure]) -> (Outcome, Option<f64>) {
        let with = |unknown: f64| -> Vec<f64> {
            let one = |one: &Figure| one.value.filter(|_| one.keeps.is_some()).unwrap_or(unknown);
            figures.iter().map(one).collect()
        };
        let share = |count: usize, of: usize| count as f64 / of as f64;
        let keeps = match self.take {
            Take::One(statistic) => {
                let ends = (statistic.of(&with(self.least())), statistic.of(&with(f64::INFINITY)));
                ends.0.zip(ends.1).and_then(|(low, high)| self.bound.keeps_all(low, high))
            }
            Take::All | Take::Fraction(_) => {
                let needed = if let Take::Fraction(share) = self.take { share } else { 1.0 };
                let kept = figures.iter().filter(|one| one.keeps == Some(true)).count();
                let open = figures.iter().filter(|one| one.keeps.is_none()).count();
                let (low, high) = (share(kept, figures.len()), share(kept + open, figures.len()));
                Bound::Between(needed, 1.0).keeps_all(low, high)
            }
        };
        let is_missing = figures.iter().any(|one| !one.missing.is_empty());
        let outcome = match keeps {
            Some(true) if !is_missing => Outcome::Reproduced,
            Some(false) => Outcome::NotReproduced,
            _ => Outcome::Undecided,
        };
        let values: Vec<f64> = figures.iter().filter_map(|one| one.value).collect();
        let found = match self.take {
            Take::One(statistic) => statistic.of(&values),
            Take::All => self.nearest(&values),
            Take::Fraction(_) => {
                let kept = values.iter().filter(|value| self.bound.keeps(**value)).count();
                (!values.is_empty()).then(|| share(kept, values.len()))
            }
        };
        let is_open = figures.iter().any(|one| one.value.is_none() && one.missing.is_empty());
        (outcome, found.filter(|_| !is_open))
    }

    /// Value that is nearest to breaking the bound, or farthest beyond it.
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

/// The distinct cells of all combinations.
fn needed<'a>(combinations: &[Combination<'a>]) -> BTreeSet<&'a Cell> {
    combinations.iter().flat_map(|one| one.cells.iter().flatten().copied()).collect()
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
