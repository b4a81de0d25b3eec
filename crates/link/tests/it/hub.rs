//! A hub with many sessions: its work for each packet, and the memory that it holds.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, PublicKey, SecretKey,
    SessionId, Settings, Write,
};
use bentpipe_units::{BitRate, ByteSize};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{Pair, bytes, read_all, write_all};

const DELAY: Duration = Duration::from_millis(20);

fn address(craft: usize) -> SocketAddr {
    ([198, 18, 0, 2], 1_024 + craft as u16).into()
}

/// A hub and its aircraft, with a delay between them and nothing lost.
struct Fleet {
    now: Duration,
    hub: HubCore,
    airs: Vec<AirCore>,
    keys: Vec<PublicKey>,
    to_hub: Vec<(Duration, usize, Vec<u8>)>,
    to_air: Vec<(Duration, usize, Vec<u8>)>,
    /// Flows that the hub was told of, with what their passenger is called: the aircraft's place.
    flows: Vec<(SessionId, u64, usize)>,
    /// Packets that left the hub.
    sent: u64,
    /// The clock's grain.
    grain: Duration,
}

impl Fleet {
    fn new(count: usize, settings: &Settings) -> Self {
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
            hub: HubCore::new(config, rng.random()),
            keys: secrets.iter().map(SecretKey::public).collect(),
            airs: seeds.into_iter().map(|(secret, seed)| air(secret, seed)).collect(),
            to_hub: Vec::new(),
            to_air: Vec::new(),
            flows: Vec::new(),
            sent: 0,
            grain: Duration::from_nanos(1),
        }
    }

    /// Does what is due, and moves to when something is next, at `end` at the latest. Aircraft from
    /// `gone` on are switched off.
    fn step(&mut self, gone: usize, end: Duration) {
        let (now, mut out) = (self.now, Vec::new());
        let due = |queue: &mut Vec<(Duration, usize, Vec<u8>)>| {
            let count = queue.partition_point(|(at, ..)| *at <= now);
            queue.drain(..count).collect::<Vec<_>>()
        };
        for (_, craft, datagram) in due(&mut self.to_hub) {
            self.hub.handle_datagram(&datagram, address(craft), false, now);
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

    fn run(&mut self, gone: usize, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step(gone, end);
        }
    }

    /// All have a session, and a flow each of these many.
    fn connect(&mut self, flows: usize) {
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

fn settings() -> Settings {
    // Nothing but data is sent while it is measured.
    let keepalive = Duration::from_secs(3_600);
    Settings { rate: BitRate::from_bps(2_000_000), keepalive, ..Settings::default() }
}

/// Hands as much to each of the hub's flows as it takes.
fn fill(fleet: &mut Fleet) {
    let chunk = bytes(4_096);
    for (id, flow, _) in fleet.flows.clone() {
        let Some(session) = fleet.hub.session(id) else { continue };
        while matches!(session.write(flow, &chunk, fleet.now), Write::Taken(1..)) {}
    }
}

#[test]
fn aircraft_that_vanish_in_mid_download_are_forgotten_after_the_session_lifetime() {
    const AIRCRAFT: usize = 1_000;
    let mut fleet = Fleet::new(AIRCRAFT, &settings());
    fleet.grain = Duration::from_millis(10);
    fleet.connect(AIRCRAFT);
    let idle = fleet.hub.held_bytes();
    assert!(idle <= AIRCRAFT as u64 * (10 << 10), "{idle} bytes");
    fill(&mut fleet);
    fleet.run(AIRCRAFT, Duration::from_millis(200));
    let held = fleet.hub.held_bytes();
    assert!(held - idle > AIRCRAFT as u64 * (100 << 10), "{held} bytes");
    // All are switched off. The hub waits for them, and then does not.
    let lifetime = settings().session_lifetime;
    fleet.run(0, lifetime - Duration::from_secs(5));
    assert_eq!(fleet.hub.sessions().count(), AIRCRAFT);
    fleet.run(0, Duration::from_secs(65));
    assert_eq!(fleet.hub.sessions().count(), 0, "and with the sessions go their keys");
    assert!(fleet.hub.held_bytes() <= idle, "{} of {idle}", fleet.hub.held_bytes());
    // Those that come back find their flows gone, and are served again.
    let begun = fleet.hub.sessions_begun();
    fleet.run(3, Duration::from_secs(60));
    assert_eq!(fleet.hub.sessions_begun(), begun + 3);
    assert_eq!(fleet.hub.sessions().count(), 3);
}

#[test]
fn an_aircraft_that_is_silent_for_less_than_the_session_lifetime_keeps_its_flows() {
    let mut fleet = Fleet::new(1, &settings());
    fleet.connect(1);
    fill(&mut fleet);
    let held = fleet.hub.held_bytes();
    fleet.run(0, settings().session_lifetime - Duration::from_secs(30));
    fleet.run(1, Duration::from_secs(60));
    assert_eq!((fleet.hub.sessions_begun(), fleet.hub.sessions().count()), (1, 1));
    assert!(fleet.hub.held_bytes() < held, "and what waited has arrived");
}

#[test]
fn sessions_share_one_memory_and_silent_ones_give_back_first() {
    const MEMORY: u64 = 8 << 20;
    let mut fleet = Fleet::new(40, &settings());
    fleet.hub.set_memory(ByteSize::from_bytes(MEMORY));
    fleet.connect(40);
    // 256 KiB for each were 10 MiB.
    for _ in 0..20 {
        fill(&mut fleet);
        fleet.run(40, Duration::from_millis(10));
        assert!(fleet.hub.held_bytes() <= MEMORY, "{} bytes", fleet.hub.held_bytes());
    }
    assert!(fleet.hub.held_bytes() > MEMORY / 2);
    // Half of them fall silent, and there is less memory than they hold.
    fleet.hub.set_memory(ByteSize::from_bytes(MEMORY / 4));
    fleet.run(20, Duration::from_secs(20));
    assert_eq!(fleet.hub.sessions().count(), 40, "a fade is no reason");
    fleet.run(20, Duration::from_secs(20));
    assert!(fleet.hub.held_bytes() <= MEMORY / 4, "{} bytes", fleet.hub.held_bytes());
    let left: Vec<_> = fleet.hub.sessions().map(|(_, key, _)| key).collect();
    let active = fleet.keys[..20].iter().all(|key| left.contains(key));
    assert!(active && left.len() < 40, "{} sessions", left.len());
}

/// Sessions asked for anything, for each packet of five downloads, among so many aircraft.
fn visits_per_packet(aircraft: usize, beam: bool) -> f64 {
    let mut fleet = Fleet::new(aircraft, &settings());
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
fn a_packet_costs_the_same_however_many_sessions_are_idle() {
    for beam in [false, true] {
        let [few, many] = [10, 200].map(|aircraft| visits_per_packet(aircraft, beam));
        assert!(many <= few * 1.1, "{many} visits among 200, {few} among ten, beam {beam}");
    }
}

#[test]
fn whoever_is_not_asked_had_nothing_to_say() {
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
