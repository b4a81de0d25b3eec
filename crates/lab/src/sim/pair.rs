//! Both ends of the radio transport, or of AeroTCP, stepped directly: no runtime, no timers, exact
//! virtual time.
//!
//! This is the fast engine. It moves from event to event with a resolution of a nanosecond. Its
//! behaviour depends only on the profile and the seed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bentpipe_aerotcp as aerotcp;
use bentpipe_channel::{Counters, DirectionSpec, Packet};
use bentpipe_flow::Target;
use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, Flows, HubConfig, HubCore, Read,
    SecretKey, Settings, Write,
};
use bentpipe_units::BitRate;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

pub use super::flow_key::FlowKey;
use super::rival::{End, Rival};
use super::trace::{Digest, Event, Outcome};
use super::way::{Tap, Way};
use crate::profile::Profile;
use crate::record::OWN_FLOW;

/// Pacing rate of an unlimited direction. One core cannot reach it.
const UNLIMITED: BitRate = BitRate::from_bps(10_000_000_000);
/// Addresses of the ends.
const AIR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), 40_000);
const HUB: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), 4_500);
/// IPv4 and UDP headers.
const OUTER_BYTES: usize = 28;

/// An air end, which can open flows.
pub trait Opens: Core {
    /// Opens a flow, if a session exists.
    fn open(
        &mut self,
        target: &Target,
        class: Class,
        passenger: u32,
        first: &[u8],
        now: Duration,
    ) -> Option<FlowKey>;
}

macro_rules! opens {
    ($($core:ty),*) => { $(impl Opens for $core {
        fn open(
            &mut self,
            target: &Target,
            class: Class,
            passenger: u32,
            first: &[u8],
            now: Duration,
        ) -> Option<FlowKey> {
            Self::open(self, target, class, passenger, first, now).ok().map(|(flow, _)| flow)
        }
    })* };
}
opens!(AirCore, aerotcp::AirCore);

/// Number of the sender of a datagram, and its content: [`OWN_FLOW`], or one more than the index of
/// a rival. The number is the packet's flow on the link.
type Load = (u64, Vec<u8>);

/// An air end, a hub end, and the link between them, perhaps with rivals on it.
pub struct Pair<A = AirCore, H = HubCore> {
    now: Duration,
    /// The air end.
    pub air: A,
    /// The hub end.
    pub hub: H,
    to_air: Way<Load>,
    to_hub: Way<Load>,
    rivals: Vec<Box<dyn Rival>>,
    digest: Digest,
    opened: Vec<FlowKey>,
}

impl Pair {
    /// Two ends over `profile`'s radio link. `settings` apply to both ends, except the rates, which
    /// come from the link.
    pub fn new(profile: &Profile, settings: &Settings, seed: u64) -> Self {
        Self::between(profile, settings, settings, seed)
    }

    /// Like [`Self::new`], with different settings for the air and the hub.
    pub fn between(profile: &Profile, air: &Settings, hub: &Settings, seed: u64) -> Self {
        let forward = Settings { rate: rate_of(&profile.link.forward), ..hub.clone() };
        let back = Settings { rate: rate_of(&profile.link.return_), ..air.clone() };
        Self::with(profile, &back, &forward, seed)
    }

    /// Like [`Self::between`], with the rates of the settings.
    pub fn with(profile: &Profile, air: &Settings, hub: &Settings, seed: u64) -> Self {
        let (back, forward) = (air.clone(), hub.clone());
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let air_config = AirConfig {
            secret: air.clone(),
            hub: hub.public(),
            address: HUB,
            settings: back,
            first_counter: 1,
        };
        let highest_class = Class::Operator;
        let aircraft = vec![Aircraft { key: air.public(), settings: forward, highest_class }];
        let air = AirCore::new(air_config, rng.random());
        let hub = HubCore::new(HubConfig { secret: hub, aircraft }, rng.random());
        Self::of(air, hub, profile, rng)
    }
}

