//! Both ends of the radio transport stepped directly: no runtime, no timers, exact virtual time.
//!
//! This is the fast engine. It moves from event to event to the nanosecond, and what it does
//! depends on the profile and the seed alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_channel::{Counters, Direction, DirectionSpec, Fate};
use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, Read, SecretKey,
    SessionId, Settings, Write,
};
use bentpipe_units::BitRate;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::trace::{Digest, Event, Outcome};
use crate::profile::Profile;

/// Pacing rate of an unlimited direction: as fast as one core may hope to go.
const UNLIMITED: BitRate = BitRate::from_bps(10_000_000_000);
/// IPv4 and UDP headers.
const OUTER_BYTES: usize = 28;

/// A flow's name at one end.
pub type FlowKey = (SessionId, u64);

/// An air end, a hub end, and the link between them.
pub struct Pair {
    now: Duration,
    /// The air's end.
    pub air: AirCore,
    /// The hub's end.
    pub hub: HubCore,
    to_air: Way,
    to_hub: Way,
    digest: Digest,
    opened: Vec<FlowKey>,
}

/// Datagram in flight: its arrival time, its place in the order of sending, its content, and its
/// mark.
type UnderWay = (Duration, u64, Vec<u8>, bool);

/// One direction with what is under way on it.
pub(super) struct Way {
    pub(super) direction: Direction,
    in_flight: BinaryHeap<Reverse<UnderWay>>,
    sent: u64,
    pub(super) from: SocketAddr,
    to: SocketAddr,
}

impl Pair {
    /// Two ends over `profile`'s radio link; `settings` are both ends', but for the rates, which
    /// are the link's.
    pub fn new(profile: &Profile, settings: &Settings, seed: u64) -> Self {
        Self::between(profile, settings, settings, seed)
    }

    /// As [`Self::new`], with settings of its own for each end: the air's, then the hub's.
    pub fn between(profile: &Profile, air: &Settings, hub: &Settings, seed: u64) -> Self {
        let forward = Settings { rate: rate_of(&profile.link.forward), ..hub.clone() };
        let back = Settings { rate: rate_of(&profile.link.return_), ..air.clone() };
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let addresses: [SocketAddr; 2] =
            [([198, 18, 0, 1], 40_000).into(), ([198, 18, 0, 2], 4_500).into()];
        let air_config = AirConfig {
            secret: air.clone(),
            hub: hub.public(),
            address: addresses[1],
            settings: back,
            first_counter: 1,
        };
        let highest_class = Class::Operator;
        let aircraft = vec![Aircraft { key: air.public(), settings: forward, highest_class }];
        Self {
            now: Duration::ZERO,
            air: AirCore::new(air_config, rng.random()),
            hub: HubCore::new(HubConfig { secret: hub, aircraft }, rng.random()),
            to_air: Way::new(&profile.link.forward, rng.random(), addresses[1], addresses[0]),
            to_hub: Way::new(&profile.link.return_, rng.random(), addresses[0], addresses[1]),
            digest: Digest::of_contents(),
            opened: Vec::new(),
        }
    }

    /// The time since the run began.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Every datagram so far, byte for byte.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// From now on the link drops IP packets longer than `bytes`, both ways, and tells nobody.
    pub fn set_mtu(&mut self, bytes: Option<usize>) {
        self.to_air.direction.set_mtu(bytes);
        self.to_hub.direction.set_mtu(bytes);
    }

    /// Counters of the link: towards the aircraft, and back.
    pub fn counters(&self) -> (Counters, Counters) {
        (self.to_air.direction.counters(), self.to_hub.direction.counters())
    }

    /// Takes another digest than that over every byte, which costs as much as the encryption.
    pub fn with_digest(self, digest: Digest) -> Self {
        Self { digest, ..self }
    }

    /// Moves to the next moment at which anything happens, and does what is due then.
    pub fn step(&mut self) {
        self.step_within(Duration::MAX);
    }

