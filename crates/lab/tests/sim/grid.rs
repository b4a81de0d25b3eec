//! The committed grid equals the simulator's current results.
//!
//! `docs/grids` has the complete grid. This test repeats a part of it with the same seeds, and
//! every digit must match. After an intended change, write the grid again (some minutes) and review
//! the difference:
//!
//! ```text
//! cargo run --release -p bentpipe -- lab run grid --golden docs/grids
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bentpipe_lab::experiment::grid::{Cell, Choice, Work, golden, sim};
use bentpipe_units::Ratio;

/// Link, loss in per cent, burst and work of the repeated part.
const AGAIN: [(&str, f64, f64, &str); 8] = [
    ("mss", 0.0, 1.0, "bulk"),
    ("mss", 20.0, 4.0, "bulk"),
    ("mss", 6.0, 1.0, "object-10k"),
    ("mss", 6.0, 4.0, "object-100k"),
    ("mss", 40.0, 10.0, "object-10k"),
    ("geo-satl", 1.0, 1.0, "object-10k"),
    ("geo-satl", 6.0, 20.0, "object-100k"),
    ("da2gc", 3.3, 1.0, "object-10k"),
];

/// Committed lines of a link.
fn committed(link: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grids");
    let path = folder.join(format!("{link}.csv"));
    let text = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let mut lines = text.lines().map(str::to_owned);
    assert_eq!(lines.next().as_deref(), Some(golden::HEADER), "{}", path.display());
    lines.collect()
}

#[test]
fn golden_cells_repeat_exactly() {
    let works: Vec<(Cell, Work)> = AGAIN
        .into_iter()
        .map(|(link, loss, burst, work)| {
            let loss = Ratio::new(loss / 100.0).unwrap();
            (Cell { profile: link.into(), loss, burst }, work.parse().unwrap())
        })
        .collect();
    let outcomes = sim::run(&works, None, 1).unwrap();
    let mut moved = String::new();
    for outcome in &outcomes {
        let begins = golden::prefix(&outcome.cell, &outcome.work);
        let lines = committed(&outcome.cell.profile);
        let was = lines.iter().find(|line| line.starts_with(&begins));
        let is = golden::line(outcome);
        if was != is.as_ref() {
            let cell = &outcome.cell.profile;
            moved += &format!("{cell}\n  was {was:?}\n  is  {is:?}\n");
        }
    }
    assert!(
        moved.is_empty(),
        "the grid has moved (seed 1):\n{}\n{moved}if that is meant: cargo run --release -p bentpipe \
         -- lab run grid --golden docs/grids",
        golden::HEADER
    );
}

#[test]
fn the_committed_grid_is_whole() {
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (cell, work) in Choice::default().all() {
        expected.entry(cell.profile.clone()).or_default().push(golden::prefix(&cell, &work));
    }
    for (link, prefixes) in expected {
        let lines = committed(&link);
        for begins in &prefixes {
            let count = lines.iter().filter(|line| line.starts_with(begins)).count();
            assert_eq!(count, 1, "{link}: lines that begin with {begins}");
        }
        assert_eq!(lines.len(), prefixes.len(), "{link}: lines of nothing in the grid");
    }
}
