//! Several aircraft and one hub in exact virtual time, over a beam that all of them share: one
//! direction towards them, one back, each with one queue. What one sends too much waits in the way
//! of the others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_channel::{Direction, DirectionSpec, Fate, LinkSpec};
use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, PublicKey, Read,
    SecretKey, SessionId, Settings, Write,
};
use bentpipe_units::BitRate;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// IPv4 and UDP headers.
const OUTER_BYTES: usize = 28;
/// Bytes handed over or taken at once.
const CHUNK_BYTES: usize = 16 << 10;

/// A flow's name at one end.
type FlowKey = (SessionId, u64);

/// Arrival: its time, its number in order, its receiver, and its content.
type Arrival = (Duration, u64, usize, Vec<u8>);

/// One aircraft of a fleet: both ends' settings.
#[derive(Debug, Clone)]
pub struct Craft {
    /// The aircraft's own: its rate is what it may send.
    pub air: Settings,
    /// The hub's for it: the rate is what may be sent to it.
    pub hub: Settings,
}

/// The aircraft, the hub, and the beam.
pub struct Fleet {
    now: Duration,
    /// The ground's end.
    pub hub: HubCore,
    /// The aircraft's ends.
    pub airs: Vec<AirCore>,
    keys: Vec<PublicKey>,
    flows: Vec<Flow>,
    to_air: Way,
    to_hub: Way,
}

/// The one flow of an aircraft, and which ways it is kept full.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    air: Option<FlowKey>,
    hub: Option<FlowKey>,
    download: bool,
    upload: bool,
    downloaded: u64,
    uploaded: u64,
}

/// One direction, with what is under way on it and which aircraft's that is.
struct Way {
    direction: Direction,
    in_flight: BinaryHeap<Reverse<Arrival>>,
    accepted: u64,
    offered_bytes: u64,
}

impl Fleet {
    /// A fleet over `beam`, each of `crafts` with its settings.
    pub fn new(beam: &LinkSpec, crafts: &[Craft], seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let hub = SecretKey::generate(&mut rng);
        let secrets: Vec<_> = crafts.iter().map(|_| SecretKey::generate(&mut rng)).collect();
        let air = |(craft, secret): (&Craft, &SecretKey), seed| {
            let config = AirConfig {
                secret: secret.clone(),
                hub: hub.public(),
                address: hub_address(),
                settings: craft.air.clone(),
                first_counter: 1,
            };
            AirCore::new(config, seed)
        };
        let airs = crafts.iter().zip(&secrets).map(|both| air(both, rng.random())).collect();
        let aircraft = crafts.iter().zip(&secrets).map(|(craft, secret)| Aircraft {
            key: secret.public(),
            settings: craft.hub.clone(),
            highest_class: Class::BestEffort,
        });
        let config = HubConfig { secret: hub.clone(), aircraft: aircraft.collect() };
        Self {
            now: Duration::ZERO,
            hub: HubCore::new(config, rng.random()),
            airs,
            keys: secrets.iter().map(SecretKey::public).collect(),
            flows: vec![Flow::default(); crafts.len()],
            to_air: Way::new(&beam.forward, rng.random()),
            to_hub: Way::new(&beam.return_, rng.random()),
        }
    }

    /// The time since the run began.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Key of an aircraft.
    pub fn key(&self, craft: usize) -> PublicKey {
        self.keys[craft]
    }

    /// Keeps an aircraft's flow full from now on, towards it and from it.
    pub fn fill(&mut self, craft: usize, download: bool, upload: bool) {
        (self.flows[craft].download, self.flows[craft].upload) = (download, upload);
    }

    /// Bytes that arrived in order on an aircraft's flow: at it, and from it.
    pub fn moved(&self, craft: usize) -> (u64, u64) {
        (self.flows[craft].downloaded, self.flows[craft].uploaded)
    }

    /// IP bytes that wait in the beam's queues, towards the aircraft and back.
    pub fn queued_bytes(&mut self) -> (u64, u64) {
        let now = self.now;
        (self.to_air.direction.queued_bytes(now), self.to_hub.direction.queued_bytes(now))
    }

    /// IP bytes offered to the beam so far, towards the aircraft and back.
    pub fn offered_bytes(&self) -> (u64, u64) {
        (self.to_air.offered_bytes, self.to_hub.offered_bytes)
    }

    /// Rate at which the hub may send to an aircraft now, as far as its breaker lets it.
    pub fn forward_rate(&mut self, craft: usize) -> Option<BitRate> {
        let (key, now) = (self.keys[craft], self.now);
        let (.., session) = self.hub.sessions().find(|(_, of, _)| *of == key)?;
        Some(session.lease(now).rate)
    }

    /// Rate at which an aircraft may send now, as far as its breaker lets it.
    pub fn return_rate(&mut self, craft: usize) -> Option<BitRate> {
        let now = self.now;
        self.airs[craft].current().map(|(_, session)| session.lease(now).rate)
    }

