//! Cost of a packet at a hub with many sessions, most of them idle; the same cost while strangers
//! send junk; and the memory of an idle session.
//!
//! The hub's core runs as under `link::io`, in ticks of virtual time. Only memory lies between it
//! and the aircraft, and only its own processor time counts. Every hub shares a beam. The hubs of
//! all sizes take turns, so that other load on the machine affects all of them alike.
//!
//! Sessions that send in turn evict each other's state from the processor's caches, however the hub
//! finds them. So the bound compares hubs with equal numbers of active sessions: one whose other
//! sessions are idle, and one without idle sessions. The ratio to a hub of ten sessions is reported
//! too. It is the product of the cost of more active sessions and the cost of more idle ones.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, Read, SecretKey,
    SessionId, Settings, Write,
};
use bentpipe_units::BitRate;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::{BenchError, cpu, failed};
use crate::experiment::table;
use crate::result::{Row, Samples};

/// Maximum cost of a packet, as a multiple of its cost at a hub without idle sessions.
pub const MAX_RATIO: f64 = 1.3;
/// Sessions of the smallest hub, all of them active.
pub const BASE_SESSIONS: usize = 10;
/// Maximum memory of an idle session.
pub const MAX_IDLE_BYTES: u64 = 100 << 10;

/// Measured rounds for each hub. One more round before them is not counted.
const ROUNDS: usize = 11;
/// Ticks in a round: half a second of virtual time.
const ROUND_TICKS: usize = 500;
const TICK: Duration = Duration::from_millis(1);
const DELAY: Duration = Duration::from_millis(25);
/// Rate to each active aircraft: one packet every 3 ms.
const RATE: BitRate = BitRate::from_bps(4_000_000);
/// Junk datagrams for each packet that the hub sends.
const JUNK_PER_PACKET: usize = 1;
const CHUNK_BYTES: usize = 8 << 10;
/// Maximum ticks for one aircraft to connect.
const PATIENCE_TICKS: usize = 5_000;
const SEED: u64 = 1;

/// Result of a run.
pub struct Found {
    cells: Vec<Cell>,
    idle_bytes: Option<u64>,
}

struct Cell {
    sessions: usize,
    active: usize,
    packets: usize,
    /// Processor time per packet in seconds, without and with junk.
    times: [Samples; 2],
    /// Ratio of `times`, round by round, to a hub with as many active sessions and no idle ones.
    ratios: [Samples; 2],
    /// Ratio of `times` to a hub with [`BASE_SESSIONS`].
    of_base: [Samples; 2],
}

/// Measures hubs with these numbers of sessions. At most `active` of them receive data.
pub fn run(sessions: &[usize], active: usize) -> Result<Found, BenchError> {
    run_for(sessions, active, ROUNDS, ROUND_TICKS)
}

