//! Judges a claim by measured cells.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::sample::Sample;
use super::verdict::{Cover, FEW_RUNS, Figure, Outcome, Verdict};
use super::{Bound, Claim, Compare, Take};
use crate::measured::{Cell, Measured, Pattern, least_of, most_of};
use crate::statistics::{MIN_FOR_P95, RESAMPLES, Statistic, percentile};

/// Seed of the bootstrap, so that equal measurements give equal verdicts.
const SEED: u64 = 1;
/// Share of the resamples beyond each end of the interval of 95 %.
const TAIL: f64 = 0.025;
/// Distance from the bound, as a share of it, within which [`FEW_RUNS`] decide nothing.
const NEAR: f64 = 0.02;

/// A combination, with its cells for each pattern.
pub(super) struct Combination<'a> {
    pub values: Vec<&'a str>,
    pub cells: Vec<Vec<&'a Cell>>,
}

/// Combination with the indices of its measured cells, side by side.
struct Prepared<'a> {
    values: Vec<&'a str>,
    sides: Vec<Vec<usize>>,
    missing: Vec<&'a Cell>,
}

/// Value of a combination. `None` if it is undecided, or if missing cells leave no value.
#[derive(Clone, Copy)]
struct Valued {
    value: Option<f64>,
    is_whole: bool,
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

    /// The bound, easier to keep by this share of itself, or harder if the share is negative. An
    /// exact value stays.
    fn eased(self, by: f64) -> Self {
        match self {
            Self::Below(bound) => Self::Below(bound + by * bound.abs()),
            Self::Above(bound) => Self::Above(bound - by * bound.abs()),
            Self::Between(low, high) if low < high => {
                Self::Between(low - by * low.abs(), high + by * high.abs())
            }
            exact @ Self::Between(..) => exact,
        }
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
        let mut samples: BTreeMap<&Cell, Sample> =
            measured.iter().filter_map(|one| Some((&one.cell, Sample::of(self, one)?))).collect();
        Sample::borrow(self, &mut samples);
        let combinations = self.combinations(planned);
        let needed = needed(&combinations);
        let used: Vec<&Sample> = needed.iter().filter_map(|cell| samples.get(*cell)).collect();
        let ends = |of: fn(&Sample) -> usize| {
            let all = || used.iter().map(|one| of(one));
            (all().min().unwrap_or(0), all().max().unwrap_or(0))
        };
        let cover = Cover {
            measured: used.len(),
            planned: needed.len(),
            full: needed.len(),
            runs: ends(Sample::runs),
            values: ends(Sample::values),
            faulty: measured.iter().filter(|one| self.is_faulty(one, &needed)).count(),
        };
        if used.is_empty() {
            return Verdict {
                outcome: Outcome::NotMeasured,
                found: None,
                interval: None,
                runs_to_decide: None,
                figures: Vec::new(),
                cover,
            };
        }
        let cells: Vec<&Cell> =
            needed.iter().copied().filter(|cell| samples.contains_key(*cell)).collect();
        let prepared: Vec<Prepared<'_>> =
            combinations.into_iter().map(|one| self.prepared(one, &cells)).collect();
        let values: Vec<f64> = used.iter().map(|sample| sample.value(self)).collect();
        let valued = self.all_valued(&prepared, &values);
        let (mut outcome, found, interval) = self.decided(&prepared, &valued, &used, cover.runs.0);
        if self.has_blind_side(&prepared, &values, cover.values.0) {
            outcome = Outcome::Undecided;
        }
        let figures = prepared.iter().zip(&valued);
        let figures = figures.map(|(one, valued)| self.figure(one, *valued, &cells)).collect();
        let runs_to_decide = self.runs_to_decide(outcome, found, interval, &cover);
        Verdict { outcome, found, interval, runs_to_decide, figures, cover }
    }