    /// Number of trips of the breakers: the hub's for its aircraft, and the aircraft's.
    pub fn trips(&mut self) -> (u64, u64) {
        let hub = self.hub.sessions().map(|(.., session)| session.counters().breaker_trips).sum();
        let airs = self.airs.iter_mut().filter_map(AirCore::current);
        (hub, airs.map(|(_, session)| session.counters().breaker_trips).sum())
    }

    /// Steps until `end`, with a look at everything before each step.
    pub fn run(&mut self, end: Duration, mut look: impl FnMut(&mut Self)) {
        while self.now < end {
            look(self);
            self.step();
        }
    }

    /// Moves to the next moment at which anything happens, and does what is due then.
    pub fn step(&mut self) {
        self.flush();
        let now = self.now;
        let airs = self.airs.iter_mut().map(|air| air.next_timeout(now)).min();
        let next = [airs, Some(self.hub.next_timeout(now)), self.to_air.next(), self.to_hub.next()];
        let next = next.into_iter().flatten().min().unwrap_or(now);
        self.now = next.max(now + Duration::from_nanos(1));
        while let Some((craft, datagram)) = self.to_hub.arrive(self.now) {
            self.hub.handle_datagram(&datagram, address(craft), false, self.now);
        }
        while let Some((craft, datagram)) = self.to_air.arrive(self.now) {
            self.airs[craft].handle_datagram(&datagram, hub_address(), false, self.now);
        }
        self.hub.handle_timeout(self.now);
        for air in &mut self.airs {
            air.handle_timeout(self.now);
            while air.next_event().is_some() {}
        }
        while let Some((session, event)) = self.hub.next_event() {
            if let FlowEvent::Opened { flow, passenger, .. } = event
                && let Some(of) = self.flows.get_mut(passenger as usize)
            {
                of.hub = Some((session, flow));
            }
        }
        for craft in 0..self.airs.len() {
            self.work(craft);
        }
    }

    /// An aircraft's flow is opened, written to and read from.
    fn work(&mut self, craft: usize) {
        let (now, chunk, mut buffer) = (self.now, [0x5a; CHUNK_BYTES], [0; CHUNK_BYTES]);
        let (air, flow) = (&mut self.airs[craft], &mut self.flows[craft]);
        if flow.air.is_none() {
            let target = "origin.example:80".parse().expect("the target is well formed");
            let opened = air.open(&target, Class::BestEffort, craft as u32, b"GET", now);
            flow.air = opened.ok().map(|(key, _)| key);
        }
        if let Some((id, key)) = flow.air
            && let Some(session) = air.session(id)
        {
            while flow.upload && taken(session.write(key, &chunk, now)) {}
            while let Read::Taken(bytes) = session.read(key, &mut buffer, now) {
                flow.downloaded += bytes as u64;
            }
        }
        if let Some((id, key)) = flow.hub
            && let Some(session) = self.hub.session(id)
        {
            while flow.download && taken(session.write(key, &chunk, now)) {}
            while let Read::Taken(bytes) = session.read(key, &mut buffer, now) {
                flow.uploaded += bytes as u64;
            }
        }
    }

    fn flush(&mut self) {
        let mut datagram = Vec::new();
        for (craft, air) in self.airs.iter_mut().enumerate() {
            while air.transmit(self.now, &mut datagram).is_some() {
                self.to_hub.offer(craft, std::mem::take(&mut datagram), self.now);
            }
        }
        while let Some(to) = self.hub.transmit(self.now, &mut datagram) {
            let datagram = std::mem::take(&mut datagram);
            if let Some(craft) = (0..self.airs.len()).find(|&craft| address(craft) == to) {
                self.to_air.offer(craft, datagram, self.now);
            }
        }
    }
}

impl Way {
    fn new(spec: &DirectionSpec, seed: u64) -> Self {
        let direction = Direction::new(spec, seed);
        Self { direction, in_flight: BinaryHeap::new(), accepted: 0, offered_bytes: 0 }
    }

    fn offer(&mut self, craft: usize, datagram: Vec<u8>, now: Duration) {
        let bytes = datagram.len() + OUTER_BYTES;
        self.offered_bytes += bytes as u64;
        if let Fate::Delivered { at } = self.direction.offer(now, bytes) {
            self.accepted += 1;
            self.in_flight.push(Reverse((at, self.accepted, craft, datagram)));
        }
    }

    fn next(&self) -> Option<Duration> {
        self.in_flight.peek().map(|Reverse((at, ..))| *at)
    }

    fn arrive(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        self.next().filter(|at| *at <= now)?;
        self.in_flight.pop().map(|Reverse((.., craft, datagram))| (craft, datagram))
    }
}

fn taken(write: Write) -> bool {
    matches!(write, Write::Taken(bytes) if bytes > 0)
}

fn hub_address() -> SocketAddr {
    ([198, 18, 0, 1], 4_500).into()
}

fn address(craft: usize) -> SocketAddr {
    let [high, low] = (craft as u16).to_be_bytes();
    ([198, 18, 1 + high, low], 40_000).into()
}
