//! Turns of the flows in each lane, and flows that wait for room in their lane.

use std::collections::BTreeSet;
use std::time::Duration;

use bentpipe_schedule::{Class, Handle, Payload, PerClass, Scheduler};

use super::state::{Flow, FlowState};
use crate::lane::Lane;

/// The scheduler, and the flows that a full lane keeps out of it.
#[derive(Debug)]
pub struct Turns {
    scheduler: Scheduler,
    rooms: Rooms,
    /// Flows that wait for room for their class in their lane.
    held: [PerClass<BTreeSet<u64>>; Lane::ALL.len()],
}

/// Lanes that accept another symbol now, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rooms {
    pub lanes: [PerClass<bool>; Lane::ALL.len()],
    /// The urgent lane accepts control frames.
    pub control: bool,
}

impl Rooms {
    /// Lanes that accept symbols of every class or of none.
    pub fn of_lanes(lanes: [bool; Lane::ALL.len()]) -> Self {
        let control = lanes[Lane::Urgent as usize];
        Self { lanes: lanes.map(|has_room| PerClass::new(|_| has_room)), control }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            scheduler: Scheduler::new(),
            rooms: Rooms::of_lanes([true; Lane::ALL.len()]),
            held: Default::default(),
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
    pub fn set_room(&mut self, rooms: Rooms) {
        self.rooms = rooms;
    }

    pub fn has_room(&self, lane: Lane, class: Class) -> bool {
        self.rooms.lanes[lane as usize][class]
    }

    pub fn has_room_for_control(&self) -> bool {
        self.rooms.control
    }

    /// Takes a flow that waited for room that there is now.
    pub fn next_released(&mut self) -> Option<u64> {
        for (held, has_room) in self.held.iter_mut().zip(&self.rooms.lanes) {
            for class in Class::ALL {
                if has_room[class]
                    && let Some(id) = held[class].pop_first()
                {
                    return Some(id);
                }
            }
        }
        None
    }

    /// Gives the flow's turn to others until its full lane has room again.
    pub fn hold(&mut self, id: u64, state: &FlowState, lane: Lane) {
        let Some(turn) = state.turn else { return };
        self.scheduler.deactivate(turn);
        self.unhold(id);
        self.held[lane as usize][state.class].insert(id);
    }

    /// Stops the flow's wait for room. Returns `true` if it waited.
    pub fn unhold(&mut self, id: u64) -> bool {
        let mut waited = false;
        for held in &mut self.held {
            Class::ALL.into_iter().for_each(|class| waited |= held[class].remove(&id));
        }
        waited
    }

    /// Returns `true` if a flow of `class` waits for room in its lane.
    pub fn is_held(&self, class: Class) -> bool {
        self.held.iter().any(|held| !held[class].is_empty())
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
