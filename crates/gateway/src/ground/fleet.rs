//! The aircraft a ground gateway serves, and how much each may hold. A standard client counts as
//! one.

mod rates;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bentpipe_link::{Class, ResetCode};
use bentpipe_units::BitRate;

use crate::bucket::Bucket;
use crate::config::{AircraftConfig, StandardClient};
use crate::counters::Counters;
use crate::flows::Kind;
use crate::police::{Ceil, Police};
use crate::refusals::{Holding, Limit};
use rates::Rates;

/// All aircraft by their keys, and standard clients by their identities.
pub struct Fleet {
    aircraft: HashMap<[u8; 32], Arc<Aircraft>>,
    open: Arc<Open>,
    most: Most,
    counters: Arc<Counters>,
}

struct Aircraft {
    name: String,
    open: Open,
    most: Most,
    highest_class: Class,
    per_second: u32,
    /// Ceiling of each passenger in the network's class.
    ceil: Arc<Ceil>,
    opening: [Bucket; Kind::COUNT],
    /// The part of that of each passenger.
    of_passengers: [Rates; Kind::COUNT],
}

/// Flows of each [`Kind`] open now: neither kind takes the other's room.
type Open = [AtomicUsize; Kind::COUNT];

/// Flows of each [`Kind`] at once.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// TCP connections.
    pub streams: usize,
    /// Flows of UDP's datagrams.
    pub datagrams: usize,
    /// ICMP echo and other protocols.
    pub ip: usize,
}

/// Seconds of its average rate that an aircraft may open at a stretch.
const BURST_SECONDS: f64 = 2.0;

/// The right to one flow, given back when dropped.
pub struct Permit {
    aircraft: Arc<Aircraft>,
    open: Arc<Open>,
    kind: Kind,
}

impl Fleet {
    /// The aircraft and standard clients of a config, together with at most `most` flows.
    /// Refusals are counted by `counters`.
    pub fn new(
        aircraft: &[AircraftConfig],
        clients: &[StandardClient],
        most: Most,
        counters: Arc<Counters>,
    ) -> Self {
        let aircraft = aircraft.iter().map(|one| {
            let most = Most {
                streams: one.max_flows,
                datagrams: one.max_datagram_flows,
                ip: one.max_ip_flows,
            };
            let bounds = (most, one.flows_per_second, one.highest_class);
            let ceil = one.classes.passenger_ceil();
            (*one.key().as_bytes(), Aircraft::new(&one.name, bounds, ceil))
        });
        let clients = clients.iter().map(|one| {
            // A standard client has no way to ask for anything else.
            let (streams, datagrams) = (one.max_flows, one.max_datagram_flows);
            let most = Most { streams, datagrams, ip: 0 };
            let bounds = (most, one.flows_per_second, one.highest_class);
            (one.login().identity(), Aircraft::new(one.name(), bounds, None))
        });
        Self { aircraft: aircraft.chain(clients).collect(), open: Arc::default(), most, counters }
    }

    /// From now on each passenger of the aircraft may be sent so much in the network's class.
    pub fn set_passenger_ceil(&self, key: &[u8; 32], ceil: Option<BitRate>) {
        if let Some(aircraft) = self.aircraft.get(key) {
            aircraft.ceil.set(ceil);
        }
    }

    /// Flows of all kinds open now, over all aircraft.
    pub fn open(&self) -> usize {
        self.open.iter().map(|open| open.load(Relaxed)).sum()
    }

    /// Takes a new flow of a passenger of the aircraft `key`, or says why not.
    pub fn admit(&self, key: &[u8; 32], kind: Kind, passenger: u32) -> Result<Permit, ResetCode> {
        let aircraft = self.aircraft.get(key).ok_or(ResetCode::Forbidden)?;
        let full = |open: &Open, most: Most| open[kind as usize].load(Relaxed) >= most.of(kind);
        for (open, most) in [(&aircraft.open, aircraft.most), (&*self.open, self.most)] {
            if full(open, most) {
                let limit = [Limit::TcpFlows, Limit::UdpFlows, Limit::IpFlows][kind as usize];
                return Err(self.refused(limit, aircraft, kind, most.of(kind)));
            }
        }
        // The passenger's own part first: what it may not open takes nothing from the others.
        let may_open = aircraft.of_passengers[kind as usize].take(passenger);
        if !may_open || !aircraft.opening[kind as usize].take() {
            let limit = [Limit::TcpOpens, Limit::UdpOpens, Limit::IpOpens][kind as usize];
            return Err(self.refused(limit, aircraft, kind, aircraft.per_second as usize));
        }
        for open in [&aircraft.open, &*self.open] {
            open[kind as usize].fetch_add(1, Relaxed);
        }
        Ok(Permit { aircraft: aircraft.clone(), open: self.open.clone(), kind })
    }
}

impl Fleet {
    fn refused(&self, limit: Limit, aircraft: &Aircraft, kind: Kind, most: usize) -> ResetCode {
        let of = |open: &Open| open[kind as usize].load(Relaxed);
        self.counters.refusals.refused(limit, || {
            let largest = self.aircraft.values().max_by_key(|one| of(&one.open));
            Holding {
                newcomer: aircraft.name.clone(),
                holds: of(&aircraft.open),
                held: of(&self.open),
                most,
                largest: largest.map(|one| (one.name.clone(), of(&one.open))),
            }
        });
        ResetCode::Limit
    }
}

impl Most {
    fn of(self, kind: Kind) -> usize {
        match kind {
            Kind::Streams => self.streams,
            Kind::Datagrams => self.datagrams,
            Kind::Ip => self.ip,
        }
    }
}

