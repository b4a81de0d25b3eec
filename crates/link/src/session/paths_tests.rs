//! Sessions over two paths that fail, move and return.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_units::BitRate;
use rand::SeedableRng;

use super::{HEADER_BYTES, Session};
use crate::Class;
use crate::crypto::Rng;
use crate::endpoint::{AirConfig, AirCore, Aircraft, Core, HubConfig, HubCore};
use crate::flow::Read;
use crate::key::SecretKey;
use crate::lane::Lane;
use crate::lease::{LeaseMode, MODEM_LEASE, ModemRate};
use crate::path_settings::PathSettings;
use crate::settings::Settings;
use crate::wire::header::{DATA, DataHeader};

/// One-way delay of both paths.
pub const DELAY: Duration = Duration::from_millis(50);
pub const STEP: Duration = Duration::from_millis(1);

/// Settings of an end with two paths, whose packets have at most these sizes.
pub fn settings(mtus: [usize; 2]) -> Settings {
    let rate = BitRate::from_bps(2_000_000);
    let further = PathSettings {
        name: "LTE".to_owned(),
        rate,
        lease: LeaseMode::Static,
        mtu_bytes: mtus[1],
        metered: false,
        quota: None,
    };
    let paths = vec![further];
    let initial_rtt = DELAY * 2;
    Settings { rate, initial_rtt, mtu_bytes: mtus[0], paths, ..Settings::default() }
}

/// A datagram that arrives at a time: at the hub from an address, or at the air.
struct Flying {
    at: Duration,
    path: usize,
    from: SocketAddr,
    to: SocketAddr,
    contents: Vec<u8>,
}

/// Two ends and two paths.
pub struct World {
    pub air: AirCore,
    pub hub: HubCore,
    pub now: Duration,
    /// Paths that lose everything.
    pub dead: [bool; 2],
    /// Volume sent on each path in both directions.
    pub carried: [u64; 2],
    /// Addresses at which the hub sees the paths.
    seen_as: [SocketAddr; 2],
    hub_at: SocketAddr,
    up: VecDeque<Flying>,
    down: VecDeque<Flying>,
    /// Bytes that the hub read.
    read: usize,
}

impl World {
    fn new(mtus: [usize; 2]) -> Self {
        Self::with(&settings(mtus), &settings(mtus))
    }

    /// Creates both ends with these settings.
    pub fn with(of_air: &Settings, of_hub: &Settings) -> Self {
        let mut rng = Rng::seed_from_u64(7);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let hub_at = ([198, 18, 0, 2], 4500).into();
        let config = AirConfig {
            secret: air.clone(),
            hub: hub.public(),
            address: hub_at,
            settings: of_air.clone(),
            first_counter: 1,
        };
        let aircraft = vec![Aircraft {
            key: air.public(),
            settings: of_hub.clone(),
            highest_class: Class::Operator,
        }];
        Self {
            air: AirCore::new(config, [1; 32]),
            hub: HubCore::new(HubConfig { secret: hub, aircraft }, [2; 32]),
            now: Duration::ZERO,
            dead: [false; 2],
            carried: [0; 2],
            seen_as: [([198, 18, 0, 1], 1).into(), ([198, 18, 1, 1], 1).into()],
            hub_at,
            up: VecDeque::new(),
            down: VecDeque::new(),
            read: 0,
        }
    }

