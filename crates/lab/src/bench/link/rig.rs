//! Both ends of the radio transport, stepped in ticks of virtual time with only memory between
//! them, and the processor time of each part of their work.
//!
//! Data goes in one direction at a time, so everything in the other direction is about that data:
//! reports, and sometimes credit. An end receives everything that arrived within a tick at once and
//! sends everything that its pacer releases, as under `link::io`, whose timer has the same period.
//! The clock is read once between two parts of a tick, not around each packet.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bentpipe_channel::{Direction, DirectionSpec, Fate};
use bentpipe_flow::{PathState, PathUse};
use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, LeaseMode,
    PathSettings, Read, SecretKey, Session, SessionId, Settings, SnapshotLimits, Write,
};
use bentpipe_units::{BitRate, Ratio};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::super::cpu;

/// Lease of either end: 33 full packets per tick.
const RATE: BitRate = BitRate::from_bps(400_000_000);
/// One-way delay. With the rate it gives 1,667 packets in flight, as on a satellite link of 33
/// Mbit/s.
const DELAY: Duration = Duration::from_millis(25);
const TICK: Duration = Duration::from_millis(1);
/// Maximum ticks to set up the session, and to deliver the packets in flight at the end.
const PATIENCE_TICKS: u32 = 10_000;

/// Size of a burst that ends. One is written in each tick: 80 Mbit/s of the lease's 400.
const OBJECT_BYTES: usize = 10_000;
/// Flows that take turns with the objects. Each belongs to a different passenger.
const OBJECT_FLOWS: u32 = 16;

/// Addresses of the ends. Each path of the air has its own port.
const AIR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), 40_000);
const HUB: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), 4_500);

/// Buffer for the largest packet.
const PACKET_BYTES: usize = 1500;
const CHUNK_BYTES: usize = 16 << 10;
/// IPv4 and UDP headers.
const OUTER_BYTES: usize = 28;

/// Kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// From the hub to the air: one flow that always has more data than it may send.
    Bulk,
    /// From the air to the hub: short objects on flows that stay open.
    Objects,
}

/// Traffic, and the loss of its link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    pub traffic: Traffic,
    /// Fraction of packets lost, in both directions independently.
    pub loss: Ratio,
    /// Number of paths, which share the rate equally.
    pub paths: u8,
}

/// One part of the work.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    /// Processor time.
    pub time: Duration,
    /// Length of every datagram that this part sent or received.
    pub datagrams: Vec<usize>,
}

/// Costs of all parts.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    /// Data sender: reads from its owner, schedules, codes, seals.
    pub send: Cost,
    /// Data receiver: opens, sorts, recovers, delivers to its owner.
    pub receive: Cost,
    /// Sending of reports by the data receiver.
    pub report: Cost,
    /// Processing of reports by the data sender.
    pub take_report: Cost,
}

impl Costs {
    /// Processor time of all parts for each data packet, in seconds.
    pub fn of_data_packet(&self) -> f64 {
        let parts = [&self.send, &self.receive, &self.report, &self.take_report];
        let time: Duration = parts.iter().map(|part| part.time).sum();
        time.as_secs_f64() / self.send.datagrams.len().max(1) as f64
    }
}

type FlowKey = (SessionId, u64);

/// Both ends, and the wires between them.
pub struct Rig {
    load: Load,
    now: Duration,
    air: AirCore,
    hub: HubCore,
    to_air: Wires,
    to_hub: Wires,
    /// The sender's flows.
    flows: Vec<FlowKey>,
    turn: usize,
    /// Bytes from the sender's owner, and bytes to the receiver's owner.
    pub moved: (u64, u64),
}

/// One direction of all paths.
struct Wires(Vec<Wire>);

struct Wire {
    direction: Direction,
    from: SocketAddr,
    under_way: VecDeque<(Duration, Vec<u8>)>,
}

