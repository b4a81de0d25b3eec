//! Writers that wait for memory which the session lends: passengers in turn, and of each passenger
//! the flow that has waited longest.

use std::collections::BTreeMap;

/// Place of a waiting writer: its passenger, and a number that increases.
pub type Place = (u32, u64);

/// Waiting writers. A flow waits once at most.
#[derive(Debug, Default)]
pub struct Writers {
    flows: BTreeMap<Place, u64>,
    next_number: u64,
    /// Passenger whose turn was last.
    last: Option<u32>,
}

impl Writers {
    /// Adds a flow of `passenger` behind the passenger's others.
    pub fn add(&mut self, passenger: u32, flow: u64) -> Place {
        let place = (passenger, self.next_number);
        self.next_number += 1;
        self.flows.insert(place, flow);
        place
    }

    pub fn remove(&mut self, place: Place) {
        self.flows.remove(&place);
    }

    /// The first flow of the passenger whose turn it is. The next call is the next passenger's turn.
    pub fn next(&mut self) -> Option<u64> {
        let behind = self.last.map_or(0, |last| last.wrapping_add(1));
        let next = self.flows.range((behind, 0)..).next().or_else(|| self.flows.iter().next());
        let (&(passenger, _), &flow) = next?;
        self.last = Some(passenger);
        Some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passengers_take_turns_and_the_oldest_flow_of_each_is_first() {
        let mut writers = Writers::default();
        let places =
            [(7, 1), (7, 2), (u32::MAX, 3), (9, 4)].map(|(who, flow)| writers.add(who, flow));
        assert_eq!([(); 4].map(|()| writers.next()), [1, 4, 3, 1].map(Some));
        writers.remove(places[0]);
        writers.remove(places[3]);
        assert_eq!([(); 3].map(|()| writers.next()), [3, 2, 3].map(Some));
        writers.remove(places[1]);
        writers.remove(places[2]);
        assert_eq!(writers.next(), None);
    }
}
