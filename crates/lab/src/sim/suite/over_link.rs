//! The suite over Bentpipe's own radio transport, including its async edge.

use std::time::Duration;

use ::bytes::Bytes;
use bentpipe_flow::{Host, ResetCode, Target};
use bentpipe_link::io::{Air, Flow, Hub, Open};
use bentpipe_link::{
    AirConfig, Aircraft, Class, Counters, HubConfig, OpenError, SecretKey, Settings,
};
use bentpipe_units::{BitRate, ByteSize};
use futures_util::future::BoxFuture;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::time::sleep;

use super::{Scenario, Stream, Testbed, Transport};

/// Flow limit of both ends.
const MAX_FLOWS: u32 = 16;

/// An air end and a hub.
pub struct OverLink {
    air: Air,
    hub: Hub,
    most_held_bytes: u64,
}

impl OverLink {
    /// Starts both ends with the scenario's limits and seed.
    pub fn start(testbed: &Testbed, scenario: &Scenario) -> Result<Self, String> {
        Self::with(testbed, settings(scenario), scenario.seed)
    }

    /// Starts both ends with the same settings.
    pub fn with(testbed: &Testbed, settings: Settings, seed: u64) -> Result<Self, String> {
        settings.check().map_err(|error| error.to_string())?;
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let most_held_bytes = settings.receive_memory.bytes() + settings.send_memory.bytes();
        let air_config = AirConfig {
            secret: air.clone(),
            hub: hub.public(),
            address: testbed.ground.local_addr(),
            settings: settings.clone(),
            first_counter: 1,
        };
        let aircraft =
            vec![Aircraft { key: air.public(), settings, highest_class: Class::BestEffort }];
        let hub_config = HubConfig { secret: hub, aircraft };
        let hub = Hub::start_seeded(Box::new(testbed.ground.clone()), hub_config, rng.random());
        let air = Air::start_seeded(Box::new(testbed.air.clone()), air_config, rng.random());
        Ok(Self { air, hub, most_held_bytes })
    }

    fn fault_of(&self, end: &str, counters: &Counters) -> Option<String> {
        let Counters { held_bytes, violations, .. } = counters;
        if *held_bytes > self.most_held_bytes {
            let bound = self.most_held_bytes;
            return Some(format!("{end} holds {held_bytes} bytes, its bound is {bound}"));
        }
        (*violations > 0).then(|| format!("{end} broke the session off: a violation"))
    }
}

fn settings(scenario: &Scenario) -> Settings {
    let defaults = Settings::default();
    let memory = &scenario.memory;
    Settings {
        rate: BitRate::from_bps(scenario.link.rate_bps),
        receive_memory: ByteSize::from_bytes(memory.receive_bytes),
        send_memory: ByteSize::from_bytes(memory.send_bytes),
        flow_send_buffer: ByteSize::from_bytes(memory.flow_send_bytes),
        flow_reserve: ByteSize::from_bytes(memory.flow_reserve_bytes),
        max_flows: MAX_FLOWS,
        // Keys expire after four times this value, which is longer than every outage of a scenario.
        key_lifetime: scenario.key_lifetime.unwrap_or(Duration::from_secs(1_200)),
        // Flows survive every outage of a scenario.
        session_lifetime: Duration::from_secs(86_400),
        ..defaults
    }
}

impl Transport for OverLink {
    fn open(&self, number: u16, first: Bytes) -> BoxFuture<'_, Result<Box<dyn Stream>, String>> {
        let target = Target { host: Host::Name("origin.example".into()), port: number };
        let open = Open {
            target,
            class: Class::BestEffort,
            passenger: u32::from(number),
            claim: None,
            first,
        };
        Box::pin(async move {
            loop {
                match self.air.open(open.clone()).await {
                    Ok(flow) => return Ok(Box::new(flow) as Box<dyn Stream>),
                    // During an outage at the beginning, a client would retry too.
                    Err(OpenError::NotConnected) => sleep(Duration::from_millis(100)).await,
                    Err(error) => return Err(error.to_string()),
                }
            }
        })
    }

    fn accept(&self) -> BoxFuture<'_, Option<(u16, Box<dyn Stream>)>> {
        Box::pin(async {
            let incoming = self.hub.accept().await?.stream()?;
            Some((incoming.target.port, Box::new(incoming.flow) as Box<dyn Stream>))
        })
    }

    fn heard_as(&self, code: ResetCode) -> ResetCode {
        code
    }

    fn fault(&self) -> Option<String> {
        let air = self.air.counters().and_then(|counters| self.fault_of("the air", &counters));
        let sessions = self.hub.status();
        let hub =
            sessions.iter().find_map(|(_, status)| self.fault_of("the hub", &status.counters));
        air.or(hub)
    }
}

impl Stream for Flow {
    fn reset(&mut self, code: ResetCode) {
        Flow::reset(self, code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        Flow::reset_code(self)
    }
}
