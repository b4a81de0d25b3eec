//! Cross traffic: other senders' packets in the queue in which ours wait.

use std::time::Duration;

/// Time for which a queue counts as others' after it was found to be. Another test costs a drain,
/// some 2 % of the time.
const KNOWN: Duration = Duration::from_secs(60);

/// Knowledge of other senders on the path.
#[derive(Debug, Default)]
pub struct CrossTraffic {
    until: Duration,
    /// CrossTraffic' queue was too long, and this side has not given way since.
    tolerated: bool,
}

impl CrossTraffic {
    /// Notes a queue that this side cannot have caused.
    pub fn found(&mut self, now: Duration) {
        *self = Self { until: now + KNOWN, tolerated: false };
    }

    /// Notes that this side gives way, so that the queue's end proves nothing.
    pub fn given_way(&mut self) {
        self.tolerated = false;
    }

    /// Returns `true` if a long queue may be others'.
    pub fn are_known(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Notes a report while others are known: whether the queue is too long, whether it has been
    /// for a round trip, and whether this side kept sending at its rate. A long queue that
    /// disappears although this side gave way to nobody was others'.
    pub fn note(&mut self, too_long: bool, stays: bool, is_steady: bool, now: Duration) {
        self.tolerated &= is_steady;
        if self.tolerated && !too_long {
            self.found(now);
        }
        self.tolerated |= stays;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: Duration = Duration::from_secs(40);

    fn found() -> CrossTraffic {
        let mut others = CrossTraffic::default();
        assert!(!others.are_known(Duration::ZERO));
        others.found(Duration::ZERO);
        others
    }

    /// Returns `true` if others are still known a minute after a queue disappeared at [`THEN`].
    fn is_renewed(others: &CrossTraffic) -> bool {
        assert!(others.are_known(KNOWN - Duration::from_nanos(1)));
        others.are_known(KNOWN) && !others.are_known(THEN + KNOWN)
    }

    #[test]
    fn a_queue_that_disappears_while_this_side_keeps_sending_was_others() {
        let mut others = found();
        others.note(true, true, true, THEN / 2);
        others.note(true, true, true, THEN);
        assert!(!is_renewed(&others), "it is still there");
        others.note(false, false, true, THEN);
        assert!(is_renewed(&others));
    }

    #[test]
    fn a_queue_that_disappears_when_this_side_sends_less_proves_nothing() {
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
    fn a_short_queue_proves_nothing() {
        let mut others = found();
        others.note(true, false, true, THEN / 2);
        others.note(false, false, true, THEN);
        assert!(!is_renewed(&others));
    }
}
