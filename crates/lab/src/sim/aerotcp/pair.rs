//! Both ends of AeroTCP stepped directly, as [`crate::sim::pair`] does with the radio transport, and
//! what a download needs of either.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_aerotcp::{AirConfig, AirCore, Aircraft, GroundConfig, GroundCore, Settings};
use bentpipe_channel::Counters;
use bentpipe_link::{Class, Core, FlowEvent, Flows, Read, SecretKey, Write};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use crate::profile::Profile;
use crate::sim::pair::{FlowKey, Pair, Way, rate_of};
use crate::sim::trace::Digest;

/// Both ends of a transport over a link: a flow is opened and read in the air, written on the
/// ground.
pub trait Ends {
    /// The time since the run began.
    fn now(&self) -> Duration;
    /// Moves to the next moment at which anything happens, and does what is due then.
    fn step(&mut self);
    /// Opens a flow once there is a session.
    fn open(&mut self, first: &[u8]) -> Option<FlowKey>;
    /// The next flow that has reached the ground.
    fn accept(&mut self) -> Option<FlowKey>;
    /// Writes on the ground what there is room for; returns how much that was.
    fn serve(&mut self, flow: FlowKey, data: &[u8]) -> usize;
    /// Ends the ground's writing.
    fn finish(&mut self, flow: FlowKey);
    /// Reads in the air.
    fn fetch(&mut self, flow: FlowKey, buffer: &mut [u8]) -> Option<Read>;
    /// Counters of the link: towards the aircraft, and back.
    fn counters(&self) -> (Counters, Counters);
}

impl Ends for Pair {
    fn now(&self) -> Duration {
        Pair::now(self)
    }

    fn step(&mut self) {
        Pair::step(self);
    }

    fn open(&mut self, first: &[u8]) -> Option<FlowKey> {
        Pair::open(self, first)
    }

    fn accept(&mut self) -> Option<FlowKey> {
        Pair::accept(self)
    }

    fn serve(&mut self, flow: FlowKey, data: &[u8]) -> usize {
        Pair::serve(self, flow, data)
    }

    fn finish(&mut self, flow: FlowKey) {
        if let Some(session) = self.hub.session(flow.0) {
            session.finish(flow.1);
        }
    }

    fn fetch(&mut self, flow: FlowKey, buffer: &mut [u8]) -> Option<Read> {
        Pair::fetch(self, flow, buffer)
    }

    fn counters(&self) -> (Counters, Counters) {
        Pair::counters(self)
    }
}

/// An air end and a ground end of AeroTCP, and the link between them.
pub struct AeroPair {
    now: Duration,
    air: AirCore,
    ground: GroundCore,
    to_air: Way,
    to_ground: Way,
    digest: Digest,
    opened: Vec<FlowKey>,
}

impl AeroPair {
    /// Two ends over `profile`'s radio link; `settings` are both ends', but for the bandwidths and
    /// the round trip, which are the link's.
    pub fn new(profile: &Profile, settings: &Settings, seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air, ground) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let addresses: [SocketAddr; 2] =
            [([198, 18, 0, 1], 40_000).into(), ([198, 18, 0, 2], 4_501).into()];
        let link = &profile.link;
        let with =
            |spec| Settings { bandwidth: rate_of(spec), rtt: link.rtt(), ..settings.clone() };
        let air_config = AirConfig {
            secret: air.clone(),
            ground: ground.public(),
            address: addresses[1],
            settings: with(&link.return_),
            first_counter: 1,
        };
        let aircraft = vec![Aircraft { key: air.public(), settings: with(&link.forward) }];
        Self {
            now: Duration::ZERO,
            air: AirCore::new(air_config, rng.random()),
            ground: GroundCore::new(GroundConfig { secret: ground, aircraft }, rng.random()),
            to_air: Way::new(&link.forward, rng.random(), addresses[1], addresses[0]),
            to_ground: Way::new(&link.return_, rng.random(), addresses[0], addresses[1]),
            digest: Digest::of_contents(),
            opened: Vec::new(),
        }
    }

    /// Every datagram so far, byte for byte.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    fn flush(&mut self) {
        let mut datagram = Vec::new();
        while self.air.transmit(self.now, &mut datagram).is_some() {
            self.to_ground.offer(std::mem::take(&mut datagram), false, self.now, &mut self.digest);
        }
        while self.ground.transmit(self.now, &mut datagram).is_some() {
            self.to_air.offer(std::mem::take(&mut datagram), false, self.now, &mut self.digest);
        }
    }
}

impl Ends for AeroPair {
    fn now(&self) -> Duration {
        self.now
    }

    fn step(&mut self) {
        self.flush();
        let timers = [self.air.next_timeout(self.now), self.ground.next_timeout(self.now)];
        let arrivals = [self.to_air.next(), self.to_ground.next()].into_iter().flatten();
        let next = timers.into_iter().chain(arrivals).min().unwrap_or(self.now);
        self.now = next.max(self.now + Duration::from_nanos(1));
        while let Some(datagram) = self.to_ground.arrive(self.now) {
            self.ground.handle_datagram(&datagram.0, self.to_ground.from, false, self.now);
        }
        while let Some(datagram) = self.to_air.arrive(self.now) {
            self.air.handle_datagram(&datagram.0, self.to_air.from, false, self.now);
        }
        self.air.handle_timeout(self.now);
        self.ground.handle_timeout(self.now);
        while let Some((session, event)) = self.ground.next_event() {
            if let FlowEvent::Opened { flow, .. } = event {
                self.opened.push((session, flow));
            }
        }
        while self.air.next_event().is_some() {}
    }

    fn open(&mut self, first: &[u8]) -> Option<FlowKey> {
        let target = "origin.example:80".parse().expect("the target is well formed");
        let opened = self.air.open(&target, Class::BestEffort, 1, first, self.now);
        opened.ok().map(|(flow, _)| flow)
    }

    fn accept(&mut self) -> Option<FlowKey> {
        (!self.opened.is_empty()).then(|| self.opened.remove(0))
    }

    fn serve(&mut self, flow: FlowKey, data: &[u8]) -> usize {
        let now = self.now;
        let written = self.ground.session(flow.0).map(|session| session.write(flow.1, data, now));
        match written {
            Some(Write::Taken(bytes)) => bytes,
            _ => 0,
        }
    }

    fn finish(&mut self, flow: FlowKey) {
        let now = self.now;
        if let Some(session) = self.ground.session(flow.0) {
            session.finish(flow.1, now);
        }
    }

    fn fetch(&mut self, flow: FlowKey, buffer: &mut [u8]) -> Option<Read> {
        let now = self.now;
        self.air.session(flow.0).map(|session| session.read(flow.1, buffer, now))
    }

    fn counters(&self) -> (Counters, Counters) {
        (self.to_air.direction.counters(), self.to_ground.direction.counters())
    }
}
