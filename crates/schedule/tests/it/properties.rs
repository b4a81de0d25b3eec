//! Properties that hold for every sequence of calls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Link, PACKET, Source, kbps};
use bentpipe_schedule::{
    BURST_BYTES, BURST_TIME, Class, ClassSettings, DatagramQueue, DropReason, Handle, Limits,
    Params, Scheduler,
};
use bentpipe_units::{BitRate, ByteSize};
use proptest::prelude::*;

/// Cases per property.
const CASES: u32 = 10_000;

fn class() -> impl Strategy<Value = Class> {
    (0..Class::ALL.len()).prop_map(|index| Class::ALL[index])
}

fn limit() -> impl Strategy<Value = Option<BitRate>> {
    proptest::option::of((0u64..4000).prop_map(kbps))
}

/// Action of the caller.
#[derive(Debug, Clone)]
enum Step {
    Add(Class, u32),
    Remove(usize),
    Reclass(usize, Class),
    Activate(usize),
    Deactivate(usize),
    Charge(Class, usize),
    Configure(Class, Limits),
    Wait(u64),
    Send(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (class(), 0u32..4).prop_map(|(class, passenger)| Step::Add(class, passenger)),
        1 => (0usize..20).prop_map(Step::Remove),
        1 => (0usize..20, class()).prop_map(|(flow, class)| Step::Reclass(flow, class)),
        6 => (0usize..20).prop_map(Step::Activate),
        3 => (0usize..20).prop_map(Step::Deactivate),
        1 => (class(), 0usize..5000).prop_map(|(class, bytes)| Step::Charge(class, bytes)),
        1 => (class(), limit(), limit())
            .prop_map(|(class, rate, ceil)| Step::Configure(class, Limits { rate, ceil })),
        3 => (0u64..20_000).prop_map(Step::Wait),
        12 => (1usize..=PACKET).prop_map(Step::Send),
    ]
}

#[derive(Default)]
struct Model {
    flows: Vec<(u64, Handle, Class, bool)>,
    ceilings: BTreeMap<Class, BitRate>,
}

impl Model {
    /// Returns the flow at `index`, modulo the number of flows.
    fn flow(&mut self, index: usize) -> Option<&mut (u64, Handle, Class, bool)> {
        let count = self.flows.len();
        self.flows.get_mut(index.checked_rem(count)?)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// The scheduler picks a flow whenever one is backlogged below its ceiling. A picked flow has
    /// data. A flow at its ceiling may send at the announced time.
    #[test]
    fn the_link_never_idles_without_reason(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut scheduler, mut model) = (Scheduler::new(), Model::default());
        let (mut now, mut next_id) = (Duration::ZERO, 0);
        for step in steps {
            match step {
                Step::Add(class, passenger) => {
                    let handle = scheduler.add(next_id, class, passenger);
                    model.flows.push((next_id, handle, class, false));
                    next_id += 1;
                }
                Step::Remove(index) => {
                    if let Some(&mut (id, handle, ..)) = model.flow(index) {
                        scheduler.remove(handle);
                        scheduler.activate(handle, now); // has no effect
                        model.flows.retain(|flow| flow.0 != id);
                    }
                }
                Step::Reclass(index, class) => {
                    if let Some(flow) = model.flow(index) {
                        scheduler.reclass(flow.1, class, now);
                        flow.2 = class;
                    }
                }
                Step::Activate(index) => {
                    if let Some(flow) = model.flow(index) {
                        scheduler.activate(flow.1, now);
                        flow.3 = true;
                    }
                }
                Step::Deactivate(index) => {
                    if let Some(flow) = model.flow(index) {
                        scheduler.deactivate(flow.1);
                        flow.3 = false;
                    }
                }
                Step::Charge(class, bytes) => scheduler.charge(class, bytes, now),
                Step::Configure(class, limits) => {
                    let settings = ClassSettings { limits, ..ClassSettings::default() };
                    scheduler.configure(class, settings, now);
                    match limits.ceil {
                        Some(ceil) => model.ceilings.insert(class, ceil),
                        None => model.ceilings.remove(&class),
                    };
                }
                Step::Wait(micros) => now += Duration::from_micros(micros),
                Step::Send(bytes) => {
                    if let Some(id) = scheduler.pick(now) {
                        let flow = model.flows.iter().find(|flow| flow.0 == id).unwrap();
                        scheduler.spent(flow.1, bytes, now);
                    }
                }
            }
            let picked = scheduler.pick(now);
            prop_assert_eq!(scheduler.pick(now), picked, "the answer is stable");
            if let Some(id) = picked {
                prop_assert!(model.flows.iter().any(|flow| flow.0 == id && flow.3));
                continue;
            }
            let blocked: Vec<_> = model.flows.iter().filter(|flow| flow.3).collect();
            let ceilings: Vec<_> = blocked.iter().map(|flow| model.ceilings.get(&flow.2)).collect();
            prop_assert!(ceilings.iter().all(Option::is_some), "a flow without a ceiling is not picked");
            let opens = ceilings.iter().any(|ceil| ceil.is_some_and(|ceil| ceil.bps() > 0));
            let ready = scheduler.next_ready(now);
            prop_assert_eq!(ready.is_some(), opens);
            if let Some(ready) = ready {
                prop_assert!(ready > now && scheduler.pick(ready).is_some());
                now = ready;
            }
        }
    }

