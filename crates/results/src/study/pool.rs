//! Cells to be averaged. All means must cover the same sites, or they are not comparable.

use std::collections::{BTreeMap, BTreeSet};

use crate::measured::Cell;

/// Values of `column` that occur in every group of cells that differ only in that column.
pub fn common<'a>(cells: impl IntoIterator<Item = &'a Cell>, column: &str) -> BTreeSet<&'a str> {
    let mut by_group: BTreeMap<Cell, BTreeSet<&str>> = BTreeMap::new();
    for cell in cells {
        by_group.entry(cell.without(column)).or_default().extend(cell.on(column));
    }
    by_group.into_values().reduce(|one, two| &one & &two).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_the_same_sites() {
        let of = |system: &str, page: &str| Cell::of([("contender", system), ("page", page)]);
        let all = [of("one", "a"), of("one", "b"), of("two", "b"), of("two", "c"), of("one", "c")];
        assert_eq!(common(&all, "page"), BTreeSet::from(["b", "c"]));
        assert_eq!(common(&all[..2], "page"), BTreeSet::from(["a", "b"]));
        assert_eq!(common(&all[1..4], "page"), BTreeSet::from(["b"]));
        assert_eq!(common(&[], "page"), BTreeSet::new());
    }
}
