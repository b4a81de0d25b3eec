//! A hub with many sessions: its work for each packet, and its memory.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, PublicKey, SecretKey,
    SessionId, Settings, Write,
};
use bentpipe_units::{BitRate, ByteSize};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{Pair, bytes, read_all, write_all};
use crate::sharded::Sharded;

const INIT: u8 = 0x01;
const DELAY: Duration = Duration::from_millis(20);

fn address(network: u8, craft: usize) -> SocketAddr {
    ([198, 18, network, 2], 1_024 + craft as u16).into()
}

/// A hub and its aircraft, over paths with a delay and without losses.
pub struct Fleet {
    pub now: Duration,
    pub hub: Sharded,
    /// Part of the aircraft's present addresses.
    pub network: u8,
    /// Messages 1 so far.
    pub calls: Vec<(usize, Vec<u8>)>,
    pub airs: Vec<AirCore>,
    pub keys: Vec<PublicKey>,
    pub secret: SecretKey,
    to_hub: Vec<(Duration, usize, Vec<u8>)>,
    to_air: Vec<(Duration, usize, Vec<u8>)>,
    /// Flows reported to the hub, by the aircraft's index as passenger.
    pub flows: Vec<(SessionId, u64, usize)>,
    /// Packets sent by the hub.
    sent: u64,
    /// The clock's grain.
    pub grain: Duration,
}

impl Fleet {
    pub fn new(count: usize, settings: &Settings, shards: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(18);
        let hub = SecretKey::generate(&mut rng);
        let secrets: Vec<_> = (0..count).map(|_| SecretKey::generate(&mut rng)).collect();
        let aircraft = secrets.iter().map(|secret| Aircraft {
            key: secret.public(),
            settings: settings.clone(),
            highest_class: Class::BestEffort,
        });
        let config = HubConfig { secret: hub.clone(), aircraft: aircraft.collect() };
        let hub_key = hub.public();
        let air = |secret: &SecretKey, seed| {
            let config = AirConfig {
                secret: secret.clone(),
                hub: hub_key,
                address: ([198, 18, 0, 1], 4_500).into(),
                settings: settings.clone(),
                first_counter: 1,
            };
            AirCore::new(config, seed)
        };
        let seeds: Vec<_> = secrets.iter().map(|secret| (secret, rng.random())).collect();
        Self {
            now: Duration::ZERO,
            hub: Sharded::new(&config, &Vec::from_iter((0..shards).map(|_| rng.random()))),
            network: 0,
            calls: Vec::new(),
            secret: hub,
            keys: secrets.iter().map(SecretKey::public).collect(),
            airs: seeds.into_iter().map(|(secret, seed)| air(secret, seed)).collect(),
            to_hub: Vec::new(),
            to_air: Vec::new(),
            flows: Vec::new(),
            sent: 0,
            grain: Duration::from_nanos(1),
        }
    }

    /// Handles what is due, and advances to the next event, at most to `end`. Aircraft from `gone`
    /// on are switched off.
    fn step(&mut self, gone: usize, end: Duration) {
        let (now, mut out) = (self.now, Vec::new());
        let due = |queue: &mut Vec<(Duration, usize, Vec<u8>)>| {
            let count = queue.partition_point(|(at, ..)| *at <= now);
            queue.drain(..count).collect::<Vec<_>>()
        };
        for (_, craft, datagram) in due(&mut self.to_hub) {
            let from = address(self.network, craft);
            self.hub.handle_datagram(&datagram, from, false, now);
            if datagram[0] == INIT {
                self.calls.push((craft, datagram));
            }
        }
        let mut next = end;
        for (_, craft, datagram) in due(&mut self.to_air) {
            if craft < gone {
                let from = ([198, 18, 0, 1], 4_500).into();
                self.airs[craft].handle_datagram(&datagram, from, false, now);
            }
        }
        for (craft, air) in self.airs[..gone].iter_mut().enumerate() {
            air.handle_timeout(now);
            while air.next_event().is_some() {}
            while air.transmit(now, &mut out).is_some() {
                self.to_hub.push((now + DELAY, craft, std::mem::take(&mut out)));
            }
            next = next.min(air.next_timeout(now));
        }
        self.hub.handle_timeout(now);
        while let Some((session, event)) = self.hub.next_event() {
            if let FlowEvent::Opened { flow, passenger, .. } = event {
                self.flows.push((session, flow, passenger as usize));
            }
        }
        while let Some(to) = self.hub.transmit(now, &mut out) {
            self.sent += 1;
            let craft = usize::from(to.port() - 1_024);
            self.to_air.push((now + DELAY, craft, std::mem::take(&mut out)));
        }
        next = next.min(self.hub.next_timeout(now));
        let first = |queue: &[(Duration, usize, Vec<u8>)]| queue.first().map(|(at, ..)| *at);
        let arrivals = [first(&self.to_hub), first(&self.to_air)];
        next = arrivals.into_iter().flatten().fold(next, Duration::min);
        self.now = next.max(now + self.grain);
    }

