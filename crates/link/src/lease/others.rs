//! Others' packets in the queue that ours wait in.

use std::time::Duration;

/// A queue that was found to be others' is believed to be for so long: finding it out again costs a
/// drain, some 2 % of the time.
const KNOWN: Duration = Duration::from_secs(60);

/// Whether others are known to be there.
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

    /// Whether a long queue is theirs. One that was too long, and went although this side gave way to
    /// nobody, was theirs once more.
    pub fn explain(&mut self, too_long: bool, stays: bool, now: Duration) -> bool {
        if now >= self.until {
            return false;
        }
        if self.borne && !too_long {
            self.found(now);
        }
        self.borne |= stays;
        true
    }
}