    /// As [`Self::step`], but goes no further than `end`, which is still to come.
    pub fn step_within(&mut self, end: Duration) {
        self.flush();
        let timers = [self.air.next_timeout(self.now), self.hub.next_timeout(self.now)];
        let arrivals = [self.to_air.next(), self.to_hub.next()].into_iter().flatten();
        let next = timers.into_iter().chain(arrivals).min().unwrap_or(self.now);
        self.now = next.max(self.now + Duration::from_nanos(1)).min(end).max(self.now);
        while let Some((datagram, ce)) = self.to_hub.arrive(self.now) {
            self.hub.handle_datagram(&datagram, self.to_hub.from, ce, self.now);
        }
        while let Some((datagram, ce)) = self.to_air.arrive(self.now) {
            self.air.handle_datagram(&datagram, self.to_air.from, ce, self.now);
        }
        self.air.handle_timeout(self.now);
        self.hub.handle_timeout(self.now);
        while let Some((session, event)) = self.hub.next_event() {
            if let FlowEvent::Opened { flow, .. } | FlowEvent::OpenedDatagrams { flow, .. } = event
            {
                self.opened.push((session, flow));
            }
        }
        while self.air.next_event().is_some() {}
    }

    /// Steps until `done`; `false` when that took longer than `limit`.
    pub fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        while !done(self) {
            if self.now >= end {
                return false;
            }
            self.step();
        }
        true
    }

    /// Opens a flow of passenger 1 at the air once there is a session.
    pub fn open(&mut self, first: &[u8]) -> Option<FlowKey> {
        self.open_for(1, first)
    }

    /// Opens a flow of a passenger at the air once there is a session.
    pub fn open_for(&mut self, passenger: u32, first: &[u8]) -> Option<FlowKey> {
        self.open_in(Class::BestEffort, passenger, first)
    }

    /// Opens a flow of a class for a passenger at the air once there is a session.
    pub fn open_in(&mut self, class: Class, passenger: u32, first: &[u8]) -> Option<FlowKey> {
        let target = "origin.example:80".parse().expect("the target is well formed");
        let opened = self.air.open(&target, class, passenger, first, self.now);
        opened.ok().map(|(flow, _)| flow)
    }

    /// Returns `true` if a flow has reached the hub that was not accepted.
    pub fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    /// The next flow that has reached the hub.
    pub fn accept(&mut self) -> Option<FlowKey> {
        (!self.opened.is_empty()).then(|| self.opened.remove(0))
    }

    /// Writes at the hub what there is room for; returns how much that was.
    pub fn serve(&mut self, flow: FlowKey, data: &[u8]) -> usize {
        let now = self.now;
        match self.hub.session(flow.0).map(|session| session.write(flow.1, data, now)) {
            Some(Write::Taken(bytes)) => bytes,
            _ => 0,
        }
    }

    /// Reads at the air into `buffer`.
    pub fn fetch(&mut self, flow: FlowKey, buffer: &mut [u8]) -> Option<Read> {
        let now = self.now;
        self.air.session(flow.0).map(|session| session.read(flow.1, buffer, now))
    }

    fn flush(&mut self) {
        let mut datagram = Vec::new();
        while self.air.transmit(self.now, &mut datagram).is_some() {
            let ect = self.air.is_ect();
            self.to_hub.offer(std::mem::take(&mut datagram), ect, self.now, &mut self.digest);
        }
        while self.hub.transmit(self.now, &mut datagram).is_some() {
            let ect = self.hub.is_ect();
            self.to_air.offer(std::mem::take(&mut datagram), ect, self.now, &mut self.digest);
        }
    }
}

impl Way {
    pub(super) fn new(spec: &DirectionSpec, seed: u64, from: SocketAddr, to: SocketAddr) -> Self {
        let direction = Direction::new(spec, seed);
        Self { direction, in_flight: BinaryHeap::new(), sent: 0, from, to }
    }

    pub(super) fn offer(
        &mut self,
        datagram: Vec<u8>,
        ect: bool,
        now: Duration,
        digest: &mut Digest,
    ) {
        let bytes = datagram.len() + OUTER_BYTES;
        let (fate, ce) = if ect {
            self.direction.offer_ect(now, bytes)
        } else {
            (self.direction.offer(now, bytes), false)
        };
        let outcome = Outcome::Link(fate);
        digest.add(&Event { at: now, from: self.from, to: self.to, bytes: &datagram, outcome });
        if let Fate::Delivered { at } = fate {
            self.sent += 1;
            self.in_flight.push(Reverse((at, self.sent, datagram, ce)));
        }
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.in_flight.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next datagram that is here by `now`, and whether it was marked on the way.
    pub(super) fn arrive(&mut self, now: Duration) -> Option<(Vec<u8>, bool)> {
        self.next().filter(|at| *at <= now)?;
        self.in_flight.pop().map(|Reverse((.., datagram, ce))| (datagram, ce))
    }
}

/// The rate that a direction has at the start, as its operator would configure it.
pub(super) fn rate_of(direction: &DirectionSpec) -> BitRate {
    direction.rate().unwrap_or(UNLIMITED)
}
