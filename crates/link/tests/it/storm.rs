//! A hub restarts under its fleet: the time until all aircraft are back, and its cost to the hub.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, HubConfig, PublicKey, SecretKey, Settings,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::sharded::Sharded;

const HUB: &str = "198.18.0.2:4500";
/// One-way delay over a geostationary satellite, as in the maritime profile.
const DELAY: Duration = Duration::from_micros(380_500);
/// Bound on the time until all are back: three round trips and five seconds.
const BOUND: Duration = Duration::from_micros(3 * 761_000 + 5_000_000);
const AIRCRAFT: usize = 500;
/// Curve operations that a hub may spend at once, and again every second.
const CURVE_OPERATIONS: u64 = 1000;

/// Datagram in flight: the air it goes to, unless to the hub; the air it concerns; its bytes.
type Flying = (Option<usize>, usize, Vec<u8>);

/// A restart of the hub.
#[derive(Default)]
struct Restart {
    seed: u64,
    outage: Duration,
    /// Strangers who call when the hub is back.
    strangers: usize,
    /// Shards of the hub beyond the first.
    more_shards: usize,
    /// Aircraft that can go on at another hub, so they call often.
    calls_often: bool,
}

struct Fleet {
    now: Duration,
    rng: ChaCha8Rng,
    secret: SecretKey,
    keys: Vec<PublicKey>,
    hub: Option<Sharded>,
    shards: usize,
    /// Aircraft known to the hub, then strangers.
    airs: Vec<AirCore>,
    /// Time of the next call of each.
    due: Vec<Duration>,
    hub_due: Duration,
    /// Datagrams in flight by time of arrival, to an air or from an air to the hub.
    flying: BTreeMap<(Duration, u64), Flying>,
    count: u64,
}

fn address(air: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (air / 250) as u8, (air % 250) as u8], 40_000))
}

impl Fleet {
    fn new(restart: &Restart) -> Self {
        let Restart { strangers, calls_often, .. } = *restart;
        let mut rng = ChaCha8Rng::seed_from_u64(restart.seed);
        let secret = SecretKey::generate(&mut rng);
        let secrets: Vec<_> =
            (0..AIRCRAFT + strangers).map(|_| SecretKey::generate(&mut rng)).collect();
        let keys = secrets[..AIRCRAFT].iter().map(SecretKey::public).collect();
        let hub = secret.public();
        let air = |own: SecretKey| {
            let settings = Settings { calls_often, ..Settings::default() };
            let address = HUB.parse().unwrap();
            let config = AirConfig { secret: own, hub, address, settings, first_counter: 1 };
            AirCore::new(config, rng.random())
        };
        let airs: Vec<_> = secrets.into_iter().map(air).collect();
        let due = (0..airs.len()).map(|air| Duration::from_millis(7 * air as u64)).collect();
        let mut fleet = Self {
            now: Duration::ZERO,
            rng,
            secret,
            keys,
            hub: None,
            shards: 1 + restart.more_shards,
            airs,
            due,
            hub_due: Duration::MAX,
            flying: BTreeMap::new(),
            count: 0,
        };
        // Strangers connect when they are told to.
        fleet.due[AIRCRAFT..].fill(Duration::MAX);
        fleet.start_hub(&[]);
        fleet
    }

    /// Starts a new process of the hub, which knows the addresses of its aircraft.
    fn start_hub(&mut self, homes: &[(PublicKey, IpAddr)]) {
        let aircraft = |key: &PublicKey| {
            let (settings, highest_class) = (Settings::default(), Class::BestEffort);
            Aircraft { key: *key, settings, highest_class }
        };
        let aircraft = self.keys.iter().map(aircraft).collect();
        let config = HubConfig { secret: self.secret.clone(), aircraft };
        let seeds: Vec<_> = (0..self.shards).map(|_| self.rng.random()).collect();
        let mut hub = Sharded::new(&config, &seeds);
        homes.iter().for_each(|(key, home)| hub.remember_home(key, *home));
        self.hub = Some(hub);
        self.hub_due = self.now;
    }

    /// Ends the hub's process without a message; the addresses of its aircraft are on its disk.
    fn kill_hub(&mut self) -> Vec<(PublicKey, IpAddr)> {
        let hub = self.hub.take().expect("it runs");
        self.flying.retain(|_, (to, ..)| to.is_some());
        hub.homes()
    }

    fn flush_air(&mut self, air: usize) {
        let (now, core, mut out) = (self.now, &mut self.airs[air], Vec::new());
        core.handle_timeout(now);
        while core.transmit(now, &mut out).is_some() {
            self.count += 1;
            let datagram = std::mem::take(&mut out);
            self.flying.insert((now + DELAY, self.count), (None, air, datagram));
        }
        while core.next_event().is_some() {}
        self.due[air] = core.next_timeout(now).max(now + Duration::from_micros(1));
    }