impl Pair<aerotcp::AirCore, aerotcp::GroundCore> {
    /// Two ends of AeroTCP over `profile`'s radio link. `settings` apply to both ends, except the
    /// bandwidths and the round trip, which come from the link.
    pub fn aerotcp(profile: &Profile, settings: &aerotcp::Settings, seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air, ground) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let with = |spec| aerotcp::Settings {
            bandwidth: rate_of(spec),
            rtt: profile.link.rtt(),
            ..settings.clone()
        };
        let air_config = aerotcp::AirConfig {
            secret: air.clone(),
            ground: ground.public(),
            address: HUB,
            settings: with(&profile.link.return_),
            first_counter: 1,
        };
        let settings = with(&profile.link.forward);
        let aircraft = vec![aerotcp::Aircraft { key: air.public(), settings }];
        let air = aerotcp::AirCore::new(air_config, rng.random());
        let config = aerotcp::GroundConfig { secret: ground, aircraft };
        let ground = aerotcp::GroundCore::new(config, rng.random());
        Self::of(air, ground, profile, rng)
    }
}

impl<A: Opens, H: Core> Pair<A, H> {
    fn of(air: A, hub: H, profile: &Profile, mut rng: ChaCha20Rng) -> Self {
        Self {
            now: Duration::ZERO,
            air,
            hub,
            to_air: Way::new(&profile.link.forward, rng.random()),
            to_hub: Way::new(&profile.link.return_, rng.random()),
            rivals: Vec::new(),
            digest: Digest::of_contents(),
            opened: Vec::new(),
        }
    }

    /// Adds another sender on the same link. Returns its flow there.
    pub fn join(&mut self, rival: Box<dyn Rival>) -> u64 {
        self.rivals.push(rival);
        self.rivals.len() as u64
    }

    /// The rival with this flow.
    pub fn rival(&self, flow: u64) -> Option<&dyn Rival> {
        let index = usize::try_from(flow).ok()?.checked_sub(1)?;
        self.rivals.get(index).map(|rival| &**rival)
    }

    /// Calls the taps for every packet of anybody from now on: towards the aircraft, and back.
    pub fn set_taps(&mut self, to_air: Tap, to_hub: Tap) {
        self.to_air.set_tap(to_air);
        self.to_hub.set_tap(to_hub);
    }

    /// Time since the run began.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Digest of all datagrams so far.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// From now on, the link silently drops IP packets longer than `bytes` in both directions.
    pub fn set_mtu(&mut self, bytes: Option<usize>) {
        self.to_air.direction.set_mtu(bytes);
        self.to_hub.direction.set_mtu(bytes);
    }

    /// Counters of the link: towards the aircraft, and back.
    pub fn counters(&self) -> (Counters, Counters) {
        (self.to_air.counters(), self.to_hub.counters())
    }

    /// Uses `digest` instead of the default, which covers every byte and costs as much as the
    /// encryption.
    pub fn with_digest(self, digest: Digest) -> Self {
        Self { digest, ..self }
    }

    /// Moves to the next moment at which anything happens, and processes what is due.
    pub fn step(&mut self) {
        self.step_within(Duration::MAX);
    }

    /// Like [`Self::step`], but moves no further than `end`, which must be in the future.
    pub fn step_within(&mut self, end: Duration) {
        self.flush();
        let now = self.now;
        let timers = [self.air.next_timeout(now), self.hub.next_timeout(now)];
        let rivals = self.rivals.iter_mut().filter_map(|rival| rival.next_timeout(now));
        let arrivals = [self.to_air.next(), self.to_hub.next()].into_iter().flatten();
        let next = timers.into_iter().chain(rivals).chain(arrivals).min().unwrap_or(now);
        self.now = next.max(now + Duration::from_nanos(1)).min(end).max(now);
        let now = self.now;
        while let Some(((flow, datagram), ce)) = self.to_hub.arrive(now) {
            match self.rival_mut(flow) {
                Some(rival) => rival.receive(End::Hub, &datagram, ce, now),
                None => self.hub.handle_datagram(&datagram, AIR, ce, now),
            }
        }
        while let Some(((flow, datagram), ce)) = self.to_air.arrive(now) {
            match self.rival_mut(flow) {
                Some(rival) => rival.receive(End::Air, &datagram, ce, now),
                None => self.air.handle_datagram(&datagram, HUB, ce, now),
            }
        }
        self.air.handle_timeout(now);
        self.hub.handle_timeout(now);
        for rival in &mut self.rivals {
            rival.handle_timeout(now);
        }
        while let Some((session, event)) = self.hub.next_event() {
            if let FlowEvent::Opened { flow, .. } | FlowEvent::OpenedDatagrams { flow, .. } = event
            {
                self.opened.push((session, flow));
            }
        }
        while self.air.next_event().is_some() {}
    }

