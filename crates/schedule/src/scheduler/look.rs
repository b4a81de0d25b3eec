//! Snapshot of the scheduler: all classes, and the busiest passengers and flows.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::{FlowId, Scheduler};
use crate::counters::{Activity, ClassCounters, Counters, Waits};
use crate::{Class, Passenger, PerClass};

/// Maximum number of entries of each kind. The busiest are shown: those that carried most since the
/// last look, and among equals those that carried most in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Passengers, each counted once in every class that it uses.
    pub passengers: usize,
    /// Flows.
    pub flows: usize,
}

/// Activity until a look, and since the one before.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Activity of each class.
    pub classes: PerClass<ClassActivity>,
    /// Busiest passengers, the busiest first.
    pub passengers: Vec<SeatActivity>,
    /// Number of passengers, each counted in every class that it uses, including those that are
    /// only remembered.
    pub all_passengers: usize,
    /// Busiest open flows, the busiest first.
    pub flows: Vec<FlowActivity>,
    /// Number of flows.
    pub all_flows: usize,
}

/// Activity of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassActivity {
    /// From the beginning.
    pub total: ClassCounters,
    /// Waiting times of what was sent, from the beginning.
    pub total_waits: Waits,
    /// Activity of its flows since the last look.
    pub recent: Counters,
    /// Waiting times of what was sent since the last look.
    pub recent_waits: Waits,
}

/// Activity of a passenger in a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatActivity {
    /// The passenger.
    pub passenger: Passenger,
    /// The class.
    pub class: Class,
    /// The passenger's flows in this class now.
    pub flows: usize,
    /// Total and recent activity.
    pub activity: Activity,
}

/// Activity of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowActivity {
    /// The flow.
    pub id: FlowId,
    /// Its passenger.
    pub passenger: Passenger,
    /// Its present class.
    pub class: Class,
    /// Activity since the flow has this class.
    pub activity: Activity,
}

impl Scheduler {
    /// Returns the activity so far, and since the last call. Visits all flows and all passengers
    /// once, and holds no more than `most` of them.
    pub fn look(&mut self, most: Most) -> Seen {
        let classes = PerClass::new(|class| {
            let total = self.class_counters(class);
            let state = &mut self.classes[class.index()];
            let recent = state.activity.look().recent;
            let [total_waits, recent_waits] = state.waits;
            state.waits[1] = Waits::default();
            ClassActivity { total, total_waits, recent, recent_waits }
        });
        let (all_passengers, all_flows) = (self.seats.count(), self.flows.count());
        let mut passengers = Busiest::new(most.passengers);
        for seat in self.seats.each() {
            let activity = seat.activity.look();
            let (passenger, class, flows) = (seat.passenger, seat.class, seat.flows);
            passengers.add(&activity, || SeatActivity { passenger, class, flows, activity });
        }
        let mut flows = Busiest::new(most.flows);
        for flow in self.flows.each() {
            let activity = flow.activity.look();
            let passenger = self.seats.arena[flow.seat].value.passenger;
            let (id, class) = (flow.id, flow.class);
            flows.add(&activity, || FlowActivity { id, passenger, class, activity });
        }
        let (passengers, flows) = (passengers.sorted(), flows.sorted());
        Seen { classes, passengers, all_passengers, flows, all_flows }
    }
}

/// The busiest so far; the least busy of them first.
struct Busiest<T> {
    heap: BinaryHeap<Ranked<T>>,
    most: usize,
    /// Number of entries seen, so that among equals the first stays.
    added: usize,
}

struct Ranked<T> {
    rank: (u64, u64, Reverse<usize>),
    what: T,
}

impl<T> Busiest<T> {
    fn new(most: usize) -> Self {
        Self { heap: BinaryHeap::new(), most, added: 0 }
    }