    fn flush_hub(&mut self) {
        let (now, mut out) = (self.now, Vec::new());
        let Some(hub) = &mut self.hub else { return };
        hub.handle_timeout(now);
        while let Some(to) = hub.transmit(now, &mut out) {
            self.count += 1;
            let datagram = std::mem::take(&mut out);
            let SocketAddr::V4(to) = to else { panic!("{to}") };
            let [_, _, high, low] = to.ip().octets();
            let air = usize::from(high) * 250 + usize::from(low);
            self.flying.insert((now + DELAY, self.count), (Some(air), air, datagram));
        }
        while hub.next_event().is_some() {}
        self.hub_due = hub.next_timeout(now).max(now + Duration::from_micros(1));
    }

    /// Runs until `done`, or until `end`.
    fn run(&mut self, end: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        while self.now < end && !done(self) {
            let air_due = self.due.iter().min().copied().unwrap_or(end);
            let hub_due = self.hub.as_ref().map_or(end, |_| self.hub_due);
            let arrival = self.flying.keys().next().map_or(end, |(at, _)| *at);
            self.now = air_due.min(hub_due).min(arrival).min(end).max(self.now);
            let now = self.now;
            let mut for_hub = false;
            while let Some(entry) = self.flying.first_entry().filter(|it| it.key().0 <= now) {
                let (to, air, datagram) = entry.remove();
                match (to, &mut self.hub) {
                    (Some(_), _) => {
                        let from = HUB.parse().unwrap();
                        self.airs[air].handle_datagram(&datagram, from, false, now);
                        self.flush_air(air);
                    }
                    (None, Some(hub)) => {
                        hub.handle_datagram(&datagram, address(air), false, now);
                        for_hub = true;
                    }
                    (None, None) => {}
                }
            }
            if for_hub || self.hub_due <= now {
                self.flush_hub();
            }
            for air in 0..self.airs.len() {
                if self.due[air] <= now {
                    self.flush_air(air);
                }
            }
        }
    }

    /// Returns `true` if this hub has a session with each aircraft.
    fn is_up(&self) -> bool {
        self.hub.as_ref().is_some_and(|hub| hub.sessions_begun() == AIRCRAFT as u64)
    }

    /// Opens a flow on every aircraft and sends something on it.
    fn talk(&mut self) {
        for air in 0..AIRCRAFT {
            let target = "origin.example:80".parse().unwrap();
            let core = &mut self.airs[air];
            core.open(&target, Class::BestEffort, 1, b"GET", self.now).unwrap();
            self.flush_air(air);
        }
    }
}

/// Connects all aircraft, and restarts the hub. Returns the time until all aircraft are back.
fn storm(restart: &Restart) -> Duration {
    let mut fleet = Fleet::new(restart);
    fleet.run(Duration::from_secs(120), |fleet| fleet.is_up());
    assert!(fleet.is_up());
    fleet.run(fleet.now + Duration::from_secs(5), |_| false);
    fleet.talk();
    let homes = fleet.kill_hub();
    assert_eq!(homes.len(), AIRCRAFT);
    fleet.run(fleet.now + restart.outage, |_| false);
    fleet.start_hub(&homes);
    let began = fleet.now;
    fleet.due[AIRCRAFT..].fill(began);
    fleet.run(began + Duration::from_secs(60), |fleet| {
        let spent = fleet.hub.as_ref().map_or(0, Sharded::curve_operations);
        let passed = (fleet.now - began).as_micros() as u64;
        let budget = CURVE_OPERATIONS + passed * CURVE_OPERATIONS / 1_000_000;
        assert!(spent <= budget, "{spent} of {budget} curve operations");
        fleet.is_up()
    });
    assert!(fleet.is_up(), "{} are back", fleet.hub.map_or(0, |hub| hub.sessions_begun()));
    fleet.now - began
}

/// Time without a hub, after which calls without another hub are 30 s apart.
const LONG_OUTAGE: Duration = Duration::from_secs(61);

#[track_caller]
fn assert_soon(restart: &Restart) {
    let took = storm(restart);
    eprintln!("{AIRCRAFT} aircraft are back after {took:?}");
    assert!(took <= BOUND, "{took:?}");
}

#[test]
fn a_fleet_is_back_soon_after_its_hub_restarted() {
    assert_soon(&Restart { seed: 1, ..Restart::default() });
}

#[test]
fn a_fleet_is_back_soon_after_its_hub_was_down() {
    assert_soon(&Restart { seed: 2, outage: LONG_OUTAGE, ..Restart::default() });
}

#[test]
fn a_fleet_goes_before_strangers_with_true_addresses() {
    assert_soon(&Restart { seed: 3, outage: LONG_OUTAGE, strangers: 300, ..Restart::default() });
}

#[test]
fn a_fleet_returns_to_a_sharded_hub_within_the_same_budget() {
    for more_shards in [1, 3] {
        let one = Restart { seed: 4, outage: LONG_OUTAGE, strangers: 300, ..Restart::default() };
        assert_soon(&Restart { more_shards, ..one });
    }
}

#[test]
fn a_fleet_that_calls_often_is_back_as_soon() {
    for (outage, strangers) in [(Duration::ZERO, 0), (LONG_OUTAGE, 0), (LONG_OUTAGE, 300)] {
        let often = Restart { seed: 5, outage, strangers, calls_often: true, ..Restart::default() };
        assert_soon(&often);
    }
}
