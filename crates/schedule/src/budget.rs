//! Memory of the queued datagrams of each class, and who pays when it is exceeded.

use bentpipe_units::ByteSize;

use crate::Class;

/// Default memory of a class's datagrams. Five classes: 20 MiB in each direction; 4 MiB is four
/// seconds at 8 Mbit/s, more than any datagram waits.
pub const DEFAULT_MEMORY: ByteSize = ByteSize::from_bytes(4 << 20);

/// No place in a heap.
const NOWHERE: u32 = u32::MAX;

/// Bytes queued by class, seat (a passenger in a class) and flow. Who has most is found at once, and
/// a change of what a flow has takes O(log n) steps of the n seats of its class, and of the flows on
/// its seat, that have anything queued: 14 of 10,000.
#[derive(Debug)]
pub(crate) struct Budget {
    classes: [Queues; Class::ALL.len()],
    /// By the seat's place: what it has, and its flows.
    seats: Vec<Queued>,
    seats_flows: Vec<Fattest>,
    /// By the flow's place.
    flows: Vec<Queued>,
}

/// Queues of a class.
#[derive(Debug)]
struct Queues {
    seats: Fattest,
    bytes: u64,
    most: u64,
}

/// Places with something queued, the fattest first, as a binary heap.
#[derive(Debug, Default, Clone)]
struct Fattest(Vec<u32>);

#[derive(Debug, Clone, Copy)]
struct Queued {
    bytes: u64,
    /// Its place in the heap.
    at: u32,
}

const NOTHING: Queued = Queued { bytes: 0, at: NOWHERE };

impl Default for Budget {
    fn default() -> Self {
        let most = DEFAULT_MEMORY.bytes();
        let class = |_| Queues { seats: Fattest::default(), bytes: 0, most };
        let (seats, flows) = (Vec::new(), Vec::new());
        Self { classes: Class::ALL.map(class), seats, seats_flows: Vec::new(), flows }
    }
}

impl Budget {
    /// Sets the memory bound of a class from now on.
    pub fn limit(&mut self, class: Class, most: ByteSize) {
        self.classes[class.index()].most = most.bytes();
    }

    /// A flow is at this place and on this seat from now on.
    pub fn enter(&mut self, seat: u32, flow: u32) {
        let flows = self.flows.len().max(flow as usize + 1);
        self.flows.resize(flows, NOTHING);
        let seats = self.seats.len().max(seat as usize + 1);
        self.seats.resize(seats, NOTHING);
        self.seats_flows.resize(seats, Fattest::default());
    }

    /// The flow, of this class and on this seat, has so much more queued.
    pub fn add(&mut self, class: Class, seat: u32, flow: u32, bytes: u64) {
        let queues = &mut self.classes[class.index()];
        queues.bytes = queues.bytes.saturating_add(bytes);
        queues.seats.add(&mut self.seats, seat, bytes);
        self.seats_flows[seat as usize].add(&mut self.flows, flow, bytes);
    }

    /// The flow, of this class and on this seat, has so much less queued.
    pub fn take(&mut self, class: Class, seat: u32, flow: u32, bytes: u64) {
        let bytes = bytes.min(self.of(flow));
        let queues = &mut self.classes[class.index()];
        queues.bytes -= bytes;
        queues.seats.take(&mut self.seats, seat, bytes);
        self.seats_flows[seat as usize].take(&mut self.flows, flow, bytes);
    }

    /// All that the flow has queued.
    pub fn of(&self, flow: u32) -> u64 {
        self.flows[flow as usize].bytes
    }

    /// All that the class has queued.
    pub fn bytes(&self, class: Class) -> u64 {
        self.classes[class.index()].bytes
    }

    /// The flow that must give up its oldest datagram, where the class takes too much: of the
    /// passenger with most the flow with most, so that nobody pays for another's many flows.
    pub fn pays(&self, class: Class) -> Option<u32> {
        let queues = &self.classes[class.index()];
        let seat = queues.seats.first().filter(|_| queues.bytes > queues.most)?;
        self.seats_flows[seat as usize].first()
    }
}

impl Fattest {
    fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    fn add(&mut self, all: &mut [Queued], place: u32, bytes: u64) {
        let queued = &mut all[place as usize];
        queued.bytes = queued.bytes.saturating_add(bytes);
        if queued.at == NOWHERE {
            queued.at = self.0.len() as u32;
            self.0.push(place);
        }
        self.rise(all, place);
    }

