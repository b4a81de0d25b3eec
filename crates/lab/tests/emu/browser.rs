//! Real Chromium behind gateways that intercept its UDP.

use bentpipe_lab::experiment::browser_quic::{Choice, run};
use bentpipe_lab::profile::Profile;
use bentpipe_lab::workload::chromium;

/// A page comes by the browser's own QUIC where gateways carry it, and by TCP where they refuse it.
pub fn quic() {
    if chromium::find().is_none() {
        println!("SKIPPED: no Chromium on the PATH; `scripts/setup.sh browser` installs one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let choice = Choice { profile: Profile::named("mss").unwrap(), runs: 1, seed: 1 };
    let report = run(&choice, folder.path()).unwrap();
    for goal in &report.goals {
        // How long it takes is this machine's doing too.
        assert!(goal.holds() || goal.name.contains("median"), "{goal}: {:?}", goal.found);
    }
    assert_eq!(report.rows.iter().filter(|row| row.metric == "plt" && row.n == 1).count(), 4);
}
