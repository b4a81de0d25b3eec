//! Tests of the committed reference run: its report is complete, and gives a reason for every claim
//! that is not reproduced.

use std::collections::BTreeMap;
use std::path::Path;

use bentpipe_results::{
    Cell, Claim, Claims, FigureKind, Folder, Measured, Outcome, StatedValue, Study,
};

const PAPERS: usize = 5;

fn reference() -> (Vec<Measured>, bool) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
    let folder = Folder::open(&path).unwrap();
    (Folder::read_tables(&path.join("tables")).unwrap(), folder.manifest().quick)
}

#[test]
fn every_claim_that_is_not_reproduced_says_why_and_no_other() {
    let (measured, is_quick) = reference();
    let (studies, claims) = (Study::all().unwrap(), Claims::all().unwrap());
    let verdicts = claims.judge(&studies, &measured, is_quick);
    let names = |wanted: &dyn Fn(&Claim, Outcome) -> bool| -> Vec<String> {
        let those = verdicts.iter().filter(|(claim, verdict)| wanted(claim, verdict.outcome));
        those.map(|(claim, _)| claim.id.clone()).collect()
    };
    let unexplained =
        names(&|claim, outcome| outcome == Outcome::NotReproduced && claim.differs.is_none());
    assert!(unexplained.is_empty(), "not reproduced, and nothing says why: {unexplained:?}");
    let outdated =
        names(&|claim, outcome| outcome == Outcome::Reproduced && claim.differs.is_some());
    assert!(outdated.is_empty(), "reproduced, and yet it is said why not: {outdated:?}");
}

#[test]
fn every_section_has_what_is_drawn_of_today_and_of_bentpipe() {
    let (measured, _) = reference();
    let studies = Study::all().unwrap();
    assert_eq!(studies.len(), PAPERS);
    let mut missing = Vec::new();
    for study in &studies {
        for section in &study.sections {
            // The metric of a distribution is on its x axis.
            let drawn = match section.figure.kind {
                FigureKind::Cdf => &section.figure.x,
                _ => &section.figure.y,
            };
            let shown: Vec<&Measured> = (measured.iter())
                .filter(|one| one.paper == study.name && one.grid == section.grid)
                .filter(|one| section.cells.matches(&one.cell))
                .collect();
            let has = |system: Option<&str>| {
                let its =
                    |one: &&&Measured| system.is_none_or(|it| one.cell.on("contender") == Some(it));
                let values = |one: &&Measured| one.of(drawn).next().is_some();
                shown.iter().filter(its).any(values)
            };
            let wanted = [section.today.as_deref(), section.with.as_deref()];
            // A section without a system under test, such as that of the links, needs values of any
            // system.
            let all = if wanted == [None, None] { &wanted[..1] } else { &wanted[..] };
            for system in all.iter().filter(|one| wanted == [None, None] || one.is_some()) {
                if !has(*system) {
                    missing.push(format!("{}: {} of {system:?}", study.name, section.id));
                }
            }
        }
    }
    assert!(missing.is_empty(), "nothing of what is drawn: {missing:#?}");
}

/// Largest factor by which a measurement may differ from a paper's value, in either direction,
/// without an explanation.
const FAR: f64 = 1.25;
/// Largest difference without an explanation in the metric's unit, for small values: a percentage
/// point, or 10 ms.
const CLOSE: f64 = 0.01;

#[test]
fn values_far_from_a_papers_have_a_reason() {
    let (measured, _) = reference();
    let mut silent = Vec::new();
    for study in &Study::all().unwrap() {
        for section in &study.sections {
            let of_grid = |one: &&Measured| one.paper == study.name && one.grid == section.grid;
            let among: BTreeMap<&Cell, &Measured> =
                measured.iter().filter(of_grid).map(|one| (&one.cell, one)).collect();
            for stated in section.paper.iter().filter(|one| one.differs.is_none()) {
                if section.differs.is_some() {
                    continue;
                }
                let is_named = stated.cells.on("contender").is_some();
                let today = section.today.as_deref().filter(|_| !is_named);
                let Some(found) = stated.found(&among, &section.cells, today) else { continue };
                let (low, high) = match stated.value {
                    StatedValue::Number(value) => (value, value),
                    StatedValue::Range(low, high) => {
                        (low.unwrap_or(0.0), high.unwrap_or(f64::INFINITY))
                    }
                    StatedValue::Lost => continue,
                };
                let near = low / FAR..=high * FAR;
                let close = low - CLOSE..=high + CLOSE;
                if !near.contains(&found.value) && !close.contains(&found.value) {
                    let (id, text) = (&section.id, &stated.text);
                    let found = found.value;
                    silent.push(format!(
                        "{}: {id}: {text:?}: {low} to {high}, found {found}",
                        study.name
                    ));
                }
            }
        }
    }
    assert!(silent.is_empty(), "far from it, and nothing says why: {silent:#?}");
}

#[test]
fn published_values_have_a_present_value_beside_them() {
    let (measured, _) = reference();
    let mut missing = Vec::new();
    for study in &Study::all().unwrap() {
        for section in &study.sections {
            let of_grid = |one: &&Measured| one.paper == study.name && one.grid == section.grid;
            let among: BTreeMap<&Cell, &Measured> =
                measured.iter().filter(of_grid).map(|one| (&one.cell, one)).collect();
            for stated in &section.paper {
                // A value that names its system belongs to that system.
                let is_named = stated.cells.on("contender").is_some();
                let today = section.today.as_deref().filter(|_| !is_named);
                if stated.found(&among, &section.cells, today).is_none() {
                    missing.push(format!("{}: {}: {:?}", study.name, section.id, stated.text));
                }
            }
        }
    }
    assert!(missing.is_empty(), "nothing was measured beside: {missing:#?}");
}
