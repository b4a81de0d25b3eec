//! Tests of the intervals of verdicts.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tests::{NEVER, cell, judge_of, single};
use super::*;

fn of(cells: &[Measured], bound: &str) -> Verdict {
    judge_of(&format!("of = {{ contender = 'bentpipe', page = 'a' }}\n{bound}"), cells, &cells[..1])
}

#[test]
fn an_interval_that_contains_the_bound_decides_nothing() {
    let cells = [cell("bentpipe a", &[1.0, 2.0, 3.0, 4.0, 5.0])];
    for (bound, outcome) in [
        ("below = 3.5", Outcome::Undecided),
        ("above = 2.5", Outcome::Undecided),
        ("below = 8", Outcome::Reproduced),
        ("above = 8", Outcome::NotReproduced),
        ("between = [0.4, 8]", Outcome::Reproduced),
        ("between = [2.5, 5.5]", Outcome::Undecided),
    ] {
        let verdict = of(&cells, bound);
        assert_eq!((verdict.outcome, verdict.found), (outcome, Some(3.0)), "{bound}");
        let (low, high) = verdict.interval.unwrap();
        assert!((0.4..1.0).contains(&low) && high > 5.0 && high <= 8.0, "{low} {high}");
        assert_eq!(of(&cells, bound), verdict, "the same runs give the same verdict");
    }
}

#[test]
fn more_runs_with_the_same_spread_decide() {
    let runs = |times: usize| [0.8, 0.9, 0.95, 1.1, 0.9].repeat(times);
    let outcome =
        |times| of(&[cell("bentpipe a", &runs(times))], "statistic = 'mean'\nbelow = 1").outcome;
    assert_eq!([outcome(1), outcome(10)], [Outcome::Undecided, Outcome::Reproduced]);
}

#[test]
fn three_runs_near_the_bound_decide_nothing_and_four_do() {
    let outcome = |value: f64, runs: usize, bound: &str| {
        of(&[cell("bentpipe a", &vec![value; runs])], bound).outcome
    };
    for (value, runs, wanted) in [
        (0.99, 3, Outcome::Undecided),
        (1.01, 3, Outcome::Undecided),
        (0.97, 3, Outcome::Reproduced),
        (1.03, 3, Outcome::NotReproduced),
        (0.99, 4, Outcome::Reproduced),
        (1.01, 4, Outcome::NotReproduced),
    ] {
        assert_eq!(outcome(value, runs, "below = 1"), wanted, "{value} in {runs} runs");
    }
    assert_eq!(outcome(1.0, 3, "between = [1, 1]"), Outcome::Reproduced, "an exact value stays");
    assert_eq!(outcome(1.0, 3, "between = [1, 2]"), Outcome::Undecided);
    assert_eq!(outcome(0.0, 3, "between = [0, 0]"), Outcome::Reproduced);
}

#[test]
fn a_single_run_has_the_spread_of_other_cells() {
    let wide = [5.0, 10.0, 15.0];
    let alone = of(&[single("bentpipe a", 1.0)], "below = 1.2");
    assert_eq!((alone.outcome, alone.interval), (Outcome::Undecided, None));
    let beside = |other: Measured| of(&[single("bentpipe a", 1.0), other], "below = 1.2");
    let verdict = beside(cell("bentpipe b", &wide));
    assert_eq!(verdict.outcome, Outcome::Undecided);
    let (low, high) = verdict.interval.unwrap();
    assert!(low < 0.5 && high > 1.5, "{low} {high}");
    assert_eq!(beside(cell("kcptun b", &wide)).outcome, Outcome::Undecided);
    let exact = of(&[single("bentpipe a", 1.0), cell("bentpipe b", &wide)], "between = [1, 1]");
    assert_eq!((exact.outcome, exact.interval), (Outcome::Reproduced, None));
    // The spread of the same system goes before that of others.
    let all = [single("bentpipe a", 1.0), cell("bentpipe b", &[10.0]), cell("kcptun b", &wide)];
    let own = of(&all, "below = 1.2");
    assert_eq!((own.outcome, own.interval), (Outcome::Reproduced, Some((1.0, 1.0))));
}

#[test]
fn the_values_of_a_run_are_drawn_together() {
    let mut one = cell("bentpipe a", &[1.0, 3.0]);
    let more: Vec<_> = one.rows.iter().flat_map(|row| vec![row.clone(); 50]).collect();
    one.rows.extend(more);
    let verdict = of(&[one], "statistic = 'mean'\nbelow = 9");
    let (low, high) = verdict.interval.unwrap();
    assert!(verdict.found == Some(2.0) && low < 1.0 && high > 3.0, "{low} {high}");
}

#[test]
fn loads_that_may_never_end_widen_the_interval() {
    let verdict = of(&[cell("bentpipe a", &[1.0, 1.0, 1.0, NEVER])], "below = 2");
    assert_eq!((verdict.outcome, verdict.found), (Outcome::Undecided, Some(1.0)));
    assert_eq!(verdict.interval.unwrap().1, NEVER);
}

