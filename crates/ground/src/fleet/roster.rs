//! Aircraft and standard clients that are served, with the limits of each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bentpipe_config::AircraftConfig;
use bentpipe_link::{Class, PublicKey};
use bentpipe_relay::bucket::RateLimit;
use bentpipe_relay::flows::Kind;
use bentpipe_relay::police::PassengerCeiling;
use bentpipe_units::BitRate;

use super::rates::Rates;

/// Those that are served now.
#[derive(Default)]
pub struct Roster {
    pub by_key: HashMap<[u8; 32], Arc<Aircraft>>,
    /// The same by number; a number is never used twice.
    pub by_number: BTreeMap<u32, Arc<Aircraft>>,
    last_number: u32,
}

pub struct Aircraft {
    pub number: u32,
    pub name: String,
    /// Key of an aircraft; `None` for a standard client.
    pub key: Option<PublicKey>,
    pub most: FlowLimits,
    pub highest_class: Class,
    pub per_second: u32,
    passenger_ceil: Option<BitRate>,
    /// The same for open flows.
    pub ceiling: Arc<PassengerCeiling>,
    pub opening: [RateLimit; Kind::COUNT],
    /// Share of the opening rate for each passenger; `None` for a standard client, which has none.
    pub of_passengers: Option<[Rates; Kind::COUNT]>,
}

/// Limits on concurrent flows of each [`Kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowLimits {
    /// TCP connections.
    pub streams: usize,
    /// UDP flows.
    pub datagrams: usize,
    /// Flows of ICMP echo and other protocols.
    pub ip: usize,
}

/// Burst of new flows of an aircraft, in seconds of its average rate.
const BURST_SECONDS: u32 = 2;

impl Roster {
    pub fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    pub fn put(&mut self, key: [u8; 32], aircraft: Aircraft) {
        let aircraft = Arc::new(aircraft);
        self.by_number.insert(aircraft.number, aircraft.clone());
        self.by_key.insert(key, aircraft);
    }

    /// Removes all aircraft except `stay`, and returns their numbers.
    pub fn remove_except(&mut self, stay: &BTreeSet<PublicKey>) -> Vec<u32> {
        let stays = |one: &Arc<Aircraft>| one.key.is_none_or(|key| stay.contains(&key));
        self.by_key.retain(|_, one| stays(one));
        let gone = self.by_number.iter().filter(|(_, one)| !stays(one));
        let gone: Vec<u32> = gone.map(|(number, _)| *number).collect();
        self.by_number.retain(|_, one| stays(one));
        gone
    }
}

impl FlowLimits {
    /// Limit for flows of this kind.
    pub fn of(self, kind: Kind) -> usize {
        match kind {
            Kind::Streams => self.streams,
            Kind::Datagrams => self.datagrams,
            Kind::Ip => self.ip,
        }
    }
}

impl Aircraft {
    /// Creates an aircraft or a standard client. `bounds` are its maximum number of flows, its new
    /// flows of each kind per second, and its highest class.
    pub fn new(
        (number, name): (u32, &str),
        key: Option<PublicKey>,
        (most, per_second, highest_class): (FlowLimits, u32, Class),
        ceiling: Option<BitRate>,
    ) -> Self {
        let rates = || [0; Kind::COUNT].map(|_| Rates::new(per_second));
        Self {
            number,
            name: name.to_owned(),
            key,
            most,
            highest_class,
            per_second,
            passenger_ceil: ceiling,
            ceiling: PassengerCeiling::new(ceiling),
            opening: [0; Kind::COUNT].map(|_| RateLimit::new(per_second, BURST_SECONDS)),
            of_passengers: key.map(|_| rates()),
        }
    }

    pub fn of(number: u32, one: &AircraftConfig) -> Self {
        let bounds = (limits_of(one), one.flows_per_second, one.highest_class);
        Self::new((number, &one.name), Some(one.key), bounds, one.classes.passenger_ceil())
    }

    /// Returns `true` if the aircraft is as configured.
    pub fn fits(&self, one: &AircraftConfig) -> bool {
        let bounds = (self.most, self.per_second, self.highest_class);
        let has_bounds = bounds == (limits_of(one), one.flows_per_second, one.highest_class);
        has_bounds && self.name == one.name && self.passenger_ceil == one.classes.passenger_ceil()
    }
}

fn limits_of(one: &AircraftConfig) -> FlowLimits {
    let (streams, datagrams) = (one.max_flows, one.max_datagram_flows);
    FlowLimits { streams, datagrams, ip: one.max_ip_flows }
}
