//! Subscribers: one per passenger and class in use.

use std::collections::{BTreeMap, BTreeSet};

use crate::arena::Arena;
use crate::counters::Activity;
use crate::drr::Drr;
use crate::{Class, Passenger};

/// Maximum number of subscribers remembered without a flow. Remembering them keeps their counters,
/// and a passenger who opens one flow after another does not count as new each time. Cost: 4096 ×
/// about 350 bytes = 1.4 MB. The subscriber that left first is forgotten first.
pub const MAX_IDLE_SUBSCRIBERS: usize = 4096;

/// Passenger in a class.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub class: Class,
    pub passenger: Passenger,
    /// Round robin of the passenger's flows in this class.
    pub drr: Drr,
    pub activity: Activity,
    pub flows: usize,
    /// Sequence number of the departure of its last flow.
    left: u64,
}

/// All subscribers, with or without flows.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    pub arena: Arena<Subscriber>,
    slots: BTreeMap<(Passenger, Class), u32>,
    /// Subscribers without flows, by departure: the earliest first.
    empty: BTreeSet<(u64, u32)>,
    departures: u64,
}

impl Subscribers {
    /// Adds a flow to the passenger's subscriber in this class.
    pub fn enter(&mut self, class: Class, passenger: Passenger) -> u32 {
        let arena = &mut self.arena;
        let subscriber = *self.slots.entry((passenger, class)).or_insert_with(|| {
            let (drr, activity) = (Drr::default(), Activity::default());
            arena.insert(Subscriber { class, passenger, drr, activity, flows: 0, left: 0 })
        });
        let state = &mut self.arena[subscriber].value;
        state.flows += 1;
        self.empty.remove(&(state.left, subscriber));
        subscriber
    }

    /// Removes a flow. If a subscriber is returned, the caller takes it out of its round robin and
    /// [`forget`](Self::forget)s it.
    pub fn leave(&mut self, subscriber: u32) -> Option<u32> {
        let state = &mut self.arena[subscriber].value;
        state.flows -= 1;
        if state.flows > 0 {
            return None;
        }
        self.departures += 1;
        state.left = self.departures;
        self.empty.insert((self.departures, subscriber));
        if self.empty.len() <= MAX_IDLE_SUBSCRIBERS {
            return None;
        }
        self.empty.first().map(|&(_, oldest)| oldest)
    }

    pub fn forget(&mut self, subscriber: u32) {
        let Subscriber { class, passenger, left, .. } = self.arena[subscriber].value;
        self.empty.remove(&(left, subscriber));
        self.slots.remove(&(passenger, class));
        self.arena.remove(subscriber);
    }

    /// All subscribers, with or without flows.
    pub fn each(&mut self) -> impl Iterator<Item = &mut Subscriber> {
        self.arena.each()
    }

    /// Number of subscribers, with or without flows.
    pub fn count(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subscriber_idle_longest_is_forgotten_first() {
        let mut subscribers = Subscribers::default();
        let present = subscribers.enter(Class::BestEffort, u32::MAX);
        for passenger in 0..MAX_IDLE_SUBSCRIBERS as u32 {
            let subscriber = subscribers.enter(Class::BestEffort, passenger);
            assert_eq!(subscribers.leave(subscriber), None);
        }
        let again = subscribers.enter(Class::BestEffort, 0);
        assert_eq!(subscribers.leave(again), None);
        let subscriber = subscribers.enter(Class::Assured, 0);
        let oldest = subscribers.leave(subscriber).unwrap();
        assert_eq!(subscribers.arena[oldest].value.passenger, 1);
        subscribers.forget(oldest);
        let flows: BTreeMap<_, _> =
            subscribers.each().map(|subscriber| (subscriber.passenger, subscriber.flows)).collect();
        assert_eq!(flows.get(&1), None);
        assert_eq!((flows[&0], flows[&u32::MAX]), (0, 1));
        assert_eq!(
            (flows.len(), subscribers.count()),
            (MAX_IDLE_SUBSCRIBERS, MAX_IDLE_SUBSCRIBERS + 1)
        );
        assert_eq!(subscribers.leave(present), Some(subscribers.slots[&(2, Class::BestEffort)]));
    }
}
