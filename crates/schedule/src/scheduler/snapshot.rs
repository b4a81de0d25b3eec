//! Snapshot of the scheduler: all classes, and the busiest passengers and flows.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::{FlowId, Scheduler};
use crate::counters::{Activity, ClassCounters, Counters, DelayHistogram};
use crate::{Class, Passenger, PerClass};

/// Maximum number of entries of each kind. A snapshot lists the busiest: those with the most
/// payload since the last snapshot, and among equals those with the most in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Passengers, counted once per class that they use.
    pub passengers: usize,
    /// Flows.
    pub flows: usize,
}

/// Activity since the beginning and since the last snapshot.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Activity of each class.
    pub classes: PerClass<ClassActivity>,
    /// Busiest passengers, the busiest first.
    pub passengers: Vec<PassengerActivity>,
    /// Number of passengers, counted once per class that they use, including those remembered
    /// without flows.
    pub all_passengers: usize,
    /// Busiest open flows, the busiest first.
    pub flows: Vec<FlowActivity>,
    /// Number of flows.
    pub all_flows: usize,
}

/// Activity of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassActivity {
    /// Counters since the beginning.
    pub total: ClassCounters,
    /// Delays of sent data since the beginning.
    pub total_delays: DelayHistogram,
    /// Activity of its flows since the last snapshot.
    pub recent: Counters,
    /// Delays of sent data since the last snapshot.
    pub recent_delays: DelayHistogram,
}

/// Activity of a passenger in a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassengerActivity {
    /// The passenger.
    pub passenger: Passenger,
    /// The class.
    pub class: Class,
    /// Current number of the passenger's flows in this class.
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
    /// Its current class.
    pub class: Class,
    /// Activity since the flow joined this class.
    pub activity: Activity,
}

impl Scheduler {
    /// Returns the activity so far, and since the last call. Visits all flows and passengers once,
    /// and keeps at most `max` of them in memory.
    pub fn snapshot(&mut self, max: SnapshotLimits) -> Snapshot {
        let classes = PerClass::new(|class| {
            let total = self.class_counters(class);
            let state = &mut self.classes[class.index()];
            let recent = state.activity.take().recent;
            let [total_delays, recent_delays] = state.delays;
            state.delays[1] = DelayHistogram::default();
            ClassActivity { total, total_delays, recent, recent_delays }
        });
        let (all_passengers, all_flows) = (self.subscribers.count(), self.flows.count());
        let mut passengers = Busiest::new(max.passengers);
        for subscriber in self.subscribers.each() {
            let activity = subscriber.activity.take();
            let (passenger, class, flows) =
                (subscriber.passenger, subscriber.class, subscriber.flows);
            passengers.add(&activity, || PassengerActivity { passenger, class, flows, activity });
        }
        let mut flows = Busiest::new(max.flows);
        for flow in self.flows.each() {
            let activity = flow.activity.take();
            let passenger = self.subscribers.arena[flow.subscriber].value.passenger;
            let (id, class) = (flow.id, flow.class);
            flows.add(&activity, || FlowActivity { id, passenger, class, activity });
        }
        let (passengers, flows) = (passengers.sorted(), flows.sorted());
        Snapshot { classes, passengers, all_passengers, flows, all_flows }
    }
}

/// The busiest entries so far, in a heap with the least busy on top.
struct Busiest<T> {
    heap: BinaryHeap<Ranked<T>>,
    max: usize,
    /// Number of entries offered, so that the first of equals stays.
    added: usize,
}

struct Ranked<T> {
    rank: (u64, u64, Reverse<usize>),
    item: T,
}

impl<T> Busiest<T> {
    fn new(max: usize) -> Self {
        Self { heap: BinaryHeap::new(), max, added: 0 }
    }

    fn add(&mut self, activity: &Activity, item: impl FnOnce() -> T) {
        let (recent, total) = (activity.recent.payload.both(), activity.total.payload.both());
        let rank = (recent, total, Reverse(self.added));
        self.added += 1;
        if self.heap.len() >= self.max {
            if self.heap.peek().is_none_or(|lowest| lowest.rank >= rank) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(Ranked { rank, item: item() });
    }

    fn sorted(self) -> Vec<T> {
        self.heap.into_sorted_vec().into_iter().map(|ranked| ranked.item).collect()
    }
}

/// Orders the least busy as the greatest, because a max-heap returns the greatest first.
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
    use crate::{Handle, Payload};
    use proptest::prelude::*;
    use std::time::Duration;