    pub fn run(&mut self, gone: usize, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step(gone, end);
        }
    }

    /// Connects all aircraft, and opens this number of flows on each.
    pub fn connect(&mut self, flows: usize) {
        let all = self.airs.len();
        while self.hub.sessions_begun() < all as u64 {
            assert!(self.now < Duration::from_secs(60), "{}", self.hub.sessions_begun());
            self.run(all, Duration::from_millis(100));
        }
        self.run(all, Duration::from_secs(2));
        let target = "origin.example:80".parse().unwrap();
        for craft in 0..flows {
            let (air, now) = (&mut self.airs[craft], self.now);
            air.open(&target, Class::BestEffort, craft as u32, b"GET", now).unwrap();
        }
        self.run(all, Duration::from_secs(2));
        assert_eq!(self.flows.len(), flows);
    }

    /// Keeps the hub's flows full for `span`.
    fn serve(&mut self, span: Duration) {
        let (end, chunk) = (self.now + span, bytes(4_096));
        while self.now < end {
            for (id, flow, _) in self.flows.clone() {
                let session = self.hub.session(id).unwrap();
                while matches!(session.write(flow, &chunk, self.now), Write::Taken(1..)) {}
            }
            self.run(self.airs.len(), Duration::from_millis(50));
        }
    }
}

pub fn settings() -> Settings {
    // Nothing but data is sent while the memory is measured.
    let keepalive = Duration::from_secs(3_600);
    Settings { rate: BitRate::from_bps(2_000_000), keepalive, ..Settings::default() }
}

/// Writes as much to each of the hub's flows as it accepts.
pub fn fill(fleet: &mut Fleet) {
    let chunk = bytes(4_096);
    for (id, flow, _) in fleet.flows.clone() {
        let Some(session) = fleet.hub.session(id) else { continue };
        while matches!(session.write(flow, &chunk, fleet.now), Write::Taken(1..)) {}
    }
}

#[test]
fn aircraft_that_vanish_during_a_download_are_forgotten_after_the_session_lifetime() {
    const AIRCRAFT: usize = 1_000;
    let mut fleet = Fleet::new(AIRCRAFT, &settings(), 1);
    fleet.grain = Duration::from_millis(10);
    fleet.connect(AIRCRAFT);
    let idle = fleet.hub.held_bytes();
    assert!(idle <= AIRCRAFT as u64 * (10 << 10), "{idle} bytes");
    fill(&mut fleet);
    fleet.run(AIRCRAFT, Duration::from_millis(200));
    let held = fleet.hub.held_bytes();
    assert!(held - idle > AIRCRAFT as u64 * (100 << 10), "{held} bytes");
    // All aircraft are switched off. The hub waits for them, and then gives up.
    let lifetime = settings().session_lifetime;
    fleet.run(0, lifetime - Duration::from_secs(5));
    assert_eq!(fleet.hub.sessions().count(), AIRCRAFT);
    fleet.run(0, Duration::from_secs(65));
    assert_eq!(fleet.hub.sessions().count(), 0, "and with the sessions go their keys");
    assert!(fleet.hub.held_bytes() <= idle, "{} of {idle}", fleet.hub.held_bytes());
    // Aircraft that return find their flows gone, and are served again.
    let begun = fleet.hub.sessions_begun();
    fleet.run(3, Duration::from_secs(60));
    assert_eq!(fleet.hub.sessions_begun(), begun + 3);
    assert_eq!(fleet.hub.sessions().count(), 3);
}