    /// Outcome and value with the interval of the bootstrap, for cells with at least `runs` runs.
    fn decided(
        &self,
        prepared: &[Prepared<'_>],
        valued: &[Valued],
        used: &[&Sample],
        runs: usize,
    ) -> (Outcome, Option<f64>, Option<(f64, f64)>) {
        let (point, found) = self.verdict(self.bound, valued);
        let by_bound = |by: f64| self.verdict(self.bound.eased(by), valued).0;
        let is_near = runs <= FEW_RUNS && [-NEAR, NEAR].iter().any(|by| by_bound(*by) != point);
        let of_near = if is_near { Outcome::Undecided } else { point };
        if !used.iter().any(|sample| sample.has_spread()) {
            return (if self.is_exact() { of_near } else { Outcome::Undecided }, found, None);
        }
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let resampled = (0..RESAMPLES).map(|_| {
            let values: Vec<f64> =
                used.iter().map(|sample| sample.drawn(self, &mut random)).collect();
            self.verdict(self.bound, &self.all_valued(prepared, &values))
        });
        let (outcomes, founds): (Vec<Outcome>, Vec<Option<f64>>) = resampled.unzip();
        let founds: Vec<f64> = founds.into_iter().flatten().filter(|one| !one.is_nan()).collect();
        let ends = percentile(&founds, TAIL).zip(percentile(&founds, 1.0 - TAIL));
        let others = outcomes.iter().filter(|outcome| **outcome != point).count();
        let is_sure = others as f64 <= TAIL * RESAMPLES as f64;
        (if is_sure { of_near } else { Outcome::Undecided }, found, found.and(ends))
    }

    /// Returns `true` if the bound is an exact value, which needs no spread.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self.bound, Bound::Between(low, high) if low == high)
    }

    /// Extreme values beyond which the statistic sees nothing, for cells with at least `count` values.
    /// A sample of the runs is never above their greatest value, nor below their smallest.
    pub(super) fn unseen(&self, count: usize) -> Vec<f64> {
        let (least, most) = (least_of(&self.metric), most_of(&self.metric));
        match self.statistic {
            Statistic::Min | Statistic::Max if self.over.is_some() => vec![0.0, f64::INFINITY],
            Statistic::P95 if count < MIN_FOR_P95 && self.over.is_some() => {
                vec![0.0, f64::INFINITY]
            }
            Statistic::P95 if count < MIN_FOR_P95 => vec![most],
            Statistic::Max => vec![most],
            Statistic::Min => vec![least],
            Statistic::Median | Statistic::Mean | Statistic::P95 => Vec::new(),
        }
    }

    /// Returns `true` if values beyond the observed extremes would give another outcome.
    fn has_blind_side(&self, prepared: &[Prepared<'_>], values: &[f64], count: usize) -> bool {
        if self.is_exact() {
            return false;
        }
        let outcome =
            |values: &[f64]| self.verdict(self.bound, &self.all_valued(prepared, values)).0;
        let beyond = |extreme: f64, sides: [usize; 2]| {
            let mut values = values.to_vec();
            let cells = prepared.iter().flat_map(|one| sides.map(|side| one.sides.get(side)));
            cells.flatten().flatten().for_each(|cell| values[*cell] = extreme);
            outcome(&values)
        };
        let point = outcome(values);
        // Sides 0 and 3 raise the value, and sides 1 and 2 lower it.
        self.unseen(count).into_iter().any(|extreme| {
            [[0, 3], [1, 2]].into_iter().any(|sides| beyond(extreme, sides) != point)
        })
    }

    fn all_valued(&self, prepared: &[Prepared<'_>], values: &[f64]) -> Vec<Valued> {
        prepared.iter().map(|one| self.valued(one, values)).collect()
    }

    /// Finds the measured cells of a combination among `cells`, and those that are missing.
    fn prepared<'a>(&self, combination: Combination<'a>, cells: &[&Cell]) -> Prepared<'a> {
        let (mut sides, mut missing) = (combination.cells, Vec::new());
        let is_there = |cell: &Cell| cells.binary_search(&cell).is_ok();
        for side in &mut sides {
            missing.extend(side.iter().copied().filter(|cell| !is_there(cell)));
            side.retain(|cell| is_there(cell));
        }
        if self.pooled {
            keep_partners(&self.patterns(), &mut sides);
        }
        let index = |cell: &Cell| cells.binary_search(&cell).ok();
        let sides = sides.into_iter().map(|side| side.into_iter().filter_map(index).collect());
        Prepared { values: combination.values, sides: sides.collect(), missing }
    }

