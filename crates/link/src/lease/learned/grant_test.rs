//! The learner's test for capacity that is granted on request.

use std::time::Duration;

use super::grants::{self, Ended, Grants};
use super::queue::Found;
use super::{AFTER_QUEUE, CRUISE, Learner, Phase};
use crate::lease::Observation;

/// Maximum difference between the delays at the end of a test, as a part of them.
const SAME: f64 = 0.2;
/// Wait for grants at any rate, relative to what was found, or to a round trip. Near the rate that needs no
/// grants the wait is shorter.
const HEADROOM: f64 = 1.25;

impl Learner {
    /// Notes a drain that found a queue of ours, and tests for grants if there were several.
    pub(super) fn look_for_grants(&mut self, found: Found, now: Duration) {
        let Some(capacity) = self.capacity_bps else { return };
        let is_shared = self.siblings.are_there || self.cross_traffic.was_present(now);
        if is_shared || !self.grants.drained(found, self.rtt, now) {
            return;
        }
        self.grants.begin(capacity, self.cap.bps() as f64, self.rtt, now);
        self.trains.give_up();
        self.phase = Phase::Cruising;
        tracing::debug!(capacity, "tests for grants");
    }

    /// Follows a report during a test.
    pub(super) fn follow_test(&mut self, seen: &Observation) {
        let Some(ended) = self.grants.end(&self.arrivals, seen, self.rtt) else { return };
        let Ended::Measured(passage, from) = ended else {
            self.grants.fail(self.rtt, seen.now);
            return;
        };
        let (least, most) = self.queue.range_since(from);
        let is_flat = most.saturating_sub(least) <= most.mul_f64(SAME).max(self.budget());
        let is_granted = passage.arrived_bps >= grants::GRANTED * passage.sent_bps && is_flat;
        tracing::debug!(?passage, ?least, ?most, is_granted, "the test for grants is over");
        self.capacity_bps = Some(passage.arrived_bps.min(passage.sent_bps));
        self.measured_at = seen.now;
        self.is_confirmed = true;
        if !is_granted {
            self.share = AFTER_QUEUE;
            self.grants.fail(self.rtt, seen.now);
            return self.drain(seen.now);
        }
        self.share = CRUISE;
        self.grants = Grants::default();
        if least >= self.rtt.mul_f64(grants::MIN_QUEUE) {
            let wait = least.max(self.rtt).mul_f64(HEADROOM);
            self.queue.add_grant_delay(wait, self.rtt);
        }
        self.settled_at = seen.now;
        self.trains.be_bold();
        self.trains.next_at(seen.now);
    }
}
