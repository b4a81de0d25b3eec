//! Aircraft that vanish leave nothing behind, keys above all.

use std::net::SocketAddr;
use std::time::Duration;

use rand::SeedableRng;

use super::{AirConfig, AirCore, Aircraft, Core, HubConfig, HubCore};
use crate::Class;
use crate::crypto::Rng;
use crate::crypto::erasure_tests::{copies, only_reader, take_notes};
use crate::flow::{FlowEvent, Write};
use crate::key::SecretKey;
use crate::settings::Settings;

const AIRCRAFT: u8 = 3;
const HUB: ([u8; 4], u16) = ([198, 18, 0, 1], 4_500);

fn address(craft: u8) -> SocketAddr {
    ([198, 18, 0, 2 + craft], 40_000).into()
}

/// A hub, and aircraft whose packets arrive at once.
pub(super) struct World {
    pub(super) hub: HubCore,
    pub(super) airs: Vec<AirCore>,
    /// Flows that the hub was asked to open: their sessions and numbers.
    pub(super) flows: Vec<(u64, u64)>,
    pub(super) now: Duration,
    /// `true` if no packet arrives.
    pub(super) is_out: bool,
}

impl World {
    pub(super) fn new(settings: &Settings) -> Self {
        Self::seeded(settings, 18)
    }

    /// A world with keys of its own, for a test that looks for them while others run.
    pub(super) fn seeded(settings: &Settings, seed: u64) -> Self {
        let mut rng = Rng::seed_from_u64(seed);
        let secret = SecretKey::generate(&mut rng);
        let secrets: Vec<_> = (0..AIRCRAFT).map(|_| SecretKey::generate(&mut rng)).collect();
        let aircraft = secrets.iter().map(|secret| Aircraft {
            key: secret.public(),
            settings: settings.clone(),
            highest_class: Class::BestEffort,
        });
        let config = HubConfig { secret: secret.clone(), aircraft: aircraft.collect() };
        let air = |(mine, seed): (SecretKey, u8)| {
            let config = AirConfig {
                secret: mine,
                hub: secret.public(),
                address: HUB.into(),
                settings: settings.clone(),
                first_counter: 1,
            };
            AirCore::new(config, [seed; 32])
        };
        let airs = secrets.into_iter().zip(1..).map(air).collect();
        let (flows, now) = (Vec::new(), Duration::ZERO);
        Self { hub: HubCore::new(config, [9; 32]), airs, flows, now, is_out: false }
    }

    /// Moves packets for `span`, in steps of ten milliseconds.
    pub(super) fn run(&mut self, span: Duration) {
        let (end, mut datagram) = (self.now + span, Vec::new());
        while self.now < end {
            let now = self.now;
            for (air, craft) in self.airs.iter_mut().zip(0..) {
                air.handle_timeout(now);
                while air.transmit(now, &mut datagram).is_some() {
                    if !self.is_out {
                        self.hub.handle_datagram(&datagram, address(craft), false, now);
                    }
                    datagram.clear();
                }
            }
            self.hub.handle_timeout(now);
            while let Some((session, event)) = self.hub.next_event() {
                if let FlowEvent::Opened { flow, .. } = event {
                    self.flows.push((session, flow));
                }
            }
            while let Some(to) = self.hub.transmit(now, &mut datagram) {
                let craft = (0..AIRCRAFT).find(|craft| address(*craft) == to);
                let craft = craft.filter(|_| !self.is_out);
                let air = craft.and_then(|craft| self.airs.get_mut(usize::from(craft)));
                if let Some(air) = air {
                    air.handle_datagram(&datagram, HUB.into(), false, now);
                }
                datagram.clear();
            }
            self.now += Duration::from_millis(10);
        }
    }
}

#[test]
fn keys_of_aircraft_that_vanished_are_nowhere_in_memory() {
    let _only = only_reader();
    let settings = Settings::default();
    let mut world = World::new(&settings);
    world.run(Duration::from_secs(1));
    let target = "origin.example:80".parse().unwrap();
    for air in &mut world.airs {
        air.open(&target, Class::BestEffort, 1, b"GET", world.now).unwrap();
    }
    world.run(Duration::from_secs(1));
    assert_eq!(world.flows.len(), usize::from(AIRCRAFT));
    for (id, flow) in &world.flows {
        let session = world.hub.session(*id).unwrap();
        while matches!(session.write(*flow, &[0x5a; 4_096], world.now), Write::Taken(1..)) {}
    }
    world.run(Duration::from_millis(100));
    let notes = take_notes();
    assert!(notes.len() >= 4 * usize::from(AIRCRAFT), "two keys at each end of each session");
    // All are switched off in mid-download. The hub has the keys for as long as it waits.
    world.airs.clear();
    world.run(settings.session_lifetime - Duration::from_secs(10));
    assert_eq!(world.hub.sessions().count(), usize::from(AIRCRAFT));
    assert!(notes.iter().any(|note| !copies(note).is_empty()), "the test finds what is there");
    world.run(Duration::from_secs(70));
    assert_eq!(world.hub.sessions().count(), 0);
    for note in &notes {
        assert_eq!(copies(note), [""; 0], "a key is still in memory");
    }
}
