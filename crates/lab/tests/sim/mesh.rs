//! Parts of `bentpipe lab run mesh`.

use std::time::Duration;

use bentpipe_lab::experiment::engine::Engine;
use bentpipe_lab::experiment::mesh::cells::{self, Cell};
use bentpipe_lab::experiment::mesh::leg::{self, Carrier};
use bentpipe_lab::experiment::mesh::{Mesh, Part, Seeds};
use bentpipe_lab::experiment::report::Report;
use bentpipe_lab::experiment::runner::Experiment;

const ONCE: Seeds = Seeds { first: 1, runs: 1 };

fn play(part: Part) -> Report {
    Mesh { parts: vec![part], seeds: ONCE }.run(&Engine::Sim).unwrap()
}

/// The figure of the goal with this in its name.
fn figure(report: &Report, name: &str) -> f64 {
    let goal = report.goals.iter().find(|goal| goal.name.contains(name));
    goal.and_then(|goal| goal.found).unwrap_or_else(|| panic!("no {name}: {:?}", report.goals))
}

#[test]
fn only_the_radio_transport_fills_a_far_leg_and_leaves_others_their_share() {
    let found = leg::measure(&[10, 50], ONCE).unwrap();
    assert_eq!(found.len(), 2 * Carrier::ALL.len());
    for one in found {
        let suits = one.used > 0.9 && one.dropped < 0.001 && one.kept > 0.7;
        assert_eq!(suits, one.carrier == Carrier::Learned, "{one:?}");
    }
}

#[test]
fn three_dials_find_the_best_egress_and_jitter_moves_nobody() {
    let report = play(Part::Choice);
    assert!(figure(&report, "within 5 ms") >= 0.95, "{:?}", report.goals);
    assert!(figure(&report, "changes of a site") <= 1.0);
    assert_eq!(figure(&report, "pinned"), 0.0);
}

#[test]
fn long_detours_are_found_and_jitter_is_not_one() {
    let report = play(Part::Transit);
    assert_eq!(figure(&report, "false alarms"), 0.0);
    for rtt in ["40 ms becomes", "150 ms becomes"] {
        assert!(figure(&report, rtt) <= 120.0, "{:?}", report.goals);
    }
}

#[test]
fn one_flow_through_a_hub_loses_its_rate_with_the_distance() {
    let near = [false, true].map(|mesh| Cell::quiet(Duration::ZERO, false, mesh));
    let far = Cell::quiet(Duration::from_millis(100), false, false);
    let found = cells::measure(&[near[0], near[1], far], ONCE).unwrap();
    assert!(found[0].elapsed > 0.9 && found[1].elapsed > 0.9, "{found:?}");
    assert!(found[2].elapsed < 0.6, "{found:?}");
}

#[test]
fn a_cut_of_the_leg_resets_nothing() {
    let report = play(Part::Cut);
    assert_eq!(figure(&report, "resets"), 0.0, "{}", report.text);
    assert!(figure(&report, "longest gap") > 0.0);
}
