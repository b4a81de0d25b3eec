use super::*;
use crate::measured::{Cell, Row, unit_of};
use crate::statistics::Statistic;

const SETTING: &str = r#"
id = "c"
paper = "spdy"
section = "fig3"
at = "section 1"
claim = "C."
metric = "plt"
"#;

pub(super) fn claim(text: &str) -> Claim {
    toml::from_str(&format!("{SETTING}{text}")).unwrap()
}

pub(super) fn row(metric: &str, run: usize, value: f64) -> Row {
    Row {
        metric: metric.into(),
        unit: unit_of(metric).unwrap().into(),
        series: String::new(),
        x: None,
        run: run as u32,
        seed: 1,
        value: if value.is_finite() { value } else { 60.0 },
        finished: value.is_finite(),
    }
}

/// Runs of a cell with one value: enough of them that their bound decides, however near.
const RUNS: usize = 4;

/// A cell from `system page`, with one value for each run. A single value is that of [`RUNS`]
/// runs.
pub(super) fn cell(name: &str, values: &[f64]) -> Measured {
    let (system, page) = name.split_once(' ').unwrap();
    let values = if values.len() == 1 { vec![values[0]; RUNS] } else { values.to_vec() };
    let rows = values.iter().enumerate().map(|(run, &value)| row("plt", run, value)).collect();
    let cell = Cell::of([("contender", system), ("page", page)]);
    Measured { paper: "spdy".into(), grid: "sites".into(), cell, rows }
}

/// A cell of one run.
pub(super) fn single(name: &str, value: f64) -> Measured {
    let mut cell = cell(name, &[value]);
    cell.rows.truncate(1);
    cell
}

/// Verdict if exactly the measured cells were planned.
fn judge(text: &str, cells: &[Measured]) -> (Outcome, Option<f64>) {
    let verdict = judge_of(text, cells, cells);
    (verdict.outcome, verdict.found)
}

pub(super) fn judge_of(text: &str, measured: &[Measured], planned: &[Measured]) -> Verdict {
    let measured: Vec<&Measured> = measured.iter().collect();
    let planned: Vec<&Cell> = planned.iter().map(|one| &one.cell).collect();
    claim(text).judge(&measured, &planned)
}

pub(super) const NEVER: f64 = f64::INFINITY;

#[test]
fn a_value_is_held_against_its_bound() {
    let judged = |cells: &[Measured], bound: &str| {
        judge(&format!("of = {{ contender = 'bentpipe' }}\n{bound}"), cells)
    };
    let of = |bound: &str| judged(&[cell("bentpipe a", &[2.0])], bound);
    assert_eq!(of("below = 2.1"), (Outcome::Reproduced, Some(2.0)));
    assert_eq!(of("below = 2.0"), (Outcome::NotReproduced, Some(2.0)));
    assert_eq!(of("above = 2.0"), (Outcome::NotReproduced, Some(2.0)));
    assert_eq!(of("between = [2.0, 3.0]"), (Outcome::Reproduced, Some(2.0)));
    assert_eq!(of("between = [2.5, 3.0]"), (Outcome::NotReproduced, Some(2.0)));
    let cells = [cell("bentpipe a", &[1.0, 2.0, 9.0])];
    for (statistic, value) in [("mean", 4.0), ("p95", 9.0), ("max", 9.0)] {
        assert_eq!(
            judged(&cells, &format!("statistic = '{statistic}'\nabove = 0")),
            (Outcome::Reproduced, Some(value))
        );
    }
    let none = judge("of = { contender = 'kcptun' }\nbelow = 1", &cells);
    assert_eq!(none, (Outcome::NotMeasured, None));
}

#[test]
fn a_time_that_did_not_finish_is_infinite_and_two_of_them_tell_nothing() {
    let text = "of = { contender = 'e2e-bbr' }\nagainst = { contender = 'bentpipe' }\nabove = 2";
    let pair = |one: f64, two: f64| [cell("e2e-bbr a", &[one]), cell("bentpipe a", &[two])];
    assert_eq!(judge(text, &pair(3.0, 1.0)), (Outcome::Reproduced, Some(3.0)));
    assert_eq!(judge(text, &pair(NEVER, 1.0)), (Outcome::Reproduced, Some(NEVER)));
    assert_eq!(judge(text, &pair(1.0, NEVER)), (Outcome::NotReproduced, Some(0.0)));
    assert_eq!(judge(text, &pair(NEVER, NEVER)), (Outcome::Undecided, None));
    assert_eq!(judge(text, &pair(0.0, 0.0)), (Outcome::Undecided, None));
    assert_eq!(judge(text, &pair(1.0, 1.0)[..1]), (Outcome::NotMeasured, None));
}

