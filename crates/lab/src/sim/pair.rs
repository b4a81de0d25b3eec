//! Both ends of the radio transport, or of AeroTCP, stepped directly: no runtime, no timers, exact
//! virtual time.
//!
//! This is the fast engine. It moves from event to event with a resolution of a nanosecond. Its
//! behaviour depends only on the profile and the seed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bentpipe_aerotcp as aerotcp;
use bentpipe_channel::{Counters, DirectionSpec, LinkSpec, Packet};
use bentpipe_flow::Target;
use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, Flows, HubConfig, HubCore, LeaseMode,
    MAX_RATE, PathSettings, Read, SecretKey, Settings, Write,
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
/// Mixed into the seed of a bundle's further links.
const BUNDLE_SEED: u64 = 0x6275_6e64_6c65;
/// Maximum number of consecutive steps at which a timer was due already. Some are due again because
/// the time of a pacer is rounded.
const MAX_LATE_STEPS: u32 = 1000;
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
    /// Links of the paths besides the first, towards the aircraft and back.
    further: Vec<(Way<Load>, Way<Load>)>,
    rivals: Vec<Box<dyn Rival>>,
    digest: Digest,
    opened: Vec<FlowKey>,
    /// Consecutive steps at which a timer was due already.
    late_steps: u32,
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

    /// Two ends over several radio links, one for each path. `settings` apply to both ends, except
    /// the rates, which come from the links.
    pub fn bundle(links: &[Profile], settings: &Settings, seed: u64) -> Self {
        Self::bundle_between(links, settings, settings, seed)
    }

    /// Like [`Self::bundle`], with different settings for the air and the hub.
    pub fn bundle_between(links: &[Profile], air: &Settings, hub: &Settings, seed: u64) -> Self {
        let hub = typed(links, hub, |link| &link.forward);
        Self::bundle_with(links, &typed(links, air, |link| &link.return_), &hub, seed)
    }

    /// Like [`Self::bundle`], except that the hub learns the rates of paths besides the first, as the
    /// ground does by its file.
    pub fn bundle_learning(links: &[Profile], settings: &Settings, seed: u64) -> Self {
        let mut hub = typed(links, settings, |link| &link.forward);
        for path in &mut hub.paths {
            (path.rate, path.lease) = (MAX_RATE, LeaseMode::Learned);
        }
        Self::bundle_with(links, &typed(links, settings, |link| &link.return_), &hub, seed)
    }

    /// Like [`Self::bundle_between`], with the rates of the settings.
    fn bundle_with(links: &[Profile], air: &Settings, hub: &Settings, seed: u64) -> Self {
        let mut pair = Self::with(&links[0], air, hub, seed);
        let mut rng = ChaCha20Rng::seed_from_u64(seed ^ BUNDLE_SEED);
        for Profile { link, .. } in &links[1..] {
            let to_air = Way::new(&link.forward, rng.random());
            pair.further.push((to_air, Way::new(&link.return_, rng.random())));
        }
        pair
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
            further: Vec::new(),
            rivals: Vec::new(),
            digest: Digest::of_contents(),
            opened: Vec::new(),
            late_steps: 0,
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

    /// Counters of the link of a path: towards the aircraft, and back.
    pub fn counters_of(&self, path: usize) -> Option<(Counters, Counters)> {
        let Some(further) = path.checked_sub(1) else { return Some(self.counters()) };
        let (to_air, to_hub) = self.further.get(further)?;
        Some((to_air.counters(), to_hub.counters()))
    }

    /// From now on, the link of a path drops packets longer than `bytes` in both directions: all of
    /// them with `Some(0)`.
    pub fn set_path_mtu(&mut self, path: usize, bytes: Option<usize>) {
        let Some(further) = path.checked_sub(1) else { return self.set_mtu(bytes) };
        if let Some((to_air, to_hub)) = self.further.get_mut(further) {
            to_air.direction.set_mtu(bytes);
            to_hub.direction.set_mtu(bytes);
        }
    }

    /// The same in the direction from the aircraft only.
    pub fn set_return_mtu(&mut self, path: usize, bytes: Option<usize>) {
        let of_path = path.checked_sub(1).map_or(Some(&mut self.to_hub), |further| {
            self.further.get_mut(further).map(|(_, to_hub)| to_hub)
        });
        of_path.into_iter().for_each(|to_hub| to_hub.direction.set_mtu(bytes));
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
        self.check_progress(timers);
        let rivals = self.rivals.iter_mut().filter_map(|rival| rival.next_timeout(now));
        let arrivals = [self.to_air.next(), self.to_hub.next()].into_iter().flatten();
        let further =
            self.further.iter().flat_map(|(to_air, to_hub)| [to_air.next(), to_hub.next()]);
        let arrivals = arrivals.chain(further.flatten());
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
        for (path, (to_air, to_hub)) in (1..).zip(&mut self.further) {
            while let Some(((_, datagram), ce)) = to_hub.arrive(now) {
                self.hub.handle_datagram(&datagram, air_address(path), ce, now);
            }
            while let Some(((_, datagram), ce)) = to_air.arrive(now) {
                self.air.handle_datagram(&datagram, HUB, ce, now);
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

    /// Panics if the timer of an end stays due, because nothing handles it: then time stands still.
    fn check_progress(&mut self, [air, hub]: [Duration; 2]) {
        let (now, due) = (self.now, air.min(hub));
        self.late_steps = if due <= now { self.late_steps + 1 } else { 0 };
        if self.late_steps > MAX_LATE_STEPS {
            let (end, timer) = match air <= hub {
                true => ("air", self.air.next_timer(now)),
                false => ("hub", self.hub.next_timer(now)),
            };
            panic!(
                "the {end}'s timer \"{timer}\" stays due since {due:?}: at {now:?} nothing handles it"
            );
        }
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
            let (is_ect, path) = (self.air.is_ect(), self.air.path());
            self.send(End::Air, path, std::mem::take(&mut datagram), is_ect);
        }
        while let Some(to) = self.hub.transmit(now, &mut datagram) {
            let is_ect = self.hub.is_ect();
            let path = (1..).zip(&self.further).find(|(path, _)| to == air_address(*path));
            let path = path.map_or(0, |(path, _)| path);
            self.send(End::Hub, path, std::mem::take(&mut datagram), is_ect);
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
    fn send(&mut self, by: End, path: u8, datagram: Vec<u8>, is_ect: bool) {
        let further = usize::from(path).checked_sub(1).and_then(|at| self.further.get_mut(at));
        let (to_air, to_hub) = match further {
            Some((to_air, to_hub)) => (to_air, to_hub),
            None => (&mut self.to_air, &mut self.to_hub),
        };
        let (way, from, to) = match by {
            End::Air => (to_hub, air_address(path), HUB),
            End::Hub => (to_air, HUB, air_address(path)),
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

/// Address of the aircraft on a path.
fn air_address(path: u8) -> SocketAddr {
    SocketAddr::new(AIR.ip(), AIR.port() + u16::from(path))
}

/// `settings` with the rates of one direction of the links.
fn typed(
    links: &[Profile],
    settings: &Settings,
    direction: fn(&LinkSpec) -> &DirectionSpec,
) -> Settings {
    let path = |profile: &Profile| PathSettings {
        name: profile.name.clone(),
        rate: rate_of(direction(&profile.link)),
        lease: LeaseMode::Static,
        mtu_bytes: settings.mtu_bytes,
        metered: false,
        quota: None,
    };
    let rate = rate_of(direction(&links[0].link));
    Settings { rate, paths: links[1..].iter().map(path).collect(), ..settings.clone() }
}

/// Initial rate of a direction, as its operator would configure it.
pub(super) fn rate_of(direction: &DirectionSpec) -> BitRate {
    direction.rate().unwrap_or(UNLIMITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the hub's timer \"none\" stays due since 1s")]
    fn a_timer_that_nothing_handles_ends_the_run() {
        let profile = Profile::named("mss").expect("it is built in");
        let mut pair = Pair::new(&profile, &Settings::default(), 1);
        pair.now = Duration::from_secs(2);
        for _ in 0..=MAX_LATE_STEPS {
            pair.check_progress([Duration::from_secs(9), Duration::from_secs(1)]);
        }
    }
}
