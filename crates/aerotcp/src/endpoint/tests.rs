//! Both gateways over a wire with a delay, in virtual time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_link::secure::{INIT, INIT_BYTES, Rng};
use bentpipe_link::{
    Class, Core, FlowEvent, Flows, OpenError, PublicKey, Read, SecretKey, SessionId, Write,
};
use bentpipe_units::BitRate;
use rand::SeedableRng;

use super::*;
use crate::session::{Counters, Session};
use crate::settings::{Settings, Window};

const DELAY: Duration = Duration::from_millis(240);
const GROUND: ([u8; 4], u16) = ([198, 18, 0, 2], 4500);

/// Direction of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Down,
    Up,
}

/// Decides if a datagram is lost.
pub type Lose = Box<dyn FnMut(Way, &[u8]) -> bool>;

/// Both gateways and the datagrams in flight.
pub struct World {
    pub air: AirCore,
    pub ground: GroundCore,
    pub now: Duration,
    pub air_address: SocketAddr,
    under_way: VecDeque<(Duration, Way, SocketAddr, Vec<u8>)>,
    /// Loss rule.
    pub lose: Lose,
    /// `true` if every datagram arrives twice.
    pub twice: bool,
    pub opened: VecDeque<(SessionId, FlowEvent)>,
    pub sent: usize,
}

pub fn settings() -> Settings {
    Settings {
        bandwidth: BitRate::from_bps(4_000_000),
        rtt: 2 * DELAY,
        window: Window::Adaptive,
        max_connections: 64,
        ..Settings::default()
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(settings(), settings(), 7)
    }

    pub fn with(air: Settings, ground: Settings, seed: u8) -> Self {
        let (air_key, ground_key) = keys();
        let air_config = AirConfig {
            secret: air_key.clone(),
            ground: ground_key.public(),
            address: GROUND.into(),
            settings: air,
            first_counter: 1,
        };
        let aircraft = vec![Aircraft { key: air_key.public(), settings: ground }];
        let ground_config = GroundConfig { secret: ground_key, aircraft };
        Self {
            air: AirCore::new(air_config, [seed; 32]),
            ground: GroundCore::new(ground_config, [seed + 1; 32]),
            now: Duration::ZERO,
            air_address: ([198, 18, 0, 1], 40_000).into(),
            under_way: VecDeque::new(),
            lose: Box::new(|_, _| false),
            twice: false,
            opened: VecDeque::new(),
            sent: 0,
        }
    }

    fn flush(&mut self) {
        let mut datagram = Vec::new();
        while let Some(to) = self.air.transmit(self.now, &mut datagram) {
            assert_eq!(to, GROUND.into());
            let from = self.air_address;
            self.put(Way::Up, from, std::mem::take(&mut datagram));
        }
        while let Some(to) = self.ground.transmit(self.now, &mut datagram) {
            self.put(Way::Down, to, std::mem::take(&mut datagram));
        }
    }

    pub fn put(&mut self, way: Way, address: SocketAddr, datagram: Vec<u8>) {
        assert!(datagram.len() + 28 <= 1500, "{} bytes", datagram.len());
        self.sent += 1;
        if (self.lose)(way, &datagram) {
            return;
        }
        for _ in 0..1 + usize::from(self.twice) {
            self.under_way.push_back((self.now + DELAY, way, address, datagram.clone()));
        }
    }

    /// Advances to the next event.
    pub fn step(&mut self) {
        self.flush();
        let timers = self.air.next_timeout(self.now).min(self.ground.next_timeout(self.now));
        let arrival = self.under_way.front().map(|(at, ..)| *at);
        self.now = arrival.into_iter().chain([timers]).min().unwrap().max(self.now);
        self.now += Duration::from_nanos(1);
        while self.under_way.front().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, way, address, datagram) = self.under_way.pop_front().unwrap();
            match way {
                Way::Up => self.ground.handle_datagram(&datagram, address, false, self.now),
                // Datagrams to a former address of the aircraft are lost.
                Way::Down if address == self.air_address => {
                    self.air.handle_datagram(&datagram, GROUND.into(), false, self.now);
                }
                Way::Down => {}
            }
            self.flush();
        }
        self.air.handle_timeout(self.now);
        self.ground.handle_timeout(self.now);
        while let Some((session, event)) = self.ground.next_event() {
            if matches!(event, FlowEvent::Opened { .. }) {
                self.opened.push_back((session, event));
            }
        }
        while self.air.next_event().is_some() {}
    }

    pub fn run(&mut self, limit: Duration, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "{what} within {limit:?}");
            self.step();
        }
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    pub fn connect(&mut self) {
        self.run(secs(20), "an association", |world| world.air.current().is_some());
    }

    pub fn air(&mut self) -> &mut Session {
        self.air.current().expect("there is an association").1
    }

    pub fn ground(&mut self) -> &mut Session {
        let id = self.ground.sessions().map(|(id, ..)| id).last().expect("there is one");
        self.ground.session(id).unwrap()
    }

    pub fn open(&mut self, first: &[u8]) -> Result<u64, OpenError> {
        let target = "origin.example:80".parse().unwrap();
        let now = self.now;
        self.air().open(&target, Class::Assured, 9, first, now).map(|(id, _)| id)
    }

    /// Opens a connection, and waits until the ground gateway has it.
    pub fn opened(&mut self, first: &[u8]) -> u64 {
        let id = self.open(first).unwrap();
        let there = |world: &mut Self| !world.opened.is_empty();
        self.run(secs(60), "the opening", there);
        let (_, FlowEvent::Opened { flow, target, class, passenger }) =
            self.opened.pop_front().unwrap()
        else {
            panic!("an opening");
        };
        assert_eq!((flow, class, passenger), (id, Class::Assured, 9));
        assert_eq!(target.to_string(), "origin.example:80");
        id
    }

    pub fn counters(&mut self) -> [Counters; 2] {
        [self.air().counters(), self.ground().counters()]
    }
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn keys() -> (SecretKey, SecretKey) {
    let mut rng = Rng::seed_from_u64(3);
    (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng))
}