    /// Value of a combination, from the values of the measured cells.
    fn valued(&self, one: &Prepared<'_>, values: &[f64]) -> Valued {
        let of_side = |cells: &Vec<usize>| {
            let values: Vec<f64> = cells.iter().map(|cell| values[*cell]).collect();
            match values.as_slice() {
                [one] => Some(*one),
                many if self.pooled => Statistic::Mean.of(many),
                // There are two cells instead of one, so the choice is ambiguous.
                _ => None,
            }
        };
        let sides: Option<Vec<f64>> = one.sides.iter().map(of_side).collect();
        let value = sides.map(|sides| self.compared(&sides)).filter(|value| !value.is_nan());
        Valued { value, is_whole: one.missing.is_empty() }
    }

    /// Figure of one combination.
    fn figure(&self, one: &Prepared<'_>, valued: Valued, cells: &[&Cell]) -> Figure {
        let columns = one.values.iter().map(|value| (*value).to_owned());
        Figure {
            combination: self.each.iter().cloned().zip(columns).collect(),
            value: valued.value,
            keeps: valued.keeps(self.bound),
            cells: one.sides.iter().flatten().map(|cell| cells[*cell].clone()).collect(),
            missing: one.missing.iter().copied().cloned().collect(),
        }
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

    /// Judges the values of the combinations by a bound. A value that is undecided or lacks cells
    /// may be anything; the verdict is open only if that matters. While cells are missing, no claim
    /// counts as reproduced, because unmeasured cells support nothing.
    fn verdict(&self, bound: Bound, all: &[Valued]) -> (Outcome, Option<f64>) {
        let with = |unknown: f64| -> Vec<f64> {
            all.iter().map(|one| one.value.filter(|_| one.is_whole).unwrap_or(unknown)).collect()
        };
        let share = |count: usize, of: usize| count as f64 / of as f64;
        let keeps = match self.take {
            Take::One(statistic) => {
                let ends = (statistic.of(&with(self.least())), statistic.of(&with(f64::INFINITY)));
                ends.0.zip(ends.1).and_then(|(low, high)| bound.keeps_all(low, high))
            }
            Take::All | Take::Fraction(_) => {
                let needed = if let Take::Fraction(share) = self.take { share } else { 1.0 };
                let kept = all.iter().filter(|one| one.keeps(bound) == Some(true)).count();
                let open = all.iter().filter(|one| one.keeps(bound).is_none()).count();
                let (low, high) = (share(kept, all.len()), share(kept + open, all.len()));
                Bound::Between(needed, 1.0).keeps_all(low, high)
            }
        };
        let is_missing = all.iter().any(|one| !one.is_whole);
        let outcome = match keeps {
            Some(true) if !is_missing => Outcome::Reproduced,
            Some(false) => Outcome::NotReproduced,
            _ => Outcome::Undecided,
        };
        let values: Vec<f64> = all.iter().filter_map(|one| one.value).collect();
        let found = match self.take {
            Take::One(statistic) => statistic.of(&values),
            Take::All => self.nearest(&values),
            Take::Fraction(_) => {
                let kept = values.iter().filter(|value| bound.keeps(**value)).count();
                (!values.is_empty()).then(|| share(kept, values.len()))
            }
        };
        let is_open = all.iter().any(|one| one.value.is_none() && one.is_whole);
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

impl Valued {
    /// Returns `true` if the value keeps the bound; `None` if it is undecided or cells are missing.
    fn keeps(self, bound: Bound) -> Option<bool> {
        self.value.filter(|_| self.is_whole).map(|value| bound.keeps(value))
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
