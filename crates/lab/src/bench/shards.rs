//! Cost of a packet at one hub with several busy aircraft on loopback, with one shard and with several.
//!
//! The hub and the aircraft have runtimes of their own in this process. Only the hub's threads are
//! measured. Hubs of one shard and of several take turns, so that whatever else the machine does meets
//! both. The aircraft use the same processor cores.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdUdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_link::io::{Air, Arrived, Hub, Open, UdpSocket};
use bentpipe_link::{AirConfig, Aircraft, Class, Control, HubConfig, SecretKey, Settings};
use bentpipe_units::BitRate;
use bytes::Bytes;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;

use super::{BenchError, failed};
use crate::experiment::table;
use crate::result::{Row, Samples};

/// More than the machine can move.
const RATE: BitRate = BitRate::from_bps(20_000_000_000);
const CHUNK_BYTES: usize = 256 << 10;
/// Name of the hub's threads.
const THREAD: &str = "bench-hub";
const PATIENCE: Duration = Duration::from_secs(120);

/// Transfers of a run.
pub struct Plan {
    /// Aircraft, all of them busy.
    pub aircraft: usize,
    /// Shards of the second hub.
    pub shards: usize,
    /// Bytes to each aircraft in a round.
    pub bytes: u64,
    /// Rounds of each hub. One more before goes uncounted.
    pub rounds: usize,
}

/// Result of a run.
pub struct Found {
    aircraft: usize,
    cells: Vec<Cell>,
}

#[derive(Default)]
struct Cell {
    shards: usize,
    /// Bytes of the flows in a second, in bit/s.
    rate: Samples,
    /// Processor cores used by the hub.
    cores: Samples,
    /// Part of the busiest thread in the hub's processor time.
    busiest: Samples,
    /// Processor time of a packet in seconds.
    packet: Samples,
    /// Context switches for each packet.
    switches: Samples,
}

/// Measures both hubs.
pub fn run(plan: &Plan) -> Result<Found, BenchError> {
    let doing = failed::<io::Error>("measure the shards of a hub");
    let mut cells: Vec<_> =
        [1, plan.shards].map(|shards| Cell { shards, ..Cell::default() }).into();
    for round in 0..=plan.rounds {
        for cell in &mut cells {
            let rig = Rig::new(plan, cell.shards).map_err(&doing)?;
            let spent = rig.round(plan).map_err(&doing)?;
            if round > 0 {
                cell.note(&spent, plan);
            }
        }
    }
    Ok(Found { aircraft: plan.aircraft, cells })
}

impl Cell {
    fn note(&mut self, spent: &Spent, plan: &Plan) {
        let cpu: Duration = spent.threads.iter().map(|(cpu, _)| *cpu).sum();
        let switches: u64 = spent.threads.iter().map(|(_, switches)| switches).sum();
        let busiest = spent.threads.iter().map(|(cpu, _)| *cpu).max().unwrap_or_default();
        let (wall, packets) = (spent.wall.as_secs_f64(), spent.packets as f64);
        self.rate.push(8.0 * (plan.bytes * plan.aircraft as u64) as f64 / wall);
        self.cores.push(cpu.as_secs_f64() / wall);
        self.busiest.push(busiest.as_secs_f64() / cpu.as_secs_f64());
        self.packet.push(cpu.as_secs_f64() / packets);
        self.switches.push(switches as f64 / packets);
    }
}

/// Expenses of the hub's threads in a round.
struct Spent {
    wall: Duration,
    packets: u64,
    /// Processor time and context switches of each thread.
    threads: Vec<(Duration, u64)>,
}

struct Rig {
    hub: Hub,
    airs: Vec<Air>,
    hub_runtime: Runtime,
    air_runtime: Runtime,
}

impl Rig {
    fn new(plan: &Plan, shards: usize) -> io::Result<Self> {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let secret = SecretKey::generate(&mut rng);
        let secrets: Vec<_> = (0..plan.aircraft).map(|_| SecretKey::generate(&mut rng)).collect();
        let settings = Settings { rate: RATE, control: Control::Leased, ..Settings::default() };
        let aircraft = secrets.iter().map(|secret| Aircraft {
            key: secret.public(),
            settings: settings.clone(),
            highest_class: Class::BestEffort,
        });
        let config = HubConfig { secret: secret.clone(), aircraft: aircraft.collect() };
        let threads = thread::available_parallelism()?.get();
        let runtime = |name: &str| {
            let mut builder = runtime::Builder::new_multi_thread();
            builder.worker_threads(threads).thread_name(name).enable_all().build()
        };
        let (hub_runtime, air_runtime) = (runtime(THREAD)?, runtime("bench-air")?);
        let hub = {
            let _guard = hub_runtime.enter();
            Hub::start_sharded(Box::new(socket()?), config, shards)
        };
        let address = hub.local_addr().ok_or_else(|| io::Error::other("no address"))?;
        let guard = air_runtime.enter();
        let air = |own: SecretKey| -> io::Result<Air> {
            let (hub, settings) = (secret.public(), settings.clone());
            let config = AirConfig { secret: own, hub, address, settings, first_counter: 1 };
            Ok(Air::start(Box::new(socket()?), config))
        };
        let airs = secrets.into_iter().map(air).collect::<io::Result<_>>()?;
        drop(guard);
        Ok(Self { hub, airs, hub_runtime, air_runtime })
    }

