//! Others' packets in the queue that ours wait in.

use std::time::Duration;

/// A queue that was found to be others' is believed to be for so long: finding it out again costs a
/// drain, some 2 % of the time.
const KNOWN: Duration = Duration::from_secs(60);

/// Knowledge of other senders on the path.
#[derive(Debug, Default)]
pub struct Others {
    until: Duration,
    /// Their queue has been too long, and this side has not given way since.
    borne: bool,
}

impl Others {
    /// A queue was there that this side cannot have made.
    pub fn found(&mut self, now: Duration) {
        *self = Self { until: now + KNOWN, borne: false };
    }

    /// This side gives way: what the queue does next shows nothing.
    pub fn given_way(&mut self) {
        self.borne = false;
    }

    /// Returns `true` if a long queue may be theirs.
    pub fn are_known(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Notes what a report showed while they are known: whether the queue is too long, whether it has been
    /// for a round trip, and whether this side went on sending at its rate. A queue that was too long, and
    /// went although this side gave way to nobody, was theirs once more.
    pub fn note(&mut self, too_long: bool, stays: bool, is_steady: bool, now: Duration) {
        self.borne &= is_steady;
        if self.borne && !too_long {
            self.found(now);
        }
        self.borne |= stays;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: Duration = Duration::from_secs(40);

    fn found() -> Others {
        let mut others = Others::default();
        assert!(!others.are_known(Duration::ZERO));
        others.found(Duration::ZERO);
        others
    }

    /// Returns `true` if they are still known a minute after a queue went at [`THEN`].
    fn is_renewed(others: &Others) -> bool {
        assert!(others.are_known(KNOWN - Duration::from_nanos(1)));
        others.are_known(KNOWN) && !others.are_known(THEN + KNOWN)
    }

    #[test]
    fn a_queue_that_went_before_a_side_that_stood_was_others() {
        let mut others = found();
        others.note(true, true, true, THEN / 2);
        others.note(true, true, true, THEN);
        assert!(!is_renewed(&others), "it is still there");
        others.note(false, false, true, THEN);
        assert!(is_renewed(&others));
    }

    #[test]
    fn a_queue_that_went_when_this_side_sent_less_says_nothing() {
        let mut others = found();
        others.note(true, true, true, THEN / 2);
        others.note(false, false, false, THEN);
        assert!(!is_renewed(&others));

        let mut others = found();
        others.note(true, true, true, THEN / 2);
        others.given_way();
        others.note(false, false, true, THEN);
        assert!(!is_renewed(&others));
    }

    #[test]
    fn a_short_queue_says_nothing() {
        let mut others = found();
        others.note(true, false, true, THEN / 2);
        others.note(false, false, true, THEN);
        assert!(!is_renewed(&others));
    }
}