#[test]
fn every_cell_counts_with_its_own_spread() {
    let cells = [cell("bentpipe a", &[1.0]), cell("bentpipe b", &[1.0, 3.0, 2.0, 1.5])];
    let outcome = |rest: &str| {
        let text = format!("of = {{ contender = 'bentpipe' }}\neach = ['page']\n{rest}");
        judge_of(&text, &cells, &cells).outcome
    };
    assert_eq!(outcome("take = 'all'\nbelow = 2.5"), Outcome::Undecided);
    assert_eq!(outcome("take = 'all'\nbelow = 5"), Outcome::Reproduced);
    assert_eq!(outcome("take = 'min'\nbelow = 1.2"), Outcome::Reproduced);
    assert_eq!(outcome("take = 'fraction'\nholds-for = 0.5\nbelow = 1.2"), Outcome::Reproduced);
    assert_eq!(outcome("take = 'fraction'\nholds-for = 1\nbelow = 2.5"), Outcome::Undecided);
}

/// A normal value, by the method of Box and Muller.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (one, two): (f64, f64) = (random.random_range(f64::MIN_POSITIVE..1.0), random.random());
    (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos()
}

#[test]
fn nine_of_ten_intervals_of_few_runs_contain_the_true_value() {
    const TRIALS: usize = 400;
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for (statistic, runs) in
        ["mean", "median"].into_iter().flat_map(|it| [(it, 3), (it, 5), (it, 10)])
    {
        let trial = |_: &usize| {
            let values: Vec<f64> = (0..runs).map(|_| 10.0 + normal(&mut random)).collect();
            let bound = format!("statistic = '{statistic}'\nbelow = 10");
            let (low, high) = of(&[cell("bentpipe a", &values)], &bound).interval.unwrap();
            low <= 10.0 && 10.0 <= high
        };
        let covered = (0..TRIALS).filter(trial).count();
        assert!(covered * 10 >= TRIALS * 9, "{statistic} of {runs} runs: {covered} of {TRIALS}");
    }
}

#[test]
fn a_greatest_or_smallest_value_decides_only_on_the_side_that_it_sees() {
    let cells = [cell("bentpipe a", &[4.0, 5.0, 6.0, 5.0]), cell("kcptun a", &[1.0])];
    let outcome = |statistic: &str, rest: &str| {
        let text = format!("of = {{ contender = 'bentpipe' }}\nstatistic = '{statistic}'\n{rest}");
        judge_of(&text, &cells, &cells).outcome
    };
    for (statistic, rest, wanted) in [
        ("max", "below = 9", Outcome::Undecided),
        ("max", "below = 2", Outcome::NotReproduced),
        ("max", "above = 2", Outcome::Reproduced),
        ("max", "above = 9", Outcome::Undecided),
        ("p95", "below = 9", Outcome::Undecided),
        ("p95", "above = 2", Outcome::Reproduced),
        ("min", "below = 9", Outcome::Reproduced),
        ("min", "above = 2", Outcome::Undecided),
        ("max", "against = { contender = 'kcptun' }\nabove = 2", Outcome::Undecided),
    ] {
        assert_eq!(outcome(statistic, rest), wanted, "{statistic} {rest}");
    }
    let many = [cell("bentpipe a", &[5.0; 20])];
    assert_eq!(of(&many, "statistic = 'p95'\nbelow = 9").outcome, Outcome::Reproduced);
    let exact = of(&many, "statistic = 'max'\nbetween = [5, 5]");
    assert_eq!(exact.outcome, Outcome::Reproduced);
    assert_eq!(of(&many, "statistic = 'max'\nbelow = 9").runs_to_decide, None);
    assert_eq!(of(&cells[..1], "statistic = 'p95'\nbelow = 9").runs_to_decide, Some(20));
}

#[test]
fn a_borrowed_spread_has_neither_zero_nor_infinity() {
    let cells = [single("bentpipe a", NEVER), cell("bentpipe b", &[0.0, 1.0, 1.0, NEVER])];
    let verdict = of(&cells, "above = 2");
    let ends = Some((NEVER, NEVER));
    assert_eq!((verdict.outcome, verdict.interval), (Outcome::Reproduced, ends));
}

#[test]
fn a_drawn_share_is_at_most_the_whole() {
    let mut cell = cell("bentpipe a", &[0.5, 0.9, 1.0, 1.0]);
    for row in &mut cell.rows {
        let value = row.value;
        *row = super::tests::row("utilization", row.run as usize, value);
    }
    let text = "of = { contender = 'bentpipe' }\nabove = 0.1";
    let mut claim = super::tests::claim(text);
    claim.metric = "utilization".into();
    let verdict = claim.judge(&[&cell], &[&cell.cell]);
    assert_eq!(verdict.interval.unwrap().1, 1.0);
}
