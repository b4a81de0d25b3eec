//! Cells whose mean becomes one bar.

use std::collections::BTreeMap;

use crate::measured::{Cell, Measured};
use crate::study::common;

/// Cells of the mean at each position of `x`: those with a value of `column` that all positions
/// have.
pub(super) fn pools<'a>(
    cells: &[&'a Measured],
    x: &str,
    column: &str,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut places: BTreeMap<&str, Vec<&Cell>> = BTreeMap::new();
    for one in cells {
        places.entry(one.cell.on(x).unwrap_or_default()).or_default().push(&one.cell);
    }
    let of = |cells: Vec<&'a Cell>| common(cells, column).into_iter().collect();
    places.into_iter().map(|(place, cells)| (place, of(cells))).collect()
}

/// Groups of cells that differ only in `column`. Without a column, each cell is its own group.
pub(super) fn groups<'a>(cells: &[&'a Measured], column: Option<&str>) -> Vec<Vec<&'a Measured>> {
    let Some(column) = column else { return cells.iter().map(|one| vec![*one]).collect() };
    let mut groups: Vec<(Cell, Vec<&Measured>)> = Vec::new();
    for one in cells {
        let others = one.cell.without(column);
        match groups.iter_mut().find(|(key, _)| *key == others) {
            Some((_, group)) => group.push(one),
            None => groups.push((others, vec![one])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_means_of_what_all_its_bars_have() {
        let of = |system: &str, link: &str, page: &str| Measured {
            paper: "spdy".into(),
            grid: "sites".into(),
            cell: Cell::of([("contender", system), ("link", link), ("page", page)]),
            rows: Vec::new(),
        };
        let all = [
            of("one", "far", "a"),
            of("one", "far", "b"),
            of("two", "far", "b"),
            of("one", "near", "a"),
        ];
        let all: Vec<&Measured> = all.iter().collect();
        let pools = pools(&all, "link", "page");
        assert_eq!(pools, BTreeMap::from([("far", vec!["b"]), ("near", vec!["a"])]));
        let sizes: Vec<_> = groups(&all, Some("page")).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 1, 1]);
        assert_eq!(groups(&all, None).len(), 4);
    }
}
