//! Several aircraft and one hub in exact virtual time, over a beam that all of them share: one
//! direction towards them and one back, each with one queue. If one aircraft sends too much, the
//! others' packets wait behind it.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_channel::{LinkSpec, Packet};
use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, PublicKey, Read,
    SecretKey, SessionId, Settings, Write,
};
use bentpipe_units::BitRate;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::way::{Tap, Way};

/// IPv4 and UDP headers.
const OUTER_BYTES: usize = 28;
/// Bytes per read or write.
const CHUNK_BYTES: usize = 16 << 10;

/// Identifier of a flow at one end.
type FlowKey = (SessionId, u64);

/// Datagram of an aircraft.
type Load = (usize, Vec<u8>);

/// Settings of one aircraft, at both ends.
#[derive(Debug, Clone)]
pub struct Craft {
    /// Settings of the aircraft. Its rate is its own sending rate.
    pub air: Settings,
    /// Settings of the hub for this aircraft. The rate is the hub's sending rate towards it.
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
    to_air: Way<Load>,
    to_hub: Way<Load>,
}

/// The single flow of an aircraft, and the directions in which it is kept full.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    air: Option<FlowKey>,
    hub: Option<FlowKey>,
    download: bool,
    upload: bool,
    downloaded: u64,
    uploaded: u64,
}

impl Fleet {
    /// A fleet over `beam`. Each of `crafts` has its own settings.
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

    /// Calls `tap` for every packet towards the aircraft from now on. The number of the aircraft is
    /// the packet's flow.
    pub fn set_tap(&mut self, tap: Tap) {
        self.to_air.set_tap(tap);
    }

    /// Time since the run began.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Public key of an aircraft.
    pub fn key(&self, craft: usize) -> PublicKey {
        self.keys[craft]
    }

    /// Keeps an aircraft's flow full from now on, in the chosen directions.
    pub fn fill(&mut self, craft: usize, download: bool, upload: bool) {
        (self.flows[craft].download, self.flows[craft].upload) = (download, upload);
        self.work(craft);
    }

    /// Bytes that arrived in order on an aircraft's flow: at the aircraft, and at the hub.
    pub fn moved(&self, craft: usize) -> (u64, u64) {
        (self.flows[craft].downloaded, self.flows[craft].uploaded)
    }

    /// IP bytes in the beam's queues, towards the aircraft and back.
    pub fn queued_bytes(&mut self) -> (u64, u64) {
        let now = self.now;
        (self.to_air.direction.queued_bytes(now), self.to_hub.direction.queued_bytes(now))
    }

    /// IP bytes offered to the beam so far, towards the aircraft and back.
    pub fn offered_bytes(&self) -> (u64, u64) {
        (self.to_air.counters().offered.bytes, self.to_hub.counters().offered.bytes)
    }

    /// Rate at which the hub may currently send to an aircraft, limited by its circuit breaker.
    pub fn forward_rate(&mut self, craft: usize) -> Option<BitRate> {
        let (key, now) = (self.keys[craft], self.now);
        let (.., session) = self.hub.sessions().find(|(_, of, _)| *of == key)?;
        Some(session.lease(now).rate)
    }

    /// Rate at which an aircraft may currently send, limited by its circuit breaker.
    pub fn return_rate(&mut self, craft: usize) -> Option<BitRate> {
        let now = self.now;
        self.airs[craft].current().map(|(_, session)| session.lease(now).rate)
    }

    /// Trips of the circuit breakers: those of the hub, and those of the aircraft.
    pub fn trips(&mut self) -> (u64, u64) {
        let hub = self.hub.sessions().map(|(.., session)| session.counters().breaker_trips).sum();
        let airs = self.airs.iter_mut().filter_map(AirCore::current);
        (hub, airs.map(|(_, session)| session.counters().breaker_trips).sum())
    }

    /// Steps until `end` and calls `look` before each step.
    pub fn run(&mut self, end: Duration, mut look: impl FnMut(&mut Self)) {
        while self.now < end {
            look(self);
            self.step_until(end);
        }
    }

    /// Moves to the next moment at which anything happens, but not beyond `end`, and processes what is due.
    fn step_until(&mut self, end: Duration) {
        self.flush();
        let now = self.now;
        let airs = self.airs.iter_mut().map(|air| air.next_timeout(now)).min();
        let next = [airs, Some(self.hub.next_timeout(now)), self.to_air.next(), self.to_hub.next()];
        let next = next.into_iter().flatten().min().unwrap_or(now);
        self.now = next.max(now + Duration::from_nanos(1)).min(end);
        while let Some(((craft, datagram), _)) = self.to_hub.arrive(self.now) {
            self.hub.handle_datagram(&datagram, address(craft), false, self.now);
        }
        while let Some(((craft, datagram), _)) = self.to_air.arrive(self.now) {
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

    /// Opens, writes and reads an aircraft's flow.
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
                offer(&mut self.to_hub, craft, std::mem::take(&mut datagram), self.now);
            }
        }
        while let Some(to) = self.hub.transmit(self.now, &mut datagram) {
            let datagram = std::mem::take(&mut datagram);
            if let Some(craft) = (0..self.airs.len()).find(|&craft| address(craft) == to) {
                offer(&mut self.to_air, craft, datagram, self.now);
            }
        }
    }
}

fn offer(way: &mut Way<Load>, craft: usize, datagram: Vec<u8>, now: Duration) {
    let bytes = datagram.len() + OUTER_BYTES;
    let packet = Packet { bytes, flow: craft as u64, is_ect: false };
    way.offer(packet, now, |_| (craft, datagram));
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
