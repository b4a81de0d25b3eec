//! Whose bytes fill the next packet.

use std::collections::BTreeMap;

use crate::Class;
use crate::ring::Ring;

/// Bytes a flow or passenger sends in its turn: about two packets, so that turns are short.
const QUANTUM_BYTES: i64 = 3000;

/// What the scheduler calls a flow.
pub type FlowId = u64;

/// A passenger's number.
pub type Passenger = u32;

/// How many quanta a class sends in its turn: its share while all classes are busy.
const fn class_weight(class: Class) -> i64 {
    match class {
        Class::Operator => 32,
        Class::Network => 16,
        Class::Assured => 8,
        Class::BestEffort => 4,
        Class::LowerEffort => 1,
    }
}

/// Class, then passenger, then flow, each level a deficit round robin with new members first.
///
/// The link pulls: it asks [`pick`](Self::pick) when a packet may leave, and says afterwards what
/// was [`spent`](Self::spent). Nothing is queued here, only turns.
#[derive(Debug, Default)]
pub struct Scheduler {
    classes: Ring<Class>,
    passengers: BTreeMap<Class, Ring<Passenger>>,
    flows: BTreeMap<(Class, Passenger), Ring<FlowId>>,
}

impl Scheduler {
    /// Nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// `flow` has something to send. Saying it again changes nothing.
    pub fn activate(&mut self, flow: FlowId, class: Class, passenger: Passenger) {
        self.flows.entry((class, passenger)).or_default().activate(flow, QUANTUM_BYTES);
        self.passengers.entry(class).or_default().activate(passenger, QUANTUM_BYTES);
        self.classes.activate(class, class_weight(class) * QUANTUM_BYTES);
    }

    /// `flow` has nothing to send.
    pub fn deactivate(&mut self, flow: FlowId, class: Class, passenger: Passenger) {
        let Some(flows) = self.flows.get_mut(&(class, passenger)) else { return };
        flows.deactivate(flow);
        if !flows.is_idle() {
            return;
        }
        self.flows.remove(&(class, passenger));
        let Some(passengers) = self.passengers.get_mut(&class) else { return };
        passengers.deactivate(passenger);
        if passengers.is_idle() {
            self.classes.deactivate(class);
        }
    }

    /// The flow whose turn it is. The answer stands until something is spent or changes.
    pub fn pick(&mut self) -> Option<FlowId> {
        let class = self.classes.next()?;
        let passenger = self.passengers.get_mut(&class)?.next()?;
        self.flows.get_mut(&(class, passenger))?.next()
    }

    /// `flow` sent `bytes`.
    pub fn spent(&mut self, flow: FlowId, class: Class, passenger: Passenger, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.classes.spent(class, bytes);
        if let Some(passengers) = self.passengers.get_mut(&class) {
            passengers.spent(passenger, bytes);
        }
        if let Some(flows) = self.flows.get_mut(&(class, passenger)) {
            flows.spent(flow, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PACKET: usize = 1400;

    fn serve(
        scheduler: &mut Scheduler,
        who: &BTreeMap<FlowId, (Class, Passenger)>,
        packets: usize,
    ) -> BTreeMap<FlowId, usize> {
        let mut sent = BTreeMap::new();
        for _ in 0..packets {
            let flow = scheduler.pick().expect("all flows are backlogged");
            let (class, passenger) = who[&flow];
            scheduler.spent(flow, class, passenger, PACKET);
            *sent.entry(flow).or_insert(0) += PACKET;
        }
        sent
    }

    proptest! {
        #[test]
        fn passengers_share_alike_however_many_flows_they_open(counts in proptest::collection::vec(1u64..33, 2..6)) {
            let (mut scheduler, mut who) = (Scheduler::new(), BTreeMap::new());
            for (passenger, &flows) in counts.iter().enumerate() {
                for flow in 0..flows {
                    let id = passenger as u64 * 100 + flow;
                    scheduler.activate(id, Class::BestEffort, passenger as u32);
                    who.insert(id, (Class::BestEffort, passenger as u32));
                }
            }
            let packets = counts.len() * 200;
            let sent = serve(&mut scheduler, &who, packets);
            for (passenger, _) in counts.iter().enumerate() {
                let own: usize = sent.iter().filter(|(id, _)| **id / 100 == passenger as u64).map(|(_, b)| b).sum();
                let fair = packets * PACKET / counts.len();
                prop_assert!(own.abs_diff(fair) <= 3 * QUANTUM_BYTES as usize, "{} of {}", own, fair);
            }
        }
    }

    #[test]
    fn busy_classes_share_by_weight_and_none_starves() {
        let (mut scheduler, mut who) = (Scheduler::new(), BTreeMap::new());
        for class in Class::ALL {
            let id = u64::from(class.to_u8());
            scheduler.activate(id, class, 0);
            who.insert(id, (class, 0));
        }
        let sent = serve(&mut scheduler, &who, 61_000);
        let total: usize = sent.values().sum();
        for class in Class::ALL {
            let share = sent[&u64::from(class.to_u8())] as f64 / total as f64;
            let weight = class_weight(class) as f64 / 61.0;
            assert!((share - weight).abs() < 0.01, "{class:?} got {share}, its weight is {weight}");
        }
    }

    #[test]
    fn a_new_flow_of_another_passenger_is_served_at_once() {
        let mut scheduler = Scheduler::new();
        scheduler.activate(1, Class::BestEffort, 1);
        for _ in 0..10 {
            assert_eq!(scheduler.pick(), Some(1));
            scheduler.spent(1, Class::BestEffort, 1, PACKET);
        }
        scheduler.activate(2, Class::BestEffort, 2);
        assert_eq!(scheduler.pick(), Some(2));
        scheduler.deactivate(2, Class::BestEffort, 2);
        assert_eq!(scheduler.pick(), Some(1));
        scheduler.deactivate(1, Class::BestEffort, 1);
        assert_eq!(scheduler.pick(), None);
    }
}
