//! Cost of choosing the flow whose bytes fill a packet, by the number of flows.

use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use bentpipe_schedule::{
    Carried, Class, ClassSettings, DatagramQueue, Handle, Limits, Params, Scheduler,
};
use bentpipe_units::BitRate;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::cpu;
use crate::experiment::table;
use crate::result::{Percentile, Row, Samples};

/// Maximum cost of a packet at 10,000 flows.
const TARGET_NS: f64 = 1000.0;

const FLOWS: [usize; 4] = [10, 100, 1000, 10_000];

/// Every load is measured so often. One more round before goes uncounted.
const ROUNDS: usize = 9;

/// Packets in a round, and all of what comes and goes meanwhile.
const PACKETS: usize = 100_000;

/// Flows of one passenger.
const FLOWS_PER_PASSENGER: usize = 20;

const PACKET_BYTES: usize = 1400;

/// A packet's time at 1 Gbit/s.
const PACKET_TIME: Duration = Duration::from_nanos(11_200);

/// Seed of the flows and their times.
const SEED: u64 = 1;

#[derive(Debug, Clone, Copy)]
enum Load {
    /// All flows are streams that always have something to send.
    Busy,
    /// Streams pause and go on: one of each with every packet.
    Sparse,
    /// All flows are of datagrams, queued at any flow one for each that leaves.
    Datagrams,
}

/// Results.
pub struct Found(Vec<Cell>);

struct Cell {
    load: Load,
    flows: usize,
    /// For each packet, by the processor time of one thread.
    nanos: Samples,
}

/// Runs all of it: some seconds.
pub fn run() -> Found {
    let loads = [Load::Busy, Load::Sparse, Load::Datagrams];
    let cells = loads.into_iter().flat_map(|load| FLOWS.map(|flows| measure(load, flows)));
    Found(cells.collect())
}

fn measure(load: Load, flows: usize) -> Cell {
    let mut world = World::new(flows);
    let round = |world: &mut World| {
        let began = cpu::now();
        for _ in 0..PACKETS {
            world.packet(load);
        }
        cpu::since(began).as_secs_f64() * 1e9 / PACKETS as f64
    };
    round(&mut world);
    let nanos = (0..ROUNDS).map(|_| round(&mut world)).collect();
    Cell { load, flows, nanos }
}

struct World {
    scheduler: Scheduler,
    flows: Vec<(Handle, DatagramQueue<[u8; 16]>)>,
    params: Params,
    now: Duration,
    /// Next flow to get something, as random numbers drawn before the time is taken.
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

    /// All that happens for one packet: what comes, whose turn it is, and what is accounted for.
    fn packet(&mut self, load: Load) {
        self.now += PACKET_TIME;
        let (now, scheduler) = (self.now, &mut self.scheduler);
        self.at = (self.at + 1) % self.next.len();
        let (handle, queue) = &mut self.flows[self.next[self.at] as usize];
        match load {
            Load::Busy => {}
            Load::Sparse => scheduler.activate(*handle, now),
            Load::Datagrams => {
                queue.push([0; 16], PACKET_BYTES, now);
                scheduler.queued(*handle, PACKET_BYTES);
                black_box(scheduler.overflow(Class::BestEffort));
                scheduler.activate(*handle, now);
            }
        }
        scheduler.charge(Class::BestEffort, 60, now);
        let Some(id) = scheduler.pick(now) else { return };
        let (handle, queue) = &mut self.flows[black_box(id) as usize];
        scheduler.carried(*handle, Carried { sent_bytes: PACKET_BYTES as u64, received_bytes: 0 });
        match load {
            Load::Busy => scheduler.spent(*handle, PACKET_BYTES, now),
            Load::Sparse => {
                scheduler.spent(*handle, PACKET_BYTES, now);
                scheduler.deactivate(*handle);
            }
            Load::Datagrams => {
                let drop = |scheduler: &mut Scheduler, bytes| scheduler.dropped(*handle, bytes);
                let popped = queue.pop(now, &self.params, |gone| drop(scheduler, gone.bytes));
                if let Some(popped) = popped {
                    scheduler.unqueued(*handle, popped.bytes);
                    scheduler.spent_datagram(*handle, popped.bytes, popped.waited, now);
                }
                if queue.is_empty() {
                    scheduler.deactivate(*handle);
                }
            }
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "busy",
            Self::Sparse => "sparse",
            Self::Datagrams => "datagrams",
        })
    }
}

impl Found {
    /// As rows.
    pub fn rows(&self) -> Vec<Row> {
        let row = |cell: &Cell| {
            cell.nanos.fill(Row {
                experiment: "schedule".into(),
                contender: Some("bentpipe".into()),
                workload: Some(format!("{}-{}", cell.load, cell.flows)),
                metric: "cost".into(),
                unit: "ns".into(),
                limit: Some(TARGET_NS),
                seed: Some(SEED),
                ..Row::default()
            })
        };
        self.0.iter().map(row).collect()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |cell: &Cell| {
            let at = |q| {
                let nanos = cell.nanos.percentile(q).and_then(Percentile::known);
                nanos.map_or_else(|| "–".into(), |nanos| format!("{nanos:.0}"))
            };
            [cell.load.to_string(), cell.flows.to_string(), at(0.5), at(0.0), at(1.0)]
        };
        let lines: Vec<_> = self.0.iter().map(line).collect();
        f.write_str(&table::groups(["", "flows", "median", "least", "most"], &lines))?;
        writeln!(
            f,
            "ns a packet, by the processor time of one thread; target ≤ {TARGET_NS:.0}\n\
             busy  streams with something to send at all times   sparse  one pauses and one goes on\n\
             datagrams  one is queued and one leaves"
        )
    }
}
