//! Failed flows in a report.

use super::traffic::{Course, UP};
use crate::experiment::findings::Findings;

/// Maximum number of reasons of failures in a report.
const MAX_REASONS: usize = 4;

/// Adds a number of failures, which must be zero, with the first reasons.
pub fn add(findings: &mut Findings, what: &str, found: f64, course: &Course) {
    findings.at_most(what, found, 0.0);
    let shown = if found > 0.0 { MAX_REASONS } else { 0 };
    for failure in course.failures.iter().take(shown) {
        let (flow, at, side, reason) = failure;
        let side = if *side == UP { "client" } else { "server" };
        let (name, at) = (findings.name(what), at.as_secs_f64());
        findings.say(&format!("{name}: flow {flow} at its {side} after {at:.3} s: {reason}"));
    }
}