impl Rig {
    /// Connects two ends and opens their flows. Returns `None` if that failed.
    pub fn new(load: Load, seed: u64) -> Option<Self> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let rate = BitRate::from_bps(RATE.bps() / u64::from(load.paths));
        let settings = Settings { rate, ..Settings::default() };
        let further = PathSettings {
            name: String::new(),
            rate,
            lease: LeaseMode::Static,
            mtu_bytes: settings.mtu_bytes,
            metered: false,
            quota: None,
        };
        let paths = (1..load.paths).map(|_| further.clone()).collect();
        let settings = Settings { paths, ..settings };
        let (key, highest_class) = (air.public(), Class::BestEffort);
        let aircraft = vec![Aircraft { key, settings: settings.clone(), highest_class }];
        let (address, first_counter) = (HUB, 1);
        let air_config =
            AirConfig { secret: air, hub: hub.public(), address, settings, first_counter };
        let mut rig = Self {
            load,
            now: Duration::ZERO,
            air: AirCore::new(air_config, rng.random()),
            hub: HubCore::new(HubConfig { secret: hub, aircraft }, rng.random()),
            to_air: Wires::new(load, &mut rng, |_| HUB),
            to_hub: Wires::new(load, &mut rng, air_address),
            flows: Vec::new(),
            turn: 0,
            moved: (0, 0),
        };
        rig.open().then_some(rig)
    }

    /// The load.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Runs one tick. If `writes` is `true`, the sender's owner writes the load's data.
    pub fn tick(&mut self, writes: bool, costs: &mut Costs) {
        self.now += TICK;
        let now = self.now;
        let (sender, receiver, out, back): (&mut End, &mut End, _, _) = match self.load.traffic {
            Traffic::Bulk => (&mut self.hub, &mut self.air, &mut self.to_air, &mut self.to_hub),
            Traffic::Objects => (&mut self.air, &mut self.hub, &mut self.to_hub, &mut self.to_air),
        };
        let (came, told) = (out.arrived(now), back.arrived(now));
        let mut clock = cpu::now();
        take(receiver, &came, now);
        receiver.handle_timeout(now);
        self.moved.1 += read_all(receiver, now);
        costs.receive.add(&came, &mut clock);
        let reports = transmit(receiver, now);
        costs.report.add(&reports, &mut clock);
        take(sender, &told, now);
        costs.take_report.add(&told, &mut clock);
        sender.handle_timeout(now);
        while sender.next_event().is_some() {}
        if writes {
            let first = self.turn;
            self.turn = (first + 1) % self.flows.len();
            self.moved.0 += write(sender, self.flows[first], self.load.traffic, now);
        }
        let sent = transmit(sender, now);
        costs.send.add(&sent, &mut clock);
        out.offer(sent, now);
        back.offer(reports, now);
    }

    /// Delivers everything in flight. Returns `false` if some data did not arrive.
    pub fn finish(&mut self, costs: &mut Costs) -> bool {
        for _ in 0..PATIENCE_TICKS {
            if self.moved.0 == self.moved.1 && self.to_air.is_empty() && self.to_hub.is_empty() {
                return true;
            }
            self.tick(false, costs);
        }
        false
    }

    /// Returns `true` if the hub may use every path.
    fn has_all_paths(&mut self) -> bool {
        if self.load.paths == 1 {
            return true;
        }
        let Some((_, _, session)) = self.hub.sessions().next() else { return false };
        let states = session.traffic(SnapshotLimits { passengers: 0, flows: 0 }, self.now).paths;
        let is_used = |path: &&PathState| matches!(path.use_now, PathUse::All | PathUse::Bulk);
        states.iter().filter(is_used).count() == usize::from(self.load.paths)
    }

    /// Opens the flows at the air and waits until the hub knows them.
    fn open(&mut self) -> bool {
        let count = match self.load.traffic {
            Traffic::Bulk => 1,
            Traffic::Objects => OBJECT_FLOWS,
        };
        let target = "origin.example:80".parse().expect("the target is well formed");
        let (mut at_air, mut at_hub) = (Vec::new(), Vec::new());
        for _ in 0..PATIENCE_TICKS {
            self.now += TICK;
            let now = self.now;
            take(&mut self.hub, &self.to_hub.arrived(now), now);
            take(&mut self.air, &self.to_air.arrived(now), now);
            self.hub.handle_timeout(now);
            self.air.handle_timeout(now);
            while let Some((session, event)) = self.hub.next_event() {
                if let FlowEvent::Opened { flow, .. } = event {
                    at_hub.push((session, flow));
                }
            }
            if at_hub.len() == count as usize && self.has_all_paths() {
                self.flows = match self.load.traffic {
                    Traffic::Bulk => at_hub,
                    Traffic::Objects => at_air,
                };
                return true;
            }
            while at_air.len() < count as usize {
                let passenger = at_air.len() as u32;
                let opened = self.air.open(&target, Class::BestEffort, passenger, &[], now);
                let Ok((flow, _)) = opened else { break };
                at_air.push(flow);
            }
            self.to_hub.offer(transmit(&mut self.air, now), now);
            self.to_air.offer(transmit(&mut self.hub, now), now);
        }
        false
    }
}