/// Reads all available bytes.
pub fn drain(session: &mut Session, id: u64, now: Duration) -> (Vec<u8>, Read) {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match session.read(id, &mut buffer, now) {
            Read::Taken(taken) => all.extend_from_slice(&buffer[..taken]),
            other => return (all, other),
        }
    }
}

#[test]
fn a_stranger_gets_no_answer() {
    let mut world = World::new();
    let stranger = SecretKey::generate(&mut Rng::seed_from_u64(99));
    let (_, ground) = keys();
    let config = |secret: SecretKey, to: PublicKey| AirConfig {
        secret,
        ground: to,
        address: GROUND.into(),
        settings: settings(),
        first_counter: 1,
    };
    let wrong = SecretKey::generate(&mut Rng::seed_from_u64(98)).public();
    let (air, _) = keys();
    // An unknown key, and a key that calls another ground gateway.
    for config in [config(stranger, ground.public()), config(air, wrong)] {
        let (mut initiator, mut message) = (AirCore::new(config, [1; 32]), Vec::new());
        initiator.transmit(Duration::ZERO, &mut message).unwrap();
        assert_eq!(message.len(), INIT_BYTES);
        world.ground.handle_datagram(&message, world.air_address, false, world.now);
        assert!(world.ground.transmit(world.now, &mut Vec::new()).is_none());
    }
    // Garbage of every first byte and some lengths.
    for first in 0..=u8::MAX {
        for length in [1, 12, 28, 60, INIT_BYTES] {
            let mut garbage = vec![0x5a; length];
            garbage[0] = first;
            world.ground.handle_datagram(&garbage, world.air_address, false, world.now);
            world.air.handle_datagram(&garbage, GROUND.into(), false, world.now);
        }
    }
    assert!(world.ground.transmit(world.now, &mut Vec::new()).is_none());
    world.connect();
}

#[test]
fn link_handshakes_and_replayed_handshakes_are_refused() {
    let mut world = World::new();
    let (secret, ground) = keys();
    let (hub, address) = (ground.public(), GROUND.into());
    let settings = bentpipe_link::Settings::default();
    let config = bentpipe_link::AirConfig { secret, hub, address, settings, first_counter: 50 };
    let mut message = Vec::new();
    bentpipe_link::AirCore::new(config, [1; 32]).transmit(world.now, &mut message).unwrap();
    world.ground.handle_datagram(&message, world.air_address, false, world.now);
    assert!(world.ground.transmit(world.now, &mut Vec::new()).is_none());

    let mut recorded = Vec::new();
    world.air.transmit(world.now, &mut recorded).unwrap();
    for answers in [true, false] {
        world.ground.handle_datagram(&recorded, world.air_address, false, world.now);
        assert_eq!(world.ground.transmit(world.now, &mut Vec::new()).is_some(), answers);
    }
}

