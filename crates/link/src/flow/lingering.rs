//! Flows without an owner that wait to be sent, and flow numbers that were never sent.
//!
//! During an outage nothing is sent, while passengers open and close flows. Three rules keep these
//! flows from taking the room of others:
//!
//! - A flow whose opening was never sent is gone at once, and the next flow gets its number.
//! - An ended flow that waits for its RESET does not count towards the limit.
//! - A flow that its owner finished and dropped before its opening was sent does not count either,
//!   up to a share for each passenger. Beyond the share it is reset.

use std::collections::{BTreeMap, BTreeSet};

use super::state::FlowState;

/// Divisor of the limit of all flows for one passenger's finished flows that wait for their
/// opening: 1,168 of 9,344.
const PASSENGER_PART: usize = 8;

/// Flows that wait without an owner.
#[derive(Debug, Default)]
pub struct Lingering {
    /// Ended flows, most of which wait for their RESET.
    ended: usize,
    /// Finished flows that wait for their opening, by passenger.
    finished: BTreeMap<u32, usize>,
    finished_count: usize,
    /// Numbers of flows whose opening was never sent. At most one for each flow that was open at
    /// the same time, because new flows take the lowest first.
    unsent_numbers: BTreeSet<u64>,
}

impl Lingering {
    /// Number of flows that wait without an owner.
    pub fn count(&self) -> usize {
        self.ended + self.finished_count
    }

    /// Takes a number that was never sent.
    pub fn take_number(&mut self) -> Option<u64> {
        self.unsent_numbers.pop_first()
    }

    /// Counts a flow that has just ended.
    pub fn end(&mut self, state: &mut FlowState) {
        self.ended += 1;
        self.leave_finished(state);
    }

    /// Counts a finished flow that waits for its opening. Returns `false` if its passenger, or all
    /// together, have too many of `max` flows.
    pub fn finish(&mut self, state: &mut FlowState, max: usize) -> bool {
        let own = self.finished.entry(state.passenger).or_default();
        if *own >= (max / PASSENGER_PART).max(1) || self.ended + self.finished_count >= max {
            return false;
        }
        *own += 1;
        self.finished_count += 1;
        state.waits_finished = true;
        true
    }

    /// Counts a flow that is removed. `unsent` is its number if its opening was never sent.
    pub fn remove(&mut self, state: &mut FlowState, unsent: Option<u64>) {
        self.ended -= usize::from(state.ended.is_some());
        self.leave_finished(state);
        self.unsent_numbers.extend(unsent);
    }

    fn leave_finished(&mut self, state: &mut FlowState) {
        if !std::mem::take(&mut state.waits_finished) {
            return;
        }
        self.finished_count -= 1;
        if let Some(own) = self.finished.get_mut(&state.passenger) {
            *own -= 1;
            if *own == 0 {
                self.finished.remove(&state.passenger);
            }
        }
    }
}