#[test]
fn each_forms_a_value_for_every_combination_that_all_patterns_have() {
    let cells = [
        cell("e2e-bbr a", &[2.0]),
        cell("bentpipe a", &[1.0]),
        cell("e2e-bbr b", &[8.0]),
        cell("bentpipe b", &[2.0]),
        cell("e2e-bbr c", &[9.0]),
        cell("bentpipe d", &[3.0]),
    ];
    let of = |rest: &str| {
        let text = "of = { contender = 'e2e-bbr' }\nagainst = { contender = 'bentpipe' }\n";
        judge(&format!("{text}each = ['page']\n{rest}"), &cells)
    };
    assert_eq!(of("take = 'median'\nabove = 1"), (Outcome::Reproduced, Some(3.0)));
    assert_eq!(of("take = 'mean'\nabove = 3"), (Outcome::NotReproduced, Some(3.0)));
    assert_eq!(of("take = 'max'\nabove = 3"), (Outcome::Reproduced, Some(4.0)));
    assert_eq!(of("take = 'min'\nabove = 3"), (Outcome::NotReproduced, Some(2.0)));
    assert_eq!(of("take = 'all'\nabove = 1"), (Outcome::Reproduced, Some(2.0)));
    assert_eq!(of("take = 'all'\nabove = 2"), (Outcome::NotReproduced, Some(2.0)));
    assert_eq!(
        of("take = 'fraction'\nholds-for = 0.5\nabove = 2"),
        (Outcome::Reproduced, Some(0.5))
    );
    assert_eq!(
        of("take = 'fraction'\nholds-for = 0.6\nabove = 2"),
        (Outcome::NotReproduced, Some(0.5))
    );
    let only = of("where = { page = ['b', 'c'] }\ntake = 'all'\nabove = 2");
    assert_eq!(only, (Outcome::Reproduced, Some(4.0)));
}

#[test]
fn an_undecided_combination_leaves_open_only_what_it_could_change() {
    let cells = [
        cell("e2e-bbr a", &[NEVER]),
        cell("bentpipe a", &[NEVER]),
        cell("e2e-bbr b", &[8.0]),
        cell("bentpipe b", &[2.0]),
        cell("e2e-bbr c", &[6.0]),
        cell("bentpipe c", &[2.0]),
    ];
    let of = |rest: &str| {
        let text = "of = { contender = 'e2e-bbr' }\nagainst = { contender = 'bentpipe' }\n";
        judge(&format!("{text}each = ['page']\n{rest}"), &cells).0
    };
    assert_eq!(of("take = 'all'\nabove = 2"), Outcome::Undecided);
    assert_eq!(of("take = 'all'\nabove = 3.5"), Outcome::NotReproduced);
    assert_eq!(of("take = 'max'\nabove = 3.5"), Outcome::Reproduced);
    assert_eq!(of("take = 'max'\nbelow = 5"), Outcome::Undecided);
    assert_eq!(of("take = 'min'\nbelow = 3.5"), Outcome::Reproduced);
    assert_eq!(of("take = 'median'\nbetween = [3, 4]"), Outcome::Reproduced);
    assert_eq!(of("take = 'mean'\nabove = 1"), Outcome::Reproduced);
    assert_eq!(of("take = 'mean'\nbelow = 1"), Outcome::NotReproduced);
    assert_eq!(of("take = 'mean'\nabove = 3"), Outcome::Undecided);
    assert_eq!(of("take = 'fraction'\nholds-for = 0.6\nabove = 2"), Outcome::Reproduced);
    assert_eq!(of("take = 'fraction'\nholds-for = 0.9\nabove = 2"), Outcome::Undecided);
    assert_eq!(of("take = 'fraction'\nholds-for = 0.9\nabove = 3.5"), Outcome::NotReproduced);
}