#[test]
fn an_unconfirmed_counter_does_not_lock_the_aircraft_out() {
    let mut world = World::new();
    world.connect();
    world.opened(b"a");
    // InitialState with the ground gateway's private key, so it is the aircraft's even to the ground.
    let (secret, ground) = keys();
    let config = |secret, first_counter| AirConfig {
        secret,
        ground: ground.public(),
        address: GROUND.into(),
        settings: settings(),
        first_counter,
    };
    let mut message = Vec::new();
    let mut forger = AirCore::new(config(secret.clone(), u64::MAX - 9), [1; 32]);
    forger.transmit(world.now, &mut message).unwrap();
    let elsewhere = ([203, 0, 113, 7], 9).into();
    world.ground.handle_datagram(&message, elsewhere, false, world.now);
    let answered = world.ground.transmit(world.now, &mut Vec::new());
    assert_eq!(answered, Some(elsewhere));
    // A new process of the aircraft has a lower counter, and is served after the timeout.
    world.air = AirCore::new(config(secret, 1_000), [2; 32]);
    let began = world.now;
    world.run(secs(60), "an association", |world| world.air.current().is_some());
    assert!(world.now - began < secs(20 + 10), "{:?}", world.now - began);
    world.opened(b"b");
}

#[test]
fn an_association_without_received_packets_is_resumed() {
    let mut world = World::new();
    // The first packets under the keys are lost until the air gateway requests new keys.
    let handshakes = Rc::new(Cell::new(0));
    let (asked, answered) = (handshakes.clone(), 1);
    world.lose = Box::new(move |way, datagram| {
        if way == Way::Up && datagram[0] == INIT {
            asked.set(asked.get() + 1);
        }
        way == Way::Up && datagram[0] != INIT && asked.get() <= answered
    });
    world.connect();
    assert_eq!(handshakes.get(), answered, "the first is answered before the next is due");
    let (id, _) = world.air.current().unwrap();
    world.opened(b"a");
    assert!(handshakes.get() > answered);
    assert_eq!(world.air.current().map(|(current, _)| current), Some(id));
    assert_eq!((world.air.sessions_begun(), world.ground.sessions_begun()), (1, 1));
}

#[test]
fn replayed_and_forged_packets_are_ignored() {
    let mut world = World::new();
    world.connect();
    let id = world.opened(b"hello");
    let recorded = {
        let now = world.now;
        world.air().write(id, b" world", now);
        let mut packet = Vec::new();
        world.air.transmit(now, &mut packet).unwrap();
        packet
    };
    for _ in 0..3 {
        let (from, packet) = (world.air_address, recorded.clone());
        world.put(Way::Up, from, packet);
    }
    for at in 0..recorded.len() {
        let mut forged = recorded.clone();
        forged[at] ^= 1;
        world.ground.handle_datagram(&forged, world.air_address, false, world.now);
    }
    let before = world.ground().counters().packets_received;
    world.pass(secs(1));
    let now = world.now;
    let (text, state) = drain(world.ground(), id, now);
    assert_eq!((&text[..], state), (&b"hello world"[..], Read::Blocked));
    let after = world.ground().counters();
    assert!(after.packets_received - before < 4 && after.violations == 0, "{after:?}");
}

#[test]
fn lost_handshakes_are_repeated() {
    let mut world = World::new();
    let mut dropped = 0;
    world.lose = Box::new(move |_, _| {
        dropped += 1;
        dropped <= 5
    });
    world.twice = true;
    world.connect();
    world.opened(b"hello");
}