    /// Creates both ends and lets both paths come into use.
    pub fn connected(mtus: [usize; 2]) -> Self {
        let mut world = Self::new(mtus);
        world.run(Duration::from_secs(2));
        assert_eq!(world.live(), [[true; 2]; 2]);
        world
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            let now = self.now;
            while self.up.front().is_some_and(|it| it.at <= now) {
                let Flying { path, from, to, contents, .. } = self.up.pop_front().unwrap();
                if !self.dead[path] && to == self.hub_at {
                    self.hub.handle_datagram(&contents, from, false, now);
                }
            }
            while self.down.front().is_some_and(|it| it.at <= now) {
                let Flying { path, to, contents, .. } = self.down.pop_front().unwrap();
                if !self.dead[path] && to == self.seen_as[path] {
                    self.air.handle_datagram(&contents, self.hub_at, false, now);
                }
            }
            self.air.handle_timeout(now);
            self.hub.handle_timeout(now);
            let mut contents = Vec::new();
            while let Some(to) = self.air.transmit(now, &mut contents) {
                let path = usize::from(self.air.path());
                let (at, from) = (now + DELAY, self.seen_as[path]);
                let contents = std::mem::take(&mut contents);
                self.carried[path] += contents.len() as u64 + HEADER_BYTES;
                self.up.push_back(Flying { at, path, from, to, contents });
            }
            while let Some(to) = self.hub.transmit(now, &mut contents) {
                let contents = std::mem::take(&mut contents);
                let header =
                    DataHeader::parse(&contents).ok().filter(|_| contents[0] & 0xf0 == DATA);
                // The answer of a handshake goes where the call came from.
                let called = self.seen_as.iter().position(|address| *address == to).unwrap_or(0);
                let path = header.map_or(called, |(header, _)| usize::from(header.path));
                self.carried[path] += contents.len() as u64 + HEADER_BYTES;
                self.down.push_back(Flying {
                    at: now + DELAY,
                    path,
                    from: self.hub_at,
                    to,
                    contents,
                });
            }
            while self.air.next_event().is_some() {}
            while self.hub.next_event().is_some() {}
            self.air.next_timeout(now);
            self.hub.next_timeout(now);
        }
    }

    pub fn air(&mut self) -> &mut Session {
        self.air.current().expect("there is a session").1
    }

    pub fn hub(&mut self) -> &mut Session {
        self.hub.sessions().next().expect("there is a session").2
    }

    /// The paths of the air that are live, and those of the hub.
    pub fn live(&mut self) -> [[bool; 2]; 2] {
        let of = |session: &Session| {
            [0, 1].map(|id| session.paths().any(|path| path.id == id && path.is_live()))
        };
        [of(self.air()), of(self.hub())]
    }

    pub fn open(&mut self, bytes: usize) -> u64 {
        let (now, target) = (self.now, "origin.example:80".parse().unwrap());
        let air = self.air();
        let (flow, taken) = air.open(&target, Class::BestEffort, 1, &[], now).unwrap();
        assert_eq!(taken, 0);
        air.write(flow, &vec![7; bytes], now);
        flow
    }

    /// Reads what has come at the hub.
    pub fn read(&mut self, flow: u64) -> usize {
        let (now, mut out) = (self.now, vec![0; 1 << 20]);
        if let Read::Taken(bytes) = self.hub().read(flow, &mut out, now) {
            self.read += bytes;
        }
        self.read
    }
}

pub fn path_of(session: &Session, id: u8) -> &super::Path {
    session.paths().find(|path| path.id == id).expect("there is such a path")
}

#[test]
fn a_path_whose_address_changes_during_its_validation_is_validated() {
    let mut world = World::new([1280; 2]);
    while world.hub.sessions().next().is_none_or(|(_, _, hub)| hub.paths().count() < 2) {
        world.run(STEP);
    }
    // The hub's challenge goes to the address that the path had.
    world.seen_as[1] = ([198, 18, 1, 1], 2).into();
    assert_eq!(world.live()[1], [true, false]);
    world.run(Duration::from_secs(3));
    assert_eq!(world.live(), [[true; 2]; 2]);
    assert_eq!(path_of(world.hub(), 1).peer.port(), 2);
}

#[test]
fn symbols_of_the_last_live_path_go_again_on_one_that_comes_into_use() {
    let mut world = World::new([1280; 2]);
    world.dead[1] = true;
    world.run(Duration::from_secs(2));
    assert_eq!(world.live(), [[true, false]; 2]);
    let flow = world.open(20_000);
    world.run(Duration::from_millis(20));
    world.dead = [true; 2];
    world.run(Duration::from_secs(20));
    let now = world.now;
    assert!(world.air().outage(now) > Duration::from_secs(15), "the other path never answered");
    world.dead[1] = false;
    while !world.live()[0][1] {
        world.run(STEP);
    }
    let bulk = [Lane::Urgent, Lane::Bulk]
        .map(|lane| world.air().send.reliable[lane as usize].is_in_flight_on(0));
    assert_eq!(bulk, [false; 2], "nothing waits for the dead path");
    world.run(Duration::from_secs(2));
    assert_eq!(world.read(flow), 20_000);
}

#[test]
fn a_download_does_not_overtake_its_symbols_that_a_slow_path_sends_again() {
    let mut of_air = settings([1280; 2]);
    of_air.paths[0].rate = BitRate::from_bps(200_000);
    let mut world = World::with(&of_air, &settings([1280; 2]));
    world.run(Duration::from_secs(2));
    assert_eq!(world.live(), [[true; 2]; 2]);
    let flow = world.open(0);
    let run = |world: &mut World, steps: usize| {
        for _ in 0..steps {
            let now = world.now;
            world.air().write(flow, &[7; 20_000], now);
            world.run(STEP);
            world.read(flow);
        }
        world.air().send.reliable.each_ref().map(|lane| lane.next_number())
    };
    let before = run(&mut world, 3000);
    world.dead[0] = true;
    // They take longer than a round trip, in which the flow sends nothing new.
    let after = run(&mut world, 10_000);
    assert!(after[Lane::Bulk as usize] > before[Lane::Bulk as usize] + 50, "{before:?} {after:?}");
    assert_eq!(after[Lane::Urgent as usize], before[Lane::Urgent as usize], "no burst begins");
}