    /// Every aircraft downloads at once, after a short transfer for which it connects.
    fn round(self, plan: &Plan) -> io::Result<Spent> {
        self.hub_runtime.spawn(serve(self.hub.clone()));
        self.transfer(1)?;
        let (before, packets, began) = (threads()?, self.packets(), Instant::now());
        self.transfer(plan.bytes)?;
        let (after, wall) = (threads()?, began.elapsed());
        let spent = |(id, (cpu, switches)): (&u32, &(Duration, u64))| {
            let (cpu_before, switches_before) = before.get(id).copied().unwrap_or_default();
            (cpu.saturating_sub(cpu_before), switches - switches_before)
        };
        let threads = after.iter().map(spent).collect();
        Ok(Spent { wall, packets: self.packets() - packets, threads })
    }

    fn transfer(&self, bytes: u64) -> io::Result<()> {
        let downloads = async {
            let mut all = JoinSet::new();
            for air in self.airs.iter().cloned() {
                all.spawn(download(air, bytes));
            }
            while let Some(done) = all.join_next().await {
                done??;
            }
            Ok(())
        };
        self.air_runtime.block_on(async {
            tokio::time::timeout(PATIENCE, downloads).await.map_err(io::Error::from)?
        })
    }

    /// Packets sent and received.
    fn packets(&self) -> u64 {
        let status = self.hub.status();
        status.iter().map(|(_, it)| it.counters.packets_sent + it.counters.packets_received).sum()
    }
}

fn socket() -> io::Result<UdpSocket> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    UdpSocket::from_std(StdUdpSocket::bind(address)?)
}

/// Sends each aircraft as many bytes as it requests.
async fn serve(hub: Hub) {
    while let Some(arrived) = hub.accept().await {
        let Arrived::Stream(incoming) = arrived else { continue };
        tokio::spawn(async move {
            let mut flow = incoming.flow;
            let (mut left, chunk) = (flow.read_u64_le().await?, vec![0x5a; CHUNK_BYTES]);
            while left > 0 {
                let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
                flow.write_all(&chunk[..bytes]).await?;
                left -= bytes as u64;
            }
            flow.shutdown().await
        });
    }
}

async fn download(air: Air, bytes: u64) -> io::Result<()> {
    let target = "origin.example:80".parse().map_err(io::Error::other)?;
    let first = Bytes::copy_from_slice(&bytes.to_le_bytes());
    let open = Open { target, class: Class::BestEffort, passenger: 1, claim: None, first };
    let mut flow = air.open(open).await.map_err(io::Error::other)?;
    let (mut got, mut buffer) = (0, vec![0; CHUNK_BYTES]);
    loop {
        match flow.read(&mut buffer).await? {
            0 if got == bytes => return Ok(()),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => got += more as u64,
        }
    }
}

/// Processor time and context switches of the hub's threads so far: schedstat and status of proc(5).
fn threads() -> io::Result<BTreeMap<u32, (Duration, u64)>> {
    let mut threads = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?;
        // A thread may end meanwhile.
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim() != THREAD {
            continue;
        }
        let spent = read("schedstat").split_whitespace().next().and_then(|it| it.parse().ok());
        let switches = read("status")
            .lines()
            .filter(|line| line.contains("ctxt_switches:"))
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum();
        if let Some(id) = task.file_name().to_str().and_then(|id| id.parse().ok()) {
            threads.insert(id, (Duration::from_nanos(spent.unwrap_or(0)), switches));
        }
    }
    Ok(threads)
}

impl Found {
    /// As rows: rate, cores, the busiest thread's part, processor time and context switches of a packet.
    pub fn rows(&self) -> Vec<Row> {
        let row = |cell: &Cell, (metric, unit, samples): (&str, &str, &Samples)| {
            samples.fill(Row {
                experiment: "shards".into(),
                system: Some("bentpipe".into()),
                workload: Some(format!("aircraft-{}-shards-{}", self.aircraft, cell.shards)),
                metric: metric.into(),
                unit: unit.into(),
                ..Row::default()
            })
        };
        let rows = |cell: &Cell| {
            let metrics = [
                ("rate", "bit/s", &cell.rate),
                ("cores", "cores", &cell.cores),
                ("busiest-thread", "ratio", &cell.busiest),
                ("packet", "s", &cell.packet),
                ("switches", "switches", &cell.switches),
            ];
            metrics.map(|metric| row(cell, metric))
        };
        self.cells.iter().flat_map(rows).collect()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |cell: &Cell| {
            let rate = median(&cell.rate) / 1e9;
            let (cores, busiest) = (median(&cell.cores), 100.0 * median(&cell.busiest));
            let (packet, switches) = (1e6 * median(&cell.packet), 1e3 * median(&cell.switches));
            [
                cell.shards.to_string(),
                format!("{rate:.2}"),
                format!("{cores:.2}"),
                format!("{busiest:.0} %"),
                format!("{packet:.3}"),
                format!("{switches:.1}"),
            ]
        };
        let lines: Vec<_> = self.cells.iter().map(line).collect();
        let header = ["shards", "Gbit/s", "cores", "busiest", "µs", "switches"];
        f.write_str(&table::groups(header, &lines))?;
        writeln!(
            f,
            "medians for {} busy aircraft: rate of all, processor cores used by the hub, part of its \
             busiest thread, processor time for each packet, context switches for 1,000 packets",
            self.aircraft
        )
    }
}

fn median(samples: &Samples) -> f64 {
    samples.median().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hubs_are_measured() {
        let plan = Plan { aircraft: 2, shards: 2, bytes: 500_000, rounds: 1 };
        let found = run(&plan).expect("there is a loopback");
        assert_eq!(found.rows().len(), 10);
        for cell in &found.cells {
            assert!(median(&cell.cores) > 0.0 && median(&cell.packet) > 0.0, "{found}");
        }
    }
}