/// Pages a, b and c. One system under test takes twice, four times and three times as long as the
/// other.
fn three_pages() -> [Measured; 6] {
    [
        cell("e2e-bbr a", &[2.0]),
        cell("bentpipe a", &[1.0]),
        cell("e2e-bbr b", &[8.0]),
        cell("bentpipe b", &[2.0]),
        cell("e2e-bbr c", &[9.0]),
        cell("bentpipe c", &[3.0]),
    ]
}

#[test]
fn a_claim_with_cells_missing_is_not_held() {
    let all = three_pages();
    let of = |rest: &str, count: usize| {
        let text = "of = { contender = 'e2e-bbr' }\nagainst = { contender = 'bentpipe' }\n";
        let verdict = judge_of(&format!("{text}each = ['page']\n{rest}"), &all[..count], &all);
        (verdict.outcome, verdict.found, verdict.cover.measured)
    };
    let each = "take = 'all'\nabove = 1.5";
    assert_eq!(of(each, 6), (Outcome::Reproduced, Some(2.0), 6));
    assert_eq!(of(each, 5), (Outcome::Undecided, Some(2.0), 5));
    assert_eq!(of(each, 4), (Outcome::Undecided, Some(2.0), 4));
    assert_eq!(of(each, 1), (Outcome::Undecided, None, 1));
    assert_eq!(of(each, 0), (Outcome::NotMeasured, None, 0));
    // The measured cells refute it, whatever the missing ones would give.
    assert_eq!(of("take = 'all'\nabove = 2.5", 4), (Outcome::NotReproduced, Some(2.0), 4));
    assert_eq!(of("take = 'max'\nbelow = 3.5", 4), (Outcome::NotReproduced, Some(4.0), 4));
    assert_eq!(of("take = 'min'\nabove = 2.5", 4), (Outcome::NotReproduced, Some(2.0), 4));
    let most = "take = 'fraction'\nholds-for = 0.9\nabove = 2.5";
    assert_eq!(of(most, 4), (Outcome::NotReproduced, Some(0.5), 4));
    // One slow page is not enough while others are missing.
    assert_eq!(of("take = 'max'\nabove = 3.5", 6), (Outcome::Reproduced, Some(4.0), 6));
    assert_eq!(of("take = 'max'\nabove = 3.5", 4), (Outcome::Undecided, Some(4.0), 4));
    assert_eq!(of("take = 'median'\nabove = 1", 4), (Outcome::Undecided, Some(3.0), 4));
}

#[test]
fn a_pooled_value_that_lacks_cells_is_open() {
    let all = three_pages();
    let text =
        "of = { contender = 'e2e-bbr' }\nagainst = { contender = 'bentpipe' }\npool = 'mean'\n";
    for bound in ["above = 1", "below = 1"] {
        let verdict = judge_of(&format!("{text}{bound}"), &all[..5], &all);
        assert_eq!(
            (verdict.outcome, verdict.found),
            (Outcome::Undecided, Some(10.0 / 3.0)),
            "{bound}"
        );
        let [one] = verdict.figures.as_slice() else { panic!("{verdict:?}") };
        assert_eq!((one.keeps, one.cells.len()), (None, 4));
        assert_eq!(one.missing, [all[5].cell.clone()]);
    }
}

#[test]
fn a_verdict_says_how_many_cells_and_runs_it_is_of() {
    let all = [single("bentpipe a", 1.0), cell("bentpipe b", &[1.0, 2.0, 3.0])];
    let text = "of = { contender = 'bentpipe' }\neach = ['page']\ntake = 'all'\nbelow = 9";
    let of = |measured: &[Measured], planned: &[Measured]| {
        judge_of(text, measured, planned).cover.words()
    };
    assert_eq!(of(&all, &all), "2 of 2 cells, 1 to 3 runs each");
    assert_eq!(of(&all[1..], &all), "1 of 2 cells, 3 runs each");
    assert_eq!(of(&all[..1], &all[..1]), "1 of 1 cell, 1 run each");
    assert_eq!(of(&[], &all), "0 of 2 cells");
    let quick = Cover { full: 16, ..judge_of(text, &all, &all).cover };
    assert_eq!(quick.words(), "2 of 2 cells, 1 to 3 runs each; 16 cells in the full run");
    let full_only = Cover { full: 1, ..judge_of(text, &[], &[]).cover };
    assert_eq!(full_only.words(), "in the full run only, 1 cell");
}