#[test]
fn only_the_time_without_any_path_counts_as_unheard() {
    let mut world = World::connected([1280; 2]);
    world.dead[0] = true;
    world.run(Duration::from_secs(60));
    let now = world.now;
    assert_eq!(world.air().unheard(now), Duration::ZERO);
    world.dead[1] = true;
    world.run(Duration::from_secs(60));
    world.dead = [false; 2];
    world.run(Duration::from_secs(20));
    assert_eq!(world.live(), [[true; 2]; 2]);
    let now = world.now;
    let unheard = world.air().unheard(now);
    assert!((Duration::from_secs(30)..Duration::from_secs(75)).contains(&unheard), "{unheard:?}");
}

#[test]
fn a_path_is_doubted_soon_after_a_long_outage_too() {
    let mut world = World::connected([1280; 2]);
    world.dead[0] = true;
    world.run(Duration::from_secs(60));
    world.dead[0] = false;
    while !world.live()[0][0] {
        world.run(STEP);
    }
    let news_after = path_of(world.air(), 0).news_after;
    assert!(news_after < Duration::from_secs(1), "{news_after:?}");
}

#[test]
fn every_live_path_carries_a_close() {
    let mut world = World::connected([1280; 2]);
    world.dead[0] = true;
    world.air.close();
    world.run(Duration::from_secs(1));
    assert!(world.hub.sessions().next().is_none(), "the hub heard it on the other path");
}

#[test]
fn a_refused_size_lowers_the_packets_of_its_own_path() {
    let mut world = World::connected([1500; 2]);
    world.run(Duration::from_secs(2));
    let mtus = |session: &Session| [0, 1].map(|id| path_of(session, id).mtu.current());
    assert_eq!([mtus(world.air()), mtus(world.hub())], [[1500; 2]; 2]);
    let (to, hub_at, now) = (world.seen_as[1], world.hub_at, world.now);
    world.hub.too_large((to, 0), 1472, now);
    world.air.too_large((hub_at, 1), 1472, now);
    let [air, hub] = [mtus(world.air()), mtus(world.hub())];
    assert!(air[0] == 1500 && air[1] < 1500, "{air:?}");
    assert!(hub[0] == 1500 && hub[1] < 1500, "{hub:?}");
}

#[test]
fn all_paths_follow_the_hub_to_the_address_at_which_it_answers() {
    let mut world = World::connected([1280; 2]);
    let next = ([198, 18, 0, 3], 4500).into();
    world.air.also_at([next]);
    world.hub_at = next;
    world.run(Duration::from_secs(120));
    assert_eq!([0, 1].map(|id| path_of(world.air(), id).peer), [next; 2]);
    assert_eq!(world.live(), [[true; 2]; 2]);
}

#[test]
fn symbols_of_a_path_with_large_packets_fit_the_other_path() {
    let mut world = World::connected([9000, 1280]);
    world.run(Duration::from_secs(2));
    assert_eq!(path_of(world.air(), 0).mtu.current(), 9000);
    let air = world.air();
    let smaller = path_of(air, 1).max_plaintext();
    assert!(air.path.max_plaintext() - smaller > 7000);
    assert_eq!(air.room_everywhere(air.path.max_plaintext()), smaller);
    assert_eq!(air.room_everywhere(400), 400, "what a long report leaves is no less");
}

pub fn reported(kbps: u64, is_down: bool) -> Option<ModemRate> {
    let rate = BitRate::from_bps(1_000 * kbps);
    Some(ModemRate { rate, per_packet_overhead: 0, is_down })
}

#[test]
fn each_path_follows_its_modem() {
    let mut world = World::connected([1280; 2]);
    let rates = |world: &mut World| {
        let air = world.air();
        [0, 1].map(|id| path_of(air, id).pacer.rate().bps() / 1_000)
    };
    world.air.set_modem_rate(1, reported(500, false), world.now);
    assert_eq!(rates(&mut world), [2_000, 500]);
    world.air.set_modem_rate(0, reported(3_000, false), world.now);
    assert_eq!(rates(&mut world), [2_000, 500], "the operator's rate is the maximum");
    world.air.set_modem_rate(0, reported(800, false), world.now);
    world.air.set_modem_rate(1, None, world.now);
    assert_eq!(rates(&mut world), [800, 2_000]);
    // A path that the session does not have.
    world.air.set_modem_rate(2, reported(100, false), world.now);
    assert_eq!(rates(&mut world), [800, 2_000]);
    world.run(MODEM_LEASE);
    assert_eq!(rates(&mut world), [2_000; 2], "a report that is not repeated ends");
}

#[test]
fn the_next_session_has_the_reports_of_all_modems() {
    let mut world = World::new([1280; 2]);
    world.air.set_modem_rate(1, reported(500, false), world.now);
    world.run(Duration::from_secs(2));
    assert_eq!(world.live(), [[true; 2]; 2]);
    assert_eq!(path_of(world.air(), 1).pacer.rate().bps(), 500_000);
}
