//! Datagram memory of each class, and the flow that loses a datagram when a class exceeds it.

use bentpipe_units::ByteSize;

use crate::Class;

/// Default datagram memory per class. 5 classes × 4 MiB = 20 MiB in each direction. 4 MiB is four
/// seconds at 8 Mbit/s, longer than any datagram waits.
pub const DEFAULT_MEMORY: ByteSize = ByteSize::from_bytes(4 << 20);

/// Heap position of an entry with nothing queued.
const NOT_QUEUED: u32 = u32::MAX;

/// Bytes queued per class, subscriber (passenger in a class) and flow. The largest is found in
/// O(1). A change takes O(log n) steps, where n counts the subscribers of the class, and the flows
/// of the subscriber, that have anything queued: 14 steps for 10,000.
#[derive(Debug)]
pub(crate) struct Budget {
    classes: [Queues; Class::ALL.len()],
    /// Indexed by subscriber slot.
    subscribers: Vec<Queued>,
    subscriber_flows: Vec<LargestFirst>,
    /// Indexed by flow slot.
    flows: Vec<Queued>,
}

/// Queues of a class.
#[derive(Debug)]
struct Queues {
    subscribers: LargestFirst,
    bytes: u64,
    max: u64,
}

/// Binary heap of slots with something queued, the largest first.
#[derive(Debug, Default, Clone)]
struct LargestFirst(Vec<u32>);

#[derive(Debug, Clone, Copy)]
struct Queued {
    bytes: u64,
    /// Position in the heap.
    at: u32,
}

const NOTHING: Queued = Queued { bytes: 0, at: NOT_QUEUED };

impl Default for Budget {
    fn default() -> Self {
        let max = DEFAULT_MEMORY.bytes();
        let class = |_| Queues { subscribers: LargestFirst::default(), bytes: 0, max };
        let (subscribers, flows) = (Vec::new(), Vec::new());
        Self { classes: Class::ALL.map(class), subscribers, subscriber_flows: Vec::new(), flows }
    }
}

impl Budget {
    /// Sets the memory limit of a class.
    pub fn limit(&mut self, class: Class, max: ByteSize) {
        self.classes[class.index()].max = max.bytes();
    }

    /// Makes room for a flow in this slot and its subscriber.
    pub fn enter(&mut self, subscriber: u32, flow: u32) {
        let flows = self.flows.len().max(flow as usize + 1);
        self.flows.resize(flows, NOTHING);
        let subscribers = self.subscribers.len().max(subscriber as usize + 1);
        self.subscribers.resize(subscribers, NOTHING);
        self.subscriber_flows.resize(subscribers, LargestFirst::default());
    }

    /// Adds `bytes` to the queued bytes of the flow.
    pub fn add(&mut self, class: Class, subscriber: u32, flow: u32, bytes: u64) {
        let queues = &mut self.classes[class.index()];
        queues.bytes = queues.bytes.saturating_add(bytes);
        queues.subscribers.add(&mut self.subscribers, subscriber, bytes);
        self.subscriber_flows[subscriber as usize].add(&mut self.flows, flow, bytes);
    }

    /// Subtracts `bytes` from the queued bytes of the flow.
    pub fn take(&mut self, class: Class, subscriber: u32, flow: u32, bytes: u64) {
        let bytes = bytes.min(self.of(flow));
        let queues = &mut self.classes[class.index()];
        queues.bytes -= bytes;
        queues.subscribers.take(&mut self.subscribers, subscriber, bytes);
        self.subscriber_flows[subscriber as usize].take(&mut self.flows, flow, bytes);
    }

    /// Bytes queued by the flow.
    pub fn of(&self, flow: u32) -> u64 {
        self.flows[flow as usize].bytes
    }

    /// Bytes queued in the class.
    pub fn bytes(&self, class: Class) -> u64 {
        self.classes[class.index()].bytes
    }

    /// Flow that must drop its oldest datagram if the class exceeds its memory: the largest flow of
    /// the passenger with the most queued bytes. Nobody loses datagrams to another passenger's many
    /// flows.
    pub fn drop_victim(&self, class: Class) -> Option<u32> {
        let queues = &self.classes[class.index()];
        let subscriber = queues.subscribers.first().filter(|_| queues.bytes > queues.max)?;
        self.subscriber_flows[subscriber as usize].first()
    }
}

impl LargestFirst {
    fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    fn add(&mut self, all: &mut [Queued], slot: u32, bytes: u64) {
        let queued = &mut all[slot as usize];
        queued.bytes = queued.bytes.saturating_add(bytes);
        if queued.at == NOT_QUEUED {
            queued.at = self.0.len() as u32;
            self.0.push(slot);
        }
        self.rise(all, slot);
    }

