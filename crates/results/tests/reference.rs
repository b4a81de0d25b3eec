//! The reference run that is committed: its report is whole, and says why where a claim is not held.

use std::path::Path;

use bentpipe_results::{Claim, Claims, Folder, Held, Measured, Study};

const PAPERS: usize = 5;

fn reference() -> (Vec<Measured>, bool) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
    let folder = Folder::open(&path).unwrap();
    (Folder::read_tables(&path.join("tables")).unwrap(), folder.manifest().quick)
}

#[test]
fn every_claim_that_is_not_held_says_why_and_no_other() {
    let (measured, is_quick) = reference();
    let (studies, claims) = (Study::all().unwrap(), Claims::all().unwrap());
    let verdicts = claims.judge(&studies, &measured, is_quick);
    let names = |wanted: &dyn Fn(&Claim, Held) -> bool| -> Vec<String> {
        let those = verdicts.iter().filter(|(claim, verdict)| wanted(claim, verdict.held));
        those.map(|(claim, _)| claim.id.clone()).collect()
    };
    let unexplained = names(&|claim, held| held == Held::NotHeld && claim.differs.is_none());
    assert!(unexplained.is_empty(), "not held, and nothing says why: {unexplained:?}");
    let outdated = names(&|claim, held| held == Held::Held && claim.differs.is_some());
    assert!(outdated.is_empty(), "held, and yet it is said why not: {outdated:?}");
}

#[test]
fn every_section_has_values() {
    let (measured, _) = reference();
    let studies = Study::all().unwrap();
    assert_eq!(studies.len(), PAPERS);
    for study in &studies {
        for section in &study.sections {
            let has = measured.iter().any(|one| {
                let is_its = one.paper == study.name && one.grid == section.grid;
                is_its && section.cells.matches(&one.cell) && !one.rows.is_empty()
            });
            assert!(has, "{}: {}", study.name, section.id);
        }
    }
}
