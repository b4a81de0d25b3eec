//! Real Chromium behind intercepting gateways.

use bentpipe_lab::browser;
use bentpipe_lab::experiment::browser::Choice;
use bentpipe_lab::experiment::report::Report;
use bentpipe_lab::experiment::{browser_quic, pages_browser};
use bentpipe_lab::profile::Profile;
use bentpipe_lab::workload::secure::Version;

/// A page loads over the browser's own QUIC if the gateways carry it, and over TCP if they refuse
/// it.
pub fn quic() {
    let Some(choice) = choice() else { return };
    let folder = tempfile::tempdir().unwrap();
    let report = browser_quic::run(&choice, folder.path()).unwrap();
    assert_goals(&report, |name| !name.contains("median"));
    assert_eq!(report.rows.iter().filter(|row| row.metric == "plt" && row.n == 1).count(), 4);
}

/// The operator's page loads with all its objects, pushed and used. A foreign page arrives byte for
/// byte.
pub fn pages() {
    let Some(choice) = choice() else { return };
    let folder = tempfile::tempdir().unwrap();
    let report = pages_browser::run(&choice, &[Version::Http1], folder.path()).unwrap();
    assert_goals(&report, |name| name.contains("untouched") || name.contains("pushed"));
    // Three cases, plus the operator's page for a second passenger.
    assert_eq!(report.rows.iter().filter(|row| row.metric == "plt" && row.n == 1).count(), 4);
}

/// Selects one load of each case over the in-flight satellite. Reports a skip if there is no
/// browser.
fn choice() -> Option<Choice> {
    if browser::find().is_none() {
        println!("SKIPPED: no Chromium on the PATH; `scripts/setup.sh browser` installs one");
        return None;
    }
    Some(Choice { profile: Profile::named("mss").unwrap(), runs: 1, seed: 1 })
}

/// Fails if a goal is missed whose name is `exact`. The times of the others depend on this machine
/// too.
fn assert_goals(report: &Report, exact: impl Fn(&str) -> bool) {
    let mut checked = 0;
    for goal in report.goals.iter().filter(|goal| exact(&goal.name)) {
        assert!(goal.holds(), "{goal}: {:?}\n{}", goal.found, report.text);
        checked += 1;
    }
    assert!(checked >= 2, "{checked} of {} goals are exact", report.goals.len());
}
