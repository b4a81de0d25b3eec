//! Lookup of a cell's results, and of its place on the page.

use std::collections::BTreeMap;

use crate::measured::{Cell, Measured};

/// Measured cells of every grid.
pub(super) struct Index<'a> {
    /// Cells by study, then by grid.
    grids: BTreeMap<&'a str, BTreeMap<&'a str, BTreeMap<&'a Cell, &'a Measured>>>,
    none: BTreeMap<&'a Cell, &'a Measured>,
    /// Position of every measured cell in its grid.
    places: BTreeMap<(&'a str, &'a str, &'a Cell), usize>,
}

impl<'a> Index<'a> {
    pub fn new(measured: &'a [Measured]) -> Self {
        let mut grids: BTreeMap<&str, BTreeMap<&str, BTreeMap<&Cell, &Measured>>> = BTreeMap::new();
        for one in measured {
            let grids = grids.entry(&one.paper).or_default();
            grids.entry(&one.grid).or_default().insert(&one.cell, one);
        }
        let mut places = BTreeMap::new();
        for (paper, grids) in &grids {
            for (grid, cells) in grids {
                places.extend(
                    cells.keys().enumerate().map(|(at, cell)| ((*paper, *grid, *cell), at)),
                );
            }
        }
        Self { grids, none: BTreeMap::new(), places }
    }

    /// The cells of a grid, sorted.
    pub fn grid(&self, paper: &str, grid: &str) -> &BTreeMap<&'a Cell, &'a Measured> {
        self.grids.get(paper).and_then(|grids| grids.get(grid)).unwrap_or(&self.none)
    }

    /// Anchor of the list of a cell's runs; `None` if the cell was not measured.
    pub fn anchor(&self, paper: &str, grid: &str, cell: &Cell) -> Option<String> {
        let place = *self.places.get(&(paper, grid, cell))?;
        Some(anchor(paper, grid, place))
    }
}

/// Anchor of the runs of the cell at this position of its grid.
pub(super) fn anchor(paper: &str, grid: &str, place: usize) -> String {
    format!("runs-{paper}-{grid}-{place}")
}