fn run_for(
    sessions: &[usize],
    active: usize,
    rounds: usize,
    ticks: usize,
) -> Result<Found, BenchError> {
    let doing = failed("measure the hub");
    let mut sizes: Vec<usize> = sessions.iter().copied().chain([BASE_SESSIONS, active]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // Start with the largest, while the heap has no holes that would hide a session's memory.
    let mut rigs = Vec::new();
    let mut idle_bytes = None;
    for &size in sizes.iter().rev() {
        let before = resident_bytes();
        let (rig, idle) = Rig::new(size, active.min(size)).ok_or_else(|| doing("no session"))?;
        if rigs.is_empty() && size > active {
            let grown =
                resident_bytes().zip(before).map(|(after, before)| after - before.min(after));
            idle_bytes = grown.map(|grown| grown / idle as u64);
        }
        rigs.insert(0, rig);
    }
    for rig in &mut rigs {
        rig.begin().ok_or_else(|| doing("a flow did not open"))?;
    }
    let at = |wanted: usize| sizes.iter().position(|size| *size == wanted).unwrap_or(0);
    let cell = |size: &usize| Cell {
        sessions: *size,
        active: active.min(*size),
        packets: 0,
        times: Default::default(),
        ratios: Default::default(),
        of_base: Default::default(),
    };
    let mut cells: Vec<Cell> = sizes.iter().map(cell).collect();
    for round in 0..=rounds {
        for (kind, junk) in [0, JUNK_PER_PACKET].into_iter().enumerate() {
            let costs: Vec<_> = rigs.iter_mut().map(|rig| rig.round(ticks, junk)).collect();
            for (cell, (packets, time)) in cells.iter_mut().zip(&costs).filter(|_| round > 0) {
                let each = |(packets, time): (usize, Duration)| time.as_secs_f64() / packets as f64;
                cell.packets += packets;
                cell.times[kind].push(each((*packets, *time)));
                let busy = at(cell.active);
                cell.ratios[kind].push(each((*packets, *time)) / each(costs[busy]));
                cell.of_base[kind].push(each((*packets, *time)) / each(costs[at(BASE_SESSIONS)]));
            }
        }
    }
    Ok(Found { cells, idle_bytes })
}

/// A hub with its aircraft. Only the active aircraft remain after all have connected.
struct Rig {
    now: Duration,
    hub: HubCore,
    airs: Vec<AirCore>,
    to_hub: VecDeque<(Duration, SocketAddr, Vec<u8>)>,
    to_air: VecDeque<(Duration, usize, Vec<u8>)>,
    flows: Vec<(SessionId, u64)>,
    junk: Vec<Vec<u8>>,
}

impl Rig {
    /// Connects all aircraft. Returns the rig and the number of idle sessions.
    fn new(sessions: usize, active: usize) -> Option<(Self, usize)> {
        let mut rng = ChaCha20Rng::seed_from_u64(SEED);
        // Idle sessions must stay silent in both directions during the measurement, because the hub
        // would probe an aircraft that does not answer.
        let day = Duration::from_secs(86_400);
        let settings = Settings {
            rate: RATE,
            keepalive: day,
            session_lifetime: day,
            flow_unread: day,
            ..Settings::default()
        };
        let hub = SecretKey::generate(&mut rng);
        let secrets: Vec<_> = (0..sessions).map(|_| SecretKey::generate(&mut rng)).collect();
        let aircraft = secrets.iter().map(|secret| Aircraft {
            key: secret.public(),
            settings: settings.clone(),
            highest_class: Class::BestEffort,
        });
        let config = HubConfig { secret: hub.clone(), aircraft: aircraft.collect() };
        let mut rig = Self {
            now: Duration::ZERO,
            hub: HubCore::new(config, rng.random()),
            airs: Vec::new(),
            to_hub: VecDeque::new(),
            to_air: VecDeque::new(),
            flows: Vec::new(),
            junk: (0..4_096).map(|_| junk(&mut rng)).collect(),
        };
        let beam = BitRate::from_bps(RATE.bps() * sessions as u64);
        rig.hub.set_beam(Some(beam), None, Duration::ZERO).ok()?;
        let key = hub.public();
        for (craft, secret) in secrets.into_iter().enumerate().rev() {
            let address = ([198, 18, 0, 1], 4_500).into();
            let settings = settings.clone();
            let config = AirConfig { secret, hub: key, address, settings, first_counter: 1 };
            let air = rig.connect(AirCore::new(config, rng.random()), craft)?;
            if craft < active {
                rig.airs.insert(0, air);
            }
        }
        Some((rig, sessions - active))
    }

    /// Connects one aircraft, which opens a flow, and runs until both ends are quiet.
    fn connect(&mut self, mut air: AirCore, craft: usize) -> Option<AirCore> {
        let (mut out, mut rest, mut opened) = (Vec::new(), 0, false);
        let target = "origin.example:80".parse().ok()?;
        for _ in 0..PATIENCE_TICKS {
            self.now += TICK;
            let now = self.now;
            let mut moved = false;
            air.handle_timeout(now);
            while air.transmit(now, &mut out).is_some() {
                moved = true;
                self.hub.handle_datagram(&std::mem::take(&mut out), address(craft), false, now);
            }
            self.hub.handle_timeout(now);
            while let Some(to) = self.hub.transmit(now, &mut out) {
                let datagram = std::mem::take(&mut out);
                // The hub still probes aircraft that are gone.
                if to == address(craft) {
                    moved = true;
                    let from = ([198, 18, 0, 1], 4_500).into();
                    air.handle_datagram(&datagram, from, false, now);
                }
            }
            self.hub.next_timeout(now);
            while air.next_event().is_some() || self.hub.next_event().is_some() {}
            if !opened && air.current().is_some() {
                air.open(&target, Class::BestEffort, 1, b"GET", now).ok()?;
                opened = true;
            }
            rest = if moved || air.current().is_none() { 0 } else { rest + 1 };
            if rest > 60 {
                return Some(air);
            }
        }
        None
    }

    /// Opens one flow on each active aircraft.
    fn begin(&mut self) -> Option<()> {
        let target = "origin.example:80".parse().ok()?;
        for (passenger, air) in (0..).zip(&mut self.airs) {
            air.open(&target, Class::BestEffort, passenger, b"GET", self.now).ok()?;
        }
        for _ in 0..PATIENCE_TICKS {
            self.tick(0);
            if self.flows.len() == self.airs.len() {
                return Some(());
            }
        }
        None
    }

    /// Runs `ticks` ticks. Returns the number of packets that the hub received and sent, and their
    /// processor time.
    fn round(&mut self, ticks: usize, junk: usize) -> (usize, Duration) {
        let costs = (0..ticks).map(|_| self.tick(junk));
        costs.fold((0, Duration::ZERO), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1))
    }

    fn tick(&mut self, junk: usize) -> (usize, Duration) {
        self.now += TICK;
        let now = self.now;
        let came = self.to_hub.partition_point(|(at, ..)| *at <= now);
        let came: Vec<_> = self.to_hub.drain(..came).collect();
        let count = junk * (came.len() + self.flows.len() / 3);
        let turn = count % self.junk.len().max(1);
        self.junk.rotate_left(turn);
        let stranger = ([203, 0, 113, 9], 9).into();
        let (mut sent, mut datagram) = (Vec::new(), Vec::with_capacity(1_500));
        let filter = self.hub.filter();
        let began = cpu::now();
        for junk in self.junk.iter().cycle().take(count) {
            if filter.as_ref().is_none_or(|filter| filter.admits(junk, stranger)) {
                self.hub.handle_datagram(junk, stranger, false, now);
            }
        }
        for (_, from, datagram) in &came {
            if filter.as_ref().is_none_or(|filter| filter.admits(datagram, *from)) {
                self.hub.handle_datagram(datagram, *from, false, now);
            }
        }
        self.hub.handle_timeout(now);
        while let Some((session, event)) = self.hub.next_event() {
            if let FlowEvent::Opened { flow, .. } = event {
                self.flows.push((session, flow));
            }
        }
        for (id, flow) in &self.flows {
            let Some(session) = self.hub.session(*id) else { continue };
            while matches!(session.write(*flow, &[0x5a; CHUNK_BYTES], now), Write::Taken(1..)) {}
        }
        while let Some(to) = self.hub.transmit(now, &mut datagram) {
            let next = Vec::with_capacity(1_500);
            sent.push((now + DELAY, craft_at(to), std::mem::replace(&mut datagram, next)));
        }
        self.hub.next_timeout(now);
        let took = cpu::since(began);
        let packets = came.len() + sent.len();
        self.to_air.extend(sent);
        self.fly();
        (packets, took)
    }

    /// The aircraft receive their packets and answer.
    fn fly(&mut self) {
        let (now, mut out) = (self.now, Vec::new());
        let from = ([198, 18, 0, 1], 4_500).into();
        let came = self.to_air.partition_point(|(at, ..)| *at <= now);
        for (_, craft, datagram) in self.to_air.drain(..came) {
            if let Some(air) = self.airs.get_mut(craft) {
                air.handle_datagram(&datagram, from, false, now);
            }
        }
        let mut buffer = [0; CHUNK_BYTES];
        for (craft, air) in self.airs.iter_mut().enumerate() {
            air.handle_timeout(now);
            while let Some((id, event)) = air.next_event() {
                if let FlowEvent::Wake(flow) = event
                    && let Some(session) = air.session(id)
                {
                    while matches!(session.read(flow, &mut buffer, now), Read::Taken(_)) {}
                }
            }
            while air.transmit(now, &mut out).is_some() {
                self.to_hub.push_back((now + DELAY, address(craft), std::mem::take(&mut out)));
            }
            air.next_timeout(now);
        }
    }
}

