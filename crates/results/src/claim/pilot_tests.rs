//! Tests of the numbers of runs that a pilot asks for.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tests::{NEVER, cell, judge_of, row};
use super::*;

const STUDY: &str = r#"
paper = "P"
authors = "A"
about = "B"

[[page]]
id = "one"
objects = 1
bytes = 100

[[grid]]
id = "pages"
workload = "page"
runs = 5
deadline = "60 s"
metrics = ["plt"]
fixed = { engine = "emu", page = "one", protocol = "http/1.1" }

[[grid.axes]]
contender = ["e2e-cubic", "bentpipe"]
link = ["mss", "da2gc"]

[grid.quick]
runs = 2

[[section]]
id = "fig"
at = "figure 1"
title = "T"
grid = "pages"
today = "e2e-cubic"
with = "bentpipe"
method = "Theirs."
ours = "Ours."
deviations = ["A difference."]
figure = "bars"
x = "link"
y = "plt"
"#;

const CLAIM: &str = r#"
[[claim]]
id = "small/fast"
paper = "small"
section = "fig"
at = "section 1"
claim = "C."
metric = "plt"
statistic = "mean"
of = { contender = "bentpipe", link = "mss" }
below = 1
"#;

/// Loads that take 0.8 to 1.16 s, 0.98 s on average.
fn loads(count: u32, seed: u64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(0.8..1.16)).collect()
}

/// Number of runs that decides these loads, if they are undecided.
fn runs(values: &[f64], rest: &str) -> Option<u32> {
    let cells = [cell("bentpipe a", values)];
    judge_of(&format!("of = {{ contender = 'bentpipe' }}\n{rest}"), &cells, &cells).runs_to_decide
}

#[test]
fn as_many_runs_as_a_pilot_asks_for_decide_most_claims() {
    let mut decided = 0;
    let rest = "statistic = 'mean'\nbelow = 1";
    for seed in 0..20 {
        let Some(count) = runs(&loads(20, seed), rest) else {
            decided += 1;
            continue;
        };
        let cells = [cell("bentpipe a", &loads(count.min(2000), seed + 100))];
        let verdict = judge_of(&format!("of = {{ page = 'a' }}\n{rest}"), &cells, &cells);
        decided += usize::from(verdict.outcome == Outcome::Reproduced);
    }
    assert!((14..=20).contains(&decided), "{decided} of 20");
}

#[test]
fn an_undecided_claim_says_how_many_runs_decide_it() {
    assert_eq!(runs(&[0.99; 3], "below = 1"), Some(4), "three runs near the bound");
    assert_eq!(runs(&[0.5; 3], "below = 1"), None, "decided");
    assert_eq!(runs(&[1.0; 3], "below = 1"), None, "no distance from the bound");
    assert_eq!(runs(&[NEVER, NEVER, 1.0], "below = 2"), None, "no finite value");
    // Without the widening of few runs the interval reaches 0.12 to 0.14 beyond the value.
    let values = [0.7, 0.8, 0.9, 1.0, 1.1];
    let few = runs(&values, "statistic = 'mean'\nbelow = 1").unwrap();
    let many = runs(&values, "statistic = 'mean'\nbelow = 0.95").unwrap();
    assert!((10..=20).contains(&few) && (40..=80).contains(&many), "{few} {many}");
    assert_eq!(runs(&values, "statistic = 'mean'\nbetween = [0, 0.95]"), Some(many));
}

#[test]
fn a_pilot_raises_the_runs_of_the_cells_that_decide_open_claims() {
    let claims = Claims::parse("claims.toml", CLAIM).unwrap();
    let planned = |values: &[f64]| {
        let mut studies = [Study::parse("small", "small.toml", STUDY).unwrap()];
        let before = studies[0].clone();
        let pilot: Vec<Measured> = (before.grids[0].quick.iter())
            .map(|planned| {
                let rows = values.iter().enumerate().map(|(run, v)| row("plt", run, *v)).collect();
                let (paper, cell) = ("small".into(), planned.cell.clone());
                Measured { paper, grid: "pages".into(), cell, rows }
            })
            .collect();
        let changed = claims.plan_runs(&mut studies, &pilot, true);
        let runs = |cells: &[crate::study::Planned]| -> Vec<u32> {
            cells.iter().map(|planned| planned.runs).collect()
        };
        let grid = &studies[0].grids[0];
        let same = studies[0].text == before.text;
        (changed, runs(&grid.cells), runs(&grid.quick), same)
    };
    // The cells in alphabetical order of their columns: system, then link.
    let (changed, full, quick, same) = planned(&[0.7, 0.8, 0.9, 1.0, 1.1]);
    let raised = full[2];
    assert!(raised > 10 && raised < 25, "{full:?}");
    assert_eq!((changed, same), (1, false));
    assert_eq!(full, [5, 5, raised, 5]);
    assert_eq!(quick, [2, 2, raised, 2]);
    let plan = (0, vec![5; 4], vec![2; 4], true);
    assert_eq!(planned(&[0.1, 0.2, 0.3]), plan, "decided");
    assert_eq!(planned(&[0.5, 1.0, 1.5]), plan, "no number decides it");
}
