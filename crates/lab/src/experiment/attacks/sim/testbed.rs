//! A hub and its aircraft in virtual time, each with its own link, and strangers who can reach
//! both.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_channel::{DirectionSpec, Packet};
use bentpipe_flow::ResetCode;
use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, PublicKey, Read,
    SecretKey, SessionId, Settings, Write,
};
use bentpipe_units::{BitRate, ByteSize};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::profile::Profile;
use crate::sim::way::Way;

/// Length of a step, which is the resolution of a page's time.
const GRAIN: Duration = Duration::from_millis(1);
/// Length of a step with many aircraft.
const COARSE_GRAIN: Duration = Duration::from_millis(10);
/// Number of aircraft from which the coarse step is used.
const MANY: usize = 16;
/// Maximum flows of an aircraft.
pub const MAX_FLOWS: u32 = 1_024;
/// Reserved memory of each flow, in addition to the memory that the hub lends.
pub const RESERVE: ByteSize = ByteSize::from_bytes(16 << 10);
/// IPv4 and UDP headers.
const OUTER_BYTES: usize = 28;
const CHUNK_BYTES: usize = 16 << 10;

/// Address of the hub.
pub const HUB: ([u8; 4], u16) = ([198, 18, 0, 1], 4_500);

/// Identifier of a flow at one end.
pub type FlowKey = (SessionId, u64);

/// State of the simulation.
pub struct Testbed {
    /// Time since the run began.
    pub now: Duration,
    /// End of the ground.
    pub hub: HubCore,
    /// Public key of the ground.
    pub hub_key: PublicKey,
    /// Ends of the aircraft. `None` for one that is switched off.
    pub airs: Vec<Option<AirCore>>,
    links: Vec<[Way<Vec<u8>>; 2]>,
    grain: Duration,
    /// Next time at which the hub's flows are filled.
    serve_at: Duration,
    /// Flows that have reached the hub, by passenger, with the bytes still to be sent.
    pub served: BTreeMap<u32, (FlowKey, u64)>,
    /// Number of flows with odd numbers, which are an attacker's, that have reached the hub.
    pub hostile_flows: u64,
    /// Bytes from strangers to the hub, admitted or dropped, and bytes that the hub sent to them.
    pub strangers_bytes: [u64; 2],
    configs: Vec<AirConfig>,
    rng: ChaCha8Rng,
}

/// Address of an aircraft.
pub fn address(craft: usize) -> SocketAddr {
    let [high, low] = (craft as u16).to_be_bytes();
    ([198, 18, 1 + high, low], 40_000).into()
}

fn settings(rate: BitRate) -> Settings {
    Settings { rate, max_flows: MAX_FLOWS, flow_reserve: RESERVE, ..Settings::default() }
}

impl Testbed {
    /// A hub with `aircraft` aircraft, each over `profile`'s link.
    pub fn new(profile: &Profile, aircraft: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let secret = SecretKey::generate(&mut rng);
        let secrets: Vec<_> = (0..aircraft).map(|_| SecretKey::generate(&mut rng)).collect();
        let rate = |spec: &DirectionSpec| spec.rate().unwrap_or(BitRate::from_bps(1));
        let (forward, back) = (&profile.link.forward, &profile.link.return_);
        let entry = |secret: &SecretKey| Aircraft {
            key: secret.public(),
            settings: settings(rate(forward)),
            highest_class: Class::BestEffort,
        };
        let config =
            HubConfig { secret: secret.clone(), aircraft: secrets.iter().map(entry).collect() };
        let configs = secrets.into_iter().map(|mine| AirConfig {
            secret: mine,
            hub: secret.public(),
            address: HUB.into(),
            settings: settings(rate(back)),
            first_counter: 1,
        });
        let configs: Vec<_> = configs.collect();
        let airs = configs.iter().map(|it| Some(AirCore::new(it.clone(), rng.random()))).collect();
        let links = (0..aircraft).map(|_| [forward, back].map(|spec| Way::new(spec, rng.random())));
        let links = links.collect();
        Self {
            now: Duration::ZERO,
            hub: HubCore::new(config, rng.random()),
            hub_key: secret.public(),
            airs,
            links,
            grain: if aircraft >= MANY { COARSE_GRAIN } else { GRAIN },
            serve_at: Duration::ZERO,
            served: BTreeMap::new(),
            hostile_flows: 0,
            strangers_bytes: [0; 2],
            configs,
            rng,
        }
    }

    /// Switches an aircraft off.
    pub fn switch_off(&mut self, craft: usize) {
        self.airs[craft] = None;
    }

    /// Restarts the gateway of an aircraft, with counters from `first_counter` on.
    pub fn restart(&mut self, craft: usize, first_counter: u64) {
        let config = AirConfig { first_counter, ..self.configs[craft].clone() };
        self.airs[craft] = Some(AirCore::new(config, self.rng.random()));
    }

    /// Delivers a stranger's datagram to the hub.
    pub fn deliver_to_hub(&mut self, datagram: &[u8], from: SocketAddr) {
        self.strangers_bytes[0] += (datagram.len() + OUTER_BYTES) as u64;
        if self.hub.filter().is_none_or(|filter| filter.admits(datagram, from)) {
            self.hub.handle_datagram(datagram, from, false, self.now);
        }
    }