    /// Datagrams of a flow leave in order; each is sent or reported dropped exactly once; the
    /// queued bytes stay within the memory limit of the class.
    #[test]
    fn datagrams_keep_their_order_and_their_memory(
        steps in proptest::collection::vec((0usize..8, 1usize..=PACKET, 0u64..100, 0u8..3), 1..200),
        memory in 0u64..30_000,
        ceil in limit(),
    ) {
        let mut queues = Queues::new(memory, ceil);
        let mut now = Duration::ZERO;
        for (flow, bytes, wait_ms, what) in steps {
            now += Duration::from_millis(wait_ms);
            if what > 0 {
                queues.push(flow, bytes, now)?;
            } else {
                queues.send(now)?;
            }
            queues.check_memory(memory)?;
        }
        queues.check_counters()?;
    }
}

/// Classes of the flows of datagrams.
const QUEUED: [Class; 2] = [Class::Network, Class::BestEffort];

/// A flow of datagrams with numbered items.
struct Queued {
    class: Class,
    handle: Handle,
    queue: DatagramQueue<u64>,
    /// Next item to queue.
    next: u64,
    /// Next item to leave.
    leaves: u64,
}

/// Eight flows of datagrams, of three passengers, in two classes with a memory limit.
struct Queues {
    scheduler: Scheduler,
    params: Params,
    flows: Vec<Queued>,
}

impl Queues {
    fn new(memory: u64, ceil: Option<BitRate>) -> Self {
        let mut scheduler = Scheduler::new();
        let limits = Limits { rate: None, ceil };
        let memory = ByteSize::from_bytes(memory);
        let settings = ClassSettings { limits, memory, ..ClassSettings::default() };
        for class in QUEUED {
            scheduler.configure(class, settings, Duration::ZERO);
        }
        let flow = |id: usize| {
            let class = QUEUED[id % 2];
            let handle = scheduler.add(id as u64, class, passenger(id));
            Queued { class, handle, queue: DatagramQueue::new(), next: 0, leaves: 0 }
        };
        let flows = (0..8).map(flow).collect();
        let params = Params::new(Duration::from_millis(600), None, PACKET, Duration::from_secs(2));
        Self { scheduler, params, flows }
    }

