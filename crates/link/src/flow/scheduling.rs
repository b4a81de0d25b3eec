//! Turns of the flows in each lane, and flows that wait for room in their lane.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_schedule::{Class, Handle, Payload, PerClass, Scheduler};

use super::state::{Flow, FlowState};
use crate::lane::Lane;

/// The scheduler, and the flows that a full lane keeps out of it.
#[derive(Debug)]
pub struct Turns {
    scheduler: Scheduler,
    /// Lanes that accept another symbol.
    rooms: [bool; Lane::ALL.len()],
    /// Flows that wait for room in their lane.
    held: [BTreeMap<u64, Class>; Lane::ALL.len()],
    /// Number of these flows, by class.
    held_of: PerClass<usize>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            scheduler: Scheduler::new(),
            rooms: [true; Lane::ALL.len()],
            held: Default::default(),
            held_of: PerClass::default(),
        }
    }
}

impl Turns {
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub fn scheduler_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    /// Schedules the flow if it has something to send, and pauses it otherwise.
    pub fn refresh(&mut self, id: u64, flow: &mut Flow, now: Duration) {
        let sends = flow.sends();
        let state = flow.state_mut();
        if sends {
            let turn = self.turn_of(id, state);
            self.scheduler.activate(turn, now);
        } else if let Some(turn) = state.turn {
            self.scheduler.deactivate(turn);
        }
    }

    /// Counts payload that the flow carried in either direction.
    pub fn record_payload(&mut self, id: u64, state: &mut FlowState, payload: Payload) {
        let turn = self.turn_of(id, state);
        self.scheduler.record_payload(turn, payload);
    }

    /// Removes an ended flow from the scheduler.
    pub fn remove(&mut self, state: &mut FlowState) {
        if let Some(turn) = state.turn.take() {
            self.scheduler.remove(turn);
        }
    }

    fn turn_of(&mut self, id: u64, state: &mut FlowState) -> Handle {
        let (class, passenger) = (state.class, state.passenger);
        *state.turn.get_or_insert_with(|| self.scheduler.add(id, class, passenger))
    }

    // Full lanes.

    /// Sets which lanes accept another symbol. Then [`Self::next_released`] yields the flows that no
    /// longer wait.
    pub fn set_room(&mut self, rooms: [bool; Lane::ALL.len()]) {
        self.rooms = rooms;
    }

    pub fn has_room(&self, lane: Lane) -> bool {
        self.rooms[lane as usize]
    }

    /// Takes a flow that waited for room in a lane that has some now.
    pub fn next_released(&mut self) -> Option<u64> {
        let rooms = self.rooms.iter();
        let with_room = self.held.iter_mut().zip(rooms).filter(|(_, has_room)| **has_room);
        let (id, class) = with_room.filter_map(|(held, _)| held.pop_first()).next()?;
        self.held_of[class] -= 1;
        Some(id)
    }

    /// Gives the flow's turn to others until its full lane has room again.
    pub fn hold(&mut self, id: u64, state: &FlowState, lane: Lane) {
        let Some(turn) = state.turn else { return };
        self.scheduler.deactivate(turn);
        self.unhold(id);
        self.held[lane as usize].insert(id, state.class);
        self.held_of[state.class] += 1;
    }

    /// Stops the flow's wait for room.
    pub fn unhold(&mut self, id: u64) {
        for class in self.held.iter_mut().filter_map(|held| held.remove(&id)) {
            self.held_of[class] -= 1;
        }
    }

    /// Number of flows of `class` that wait for room in their lane.
    pub fn held_of(&self, class: Class) -> usize {
        self.held_of[class]
    }
}

/// Counters of sent contents.
pub fn sent(bytes: usize) -> Payload {
    Payload { sent_bytes: bytes as u64, received_bytes: 0 }
}

/// Counters of contents that were read.
pub fn received(bytes: usize) -> Payload {
    Payload { sent_bytes: 0, received_bytes: bytes as u64 }
}