#[test]
fn a_shorter_silence_than_the_session_lifetime_keeps_the_flows() {
    let mut fleet = Fleet::new(1, &settings(), 1);
    fleet.connect(1);
    fill(&mut fleet);
    let held = fleet.hub.held_bytes();
    fleet.run(0, settings().session_lifetime - Duration::from_secs(30));
    fleet.run(1, Duration::from_secs(60));
    assert_eq!((fleet.hub.sessions_begun(), fleet.hub.sessions().count()), (1, 1));
    assert!(fleet.hub.held_bytes() < held, "and what waited has arrived");
}

#[test]
fn sessions_share_one_memory_and_silent_ones_free_theirs_first() {
    [1, 2, 4].into_iter().for_each(silent_ones_free_theirs_first);
}

fn silent_ones_free_theirs_first(shards: usize) {
    const MEMORY: u64 = 8 << 20;
    let mut fleet = Fleet::new(40, &settings(), shards);
    fleet.hub.set_memory(ByteSize::from_bytes(MEMORY));
    fleet.connect(40);
    // 256 KiB for each would be 10 MiB.
    for _ in 0..20 {
        fill(&mut fleet);
        fleet.run(40, Duration::from_millis(10));
        // Each further shard has a session that was written to last and is not counted yet.
        let uncounted = (shards as u64 - 1) * (256 << 10);
        let max = MEMORY + 40 * settings().flow_reserve.bytes() + uncounted;
        assert!(fleet.hub.held_bytes() <= max, "{} bytes", fleet.hub.held_bytes());
    }
    assert!(fleet.hub.held_bytes() > MEMORY / 2);
    // Half of the aircraft fall silent, and the memory is less than they hold.
    fleet.hub.set_memory(ByteSize::from_bytes(MEMORY / 4));
    fleet.run(20, Duration::from_secs(20));
    assert_eq!(fleet.hub.sessions().count(), 40, "a fade is not a reason");
    fleet.run(20, Duration::from_secs(20));
    let most = MEMORY / 4 + 40 * settings().flow_reserve.bytes();
    assert!(fleet.hub.held_bytes() <= most, "{} bytes", fleet.hub.held_bytes());
    let left: Vec<_> = fleet.hub.sessions().map(|(_, key, _)| key).collect();
    let active = fleet.keys[..20].iter().all(|key| left.contains(key));
    assert!(active && left.len() < 40, "{} sessions", left.len());
}

#[test]
fn fast_sessions_keep_to_the_memory_when_all_aircraft_vanish_at_once() {
    [1, 4].into_iter().for_each(fast_sessions_keep_to_the_memory);
}

fn fast_sessions_keep_to_the_memory(shards: usize) {
    const MEMORY: u64 = 8 << 20;
    // A lane alone would keep a mebibyte of each.
    let settings = Settings { rate: BitRate::from_bps(100_000_000), ..settings() };
    let mut fleet = Fleet::new(40, &settings, shards);
    fleet.hub.set_memory(ByteSize::from_bytes(MEMORY));
    fleet.connect(40);
    // Each further shard has a session that was written to last and is not counted yet.
    let uncounted = (shards as u64 - 1) * (256 << 10);
    let most = MEMORY + 2 * 40 * settings.flow_reserve.bytes() + uncounted;
    for gone in [40, 0] {
        for _ in 0..40 {
            fill(&mut fleet);
            fleet.run(gone, Duration::from_millis(10));
            assert!(fleet.hub.held_bytes() <= most, "{} bytes", fleet.hub.held_bytes());
        }
    }
    assert!(fleet.hub.held_bytes() > MEMORY / 2, "{} bytes", fleet.hub.held_bytes());
    let memory = fleet.hub.take_refused().memory.unwrap();
    assert!(memory.refused > 0 && memory.max == MEMORY, "{memory:?}");
    assert!(memory.largest.unwrap().1 >= memory.newcomer.unwrap().1);
}

