//! Remaining runs of a testbed that ended early, and their treatment.

use bentpipe_lab::experiment::stand::StandError;

use crate::plan::{Part, TestbedRun};
use crate::testbed::TestbedError;

/// Number of consecutive failures at the same run after which that run, or all remaining runs,
/// counts as not measured.
const ATTEMPTS: u32 = 3;

/// Remaining runs of a testbed.
pub struct Left {
    /// Runs that have not been reported.
    pub testbed: TestbedRun,
    /// Number of testbeds already started for these runs.
    pub attempt: u32,
    /// Number of the last failures, all at the same run.
    failures: u32,
}

/// Next step after an error.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, because all runs have been reported.
    Over,
    /// Another testbed for the remaining runs.
    Again,
    /// Another testbed without these parts, which count as not measured.
    Missed(Vec<Part>),
}

impl Left {
    /// Creates the rest from a whole testbed.
    pub fn new(testbed: TestbedRun) -> Self {
        Self { testbed, attempt: 0, failures: 0 }
    }

    /// Returns the next step after an `error` that occurred after the runs in `done` were reported.
    pub fn after(&mut self, done: &[usize], error: &TestbedError) -> Next {
        self.testbed.forget(done);
        self.attempt += 1;
        // The end of a system under test is reported as the result of its run, so the following run
        // has not failed yet.
        let told = matches!(
            error,
            TestbedError::Stand(StandError::SystemUnderTest { .. } | StandError::Silent { .. })
        );
        self.failures = match done {
            [] => self.failures + 1,
            _ => u32::from(!told),
        };
        if self.testbed.parts.is_empty() {
            return Next::Over;
        }
        if self.failures < ATTEMPTS && error.may_pass() {
            return Next::Again;
        }
        self.failures = 0;
        // An error that concerns one run does not end the runs after it.
        let lost = if error.is_of_run() { 1 } else { self.testbed.parts.len() };
        Next::Missed(self.testbed.parts.drain(..lost).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use bentpipe_lab::emu::TooLate;
    use bentpipe_lab::system::SystemError;

    fn left() -> Left {
        let part = |job, runs| Part { job, runs: 0..runs };
        let (parts, seed, cost) = (vec![part(3, 2), part(5, 1)], 1, Duration::ZERO);
        Left::new(TestbedRun { parts, seed, cost })
    }

    fn ended() -> TestbedError {
        let source = SystemError::Ended { program: "kcptun-server", said: String::new() };
        StandError::SystemUnderTest { name: "kcptun", source, said: String::new() }.into()
    }

    #[test]
    fn a_system_that_ends_in_every_run_has_every_run_counted() {
        let mut left = left();
        for done in [3, 3] {
            assert_eq!(left.after(&[done], &ended()), Next::Again);
        }
        assert_eq!(left.after(&[5], &ended()), Next::Over);
        assert_eq!(left.attempt, 3);
    }

    /// Error of the run in progress, which is then not reported.
    fn late() -> TestbedError {
        TooLate { mean_ms: 2.0, stalled: 0, delivered: 9 }.into()
    }

    #[test]
    fn a_run_after_a_crashed_system_gets_all_its_attempts() {
        let mut left = left();
        assert_eq!(left.after(&[3], &ended()), Next::Again);
        for _ in 1..ATTEMPTS {
            assert_eq!(left.after(&[], &late()), Next::Again);
        }
        assert!(matches!(left.after(&[], &late()), Next::Missed(_)));
    }

    #[test]
    fn a_run_that_was_late_behind_one_that_was_not_has_had_one_of_its_testbeds() {
        let mut left = left();
        assert_eq!(left.after(&[3], &late()), Next::Again);
        for _ in 2..ATTEMPTS {
            assert_eq!(left.after(&[], &late()), Next::Again);
        }
        let second = vec![left.testbed.parts[0].clone()];
        assert_eq!(left.after(&[], &late()), Next::Missed(second));
    }

    #[test]
    fn unmeasurable_runs_are_missed_after_all_attempts() {
        let mut left = left();
        for _ in 1..ATTEMPTS {
            assert_eq!(left.after(&[], &ended()), Next::Again);
        }
        let all = left.testbed.parts.clone();
        assert_eq!(left.after(&[], &ended()), Next::Missed(all));
        assert!(left.testbed.parts.is_empty());
    }
}