impl Cost {
    fn add<P>(&mut self, datagrams: &[(P, Vec<u8>)], clock: &mut Duration) {
        let now = cpu::now();
        self.time += now.saturating_sub(*clock);
        self.datagrams.extend(datagrams.iter().map(|(_, datagram)| datagram.len()));
        // The time of this call itself belongs to no part.
        *clock = cpu::now();
    }
}

impl Wires {
    fn new(load: Load, rng: &mut ChaCha20Rng, from: impl Fn(u8) -> SocketAddr) -> Self {
        let wire = |path| Wire::new(load.loss, rng.random(), from(path));
        Self((0..load.paths).map(wire).collect())
    }

    fn offer(&mut self, datagrams: Vec<(u8, Vec<u8>)>, now: Duration) {
        for (path, datagram) in datagrams {
            self.0[usize::from(path)].offer(datagram, now);
        }
    }

    /// Datagrams that have arrived, and their senders.
    fn arrived(&mut self, now: Duration) -> Vec<(SocketAddr, Vec<u8>)> {
        self.0.iter_mut().flat_map(|wire| wire.arrived(now)).collect()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|wire| wire.under_way.is_empty())
    }
}

impl Wire {
    fn new(loss: Ratio, seed: u64, from: SocketAddr) -> Self {
        let direction = Direction::new(&DirectionSpec::fixed(None, DELAY, loss), seed);
        Self { direction, from, under_way: VecDeque::new() }
    }

    fn offer(&mut self, datagram: Vec<u8>, now: Duration) {
        let fate = self.direction.offer(now, datagram.len() + OUTER_BYTES);
        if let Fate::Delivered { at } = fate {
            self.under_way.push_back((at, datagram));
        }
    }

    fn arrived(&mut self, now: Duration) -> Vec<(SocketAddr, Vec<u8>)> {
        let count = self.under_way.partition_point(|(at, _)| *at <= now);
        self.under_way.drain(..count).map(|(_, datagram)| (self.from, datagram)).collect()
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.traffic {
            Traffic::Bulk => "bulk",
            Traffic::Objects => "object-10k",
        })?;
        match self.paths {
            1 => Ok(()),
            paths => write!(f, ", {paths} paths"),
        }
    }
}

/// Either end of the link.
type End = dyn Core<Session = Session>;

fn air_address(path: u8) -> SocketAddr {
    SocketAddr::new(AIR.ip(), AIR.port() + u16::from(path))
}

fn take(core: &mut End, datagrams: &[(SocketAddr, Vec<u8>)], now: Duration) {
    for (from, datagram) in datagrams {
        core.handle_datagram(datagram, *from, false, now);
    }
}

/// Everything that an end sends now, with its path.
fn transmit(core: &mut End, now: Duration) -> Vec<(u8, Vec<u8>)> {
    let mut datagrams = Vec::new();
    let room = || Vec::with_capacity(PACKET_BYTES);
    let mut datagram = room();
    while let Some(to) = core.transmit(now, &mut datagram) {
        // The hub sends to the address of the path.
        let path = if to == HUB { core.path() } else { (to.port() - AIR.port()) as u8 };
        datagrams.push((path, std::mem::replace(&mut datagram, room())));
    }
    core.next_timeout(now);
    datagrams
}

