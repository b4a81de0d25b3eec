//! Rest of a world that ended early, and its treatment.

use crate::plan::{Part, Worldful};
use crate::world::WorldError;

/// Consecutive failures of a world at the same run before that run, or all that is left, counts as
/// not measured.
const ATTEMPTS: u32 = 3;

/// Rest of a world.
pub struct Left {
    /// Its runs that have not been told of.
    pub world: Worldful,
    /// Worlds that were brought up for it.
    pub attempt: u32,
    /// Last failures, all at the same run.
    failures: u32,
}

/// Next step after an error.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: all runs had been told of.
    Over,
    /// Another world for what is left.
    Again,
    /// The same without these, which are not measured.
    Missed(Vec<Part>),
}

impl Left {
    /// All of it.
    pub fn new(world: Worldful) -> Self {
        Self { world, attempt: 0, failures: 0 }
    }

    /// Next step after an `error` that came when the runs in `done` had been reported.
    pub fn after(&mut self, done: &[usize], error: &WorldError) -> Next {
        self.world.forget(done);
        self.attempt += 1;
        // A contender's end is told of as its run's: the run behind that has not failed yet.
        let told = matches!(error, WorldError::Contender { .. } | WorldError::Silent { .. });
        self.failures = match done {
            [] => self.failures + 1,
            _ => u32::from(!told),
        };
        if self.world.parts.is_empty() {
            return Next::Over;
        }
        if self.failures < ATTEMPTS && error.may_pass() {
            return Next::Again;
        }
        self.failures = 0;
        // What is not said of the runs behind it does not end them.
        let lost = if error.is_of_run() { 1 } else { self.world.parts.len() };
        Next::Missed(self.world.parts.drain(..lost).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lateness::TooLate;
    use bentpipe_lab::contender::ContenderError;

    fn left() -> Left {
        let part = |job, runs| Part { job, runs: 0..runs };
        let (parts, seed, cost) = (vec![part(3, 2), part(5, 1)], 1, Duration::ZERO);
        Left::new(Worldful { parts, seed, cost })
    }

    fn ended() -> WorldError {
        let source = ContenderError::Ended { program: "kcptun-server", said: String::new() };
        WorldError::Contender { name: "kcptun", source, said: String::new() }
    }

    #[test]
    fn a_contender_that_ends_in_every_run_has_every_run_counted() {
        let mut left = left();
        for done in [3, 3] {
            assert_eq!(left.after(&[done], &ended()), Next::Again);
        }
        assert_eq!(left.after(&[5], &ended()), Next::Over);
        assert_eq!(left.attempt, 3);
    }

    /// Error of the run in progress, of which nothing is reported then.
    fn late() -> WorldError {
        TooLate { mean_ms: 2.0, stalled: 0, delivered: 9 }.into()
    }

    #[test]
    fn a_run_behind_one_whose_contender_ended_has_all_its_worlds() {
        let mut left = left();
        assert_eq!(left.after(&[3], &ended()), Next::Again);
        for _ in 1..ATTEMPTS {
            assert_eq!(left.after(&[], &late()), Next::Again);
        }
        assert!(matches!(left.after(&[], &late()), Next::Missed(_)));
    }

    #[test]
    fn a_run_that_was_late_behind_one_that_was_not_has_had_one_of_its_worlds() {
        let mut left = left();
        assert_eq!(left.after(&[3], &late()), Next::Again);
        for _ in 2..ATTEMPTS {
            assert_eq!(left.after(&[], &late()), Next::Again);
        }
        let second = vec![left.world.parts[0].clone()];
        assert_eq!(left.after(&[], &late()), Next::Missed(second));
    }

    #[test]
    fn what_cannot_be_measured_is_missed_after_as_many_attempts() {
        let mut left = left();
        for _ in 1..ATTEMPTS {
            assert_eq!(left.after(&[], &ended()), Next::Again);
        }
        let all = left.world.parts.clone();
        assert_eq!(left.after(&[], &ended()), Next::Missed(all));
        assert!(left.world.parts.is_empty());
    }
}