    fn take(&mut self, all: &mut [Queued], place: u32, bytes: u64) {
        let queued = &mut all[place as usize];
        queued.bytes -= bytes.min(queued.bytes);
        if queued.at == NOWHERE {
            return;
        }
        let empty = queued.bytes == 0;
        self.sink(all, place);
        if empty {
            self.leave(all, place);
        }
    }

    fn leave(&mut self, all: &mut [Queued], place: u32) {
        let at = std::mem::replace(&mut all[place as usize].at, NOWHERE);
        self.0.swap_remove(at as usize);
        if let Some(&moved) = self.0.get(at as usize) {
            all[moved as usize].at = at;
            self.rise(all, moved);
            self.sink(all, moved);
        }
    }

    fn rise(&mut self, all: &mut [Queued], place: u32) {
        let Queued { bytes, mut at } = all[place as usize];
        while at > 0 {
            let above = (at - 1) / 2;
            let other = self.0[above as usize];
            if all[other as usize].bytes >= bytes {
                break;
            }
            self.put(all, other, at);
            at = above;
        }
        self.put(all, place, at);
    }

    fn sink(&mut self, all: &mut [Queued], place: u32) {
        let Queued { bytes, mut at } = all[place as usize];
        let of = |heap: &[u32], all: &[Queued], at: u32| {
            heap.get(at as usize).map(|&place| all[place as usize].bytes)
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
        self.put(all, place, at);
    }

    fn put(&mut self, all: &mut [Queued], place: u32, at: u32) {
        self.0[at as usize] = place;
        all[place as usize].at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLASS: Class = Class::BestEffort;
    /// Flows on each seat.
    const SEAT: usize = 4;

    fn seat(flow: u32) -> u32 {
        flow / SEAT as u32
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn the_fattest_pays_until_the_rest_fits(
            steps in proptest::collection::vec((0u32..20, 1u64..3000, proptest::bool::ANY), 1..300),
            most in 0u64..20_000,
        ) {
            let (mut budget, mut model) = (Budget::default(), [0u64; 20]);
            budget.limit(CLASS, ByteSize::from_bytes(most));
            (0..20).for_each(|flow| budget.enter(seat(flow), flow));
            for (flow, bytes, adds) in steps {
                let held = &mut model[flow as usize];
                if adds {
                    budget.add(CLASS, seat(flow), flow, bytes);
                    *held += bytes;
                } else {
                    budget.take(CLASS, seat(flow), flow, bytes);
                    *held = held.saturating_sub(bytes);
                }
                while let Some(payer) = budget.pays(CLASS) {
                    let seats: Vec<u64> = model.chunks(SEAT).map(|seat| seat.iter().sum()).collect();
                    let seat = seat(payer);
                    prop_assert_eq!(Some(&seats[seat as usize]), seats.iter().max());
                    let of_seat = model.chunks(SEAT).nth(seat as usize).unwrap();
                    prop_assert_eq!(Some(&model[payer as usize]), of_seat.iter().max());
                    let pays = model[payer as usize].min(700);
                    budget.take(CLASS, seat, payer, pays);
                    model[payer as usize] -= pays;
                }
                prop_assert_eq!(budget.bytes(CLASS), model.iter().sum::<u64>());
                prop_assert!(budget.bytes(CLASS) <= most);
                prop_assert!((0..20).all(|flow| budget.of(flow) == model[flow as usize]));
            }
        }
    }

    #[test]
    fn nobody_pays_for_the_many_flows_of_another() {
        let mut budget = Budget::default();
        budget.limit(CLASS, ByteSize::from_bytes(10_000));
        (0..20).for_each(|flow| budget.enter(u32::from(flow > 0), flow));
        budget.add(CLASS, 0, 0, 2000);
        (1..20).for_each(|flow| budget.add(CLASS, 1, flow, 440 + u64::from(flow == 5)));
        assert_eq!(budget.pays(CLASS), Some(5), "his fattest, though another's flow is fatter");
    }

    #[test]
    fn classes_do_not_pay_for_each_other() {
        let mut budget = Budget::default();
        budget.enter(0, 7);
        budget.limit(Class::Network, ByteSize::from_bytes(1000));
        budget.add(CLASS, 0, 7, 4 << 20);
        assert_eq!((budget.pays(CLASS), budget.pays(Class::Network)), (None, None));
        budget.add(CLASS, 0, 7, 1);
        assert_eq!((budget.pays(CLASS), budget.pays(Class::Network)), (Some(7), None));
    }
}