    /// Queues a datagram, and drops others until its class is within its memory.
    fn push(&mut self, flow: usize, bytes: usize, now: Duration) -> Result<(), TestCaseError> {
        let flow = &mut self.flows[flow];
        let class = flow.class;
        flow.queue.push(flow.next, bytes, now);
        flow.next += 1;
        self.scheduler.queued(flow.handle, bytes);
        self.scheduler.activate(flow.handle, now);
        while let Some(victim) = self.scheduler.drop_victim(class) {
            self.drop_of(class, victim as usize)?;
        }
        Ok(())
    }

    /// Drops the first datagram of flow `victim`, which must be the longest queue of the passenger
    /// with the most bytes in `class`.
    fn drop_of(&mut self, class: Class, victim: usize) -> Result<(), TestCaseError> {
        let mut queued = BTreeMap::<_, Vec<u64>>::new();
        for (id, flow) in self.flows.iter().enumerate().filter(|(_, flow)| flow.class == class) {
            queued.entry(passenger(id)).or_default().push(flow.queue.bytes());
        }
        let largest = queued.values().map(|flows| flows.iter().sum::<u64>()).max();
        let theirs = &queued[&passenger(victim)];
        prop_assert_eq!(Some(theirs.iter().sum()), largest);
        let flow = &mut self.flows[victim];
        prop_assert_eq!(Some(&flow.queue.bytes()), theirs.iter().max());
        let dropped = flow.queue.drop_head().unwrap();
        prop_assert_eq!((dropped.item, dropped.reason), (flow.leaves, DropReason::Overflow));
        flow.leaves += 1;
        self.scheduler.dropped(flow.handle, dropped.bytes);
        if flow.queue.is_empty() {
            self.scheduler.deactivate(flow.handle);
        }
        Ok(())
    }

    /// Sends the next datagram that may leave, if any.
    fn send(&mut self, now: Duration) -> Result<(), TestCaseError> {
        let Some(id) = self.scheduler.pick(now) else { return Ok(()) };
        let (scheduler, flow) = (&mut self.scheduler, &mut self.flows[id as usize]);
        let popped = flow.queue.pop(now, &self.params, |dropped| {
            assert_eq!(dropped.item, flow.leaves);
            flow.leaves += 1;
            scheduler.dropped(flow.handle, dropped.bytes);
        });
        if let Some(popped) = popped {
            prop_assert_eq!(popped.item, flow.leaves);
            flow.leaves += 1;
            scheduler.unqueued(flow.handle, popped.bytes);
            scheduler.spent_datagram(flow.handle, popped.bytes, popped.waited, now);
        }
        if flow.queue.is_empty() {
            scheduler.deactivate(flow.handle);
        }
        Ok(())
    }

    /// Checks that the queued bytes of each class are counted and within its memory.
    fn check_memory(&self, memory: u64) -> Result<(), TestCaseError> {
        for class in QUEUED {
            let queued = self.scheduler.class_counters(class).queued_bytes;
            prop_assert!(queued <= memory);
            let of_class = self.flows.iter().filter(|flow| flow.class == class);
            prop_assert_eq!(queued, of_class.map(|flow| flow.queue.bytes()).sum::<u64>());
        }
        Ok(())
    }

    /// Checks that each datagram was sent or dropped once, or is still queued.
    fn check_counters(&self) -> Result<(), TestCaseError> {
        for flow in &self.flows {
            prop_assert_eq!(flow.next - flow.leaves, flow.queue.len() as u64);
            let counters = self.scheduler.flow_counters(flow.handle).unwrap();
            prop_assert_eq!(counters.packets + counters.dropped_packets, flow.leaves);
        }
        Ok(())
    }
}

/// Passenger of a flow: three flows each.
fn passenger(flow: usize) -> u32 {
    flow as u32 / 3
}

/// Maximum excess over `rate` in any interval, in bytes.
fn max_excess(link: &Link, class: Class, rate: BitRate) -> f64 {
    let (mut sent, mut lowest, mut highest) = (0.0, 0.0f64, 0.0f64);
    for packet in link.sent.iter().filter(|packet| packet.class == class) {
        let earned = rate.bps() as f64 / 8.0 * packet.at.as_secs_f64();
        lowest = lowest.min(sent - earned);
        sent += packet.bytes as f64;
        highest = highest.max(sent - earned - lowest);
    }
    highest
}

