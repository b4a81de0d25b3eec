//! A learned rate in a group of sessions that share a bottleneck.

use std::time::Duration;

use super::Learner;
use super::trace::Trace;

impl Learner {
    /// Queue over the time of sending.
    pub fn trace(&self) -> &Trace {
        self.queue.trace()
    }

    /// The capacity in bits per second, if most of it was used since the last call.
    pub fn busy_capacity_bps(&mut self, now: Duration) -> Option<f64> {
        let is_busy = self.siblings.take_use(self.capacity_bps?, now);
        self.capacity_bps.filter(|_| is_busy && self.is_confirmed && !self.competes())
    }

    /// Sets the capacity to a part of what all siblings learned.
    pub fn set_capacity_bps(&mut self, bps: f64) {
        self.capacity_bps = Some(bps);
    }

    /// Sets whether there are siblings, and the number of active members of the group if it is this one's
    /// turn to send trains. A competition that began before ends: the queue that others
    /// kept was theirs.
    pub fn set_siblings(&mut self, are_there: bool, turn: Option<u32>, now: Duration) {
        self.siblings.turn = turn;
        let are_new = are_there && !std::mem::replace(&mut self.siblings.are_there, are_there);
        if are_new && self.competes() {
            self.leave(now);
        }
    }

    /// Returns `true` once for each drain that siblings should join.
    pub fn take_drain(&mut self) -> bool {
        std::mem::take(&mut self.siblings.drain_began) && self.siblings.are_there
    }

    /// Drains the queue, because a sibling does.
    pub fn drain_with_others(&mut self, now: Duration) {
        if self.capacity_bps.is_some() && !self.competes() && now >= self.settled_at {
            self.drain(now);
            self.siblings.drain_began = false;
        }
    }
}
