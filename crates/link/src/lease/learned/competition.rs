//! Competition of a learned rate with others that keep a queue.

use std::time::Duration;

use super::{Learner, Phase};
use crate::lease::Observation;

/// Maximum ratio of the arrival rate of a round trip to its sending rate that is believed.
const MAX_COMPRESSION: f64 = 2.0;

impl Learner {
    /// Lets a CUBIC window decide, because others keep a queue.
    pub(super) fn begin_to_compete(&mut self, seen: &Observation) {
        let Some(capacity) = self.capacity_bps else { return };
        self.cross_traffic.compete(capacity, seen, self.rtt);
        self.trains.give_up();
        self.phase = Phase::Cruising;
        tracing::debug!(capacity, window = ?self.cross_traffic.window_bytes(), "others keep a queue");
    }

    /// Follows the window.
    pub(super) fn compete(&mut self, seen: &Observation) {
        if let Some(passage) = self.arrivals.last(self.rtt) {
            self.capacity_bps = Some(passage.arrived_bps.min(MAX_COMPRESSION * passage.sent_bps));
        }
        let channel = self.loss.beside_others(seen);
        self.cross_traffic.observe(seen, channel, self.queue.newest(), self.rtt);
        let (queue, budget) = (self.queue.newest(), self.budget());
        let arrived = self.capacity_bps.unwrap_or_default();
        if self.cross_traffic.has_gone(arrived, queue, budget, self.rtt, seen.now) {
            self.leave(seen.now);
        } else if let Some(pause) = self.cross_traffic.pause(queue, budget, self.rtt, seen.now) {
            self.pause_until(seen.now + pause);
            self.queue.drained(seen.now + pause);
        }
    }

    /// Sends no data until then.
    pub(super) fn pause_until(&mut self, until: Duration) {
        self.phase = Phase::Draining(until);
        self.resumed_at = until;
    }

    /// Ends the competition, because nobody else keeps a queue.
    pub(super) fn leave(&mut self, now: Duration) {
        tracing::debug!(capacity = self.capacity_bps, "no queue of others");
        self.cross_traffic.leave(now);
        self.loss.skip_until(now);
        self.drain(now);
        self.trains.be_bold();
    }
}