fn burst(rate: BitRate) -> f64 {
    BURST_BYTES.max(rate.bytes_in(BURST_TIME)) as f64
}

fn source() -> impl Strategy<Value = (bool, usize, u64)> {
    (proptest::bool::ANY, 100usize..=PACKET, 1u64..50)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// No class exceeds its ceiling by more than its burst and one packet. If the link has capacity
    /// for all rates, a backlogged class gets its rate, except for the bursts of other classes.
    #[test]
    fn bounds_hold_under_any_arrivals(
        limits in proptest::collection::vec((50u64..1500, proptest::option::of(100u64..3000)), 5..=5),
        sources in proptest::collection::vec((class(), 0u32..4, source()), 1..10),
        more_kbps in 200u64..3000, seed: u64,
    ) {
        let rates: u64 = limits.iter().map(|(rate, _)| rate).sum();
        let mut link = Link::new(kbps(rates + more_kbps), seed);
        for (class, (rate, ceil)) in Class::ALL.into_iter().zip(&limits) {
            link.limit(class, Some(kbps(*rate)), ceil.map(kbps));
        }
        let mut busy = [false; Class::ALL.len()];
        for (class, passenger, (always, bytes, interval_ms)) in sources {
            let (interval, next) = (Duration::from_millis(interval_ms), Duration::from_millis(interval_ms % 7));
            let every = Source::Every { interval, bytes, next };
            link.add(class, passenger, if always { Source::Always(40, bytes) } else { every });
            busy[class.to_u8() as usize] |= always;
        }
        let length = Duration::from_secs(2);
        link.run(length);
        // Savings of higher classes go first. Meanwhile a class saves up its own burst and no more.
        let (mut saved, mut left_kbps) = (0.0, (rates + more_kbps) as f64);
        for (class, (rate, ceil)) in Class::ALL.into_iter().zip(limits) {
            if let Some(ceil) = ceil.map(kbps) {
                let excess = max_excess(&link, class, ceil);
                prop_assert!(excess <= burst(ceil) + PACKET as f64 + 1.0, "{class}: {excess} above {ceil}");
            }
            let rate = kbps(rate.min(ceil.unwrap_or(rate)));
            if busy[class.to_u8() as usize] {
                let waits = Duration::from_secs_f64(saved * 8.0 / 1000.0 / left_kbps);
                let lost = (rate.bytes_in(waits) as f64 - burst(rate)).max(0.0);
                let got = link.bytes(Duration::ZERO, |sent| sent.class == class) as f64;
                let due = rate.bytes_in(length) as f64 - lost - 2.0 * PACKET as f64;
                prop_assert!(got >= due, "{class}: {got} of {due}");
            }
            saved += burst(rate) + PACKET as f64;
            left_kbps -= rate.bps() as f64 / 1000.0;
        }
    }

    /// Backlogged passengers share their class equally, whatever their flows and packet sizes.
    #[test]
    fn passengers_share_alike(
        passengers in proptest::collection::vec((1usize..33, 100usize..=PACKET), 2..=20), seed: u64,
    ) {
        let mut link = Link::new(kbps(10_000), seed);
        for (passenger, (flows, largest)) in passengers.iter().enumerate() {
            for _ in 0..*flows {
                link.add(Class::BestEffort, passenger as u32, Source::Always(40, *largest));
            }
        }
        link.run(Duration::from_millis(500));
        let of = |passenger| link.bytes(Duration::ZERO, |sent| sent.passenger == passenger as u32);
        let shares: Vec<usize> = (0..passengers.len()).map(of).collect();
        // Tolerance: one turn each way, plus the overdraft of a packet.
        let (lowest, highest) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        prop_assert!(highest - lowest <= 2 * 3000 + PACKET, "{shares:?}");
    }
}