/// Reads everything that is available. Returns the number of bytes.
fn read_all(core: &mut End, now: Duration) -> u64 {
    let (mut bytes, mut buffer) = (0, [0; CHUNK_BYTES]);
    while let Some((id, event)) = core.next_event() {
        let (FlowEvent::Opened { flow, .. }
        | FlowEvent::OpenedDatagrams { flow, .. }
        | FlowEvent::Wake(flow)) = event;
        let Some(session) = core.session(id) else { continue };
        while let Read::Taken(taken) = session.read(flow, &mut buffer, now) {
            bytes += taken as u64;
        }
    }
    bytes
}

/// Writes as much as the flow accepts, or one object. Returns the number of bytes.
fn write(core: &mut End, (id, flow): FlowKey, traffic: Traffic, now: Duration) -> u64 {
    let chunk = [0x5a; CHUNK_BYTES];
    let Some(session) = core.session(id) else { return 0 };
    let mut write = |data: &[u8]| match session.write(flow, data, now) {
        Write::Taken(bytes) => bytes as u64,
        _ => 0,
    };
    match traffic {
        Traffic::Objects => write(&chunk[..OBJECT_BYTES]),
        Traffic::Bulk => std::iter::repeat_with(|| write(&chunk)).take_while(|it| *it > 0).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::Counters;

    /// Counters of the sender's and the receiver's sessions, and losses on the wires.
    fn counted(rig: &mut Rig) -> [(Counters, u64); 2] {
        let lost = |wires: &Wires| {
            wires.0.iter().map(|wire| wire.direction.counters().lost.packets).sum::<u64>()
        };
        let air = (rig.air.current().unwrap().1.counters(), lost(&rig.to_hub));
        let hub = (rig.hub.sessions().next().unwrap().2.counters(), lost(&rig.to_air));
        match rig.load.traffic {
            Traffic::Bulk => [hub, air],
            Traffic::Objects => [air, hub],
        }
    }

    /// Every datagram is part of a cost, and every byte arrives.
    #[test]
    fn all_work_is_counted_once() {
        for (traffic, paths) in [(Traffic::Bulk, 1), (Traffic::Objects, 1), (Traffic::Bulk, 2)] {
            for percent in ["0 %", "6 %"] {
                let load = Load { traffic, loss: percent.parse().unwrap(), paths };
                let mut rig = Rig::new(load, 1).unwrap();
                let (before, mut costs) = (counted(&mut rig), Costs::default());
                (0..200).for_each(|_| rig.tick(true, &mut costs));
                assert!(rig.finish(&mut costs), "{load} {percent}: {:?}", rig.moved);
                let given = if traffic == Traffic::Bulk { 400 * 20_000 } else { 200 * 10_000 };
                assert!(rig.moved.0 >= given && rig.moved.0 == rig.moved.1, "{:?}", rig.moved);

                let after = counted(&mut rig);
                let count = |cost: &Cost| cost.datagrams.len() as u64;
                let made = [count(&costs.send), count(&costs.report)];
                let took = [count(&costs.receive), count(&costs.take_report)];
                for end in 0..2 {
                    let (sent, lost) = (after[end].0.packets_sent, after[end].1);
                    assert_eq!(made[end], sent - before[end].0.packets_sent);
                    // Packets in flight when the counting began arrive too.
                    assert!(took[end] + lost - before[end].1 >= made[end]);
                    assert!(took[end] + lost <= sent + 8, "handshakes, at most");
                }
                let lossy = load.loss.get() > 0.0;
                assert_eq!(after[0].1 > before[0].1, lossy);
                // Lost bulk is retransmitted; the end of a burst is recovered from repair packets.
                let again = after[0].0.retransmissions_sent;
                let recovered = after[1].0.symbols_recovered;
                let mended = if traffic == Traffic::Bulk { again } else { recovered };
                assert_eq!(mended > 0, lossy, "{load} {percent}: {again}, {recovered}");
                assert!(count(&costs.report) * 4 < count(&costs.send), "{load} {percent}");
            }
        }
    }
}
