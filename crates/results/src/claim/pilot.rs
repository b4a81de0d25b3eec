//! Numbers of runs that decide, estimated from a pilot.
//!
//! The width of an interval falls with the square root of the number of runs. So a claim whose
//! interval contains its bound needs (reach ÷ distance)² times as many runs: the reach of the
//! interval towards the bound, and the distance of the bound, both from the measured value. The
//! reach is that without the widening of few runs, which applies again to the number that results.
//! This number is [`FOR_SURE`] times as large, because half of the later runs have larger values.

use std::collections::{BTreeMap, BTreeSet};

use super::sample::widening;
use super::verdict::{Cover, FEW_RUNS, MAX_RUNS, Outcome};
use super::{Bound, Claim, Claims, Take};
use crate::measured::{Cell, Measured};
use crate::statistics::{MIN_FOR_P95, Statistic};
use crate::study::Study;

/// Factor for a power of 80 % instead of 50 %: ((1.96 + 0.84) ÷ 1.96)², by the normal distribution.
const FOR_SURE: f64 = 2.04;

impl Claim {
    /// Number of runs of each cell that would probably decide an undecided claim. `None` if it is
    /// decided, if cells are missing, or if no number would decide it.
    pub(super) fn runs_to_decide(
        &self,
        outcome: Outcome,
        found: Option<f64>,
        interval: Option<(f64, f64)>,
        cover: &Cover,
    ) -> Option<u32> {
        let found = found.filter(|found| found.is_finite())?;
        if outcome != Outcome::Undecided || cover.measured < cover.planned {
            return None;
        }
        let (low, high) = interval.unwrap_or((found, found));
        let bounds = match (self.take, self.bound) {
            (Take::Fraction(share), _) => vec![share],
            (_, Bound::Below(bound) | Bound::Above(bound)) => vec![bound],
            (_, Bound::Between(from, to)) => vec![from, to],
        };
        if bounds.contains(&found) {
            return None;
        }
        let times = bounds.into_iter().map(|bound| {
            let reach = if bound > found { high - found } else { found - low };
            (reach / (bound - found)).powi(2)
        });
        let most = times.fold(0.0, f64::max);
        let present = cover.runs.0 as f64;
        let plain = present * most * FOR_SURE / widening(cover.runs.0).powi(2);
        let needed = |runs: usize| plain * widening(runs).powi(2);
        let few = (FEW_RUNS + 1..=10).find(|runs| needed(*runs) <= *runs as f64);
        let mut runs = few.map_or(plain.ceil().max(11.0), |runs| runs as f64);
        if !self.is_exact() && !self.unseen(cover.values.0).is_empty() {
            // Only a 95th percentile sees both sides, from a number of values on.
            if self.statistic != Statistic::P95 {
                return None;
            }
            let values = (cover.values.0 as f64 / present).max(1.0);
            runs = runs.max((MIN_FOR_P95 as f64 / values).ceil());
        }
        (runs <= f64::from(u32::MAX)).then_some(runs as u32)
    }
}

impl Claims {
    /// Gives every cell of `studies` the number of runs that decides its claims, by the results of a
    /// pilot, of which `is_quick` says if it was a quick run. A cell never gets fewer runs than
    /// planned, nor more than [`MAX_RUNS`]. The text of a study lists its changes, so that its digest
    /// stands for them. Returns the number of changed cells.
    pub fn plan_runs(&self, studies: &mut [Study], pilot: &[Measured], is_quick: bool) -> usize {
        let mut wanted: BTreeMap<(String, String, Cell), u32> = BTreeMap::new();
        for (claim, verdict) in self.judge(studies, pilot, is_quick) {
            let Some(runs) = verdict.runs_to_decide else { continue };
            let runs = runs.min(MAX_RUNS);
            let study = studies.iter().find(|study| study.name == claim.experiment);
            let section = study.and_then(|study| study.section(&claim.section));
            let grid = section.and_then(|section| study?.grid(&section.grid));
            let Some((study, grid)) = study.zip(grid) else { continue };
            let cells: Vec<&Cell> = grid.cells.iter().map(|planned| &planned.cell).collect();
            for cell in claim.combinations(&cells).into_iter().flat_map(|one| one.cells).flatten() {
                let key = (study.name.clone(), grid.id.clone(), cell.clone());
                let most = wanted.entry(key).or_default();
                *most = runs.max(*most);
            }
        }
        let mut changed = BTreeSet::new();
        for study in studies {
            let mut text = String::new();
            for grid in &mut study.grids {
                for planned in grid.cells.iter_mut().chain(&mut grid.quick) {
                    let key = (study.name.clone(), grid.id.clone(), planned.cell.clone());
                    if let Some(runs) = wanted.get(&key).filter(|runs| **runs > planned.runs) {
                        planned.runs = *runs;
                        changed.insert(key);
                        text += &format!("# {} {}: {runs} runs\n", grid.id, planned.cell);
                    }
                }
            }
            study.text += &text;
        }
        changed.len()
    }
}
