//! The committed figures of several radios equal the simulator's current results.
//!
//! `docs/grids/two-radios.csv` has all cells. This test repeats some of them with the same seeds, and
//! every digit must match. After an intended change, write the file again and review the difference:
//!
//! ```text
//! cargo run --release -p bentpipe -- lab run two-radios --golden docs/grids/two-radios.csv
//! ```

use std::fs;
use std::path::Path;

use bentpipe_lab::experiment::engine::Engine;
use bentpipe_lab::experiment::two_radios::{self, Choice, golden};
use bentpipe_lab::traffic::emu::FurtherRates;

/// Names of the repeated cells.
const AGAIN: [&str; 4] =
    ["bulk", "da2gc dies under bulk", "mss returns: used", "reports per byte of bulk"];

fn committed() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grids");
    let text = fs::read_to_string(folder.join("two-radios.csv")).expect("the file");
    let mut lines = text.lines().map(str::to_owned);
    assert_eq!(lines.next().as_deref(), Some(golden::HEADER));
    lines.collect()
}

#[test]
fn golden_cells_of_several_radios_repeat_exactly() {
    let mut cells = two_radios::cells().expect("the losses are possible");
    let lines = committed();
    for cell in &cells {
        let begins = format!("{},", cell.name);
        let count = lines.iter().filter(|line| line.starts_with(&begins)).count();
        assert_eq!(count, 1, "lines that begin with {begins}");
    }
    assert_eq!(lines.len(), cells.len(), "lines of no cell");
    cells.retain(|cell| AGAIN.contains(&cell.name.as_str()));
    assert_eq!(cells.len(), AGAIN.len());
    let (sessions, runs, baseline) = (None, None, None);
    let choice = Choice { sessions, runs, seed: 1, rates: FurtherRates::Typed, baseline };
    let outcomes = two_radios::run(&cells, choice, &Engine::Sim).expect("they run");
    let moved: Vec<String> =
        (outcomes.iter().map(golden::line)).filter(|line| !lines.contains(line)).collect();
    assert!(
        moved.is_empty(),
        "the figures have moved (seed 1): {moved:#?}\nif that is meant: cargo run --release -p \
         bentpipe -- lab run two-radios --golden docs/grids/two-radios.csv"
    );
}
