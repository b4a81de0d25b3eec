//! Passengers: a seat for each in every class that it uses.

use std::collections::{BTreeMap, BTreeSet};

use crate::arena::Arena;
use crate::counters::{Counters, PassengerCounters};
use crate::ring::Ring;
use crate::{Class, Passenger};

/// So many seats are remembered without a flow on them, for their counters and so that a passenger
/// who opens one flow after the other is not new with each. At some 250 bytes they are 1 MB; who was
/// away longest is forgotten first.
pub const MOST_REMEMBERED_SEATS: usize = 4096;

/// A passenger in a class.
#[derive(Debug)]
pub(crate) struct Seat {
    pub class: Class,
    pub passenger: Passenger,
    /// Its flows in this class take turns here.
    pub ring: Ring,
    pub counters: Counters,
    flows: usize,
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
            let (ring, counters) = (Ring::default(), Counters::default());
            arena.insert(Seat { class, passenger, ring, counters, flows: 0, left: 0 })
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

    /// What a passenger did and has, over all classes; `None` for who is not remembered.
    pub fn counters(&self, passenger: Passenger) -> Option<PassengerCounters> {
        let (first, last) = ((passenger, Class::Operator), (passenger, Class::LowerEffort));
        let mut seats = self.places.range(first..=last).map(|(_, &seat)| seat).peekable();
        seats.peek()?;
        let mut sum = PassengerCounters::default();
        for seat in seats {
            let Seat { counters, flows, .. } = &self.arena[seat].value;
            sum.sent.merge(counters);
            sum.flows += flows;
        }
        Some(sum)
    }

    /// All passengers that are remembered, in order.
    pub fn passengers(&self) -> impl Iterator<Item = (Passenger, PassengerCounters)> + '_ {
        let mut last = None;
        let each = move |passenger: Passenger| last.replace(passenger) != Some(passenger);
        let ids = self.places.keys().map(|&(passenger, _)| passenger);
        let mut new = each;
        ids.filter(move |&passenger| new(passenger))
            .filter_map(|passenger| Some((passenger, self.counters(passenger)?)))
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
        assert_eq!(seats.counters(1), None);
        assert_eq!(seats.counters(0).unwrap().flows, 0);
        assert_eq!(seats.counters(u32::MAX).unwrap().flows, 1);
        assert_eq!(seats.passengers().count(), MOST_REMEMBERED_SEATS);
        assert_eq!(seats.leave(taken), Some(seats.places[&(2, Class::BestEffort)]));
    }
}