    fn add(&mut self, activity: &Activity, what: impl FnOnce() -> T) {
        let (recent, total) = (activity.recent.carried.both(), activity.total.carried.both());
        let rank = (recent, total, Reverse(self.added));
        self.added += 1;
        if self.heap.len() >= self.most {
            if self.heap.peek().is_none_or(|least| least.rank >= rank) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(Ranked { rank, what: what() });
    }

    fn sorted(self) -> Vec<T> {
        self.heap.into_sorted_vec().into_iter().map(|ranked| ranked.what).collect()
    }
}

/// The least busy is the greatest, since that is what a heap gives first.
impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.cmp(&self.rank)
    }
}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<T> Eq for Ranked<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Carried, Handle};
    use proptest::prelude::*;
    use std::time::Duration;

    const MOST: Most = Most { passengers: 3, flows: 4 };

    fn carry(scheduler: &mut Scheduler, flow: Handle, sent_bytes: u64) {
        scheduler.carried(flow, Carried { sent_bytes, received_bytes: sent_bytes / 2 });
    }

    #[test]
    fn the_busiest_of_late_come_first() {
        let mut scheduler = Scheduler::new();
        let flows: Vec<_> =
            (0..10).map(|id| scheduler.add(id, Class::BestEffort, id as u32 / 2)).collect();
        for (id, &flow) in flows.iter().enumerate() {
            carry(&mut scheduler, flow, 1000 * (10 - id as u64));
        }
        let ids = |seen: &Seen| seen.flows.iter().map(|flow| flow.id).collect::<Vec<_>>();
        let seen = scheduler.look(MOST);
        assert_eq!(ids(&seen), [0, 1, 2, 3]);
        let passengers: Vec<_> =
            seen.passengers.iter().map(|it| (it.passenger, it.flows)).collect();
        assert_eq!(passengers, [(0, 2), (1, 2), (2, 2)]);
        assert_eq!((seen.all_flows, seen.all_passengers), (10, 5));
        // Who moved since is before who moved more, long ago.
        carry(&mut scheduler, flows[9], 10);
        let seen = scheduler.look(MOST);
        assert_eq!(ids(&seen), [9, 0, 1, 2]);
        let last = seen.flows[0].activity;
        assert_eq!((last.recent.carried.both(), last.total.carried.both()), (15, 1515));
        assert_eq!(seen.classes[Class::BestEffort].recent.carried.sent_bytes, 10);
        let none = scheduler.look(Most { passengers: 0, flows: 0 });
        assert!(none.flows.is_empty() && none.passengers.is_empty() && none.all_flows == 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn flows_are_no_more_than_their_passenger_and_those_no_more_than_their_class(
            steps in proptest::collection::vec((0u64..12, 0u8..5, 0u8..4, 1u64..3000), 1..200),
        ) {
            let (mut scheduler, mut flows) = (Scheduler::new(), [None; 12]);
            let mut all = PerClass::<u64>::default();
            let mut now = Duration::ZERO;
            for (id, class, what, bytes) in steps {
                now += Duration::from_millis(1);
                let class = Class::ALL[usize::from(class)];
                let flow = &mut flows[id as usize];
                match (*flow, what) {
                    (None, _) => {
                        *flow = Some((scheduler.add(id, class, id as u32 / 3), class));
                    }
                    (Some((handle, _)), 0) => {
                        scheduler.remove(handle);
                        *flow = None;
                    }
                    (Some((handle, _)), 1) => {
                        scheduler.reclass(handle, class, now);
                        *flow = Some((handle, class));
                    }
                    (Some((handle, class)), _) => {
                        carry(&mut scheduler, handle, bytes);
                        all[class] += bytes;
                    }
                }
            }
            let seen = scheduler.look(Most { passengers: 100, flows: 100 });
            let sent = |activity: &Activity| activity.total.carried.sent_bytes;
            for seat in &seen.passengers {
                let is_theirs = |flow: &&FlowActivity| {
                    (flow.passenger, flow.class) == (seat.passenger, seat.class)
                };
                let theirs = || seen.flows.iter().filter(is_theirs);
                prop_assert_eq!(theirs().count(), seat.flows);
                let of_flows: u64 = theirs().map(|flow| sent(&flow.activity)).sum();
                prop_assert!(of_flows <= sent(&seat.activity));
            }
            for class in Class::ALL {
                let theirs = seen.passengers.iter().filter(|seat| seat.class == class);
                let of_seats: u64 = theirs.map(|seat| sent(&seat.activity)).sum();
                let of_class = seen.classes[class].total.sent.carried.sent_bytes;
                prop_assert_eq!(of_class, all[class]);
                prop_assert_eq!(of_seats, of_class, "nobody was forgotten");
            }
            prop_assert_eq!(seen.all_flows, flows.iter().flatten().count());
        }
    }
}