impl Aircraft {
    /// `bounds` are the flows at once, new ones of each kind per second, and the most favoured
    /// class.
    fn new(
        name: &str,
        (most, per_second, highest_class): (Most, u32, Class),
        ceil: Option<BitRate>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            open: Open::default(),
            most,
            highest_class,
            per_second,
            ceil: Ceil::new(ceil),
            opening: [0; Kind::COUNT].map(|_| Bucket::new(f64::from(per_second), BURST_SECONDS)),
            of_passengers: [0; Kind::COUNT].map(|_| Rates::new(per_second)),
        })
    }
}

impl Permit {
    /// Name of the flow's aircraft.
    pub fn aircraft(&self) -> &str {
        &self.aircraft.name
    }

    /// The class that this flow has: what it `asked` for, or the most favoured that its aircraft
    /// may have.
    pub fn class(&self, asked: Class) -> Class {
        asked.max(self.aircraft.highest_class) // the most favoured is the least
    }

    /// Police of a flow of `class` that belongs to this passenger.
    pub fn police(&self, class: Class, passenger: u32) -> Option<Police> {
        self.aircraft.ceil.of(class, passenger)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for open in [&self.aircraft.open, &*self.open] {
            open[self.kind as usize].fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Kind::{Datagrams, Streams};
    use super::*;
    use std::time::Duration;

    fn fleet() -> Fleet {
        let one = |name: &str, key: &str| {
            format!(
                "name = {name:?}\npublic-key = {key:?}\nrate = \"1 Mbit/s\"\n\
                 max-flows = 3\nmax-datagram-flows = 2\nflows-per-second = 2\nhighest-class = \"assured\"\n"
            )
        };
        let one = |name, key| toml::from_str(&one(name, key)).unwrap();
        let aircraft = [
            one("D-A", "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="),
            one("D-B", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="),
        ];
        Fleet::new(&aircraft, &[], Most { streams: 4, datagrams: 3, ip: 1 }, Arc::default())
    }

    fn refused(admitted: Result<Permit, ResetCode>) -> Option<ResetCode> {
        admitted.err()
    }

    #[tokio::test(start_paused = true)]
    async fn each_aircraft_has_its_own_bounds() {
        let fleet = fleet();
        let (a, b) = ([2; 32], [1; 32]);
        assert_eq!(refused(fleet.admit(&[7; 32], Streams, 0)), Some(ResetCode::Forbidden));
        let held: Vec<Permit> =
            (0..3).map(|_| fleet.admit(&a, Streams, 0).unwrap_or_else(|_| panic!())).collect();
        assert_eq!(
            refused(fleet.admit(&a, Streams, 0)),
            Some(ResetCode::Limit),
            "three flows are open"
        );
        assert_eq!(held[0].aircraft(), "D-A");
        let classes = Class::ALL.map(|asked| held[0].class(asked));
        let mut wanted = Class::ALL;
        wanted[..2].fill(Class::Assured);
        assert_eq!(classes, wanted);
        let other = fleet.admit(&b, Streams, 0);
        assert!(other.is_ok());
        assert_eq!(refused(fleet.admit(&b, Streams, 0)), Some(ResetCode::Limit), "four in all");
        drop((held, other));
        assert_eq!(fleet.open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn datagrams_take_no_room_of_streams() {
        let fleet = fleet();
        let admitted = |key: u8, kind| fleet.admit(&[key; 32], kind, 0).ok();
        let held: Vec<Permit> = (0..9).filter_map(|_| admitted(2, Datagrams)).collect();
        assert_eq!((held.len(), fleet.open()), (2, 2));
        let other: Vec<Permit> = (0..9).filter_map(|_| admitted(1, Datagrams)).collect();
        assert_eq!(other.len(), 1, "three in all");
        let streams: Vec<Permit> = (0..9).filter_map(|_| admitted(2, Streams)).collect();
        assert_eq!(streams.len(), 3);
        drop((held, other, streams));
        assert_eq!(fleet.open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn opening_is_paced() {
        let fleet = fleet();
        for _ in 0..4 {
            assert!(fleet.admit(&[2; 32], Streams, 0).is_ok());
        }
        assert_eq!(refused(fleet.admit(&[2; 32], Streams, 0)), Some(ResetCode::Limit));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(fleet.admit(&[2; 32], Streams, 0).is_ok());
        assert_eq!(refused(fleet.admit(&[2; 32], Streams, 0)), Some(ResetCode::Limit));
    }

    #[tokio::test(start_paused = true)]
    async fn one_passenger_does_not_use_up_the_aircrafts_rate() {
        let key = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
        let one = format!("name = \"D-A\"\npublic-key = {key:?}\nrate = \"1 Mbit/s\"\n");
        let counters = Arc::<Counters>::default();
        let most = Most { streams: 65_536, datagrams: 65_536, ip: 1 };
        let fleet = Fleet::new(&[toml::from_str(&one).unwrap()], &[], most, counters.clone());
        let (mut hostile, mut others, mut gateway) = (0, 0, 0);
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(100)).await;
            let opened = |passenger| usize::from(fleet.admit(&[2; 32], Streams, passenger).is_ok());
            hostile += (0..500).map(|_| opened(1)).sum::<usize>();
            others += (2..22).map(opened).sum::<usize>();
            gateway += opened(0);
        }
        // Ten seconds at 500 a second for all: an eighth, and four times that at once.
        assert!((620..=880).contains(&hostile), "{hostile}");
        assert_eq!((others, gateway), (2_000, 100));
        let refused = counters.refusals.count_refused(Limit::TcpOpens);
        assert_eq!(refused, 50_000 - hostile as u64);
    }
}
