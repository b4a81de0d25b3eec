//! Bulk of another session of the radio transport.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::Target;
use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, Read, SecretKey,
    Settings, Write,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::{End, Rival, Sent};
use crate::sim::flow_key::FlowKey;

/// Bytes per read or write.
const CHUNK_BYTES: usize = 16 << 10;

/// Both ends of a session, with an endless download.
pub struct Session {
    air: AirCore,
    hub: HubCore,
    start: Duration,
    at_air: Option<FlowKey>,
    at_hub: Option<FlowKey>,
    received_bytes: u64,
}

impl Session {
    /// A session with these settings of its ends, which begins at `start`.
    pub fn new(air: &Settings, hub: &Settings, start: Duration, seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air_key, hub_key) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let config = AirConfig {
            secret: air_key.clone(),
            hub: hub_key.public(),
            address: hub_address(),
            settings: air.clone(),
            first_counter: 1,
        };
        let aircraft = vec![Aircraft {
            key: air_key.public(),
            settings: hub.clone(),
            highest_class: Class::BestEffort,
        }];
        Self {
            air: AirCore::new(config, rng.random()),
            hub: HubCore::new(HubConfig { secret: hub_key, aircraft }, rng.random()),
            start,
            at_air: None,
            at_hub: None,
            received_bytes: 0,
        }
    }

    fn work(&mut self, now: Duration) {
        while self.air.next_event().is_some() {}
        while let Some((session, event)) = self.hub.next_event() {
            if let FlowEvent::Opened { flow, .. } = event {
                self.at_hub = Some((session, flow));
            }
        }
        if self.at_air.is_none() {
            let target: Target = "sink.example:80".parse().expect("the target is well formed");
            let opened = self.air.open(&target, Class::BestEffort, 1, b"GET", now);
            self.at_air = opened.ok().map(|(flow, _)| flow);
        }
        let mut buffer = [0x5a; CHUNK_BYTES];
        if let Some((id, flow)) = self.at_hub
            && let Some(session) = self.hub.session(id)
        {
            while matches!(session.write(flow, &buffer, now), Write::Taken(1..)) {}
        }
        if let Some((id, flow)) = self.at_air
            && let Some(session) = self.air.session(id)
        {
            while let Read::Taken(bytes) = session.read(flow, &mut buffer, now) {
                self.received_bytes += bytes as u64;
            }
        }
    }
}

impl Rival for Session {
    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<Sent> {
        if now < self.start {
            return None;
        }
        if self.air.transmit(now, out).is_some() {
            return Some(Sent { by: End::Air, is_ect: self.air.is_ect() });
        }
        self.hub.transmit(now, out)?;
        Some(Sent { by: End::Hub, is_ect: self.hub.is_ect() })
    }

    fn receive(&mut self, end: End, datagram: &[u8], ce: bool, now: Duration) {
        match end {
            End::Air => self.air.handle_datagram(datagram, hub_address(), ce, now),
            End::Hub => self.hub.handle_datagram(datagram, air_address(), ce, now),
        }
        self.work(now);
    }

    fn next_timeout(&mut self, now: Duration) -> Option<Duration> {
        if now < self.start {
            return Some(self.start);
        }
        Some(self.air.next_timeout(now).min(self.hub.next_timeout(now)))
    }

    fn handle_timeout(&mut self, now: Duration) {
        if now >= self.start {
            self.air.handle_timeout(now);
            self.hub.handle_timeout(now);
            self.work(now);
        }
    }

    fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}

fn air_address() -> SocketAddr {
    ([198, 18, 1, 1], 40_000).into()
}

fn hub_address() -> SocketAddr {
    ([198, 18, 1, 2], 4_500).into()
}
