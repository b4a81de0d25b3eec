//! Cells that become one bar by their mean.

use std::collections::{BTreeMap, BTreeSet};

use crate::measured::{Cell, Measured};

/// Those cells whose value in `column` all combinations of the other columns have: means of others
/// would be of different things.
pub(super) fn alike<'a>(cells: Vec<&'a Measured>, column: &str) -> Vec<&'a Measured> {
    let mut by_group: BTreeMap<Cell, BTreeSet<&str>> = BTreeMap::new();
    for one in &cells {
        by_group.entry(one.cell.without(column)).or_default().extend(one.cell.on(column));
    }
    let common = by_group.into_values().reduce(|one, two| &one & &two).unwrap_or_default();
    cells
        .into_iter()
        .filter(|one| one.cell.on(column).is_some_and(|on| common.contains(on)))
        .collect()
}

/// The cells that differ in `column` alone, together; each by itself without one.
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
    fn means_are_of_the_same_sites() {
        let of = |contender: &str, page: &str| Measured {
            paper: "spdy".into(),
            grid: "sites".into(),
            cell: Cell::of([("contender", contender), ("page", page)]),
            rows: Vec::new(),
        };
        let all = [of("one", "a"), of("one", "b"), of("two", "b"), of("two", "c"), of("one", "c")];
        let alike = alike(all.iter().collect(), "page");
        let pages: Vec<_> = alike.iter().filter_map(|one| one.cell.on("page")).collect();
        assert_eq!(pages, ["b", "b", "c", "c"]);
        let sizes: Vec<_> = groups(&alike, Some("page")).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2]);
        assert_eq!(groups(&alike, None).len(), 4);
    }
}
