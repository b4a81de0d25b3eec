//! How much memory the queued datagrams of each class take, and who pays when it is too much.

use bentpipe_units::ByteSize;

use crate::Class;

/// What a class's datagrams may take where nothing else is configured. Five classes: 20 MiB in each
/// direction; 4 MiB is four seconds at 8 Mbit/s, more than any datagram waits.
pub const DEFAULT_MEMORY: ByteSize = ByteSize::from_bytes(4 << 20);

/// No place in a heap.
const NOWHERE: u32 = u32::MAX;

/// Bytes queued by flow and class. The flow with most is found at once, and a change of what a flow
/// has takes O(log n) steps of the n flows of its class that have anything queued: 14 of 10,000.
#[derive(Debug)]
pub(crate) struct Budget {
    classes: [Fattest; Class::ALL.len()],
    /// By the flow's place.
    flows: Vec<Queued>,
}

/// A class's flows with something queued, the fattest first, as a binary heap.
#[derive(Debug)]
struct Fattest {
    heap: Vec<u32>,
    bytes: u64,
    most: u64,
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    bytes: u64,
    at: u32,
}

impl Default for Budget {
    fn default() -> Self {
        let most = DEFAULT_MEMORY.bytes();
        let class = |_| Fattest { heap: Vec::new(), bytes: 0, most };
        Self { classes: Class::ALL.map(class), flows: Vec::new() }
    }
}

impl Budget {
    /// What a class may take from now on.
    pub fn limit(&mut self, class: Class, most: ByteSize) {
        self.classes[class.index()].most = most.bytes();
    }

    /// A new flow is at this place.
    pub fn enter(&mut self, flow: u32) {
        let least = self.flows.len().max(flow as usize + 1);
        self.flows.resize(least, Queued { bytes: 0, at: NOWHERE });
    }

    /// The flow has so much more queued.
    pub fn add(&mut self, class: Class, flow: u32, bytes: u64) {
        let fattest = &mut self.classes[class.index()];
        fattest.bytes = fattest.bytes.saturating_add(bytes);
        let queued = &mut self.flows[flow as usize];
        queued.bytes = queued.bytes.saturating_add(bytes);
        if queued.at == NOWHERE {
            queued.at = fattest.heap.len() as u32;
            fattest.heap.push(flow);
        }
        self.rise(class, flow);
    }

    /// The flow has so much less queued.
    pub fn take(&mut self, class: Class, flow: u32, bytes: u64) {
        let queued = &mut self.flows[flow as usize];
        let bytes = bytes.min(queued.bytes);
        queued.bytes -= bytes;
        let empty = queued.bytes == 0;
        self.classes[class.index()].bytes -= bytes;
        if self.flows[flow as usize].at == NOWHERE {
            return;
        }
        self.sink(class, flow);
        if empty {
            self.leave_heap(class, flow);
        }
    }

    /// All that the flow has queued.
    pub fn of(&self, flow: u32) -> u64 {
        self.flows[flow as usize].bytes
    }

    /// All that the class has queued.
    pub fn bytes(&self, class: Class) -> u64 {
        self.classes[class.index()].bytes
    }

    /// The flow that must give up its oldest datagram, where the class takes too much.
    pub fn pays(&self, class: Class) -> Option<u32> {
        let fattest = &self.classes[class.index()];
        if fattest.bytes > fattest.most { fattest.heap.first().copied() } else { None }
    }

    fn leave_heap(&mut self, class: Class, flow: u32) {
        let heap = &mut self.classes[class.index()].heap;
        let at = std::mem::replace(&mut self.flows[flow as usize].at, NOWHERE);
        heap.swap_remove(at as usize);
        if let Some(&moved) = heap.get(at as usize) {
            self.flows[moved as usize].at = at;
            self.rise(class, moved);
            self.sink(class, moved);
        }
    }

    fn rise(&mut self, class: Class, flow: u32) {
        let heap = &mut self.classes[class.index()].heap;
        let (bytes, mut at) = (self.flows[flow as usize].bytes, self.flows[flow as usize].at);
        while at > 0 {
            let above = (at - 1) / 2;
            let other = heap[above as usize];
            if self.flows[other as usize].bytes >= bytes {
                break;
            }
            heap[at as usize] = other;
            self.flows[other as usize].at = at;
            at = above;
        }
        heap[at as usize] = flow;
        self.flows[flow as usize].at = at;
    }

    fn sink(&mut self, class: Class, flow: u32) {
        let heap = &mut self.classes[class.index()].heap;
        let (bytes, mut at) = (self.flows[flow as usize].bytes, self.flows[flow as usize].at);
        let of = |heap: &Vec<u32>, flows: &Vec<Queued>, at: u32| {
            heap.get(at as usize).map(|&flow| flows[flow as usize].bytes)
        };
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let larger = if of(heap, &self.flows, right) > of(heap, &self.flows, left) {
                right
            } else {
                left
            };
            if of(heap, &self.flows, larger).is_none_or(|below| below <= bytes) {
                break;
            }
            let other = heap[larger as usize];
            heap[at as usize] = other;
            self.flows[other as usize].at = at;
            at = larger;
        }
        heap[at as usize] = flow;
        self.flows[flow as usize].at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLASS: Class = Class::BestEffort;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn the_fattest_pays_until_the_rest_fits(
            steps in proptest::collection::vec((0u32..20, 1u64..3000, proptest::bool::ANY), 1..300),
            most in 0u64..20_000,
        ) {
            let (mut budget, mut model) = (Budget::default(), [0u64; 20]);
            budget.limit(CLASS, ByteSize::from_bytes(most));
            (0..20).for_each(|flow| budget.enter(flow));
            for (flow, bytes, adds) in steps {
                let held = &mut model[flow as usize];
                if adds {
                    budget.add(CLASS, flow, bytes);
                    *held += bytes;
                } else {
                    budget.take(CLASS, flow, bytes);
                    *held = held.saturating_sub(bytes);
                }
                while let Some(payer) = budget.pays(CLASS) {
                    prop_assert_eq!(model[payer as usize], *model.iter().max().unwrap());
                    let pays = model[payer as usize].min(700);
                    budget.take(CLASS, payer, pays);
                    model[payer as usize] -= pays;
                }
                prop_assert_eq!(budget.bytes(CLASS), model.iter().sum::<u64>());
                prop_assert!(budget.bytes(CLASS) <= most);
                prop_assert!((0..20).all(|flow| budget.of(flow) == model[flow as usize]));
            }
        }
    }

    #[test]
    fn classes_do_not_pay_for_each_other() {
        let mut budget = Budget::default();
        budget.enter(7);
        budget.limit(Class::Network, ByteSize::from_bytes(1000));
        budget.add(CLASS, 7, 4 << 20);
        assert_eq!((budget.pays(CLASS), budget.pays(Class::Network)), (None, None));
        budget.add(CLASS, 7, 1);
        assert_eq!((budget.pays(CLASS), budget.pays(Class::Network)), (Some(7), None));
    }
}