    const MAX: SnapshotLimits = SnapshotLimits { passengers: 3, flows: 4 };

    fn carry(scheduler: &mut Scheduler, flow: Handle, sent_bytes: u64) {
        scheduler.record_payload(flow, Payload { sent_bytes, received_bytes: sent_bytes / 2 });
    }

    #[test]
    fn recently_busy_flows_come_first() {
        let mut scheduler = Scheduler::new();
        let flows: Vec<_> =
            (0..10).map(|id| scheduler.add(id, Class::BestEffort, id as u32 / 2)).collect();
        for (id, &flow) in flows.iter().enumerate() {
            carry(&mut scheduler, flow, 1000 * (10 - id as u64));
        }
        let ids =
            |snapshot: &Snapshot| snapshot.flows.iter().map(|flow| flow.id).collect::<Vec<_>>();
        let snapshot = scheduler.snapshot(MAX);
        assert_eq!(ids(&snapshot), [0, 1, 2, 3]);
        let passengers: Vec<_> =
            snapshot.passengers.iter().map(|it| (it.passenger, it.flows)).collect();
        assert_eq!(passengers, [(0, 2), (1, 2), (2, 2)]);
        assert_eq!((snapshot.all_flows, snapshot.all_passengers), (10, 5));
        // A flow with recent traffic comes before one with more traffic long ago.
        carry(&mut scheduler, flows[9], 10);
        let snapshot = scheduler.snapshot(MAX);
        assert_eq!(ids(&snapshot), [9, 0, 1, 2]);
        let last = snapshot.flows[0].activity;
        assert_eq!((last.recent.payload.both(), last.total.payload.both()), (15, 1515));
        assert_eq!(snapshot.classes[Class::BestEffort].recent.payload.sent_bytes, 10);
        let none = scheduler.snapshot(SnapshotLimits { passengers: 0, flows: 0 });
        assert!(none.flows.is_empty() && none.passengers.is_empty() && none.all_flows == 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn totals_of_flows_passengers_and_classes_are_consistent(
            steps in proptest::collection::vec((0u64..12, 0u8..5, 0u8..4, 1u64..3000), 1..200),
        ) {
            let (mut scheduler, mut flows) = (Scheduler::new(), [None; 12]);
            let mut all = PerClass::<u64>::default();
            let mut now = Duration::ZERO;
            for (id, class, item, bytes) in steps {
                now += Duration::from_millis(1);
                let class = Class::ALL[usize::from(class)];
                let flow = &mut flows[id as usize];
                match (*flow, item) {
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
            let snapshot = scheduler.snapshot(SnapshotLimits { passengers: 100, flows: 100 });
            let sent = |activity: &Activity| activity.total.payload.sent_bytes;
            for subscriber in &snapshot.passengers {
                let is_theirs = |flow: &&FlowActivity| {
                    (flow.passenger, flow.class) == (subscriber.passenger, subscriber.class)
                };
                let theirs = || snapshot.flows.iter().filter(is_theirs);
                prop_assert_eq!(theirs().count(), subscriber.flows);
                let of_flows: u64 = theirs().map(|flow| sent(&flow.activity)).sum();
                prop_assert!(of_flows <= sent(&subscriber.activity));
            }
            for class in Class::ALL {
                let theirs = snapshot.passengers.iter().filter(|subscriber| subscriber.class == class);
                let of_subscribers: u64 = theirs.map(|subscriber| sent(&subscriber.activity)).sum();
                let of_class = snapshot.classes[class].total.sent.payload.sent_bytes;
                prop_assert_eq!(of_class, all[class]);
                prop_assert_eq!(of_subscribers, of_class, "no subscriber was forgotten");
            }
            prop_assert_eq!(snapshot.all_flows, flows.iter().flatten().count());
        }
    }
}
