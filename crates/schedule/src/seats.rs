//! Passengers: a seat for each in every class that it uses.

use std::collections::{BTreeMap, BTreeSet};

use crate::arena::Arena;
use crate::counters::Activity;
use crate::ring::Ring;
use crate::{Class, Passenger};

/// So many seats are remembered without a flow on them, for their counters and so that a passenger
/// who opens one flow after the other is not new with each. At some 350 bytes they are 1.4 MB; who was
/// away longest is forgotten first.
pub const MOST_REMEMBERED_SEATS: usize = 4096;

/// A passenger in a class.
#[derive(Debug)]
pub(crate) struct Seat {
    pub class: Class,
    pub passenger: Passenger,
    /// Its flows in this class take turns here.
    pub ring: Ring,
    pub activity: Activity,
    pub flows: usize,
    /// Its number among all departures, when it last had no flow left.
    left: u64,
}

/// Every seat, taken or remembered.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    pub arena: Arena<Seat>,
    places: BTreeMap<(Passenger, Class), u32>,
    /// Seats without flows, who left first in front.
    empty: BTreeSet<(u64, u32)>,
    departures: u64,
}

impl Seats {
    /// A flow more on the passenger's seat in this class.
    pub fn enter(&mut self, class: Class, passenger: Passenger) -> u32 {
        let arena = &mut self.arena;
        let seat = *self.places.entry((passenger, class)).or_insert_with(|| {
            let (ring, activity) = (Ring::default(), Activity::default());
            arena.insert(Seat { class, passenger, ring, activity, flows: 0, left: 0 })
        });
        let state = &mut self.arena[seat].value;
        state.flows += 1;
        self.empty.remove(&(state.left, seat));
        seat
    }

    /// A flow less. The seat returned, if any, is to be forgotten: take it out of its ring and
    /// [`forget`](Self::forget) it.
    pub fn leave(&mut self, seat: u32) -> Option<u32> {
        let state = &mut self.arena[seat].value;
        state.flows -= 1;
        if state.flows > 0 {
            return None;
        }
        self.departures += 1;
        state.left = self.departures;
        self.empty.insert((self.departures, seat));
        if self.empty.len() <= MOST_REMEMBERED_SEATS {
            return None;
        }
        self.empty.first().map(|&(_, oldest)| oldest)
    }

    pub fn forget(&mut self, seat: u32) {
        let Seat { class, passenger, left, .. } = self.arena[seat].value;
        self.empty.remove(&(left, seat));
        self.places.remove(&(passenger, class));
        self.arena.remove(seat);
    }

    /// Every seat that is taken or remembered.
    pub fn each(&mut self) -> impl Iterator<Item = &mut Seat> {
        self.arena.each()
    }

    /// Number of seats.
    pub fn count(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_left_first_is_forgotten_first() {
        let mut seats = Seats::default();
        let taken = seats.enter(Class::BestEffort, u32::MAX);
        for passenger in 0..MOST_REMEMBERED_SEATS as u32 {
            let seat = seats.enter(Class::BestEffort, passenger);
            assert_eq!(seats.leave(seat), None);
        }
        let again = seats.enter(Class::BestEffort, 0);
        assert_eq!(seats.leave(again), None);
        let seat = seats.enter(Class::Assured, 0);
        let oldest = seats.leave(seat).unwrap();
        assert_eq!(seats.arena[oldest].value.passenger, 1);
        seats.forget(oldest);
        let flows: BTreeMap<_, _> = seats.each().map(|seat| (seat.passenger, seat.flows)).collect();
        assert_eq!(flows.get(&1), None);
        assert_eq!((flows[&0], flows[&u32::MAX]), (0, 1));
        assert_eq!(
            (flows.len(), seats.count()),
            (MOST_REMEMBERED_SEATS, MOST_REMEMBERED_SEATS + 1)
        );
        assert_eq!(seats.leave(taken), Some(seats.places[&(2, Class::BestEffort)]));
    }
}