#[test]
fn a_difference_keeps_the_sign_that_a_quotient_loses() {
    let of_extra = |name: &str, value: f64| {
        let mut one = cell(name, &[]);
        one.rows.extend((0..RUNS).map(|run| row("extra-traffic", run, value)));
        one
    };
    let of = |one: f64, two: f64, bound: &str| {
        let cells = [of_extra("pep-fixed a", one), of_extra("pep-fixed b", two)];
        let text = SETTING.replace("plt", "extra-traffic");
        let text = format!(
            "{text}of = {{ page = 'a' }}\nagainst = {{ page = 'b' }}\ncompare = 'difference'\n{bound}"
        );
        let claim: Claim = toml::from_str(&text).unwrap();
        let cells: Vec<&Measured> = cells.iter().collect();
        let planned: Vec<&Cell> = cells.iter().map(|one| &one.cell).collect();
        let verdict = claim.judge(&cells, &planned);
        (verdict.outcome, verdict.found)
    };
    assert_eq!(of(0.25, -0.25, "above = 0"), (Outcome::Reproduced, Some(0.5)));
    // The quotient would be 2, which is above 1.
    assert_eq!(of(-0.5, -0.25, "above = 0"), (Outcome::NotReproduced, Some(-0.25)));
    assert_eq!(of(0.25, 0.0, "above = 0"), (Outcome::Reproduced, Some(0.25)));
    assert_eq!(of(0.0, 0.0, "above = 0"), (Outcome::NotReproduced, Some(0.0)));
}

/// A missing difference may be negative, so it can break a bound that a missing time could not.
#[test]
fn a_missing_difference_may_be_anything() {
    let all = three_pages();
    let text = "of = { contender = 'e2e-bbr' }\nagainst = { contender = 'bentpipe' }\n\
                each = ['page']\ntake = 'mean'\n";
    let of = |rest: &str| judge_of(&format!("{text}{rest}"), &all[..4], &all).outcome;
    assert_eq!(of("above = 5"), Outcome::Undecided);
    assert_eq!(of("below = 1.5"), Outcome::NotReproduced);
    assert_eq!(of("compare = 'difference'\nbelow = 1.5"), Outcome::Undecided);
}

#[test]
fn impossible_values_count_as_unmeasured() {
    let text = SETTING.replace("plt", "utilization");
    let text = format!("{text}of = {{ contender = 'bentpipe' }}\nabove = 0.9");
    let claim: Claim = toml::from_str(&text).unwrap();
    let of = |values: &[f64]| {
        let mut one = cell("bentpipe a", &[]);
        one.rows.extend(values.iter().enumerate().map(|(run, v)| row("utilization", run, *v)));
        let verdict = claim.judge(&[&one], &[&one.cell]);
        (verdict.outcome, verdict.found, verdict.cover.words())
    };
    let of_one = |words: &str| (Outcome::NotReproduced, Some(0.8), words.to_owned());
    let four = [0.8; 4];
    assert_eq!(of(&four), of_one("1 of 1 cell, 4 runs each"));
    assert_eq!(
        of(&[&four[..], &[1.8]].concat()),
        of_one("1 of 1 cell, 4 runs each, values of 1 set aside")
    );
    let none = "0 of 1 cell, values of 1 set aside";
    assert_eq!(of(&[1.8]), (Outcome::NotMeasured, None, none.to_owned()));
}

#[test]
fn a_pooled_value_uses_the_cells_that_both_sides_have() {
    let cells = [
        cell("e2e-bbr a", &[2.0]),
        cell("bentpipe a", &[1.0]),
        cell("e2e-bbr b", &[8.0]),
        cell("bentpipe b", &[4.0]),
        cell("e2e-bbr c", &[100.0]),
        cell("bentpipe d", &[100.0]),
    ];
    let text = "of = { contender = 'e2e-bbr' }\nagainst = { contender = 'bentpipe' }\nabove = 1\n";
    assert_eq!(judge(&format!("{text}pool = 'mean'"), &cells), (Outcome::Reproduced, Some(2.0)));
    assert_eq!(judge(text, &cells), (Outcome::Undecided, None));
    let alone = judge("of = { contender = 'e2e-bbr' }\npool = 'mean'\nbelow = 1", &cells);
    assert_eq!(alone, (Outcome::NotReproduced, Some(110.0 / 3.0)));
    // If the patterns require different pages, the page does not decide about partners.
    let apart = "of = { contender = 'e2e-bbr', page = ['a', 'c'] }\n\
                 against = { contender = 'bentpipe', page = ['b', 'd'] }\npool = 'mean'\nbelow = 1";
    assert_eq!(judge(apart, &cells), (Outcome::Reproduced, Some(51.0 / 52.0)));
}

