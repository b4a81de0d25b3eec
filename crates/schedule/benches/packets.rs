//! Cost of choosing the flow whose bytes fill a packet, by the number of flows.
//!
//! The bound is 1,000 ns a packet at 10,000 flows. `cargo bench -p bentpipe-schedule`

use std::hint::black_box;
use std::time::Duration;

use bentpipe_schedule::{
    Class, ClassSettings, DatagramQueue, Handle, Limits, Params, Payload, Scheduler,
};
use bentpipe_units::BitRate;
use divan::Bencher;
use divan::counter::ItemsCount;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const FLOWS: [usize; 4] = [10, 100, 1000, 10_000];
/// Packets of a sample.
const PACKETS: usize = 100_000;
const FLOWS_PER_PASSENGER: usize = 20;
const PACKET_BYTES: usize = 1400;
/// Time of a packet at 1 Gbit/s.
const PACKET_TIME: Duration = Duration::from_nanos(11_200);
const SEED: u64 = 1;

fn main() {
    divan::main();
}

/// Streams that always have something to send.
#[divan::bench(args = FLOWS, sample_count = 9, sample_size = 1)]
fn busy(bencher: Bencher, flows: usize) {
    packets(bencher, flows, |world| {
        world.charge();
        if let Some(index) = world.pick() {
            let handle = world.flows[index].0;
            world.scheduler.spent(handle, PACKET_BYTES, world.now);
        }
    });
}

/// Streams that pause and go on: one of each with every packet.
#[divan::bench(args = FLOWS, sample_count = 9, sample_size = 1)]
fn sparse(bencher: Bencher, flows: usize) {
    packets(bencher, flows, |world| {
        let next = world.next();
        world.scheduler.activate(world.flows[next].0, world.now);
        world.charge();
        if let Some(index) = world.pick() {
            let handle = world.flows[index].0;
            world.scheduler.spent(handle, PACKET_BYTES, world.now);
            world.scheduler.deactivate(handle);
        }
    });
}

/// Flows of datagrams: one is queued and one leaves.
#[divan::bench(args = FLOWS, sample_count = 9, sample_size = 1)]
fn datagrams(bencher: Bencher, flows: usize) {
    packets(bencher, flows, |world| {
        let (next, now) = (world.next(), world.now);
        let (handle, queue) = &mut world.flows[next];
        queue.push([0; 16], PACKET_BYTES, now);
        world.scheduler.queued(*handle, PACKET_BYTES);
        black_box(world.scheduler.drop_victim(Class::BestEffort));
        world.scheduler.activate(*handle, now);
        world.charge();
        let Some(index) = world.pick() else { return };
        let (scheduler, (handle, queue)) = (&mut world.scheduler, &mut world.flows[index]);
        let popped = queue.pop(now, &world.params, |gone| scheduler.dropped(*handle, gone.bytes));
        if let Some(popped) = popped {
            scheduler.unqueued(*handle, popped.bytes);
            scheduler.spent_datagram(*handle, popped.bytes, popped.waited, now);
        }
        if queue.is_empty() {
            scheduler.deactivate(*handle);
        }
    });
}

fn packets(bencher: Bencher, flows: usize, packet: impl Fn(&mut World)) {
    let mut world = World::new(flows);
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        for _ in 0..PACKETS {
            world.now += PACKET_TIME;
            packet(&mut world);
        }
    });
}

struct World {
    scheduler: Scheduler,
    flows: Vec<(Handle, DatagramQueue<[u8; 16]>)>,
    params: Params,
    now: Duration,
    /// Flows that get something, drawn before the time is taken.
    next: Vec<u32>,
    at: usize,
}

impl World {
    fn new(flows: usize) -> Self {
        let mut scheduler = Scheduler::new();
        let mbps = |mbps: u64| Some(BitRate::from_bps(mbps * 1_000_000));
        for class in Class::ALL {
            let limits = Limits { rate: mbps(100), ceil: mbps(600) };
            let settings = ClassSettings { limits, ..ClassSettings::default() };
            scheduler.configure(class, settings, Duration::ZERO);
        }
        let flows: Vec<_> = (0..flows)
            .map(|id| {
                let class = Class::ALL[id % Class::ALL.len()];
                let passenger = (id / FLOWS_PER_PASSENGER) as u32;
                (scheduler.add(id as u64, class, passenger), DatagramQueue::new())
            })
            .collect();
        for (handle, _) in &flows {
            scheduler.activate(*handle, Duration::ZERO);
        }
        let mut random = StdRng::seed_from_u64(SEED);
        let next = (0..PACKETS).map(|_| random.random_range(0..flows.len() as u32)).collect();
        let rtt = Duration::from_millis(600);
        let params = Params::new(rtt, None, PACKET_BYTES, Duration::from_secs(60));
        Self { scheduler, flows, params, now: Duration::ZERO, next, at: 0 }
    }

    /// Next flow that gets something.
    fn next(&mut self) -> usize {
        self.at = (self.at + 1) % self.next.len();
        self.next[self.at] as usize
    }

    /// Accounts for a packet that carries no flow.
    fn charge(&mut self) {
        self.scheduler.charge(Class::BestEffort, 60, self.now);
    }

    /// Flow whose turn it is.
    fn pick(&mut self) -> Option<usize> {
        let index = black_box(self.scheduler.pick(self.now))? as usize;
        let payload = Payload { sent_bytes: PACKET_BYTES as u64, received_bytes: 0 };
        self.scheduler.record_payload(self.flows[index].0, payload);
        Some(index)
    }
}
