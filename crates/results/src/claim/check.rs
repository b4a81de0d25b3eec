//! Checks a claim against its study.

use std::collections::BTreeSet;

use super::Claim;
use crate::measured::{Cell, Pattern};
use crate::study::{Grid, Study};

impl Claim {
    pub(super) fn check(&self, study: &Study) -> Result<(), String> {
        let section = study.section(&self.section).ok_or_else(|| {
            let ids: Vec<_> = study.sections.iter().map(|section| section.id.as_str()).collect();
            format!(
                "there is no section {:?} in {}: there are {}",
                self.section,
                study.name,
                ids.join(", ")
            )
        })?;
        let grid = study.grid(&section.grid).ok_or("its section has no grid")?;
        for metric in [Some(&self.metric), self.over.as_ref()].into_iter().flatten() {
            if !grid.metrics.contains(metric) {
                return Err(format!("its grid {:?} does not measure {metric:?}", grid.id));
            }
        }
        let cells: Vec<&Cell> = grid.cells.iter().map(|planned| &planned.cell).collect();
        let bases = self.bases.iter().flat_map(|(of, against)| [of, against]);
        let own: Vec<&Pattern> = [&self.of].into_iter().chain(&self.against).chain(bases).collect();
        for pattern in own.iter().copied().chain([&self.cells]) {
            occurs(pattern, &cells)?;
        }
        for column in &self.each {
            if cells.iter().any(|cell| cell.on(column).is_none()) {
                return Err(format!("its grid {:?} has no column {column:?}", grid.id));
            }
            if own.iter().any(|pattern| pattern.on(column).is_some()) {
                return Err(format!("{column:?} stands in each and in a pattern: take one away"));
            }
        }
        self.check_combinations(&cells)
    }

    fn check_combinations(&self, cells: &[&Cell]) -> Result<(), String> {
        let combinations = self.combinations(cells);
        if combinations.is_empty() {
            return Err("no combination of each has a cell of every pattern".into());
        }
        for cells in combinations.iter().flat_map(|combination| &combination.cells) {
            if let [one, two, ..] = cells.as_slice()
                && !self.pooled
            {
                return Err(format!(
                    "a pattern has both {one} and {two}: restrict it, or write pool = \"mean\""
                ));
            }
        }
        Ok(())
    }

    /// Returns `true` if a quick run measures what the claim needs.
    pub fn is_quick(&self, grid: &Grid) -> bool {
        let cells: Vec<&Cell> = grid.quick.iter().map(|planned| &planned.cell).collect();
        !self.combinations(&cells).is_empty()
    }
}

/// Checks that every value in the pattern occurs in a cell. Otherwise a typing error would produce
/// a claim that is never measured.
fn occurs(pattern: &Pattern, cells: &[&Cell]) -> Result<(), String> {
    for (column, values) in pattern.columns() {
        let known: BTreeSet<&str> = cells.iter().filter_map(|cell| cell.on(column)).collect();
        if let Some(value) = values.iter().find(|value| !known.contains(value.as_str())) {
            let known: Vec<&str> = known.into_iter().collect();
            return Err(format!(
                "no cell has {column} = {value:?}: there are {}",
                known.join(", ")
            ));
        }
    }
    Ok(())
}