/// A stranger's datagram: its first byte is one that a hub accepts, and the rest is invalid.
fn junk(rng: &mut ChaCha20Rng) -> Vec<u8> {
    let length = *[60, 173, 400, 1_200].get(rng.random_range(0..4)).unwrap_or(&60);
    let mut junk = vec![0; length];
    rng.fill_bytes(&mut junk);
    junk[0] = *[0x01, 0x40, 0x40].get(rng.random_range(0..3)).unwrap_or(&0x40);
    junk
}

fn address(craft: usize) -> SocketAddr {
    let [.., a, b, c] = (craft as u32).to_be_bytes();
    ([10, a, b, c], 4_500).into()
}

fn craft_at(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(v4) => (v4.ip().to_bits() & 0xff_ffff) as usize,
        SocketAddr::V6(_) => usize::MAX,
    }
}

/// Resident memory of this process.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

impl Found {
    /// Missed bounds, one line each.
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for cell in &self.cells {
            for (name, ratios) in ["", ", with junk"].into_iter().zip(&cell.ratios) {
                if !ratios.median().is_some_and(|ratio| ratio <= MAX_RATIO) {
                    let ratio = ratios.median().unwrap_or(f64::NAN);
                    missed.push(format!(
                        "a packet of {} sessions{name} costs {ratio:.2} times that of {} without \
                         idle ones: at most {MAX_RATIO}",
                        cell.sessions, cell.active
                    ));
                }
            }
        }
        if let Some(bytes) = self.idle_bytes.filter(|bytes| *bytes > MAX_IDLE_BYTES) {
            missed.push(format!(
                "an idle session takes {} KiB: at most {}",
                bytes >> 10,
                MAX_IDLE_BYTES >> 10
            ));
        }
        missed
    }

    /// Results as rows. For each hub: the processor time of a packet with and without junk, and its
    /// ratios to a hub without idle sessions and to a hub of ten sessions. Also the memory of an
    /// idle session.
    pub fn rows(&self) -> Vec<Row> {
        let row = |workload: String, metric: &str, unit: &str, limit| Row {
            experiment: "hub".into(),
            system: Some("bentpipe".into()),
            workload: Some(workload),
            metric: metric.into(),
            unit: unit.into(),
            limit,
            seed: Some(SEED),
            ..Row::default()
        };
        let mut rows = Vec::new();
        for cell in &self.cells {
            for (kind, name) in ["packet", "packet-junk"].into_iter().enumerate() {
                let of = format!("sessions-{}", cell.sessions);
                let [ratio, of_base] = ["ratio", "ratio-of-ten"].map(|it| format!("{name}-{it}"));
                rows.push(cell.times[kind].fill(row(of.clone(), name, "s", None)));
                rows.push(cell.of_base[kind].fill(row(of.clone(), &of_base, "ratio", None)));
                rows.push(cell.ratios[kind].fill(row(of, &ratio, "ratio", Some(MAX_RATIO))));
            }
        }
        if let Some(bytes) = self.idle_bytes {
            let samples: Samples = [bytes as f64].into_iter().collect();
            let limit = Some(MAX_IDLE_BYTES as f64);
            rows.push(samples.fill(row("idle-session".into(), "memory", "bytes", limit)));
        }
        rows
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |samples: &Samples| {
            samples.median().map_or("–".into(), |time| format!("{:.2}", time * 1e6))
        };
        let times = |samples: &Samples| {
            samples.median().map_or("–".into(), |ratio| format!("{ratio:.2}×"))
        };
        let line = |cell: &Cell| {
            let Cell { sessions, active, packets, times: time, ratios, of_base } = cell;
            let [sessions, active, packets] = [sessions, active, packets].map(usize::to_string);
            let [plain, junk] = [0, 1]
                .map(|kind| (micros(&time[kind]), times(&ratios[kind]), times(&of_base[kind])));
            [sessions, active, packets, plain.0, plain.1, plain.2, junk.0, junk.1, junk.2]
        };
        let lines: Vec<_> = self.cells.iter().map(line).collect();
        let header = ["sessions", "active", "packets", "alone", "", "", "with junk", "", ""];
        f.write_str(&table::groups(header, &lines))?;
        writeln!(
            f,
            "µs of the hub's processor time for each packet, sent or received; how many times that of a \
             hub with as many active sessions and none idle (bound: {MAX_RATIO}); how many times that \
             of {BASE_SESSIONS} sessions\n\
             with junk: {JUNK_PER_PACKET} datagram of a stranger's for each packet"
        )?;
        if let Some(bytes) = self.idle_bytes {
            let (is, most) = (bytes as f64 / 1024.0, MAX_IDLE_BYTES >> 10);
            writeln!(f, "an idle session takes {is:.1} KiB (bound: {most} KiB)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_its_figures_and_what_is_missed_is_named() {
        let mut found = run_for(&[20], 12, 2, 40).unwrap();
        assert_eq!((found.cells.len(), found.rows().len()), (3, 19));
        for cell in &found.cells {
            assert!(cell.packets > 0 && cell.ratios[1].median().is_some_and(|ratio| ratio > 0.0));
        }
        for cell in &mut found.cells {
            cell.ratios = [1.0, 1.31].map(|ratio| [ratio].into_iter().collect());
        }
        found.idle_bytes = Some(MAX_IDLE_BYTES);
        let missed = found.missed();
        assert_eq!(missed.len(), 3, "{missed:?}");
        assert!(missed[2].contains("20 sessions, with junk costs 1.31 times"), "{missed:?}");
        found.idle_bytes = Some(MAX_IDLE_BYTES + 1);
        assert_eq!(found.missed().len(), 4);
    }
}