    /// Steps until `done`. Returns `false` if that takes longer than `limit`.
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

    /// Opens a flow of passenger 1 at the air, if a session exists.
    pub fn open(&mut self, first: &[u8]) -> Option<FlowKey> {
        self.open_for(1, first)
    }

    /// Opens a flow of `passenger` at the air, if a session exists.
    pub fn open_for(&mut self, passenger: u32, first: &[u8]) -> Option<FlowKey> {
        self.open_in(Class::BestEffort, passenger, first)
    }

    /// Opens a flow of `class` for `passenger` at the air, if a session exists.
    pub fn open_in(&mut self, class: Class, passenger: u32, first: &[u8]) -> Option<FlowKey> {
        let target = "origin.example:80".parse().expect("the target is well formed");
        Opens::open(&mut self.air, &target, class, passenger, first, self.now)
    }

    /// The next flow that has reached the hub.
    pub fn accept(&mut self) -> Option<FlowKey> {
        (!self.opened.is_empty()).then(|| self.opened.remove(0))
    }

    /// Writes at the hub as much as the flow accepts. Returns the number of bytes.
    pub fn serve(&mut self, flow: FlowKey, data: &[u8]) -> usize {
        let now = self.now;
        match self.hub.session(flow.0).map(|session| session.write(flow.1, data, now)) {
            Some(Write::Taken(bytes)) => bytes,
            _ => 0,
        }
    }

    /// Ends the hub's direction of the flow.
    pub fn finish(&mut self, flow: FlowKey) {
        if let Some(session) = self.hub.session(flow.0) {
            Flows::finish(session, flow.1, self.now);
        }
    }

    /// Reads at the air into `buffer`.
    pub fn fetch(&mut self, flow: FlowKey, buffer: &mut [u8]) -> Option<Read> {
        let now = self.now;
        self.air.session(flow.0).map(|session| session.read(flow.1, buffer, now))
    }

    fn rival_mut(&mut self, flow: u64) -> Option<&mut Box<dyn Rival>> {
        let index = usize::try_from(flow).ok()?.checked_sub(1)?;
        self.rivals.get_mut(index)
    }

    fn flush(&mut self) {
        let (now, mut datagram) = (self.now, Vec::new());
        while self.air.transmit(now, &mut datagram).is_some() {
            let is_ect = self.air.is_ect();
            self.send(End::Air, std::mem::take(&mut datagram), is_ect);
        }
        while self.hub.transmit(now, &mut datagram).is_some() {
            let is_ect = self.hub.is_ect();
            self.send(End::Hub, std::mem::take(&mut datagram), is_ect);
        }
        for (flow, rival) in (1..).zip(&mut self.rivals) {
            while let Some(sent) = rival.transmit(now, &mut datagram) {
                let packet =
                    Packet { bytes: datagram.len() + OUTER_BYTES, flow, is_ect: sent.is_ect };
                let way = if sent.by == End::Air { &mut self.to_hub } else { &mut self.to_air };
                way.offer(packet, now, |_| (flow, std::mem::take(&mut datagram)));
            }
        }
    }

    /// Offers a datagram of the pair itself to its direction, and adds it to the digest.
    fn send(&mut self, by: End, datagram: Vec<u8>, is_ect: bool) {
        let (way, from, to) = match by {
            End::Air => (&mut self.to_hub, AIR, HUB),
            End::Hub => (&mut self.to_air, HUB, AIR),
        };
        let packet = Packet { bytes: datagram.len() + OUTER_BYTES, flow: OWN_FLOW, is_ect };
        let (at, digest) = (self.now, &mut self.digest);
        way.offer(packet, at, |fate| {
            let outcome = Outcome::Link(fate);
            digest.add(&Event { at, from, to, bytes: &datagram, outcome });
            (OWN_FLOW, datagram)
        });
    }
}

/// Initial rate of a direction, as its operator would configure it.
pub(super) fn rate_of(direction: &DirectionSpec) -> BitRate {
    direction.rate().unwrap_or(UNLIMITED)
}