#[test]
fn bases_divide_before() {
    let cells = [
        cell("e2e-bbr a", &[6.0]),
        cell("e2e-bbr b", &[2.0]),
        cell("bentpipe a", &[3.0]),
        cell("bentpipe b", &[2.0]),
    ];
    let text = "of = { contender = 'e2e-bbr', page = 'a' }\n\
                of-base = { contender = 'e2e-bbr', page = 'b' }\n\
                against = { contender = 'bentpipe', page = 'a' }\n\
                against-base = { contender = 'bentpipe', page = 'b' }\nabove = 1.9";
    assert_eq!(judge(text, &cells), (Outcome::Reproduced, Some(2.0)));
}

#[test]
fn over_divides_by_another_metric_of_the_cell() {
    let mut one = cell("bentpipe a", &[3.0]);
    one.rows.extend((0..RUNS).map(|run| row("ceiling", run, 0.5)));
    let text = "of = { contender = 'bentpipe' }\nover = 'ceiling'\nabove = 5";
    assert_eq!(judge(text, &[one]), (Outcome::Reproduced, Some(6.0)));
    assert_eq!(judge(text, &[cell("bentpipe a", &[3.0])]), (Outcome::NotMeasured, None));
}

#[test]
fn a_pattern_goes_before_where() {
    let cells = [cell("e2e-bbr a", &[6.0]), cell("e2e-bbr b", &[2.0])];
    let text = "of = { page = 'a' }\nagainst = { contender = 'e2e-bbr' }\n\
                where = { page = 'b', contender = 'e2e-bbr' }\nabove = 2";
    assert_eq!(judge(text, &cells), (Outcome::Reproduced, Some(3.0)));
}