#[test]
fn nobody_waits_for_the_memory_of_aircraft_that_have_vanished() {
    [1, 2, 4].into_iter().for_each(nobody_waits_for_memory);
}

fn nobody_waits_for_memory(shards: usize) {
    const MEMORY: u64 = 8 << 20;
    let mut fleet = Fleet::new(40, &settings(), shards);
    fleet.hub.set_memory(ByteSize::from_bytes(MEMORY));
    fleet.connect(40);
    for _ in 0..20 {
        fill(&mut fleet);
        fleet.run(40, Duration::from_millis(10));
    }
    let lent = MEMORY / 8 * 7;
    assert!(fleet.hub.held_bytes() > lent, "nobody is lent more: {}", fleet.hub.held_bytes());
    // All but one are switched off, and keep what they hold for as long as a fade may last.
    fleet.flows.retain(|(.., craft)| *craft == 0);
    let go_on = |fleet: &mut Fleet| {
        for _ in 0..200 {
            fill(fleet);
            fleet.run(1, Duration::from_millis(100));
        }
    };
    go_on(&mut fleet);
    assert_eq!(fleet.hub.sessions().count(), 40);
    go_on(&mut fleet);
    let left: Vec<_> = fleet.hub.sessions().map(|(_, key, _)| key).collect();
    assert!(left.contains(&fleet.keys[0]) && left.len() < 40, "{} sessions", left.len());
}

/// Returns the number of sessions visited for each packet of five downloads.
fn visits_per_packet(aircraft: usize, beam: bool) -> f64 {
    let mut fleet = Fleet::new(aircraft, &settings(), 1);
    if beam {
        let rate = Some(BitRate::from_bps(20_000_000));
        fleet.hub.set_beam(rate, None, Duration::ZERO).unwrap();
    }
    fleet.connect(5);
    let (visits, sent) = (fleet.hub.visits(), fleet.sent);
    fleet.serve(Duration::from_secs(4));
    let sent = fleet.sent - sent;
    assert!(sent > 2_000, "{sent} packets");
    (fleet.hub.visits() - visits) as f64 / sent as f64
}

#[test]
fn the_cost_of_a_packet_is_independent_of_idle_sessions() {
    for beam in [false, true] {
        let [few, many] = [10, 200].map(|aircraft| visits_per_packet(aircraft, beam));
        assert!(many <= few * 1.1, "{many} visits among 200, {few} among ten, beam {beam}");
    }
}

#[test]
fn unvisited_sessions_have_nothing_to_send() {
    for (seed, loss) in [(1, 0.0), (2, 0.06), (3, 0.3)] {
        let [by_agenda, all] = [false, true].map(|all| {
            let mut pair = Pair::new(seed, loss);
            pair.connect();
            let (mut log, mut rng) = (Vec::new(), ChaCha8Rng::seed_from_u64(seed));
            for _ in 0..30 {
                let length = rng.random_range(1..40_000);
                let body = bytes(length);
                let flow = pair.open(b"GET");
                pair.flush();
                let (far, mut sent, mut got) = (pair.accept(), 0, Vec::new());
                pair.run_until("the answer", Duration::from_secs(600), |pair| {
                    if all {
                        pair.hub.sessions().for_each(drop);
                    }
                    if sent < length {
                        write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
                        pair.flush();
                    }
                    let up = (pair.up.packets, pair.up.bytes);
                    log.push((pair.now, up, pair.down.packets, pair.down.bytes));
                    let done = read_all(&mut pair.air, flow, pair.now, &mut got);
                    if all {
                        pair.hub.sessions().for_each(drop);
                    }
                    done
                });
                let pause = Duration::from_millis(rng.random_range(0..2_000));
                pair.run_for(pause, |pair| {
                    if all {
                        pair.hub.sessions().for_each(drop);
                    }
                });
            }
            log
        });
        let differs = by_agenda.iter().zip(&all).position(|(one, other)| one != other);
        let there = differs.map(|at| (at, by_agenda[at], all[at]));
        assert!(there.is_none() && by_agenda.len() == all.len(), "seed {seed}: {there:?}");
    }
}