    /// Delivers a stranger's datagram to an aircraft.
    pub fn deliver_to_air(&mut self, craft: usize, datagram: &[u8], from: SocketAddr) {
        let Some(air) = &mut self.airs[craft] else { return };
        if air.filter().is_none_or(|filter| filter.admits(datagram, from)) {
            air.handle_datagram(datagram, from, false, self.now);
        }
    }

    /// Opens a flow on which the hub sends the response. `number` identifies the flow.
    pub fn open(&mut self, craft: usize, number: u32) -> Option<FlowKey> {
        let target = "origin.example:80".parse().expect("the target is well formed");
        let air = self.airs[craft].as_mut()?;
        let opened = air.open(&target, Class::BestEffort, number, b"GET", self.now);
        opened.ok().map(|(key, _)| key)
    }

    /// Bytes received on an aircraft's flow since the last call.
    pub fn read(&mut self, craft: usize, (id, flow): FlowKey) -> u64 {
        let (mut buffer, mut bytes) = ([0; CHUNK_BYTES], 0);
        let now = self.now;
        if let Some(session) = self.airs[craft].as_mut().and_then(|air| air.session(id)) {
            while let Read::Taken(taken) = session.read(flow, &mut buffer, now) {
                bytes += taken as u64;
            }
        }
        bytes
    }

    /// Length of a step.
    pub fn grain(&self) -> Duration {
        self.grain
    }

    /// Resets a flow at the aircraft's end.
    pub fn reset(&mut self, craft: usize, (id, flow): FlowKey) {
        if let Some(session) = self.airs[craft].as_mut().and_then(|air| air.session(id)) {
            session.reset(flow, ResetCode::Aborted);
        }
    }

    /// Processes everything that is due, and advances by a step. The hub sends `answer` bytes on
    /// each new flow.
    pub fn step(&mut self, answer: u64) {
        let now = self.now;
        self.deliver();
        for air in self.airs.iter_mut().flatten() {
            air.handle_timeout(now);
            while air.next_event().is_some() {}
        }
        self.hub.handle_timeout(now);
        while let Some((session, event)) = self.hub.next_event() {
            if let FlowEvent::Opened { flow, passenger, .. } = event {
                self.hostile_flows += u64::from(passenger % 2);
                self.served.insert(passenger, ((session, flow), answer));
            }
        }
        if now >= self.serve_at {
            self.serve();
            self.serve_at = now + COARSE_GRAIN;
        }
        self.flush();
        // What sessions hold now counts from now on, as when a driver waits.
        self.hub.next_timeout(now);
        self.now += self.grain;
    }

    fn deliver(&mut self) {
        let now = self.now;
        for (craft, ways) in self.links.iter_mut().enumerate() {
            let [forward, back] = ways;
            while let Some((datagram, _)) = back.arrive(now) {
                if self.hub.filter().is_none_or(|it| it.admits(&datagram, address(craft))) {
                    self.hub.handle_datagram(&datagram, address(craft), false, now);
                }
            }
            while let Some((datagram, _)) = forward.arrive(now) {
                if let Some(air) = &mut self.airs[craft] {
                    air.handle_datagram(&datagram, HUB.into(), false, now);
                }
            }
        }
    }

    /// Writes as much as the hub's flows accept.
    fn serve(&mut self) {
        let (now, hub) = (self.now, &mut self.hub);
        self.served.retain(|_, ((id, flow), left)| {
            let Some(session) = hub.session(*id) else { return false };
            while *left > 0 {
                let chunk = [0x5a; CHUNK_BYTES];
                let most = usize::try_from(*left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                match session.write(*flow, &chunk[..most], now) {
                    Write::Taken(taken @ 1..) => *left -= taken as u64,
                    Write::Taken(_) | Write::Blocked => return true,
                    Write::Stopped(_) | Write::Reset(_) => return false,
                }
            }
            session.finish(*flow);
            false
        });
    }

    fn flush(&mut self) {
        let (now, mut datagram) = (self.now, Vec::new());
        for (craft, air) in self.airs.iter_mut().enumerate() {
            let Some(air) = air else { continue };
            while air.transmit(now, &mut datagram).is_some() {
                offer(&mut self.links[craft][1], std::mem::take(&mut datagram), now);
            }
        }
        while let Some(to) = self.hub.transmit(now, &mut datagram) {
            let datagram = std::mem::take(&mut datagram);
            let SocketAddr::V4(v4) = to else { continue };
            let [a, b, high, low] = v4.ip().octets();
            let craft = usize::from(u16::from_be_bytes([high.wrapping_sub(1), low]));
            if (a, b) == (198, 18) && craft < self.links.len() {
                offer(&mut self.links[craft][0], datagram, now);
            } else {
                self.strangers_bytes[1] += (datagram.len() + OUTER_BYTES) as u64;
            }
        }
    }
}

fn offer(way: &mut Way<Vec<u8>>, datagram: Vec<u8>, now: Duration) {
    let bytes = datagram.len() + OUTER_BYTES;
    way.offer(Packet { bytes, flow: 0, is_ect: false }, now, |_| datagram);
}