    fn take(&mut self, all: &mut [Queued], slot: u32, bytes: u64) {
        let queued = &mut all[slot as usize];
        queued.bytes -= bytes.min(queued.bytes);
        if queued.at == NOT_QUEUED {
            return;
        }
        let empty = queued.bytes == 0;
        self.sink(all, slot);
        if empty {
            self.leave(all, slot);
        }
    }

    fn leave(&mut self, all: &mut [Queued], slot: u32) {
        let at = std::mem::replace(&mut all[slot as usize].at, NOT_QUEUED);
        self.0.swap_remove(at as usize);
        if let Some(&moved) = self.0.get(at as usize) {
            all[moved as usize].at = at;
            self.rise(all, moved);
            self.sink(all, moved);
        }
    }

    fn rise(&mut self, all: &mut [Queued], slot: u32) {
        let Queued { bytes, mut at } = all[slot as usize];
        while at > 0 {
            let above = (at - 1) / 2;
            let other = self.0[above as usize];
            if all[other as usize].bytes >= bytes {
                break;
            }
            self.put(all, other, at);
            at = above;
        }
        self.put(all, slot, at);
    }

    fn sink(&mut self, all: &mut [Queued], slot: u32) {
        let Queued { bytes, mut at } = all[slot as usize];
        let of = |heap: &[u32], all: &[Queued], at: u32| {
            heap.get(at as usize).map(|&slot| all[slot as usize].bytes)
        };
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let larger =
                if of(&self.0, all, right) > of(&self.0, all, left) { right } else { left };
            if of(&self.0, all, larger).is_none_or(|below| below <= bytes) {
                break;
            }
            self.put(all, self.0[larger as usize], at);
            at = larger;
        }
        self.put(all, slot, at);
    }

    fn put(&mut self, all: &mut [Queued], slot: u32, at: u32) {
        self.0[at as usize] = slot;
        all[slot as usize].at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLASS: Class = Class::BestEffort;
    /// Flows per subscriber.
    const FLOWS_EACH: usize = 4;

    fn subscriber(flow: u32) -> u32 {
        flow / FLOWS_EACH as u32
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn the_largest_drops_until_the_rest_fits(
            steps in proptest::collection::vec((0u32..20, 1u64..3000, proptest::bool::ANY), 1..300),
            max in 0u64..20_000,
        ) {
            let (mut budget, mut model) = (Budget::default(), [0u64; 20]);
            budget.limit(CLASS, ByteSize::from_bytes(max));
            (0..20).for_each(|flow| budget.enter(subscriber(flow), flow));
            for (flow, bytes, adds) in steps {
                let queued = &mut model[flow as usize];
                if adds {
                    budget.add(CLASS, subscriber(flow), flow, bytes);
                    *queued += bytes;
                } else {
                    budget.take(CLASS, subscriber(flow), flow, bytes);
                    *queued = queued.saturating_sub(bytes);
                }
                while let Some(victim) = budget.drop_victim(CLASS) {
                    let subscribers: Vec<u64> = model.chunks(FLOWS_EACH).map(|subscriber| subscriber.iter().sum()).collect();
                    let subscriber = subscriber(victim);
                    prop_assert_eq!(Some(&subscribers[subscriber as usize]), subscribers.iter().max());
                    let of_subscriber = model.chunks(FLOWS_EACH).nth(subscriber as usize).unwrap();
                    prop_assert_eq!(Some(&model[victim as usize]), of_subscriber.iter().max());
                    let drops = model[victim as usize].min(700);
                    budget.take(CLASS, subscriber, victim, drops);
                    model[victim as usize] -= drops;
                }
                prop_assert_eq!(budget.bytes(CLASS), model.iter().sum::<u64>());
                prop_assert!(budget.bytes(CLASS) <= max);
                prop_assert!((0..20).all(|flow| budget.of(flow) == model[flow as usize]));
            }
        }
    }

    #[test]
    fn many_flows_do_not_shift_drops_to_others() {
        let mut budget = Budget::default();
        budget.limit(CLASS, ByteSize::from_bytes(10_000));
        (0..20).for_each(|flow| budget.enter(u32::from(flow > 0), flow));
        budget.add(CLASS, 0, 0, 2000);
        (1..20).for_each(|flow| budget.add(CLASS, 1, flow, 440 + u64::from(flow == 5)));
        assert_eq!(
            budget.drop_victim(CLASS),
            Some(5),
            "the largest flow of the largest passenger, though another flow is larger"
        );
    }

    #[test]
    fn classes_have_separate_budgets() {
        let mut budget = Budget::default();
        budget.enter(0, 7);
        budget.limit(Class::Network, ByteSize::from_bytes(1000));
        budget.add(CLASS, 0, 7, 4 << 20);
        assert_eq!((budget.drop_victim(CLASS), budget.drop_victim(Class::Network)), (None, None));
        budget.add(CLASS, 0, 7, 1);
        assert_eq!(
            (budget.drop_victim(CLASS), budget.drop_victim(Class::Network)),
            (Some(7), None)
        );
    }
}