#[test]
fn faults_of_a_claim_are_reported() {
    let wrong = [
        ("", "write one of below, above, between"),
        ("below = 1\nabove = 2", "write one of below, above, between"),
        ("between = [2, 1]", "write one of below"),
        ("below = 1\nof-base = { page = 'a' }", "of-base and against-base"),
        ("below = 1\neach = ['page']", "each and take go with each other"),
        ("below = 1\ntake = 'all'", "each and take go with each other"),
        ("below = 1\neach = ['page']\ntake = 'fraction'", "needs holds-for"),
        ("below = 1\neach = ['page']\ntake = 'all'\nholds-for = 1", "goes with take"),
        ("below = 1\nbeneath = 2", "unknown field"),
        ("below = 1\ncompare = 'difference'", "compare goes with against"),
        ("below = 1\nover = 'extra-traffic'", "nothing can be divided by it"),
        (
            "below = 1\ncompare = 'difference'\nagainst = {}\nof-base = {}\nagainst-base = {}",
            "go with quotients",
        ),
    ];
    for (rest, says) in wrong {
        let text = format!("[[claim]]{SETTING}of = {{ page = 'a' }}\n{rest}");
        let error = Claims::parse("claims.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with("claims.toml") && error.contains(says), "{rest}: {error}");
    }
    let signed = SETTING.replace("plt", "extra-traffic");
    let text = format!("[[claim]]{signed}of = {{}}\nagainst = {{}}\nabove = 1");
    let error = Claims::parse("claims.toml", &text).unwrap_err().to_string();
    assert!(error.contains("write compare = \"difference\""), "{error}");
    let twice = format!("[[claim]]{SETTING}of = {{}}\nbelow = 1\n").repeat(2);
    let error = Claims::parse("claims.toml", &twice).unwrap_err().to_string();
    assert!(error.contains("two of claim \"c\""), "{error}");
}

#[test]
fn claims_that_do_not_fit_the_study_are_reported() {
    let studies = [Study::named("spdy").unwrap()];
    let wrong = [
        ("of = { contender = 'bentpipes' }\nbelow = 1", "no cell has contender = \"bentpipes\""),
        ("of = { contender = 'bentpipe' }\nbelow = 1", "restrict it, or write pool"),
        ("of = {}\nover = 'epb'\nbelow = 1", "does not measure \"epb\""),
        ("of = {}\neach = ['class']\ntake = 'all'\nbelow = 1", "has no column \"class\""),
        (
            "of = { page = 'bbc' }\neach = ['page']\ntake = 'all'\nbelow = 1",
            "in each and in a pattern",
        ),
    ];
    for (rest, says) in wrong {
        let claims = Claims { all: vec![claim(rest)] };
        let error = claims.check(&studies).unwrap_err().to_string();
        assert!(error.starts_with("claim \"c\"") && error.contains(says), "{rest}: {error}");
    }
}

/// Claims that only the full run measures, because their pages or systems take too long for a quick
/// one.
const FULL_ONLY: [&str; 4] = [
    "mile-high/quic-gains-with-size",
    "rural-paws/objects-decide-http1-1500k",
    "rural-paws/objects-do-not-matter-http2-1500k",
    "netforecast/resets-strike-large-flows",
];

#[test]
fn the_claims_built_in_fit_the_studies_built_in() {
    let (claims, studies) = (Claims::all().unwrap(), Study::all().unwrap());
    claims.check(&studies).unwrap();
    let mut open = Vec::new();
    for claim in &claims.all {
        let study = studies.iter().find(|study| study.name == claim.experiment).unwrap();
        let grid = study.grid(&study.section(&claim.section).unwrap().grid).unwrap();
        if !claim.is_quick(grid) {
            open.push(claim.id.as_str());
        }
    }
    assert_eq!(open, FULL_ONLY);
    for quick in [false, true] {
        let verdicts = claims.judge(&studies, &[], quick);
        assert_eq!(verdicts.len(), claims.all.len());
        for (claim, verdict) in verdicts {
            assert_eq!(verdict.outcome, Outcome::NotMeasured, "{}", claim.id);
            let (cover, is_full) = (verdict.cover, FULL_ONLY.contains(&claim.id.as_str()));
            assert_eq!(cover.planned == 0, quick && is_full, "{}: {cover:?}", claim.id);
            assert!(cover.full >= cover.planned && cover.full > 0, "{}: {cover:?}", claim.id);
        }
    }
}

/// With all cells, every claim is judged by all the cells that it needs. If every fourth cell is
/// missing, no claim is reproduced.
#[test]
fn every_claim_is_judged_when_its_cells_are_there() {
    let (claims, studies) = (Claims::all().unwrap(), Study::all().unwrap());
    for quick in [true, false] {
        let mut measured = Vec::new();
        for study in &studies {
            for (grid, planned) in study.plan(quick) {
                let run = |run| grid.metrics.iter().map(move |metric| row(metric, run, 0.5));
                let rows = (0..RUNS).flat_map(run).collect();
                let (paper, cell) = (study.name.clone(), planned.cell.clone());
                measured.push(Measured { paper, grid: grid.id.clone(), cell, rows });
            }
        }
        for (claim, verdict) in claims.judge(&studies, &measured, quick) {
            if verdict.cover.planned == 0 {
                assert!(quick && verdict.outcome == Outcome::NotMeasured, "{}", claim.id);
                continue;
            }
            // Few runs show only one side of the other statistics.
            let sees_all = matches!(claim.statistic, Statistic::Median | Statistic::Mean);
            let decided = !sees_all
                || matches!(verdict.outcome, Outcome::Reproduced | Outcome::NotReproduced);
            assert!(decided && verdict.found.is_some(), "{}: {verdict:?}", claim.id);
            assert_eq!(verdict.cover.measured, verdict.cover.planned, "{}", claim.id);
        }
        let part: Vec<Measured> = measured
            .into_iter()
            .enumerate()
            .filter(|(at, _)| at % 4 != 0)
            .map(|(_, one)| one)
            .collect();
        let judged = claims.judge(&studies, &part, quick);
        for (claim, verdict) in &judged {
            let is_whole = verdict.cover.measured == verdict.cover.planned;
            assert!(
                is_whole || verdict.outcome != Outcome::Reproduced,
                "{}: {verdict:?}",
                claim.id
            );
        }
        assert!(judged.iter().any(|(_, verdict)| verdict.outcome == Outcome::Undecided));
    }
}