#[test]
fn a_flood_of_handshakes_gets_cookies() {
    let mut world = World::new();
    let (mut asked, mut answered, mut largest) = (0, 0, 0);
    for n in 0..200u64 {
        let mut first = Vec::new();
        let (secret, ground) = keys();
        let config = AirConfig {
            secret,
            ground: ground.public(),
            address: GROUND.into(),
            settings: settings(),
            first_counter: n + 1,
        };
        AirCore::new(config, [n as u8; 32]).transmit(Duration::ZERO, &mut first).unwrap();
        world.ground.handle_datagram(&first, world.air_address, false, world.now);
        let mut reply = Vec::new();
        while world.ground.transmit(world.now, &mut reply).is_some() {
            largest = largest.max(reply.len());
            if reply[0] == bentpipe_link::secure::COOKIE {
                asked += 1
            } else {
                answered += 1
            }
            reply.clear();
        }
    }
    assert_eq!((answered, asked), (50, 150));
    assert!(largest <= INIT_BYTES);
}

#[test]
fn new_keys_and_a_new_address_keep_the_connections() {
    let lifetime = secs(5);
    let short = Settings { key_lifetime: lifetime, ..settings() };
    let mut world = World::with(short.clone(), short, 9);
    world.connect();
    let id = world.opened(b"a");
    let mut sent = b"a".to_vec();
    for round in 0..6u8 {
        if round == 3 {
            world.air_address = ([203, 0, 113, 9], 1234).into();
        }
        let text = [b'b' + round; 5000];
        let now = world.now;
        assert_eq!(world.air().write(id, &text, now), Write::Taken(text.len()));
        assert_eq!(world.ground().write(id, &text, now), Write::Taken(text.len()));
        sent.extend_from_slice(&text);
        world.pass(secs(6));
    }
    let now = world.now;
    assert_eq!(drain(world.ground(), id, now), (sent.clone(), Read::Blocked));
    assert_eq!(drain(world.air(), id, now), (sent[1..].to_vec(), Read::Blocked));
    assert_eq!(world.ground.sessions().count(), 1);
    assert_eq!(world.ground.sessions_begun(), 1);
}

#[test]
fn a_restarted_ground_ends_connections_and_serves_new_ones() {
    let mut world = World::new();
    world.connect();
    let id = world.opened(b"a");
    let current = |world: &mut World| world.air.current().map(|(id, _)| id);
    let old = current(&mut world).unwrap();
    let (air, ground) = keys();
    let aircraft = vec![Aircraft { key: air.public(), settings: settings() }];
    world.ground = GroundCore::new(GroundConfig { secret: ground, aircraft }, [77; 32]);
    let now = world.now;
    world.air().write(id, b"more", now);
    world.run(secs(60), "a new association", |world| current(world) != Some(old));
    assert!(world.air.session(old).is_none());
    world.opened(b"b");
}

#[test]
fn a_goodbye_ends_the_connections_at_once() {
    let mut world = World::new();
    world.connect();
    world.opened(b"a");
    world.air.close();
    let there = |world: &mut World| world.ground.sessions().count() > 0;
    world.run(secs(2), "the goodbye", |world| !there(world));
    assert_eq!(world.ground.next_event(), None, "its owners were told before");
    assert!(world.air.session(1).is_none_or(|session| session.is_closed()));
}

#[test]
fn a_key_without_handshakes_expires_and_connections_wait() {
    let mut world = World::new();
    world.connect();
    let id = world.opened(b"a");
    // An attacker on the path drops the handshakes and passes the data.
    world.lose = Box::new(|_, datagram| matches!(datagram[0], 0x01 | 0x02));
    let end = bentpipe_link::secure::reject_after(settings().key_lifetime);
    world.pass(end - secs(60));
    let now = world.now;
    assert_eq!(world.ground().write(id, b"before ", now), Write::Taken(7));
    world.pass(secs(90));
    let now = world.now;
    assert_eq!(drain(world.air(), id, now), (b"before ".to_vec(), Read::Blocked));
    assert_eq!(world.ground().write(id, b"after", now), Write::Taken(5));
    world.pass(secs(60));
    let now = world.now;
    assert_eq!(drain(world.air(), id, now), (Vec::new(), Read::Blocked));
    // When handshakes pass again, the connection continues under new keys.
    world.lose = Box::new(|_, _| false);
    world.pass(secs(60));
    let now = world.now;
    assert_eq!(drain(world.air(), id, now), (b"after".to_vec(), Read::Blocked));
    assert_eq!(world.ground.sessions_begun(), 1);
}
