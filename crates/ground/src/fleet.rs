//! Aircraft that a ground gateway serves, and the limits of each. A standard client counts as an
//! aircraft.

mod rates;
mod roster;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;

use bentpipe_flow::ResetCode;
use bentpipe_link::{Class, PublicKey};
use bentpipe_net::descriptors::descriptor_limit;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio_util::sync::CancellationToken;

use bentpipe_config::{AircraftConfig, StandardClient};
use bentpipe_metering::counters::Counters;
use bentpipe_metering::refusals::{Holding, Limit};
use bentpipe_relay::flows::{Full, Grip, Kind};
use bentpipe_relay::police::PolicerHandle;
pub use roster::FlowLimits;
use roster::{Aircraft, Roster};
use table::{Entered, Table, Who};

/// Aircraft by their keys, and standard clients by their identities.
pub struct Fleet {
    roster: RwLock<Roster>,
    tables: Arc<Tables>,
    most: FlowLimits,
    counters: Arc<Counters>,
}

/// Open flows of each [`Kind`]. The kinds have separate limits.
struct Tables([Mutex<Table>; Kind::COUNT]);

/// FlowPermit for one flow. It is returned when dropped, and revoked when the flow is evicted.
pub struct FlowPermit {
    aircraft: Arc<Aircraft>,
    number: u32,
    tables: Arc<Tables>,
    kind: Kind,
    grip: Arc<Grip>,
}

impl Fleet {
    /// Creates the fleet of a configuration, with at most `most` flows in total. `counters` counts
    /// refusals.
    pub fn new(
        aircraft: &[AircraftConfig],
        clients: &[StandardClient],
        most: FlowLimits,
        counters: Arc<Counters>,
    ) -> Self {
        let tables = Arc::new(Tables([0; Kind::COUNT].map(|_| Mutex::new(Table::new()))));
        let fleet = Self { roster: RwLock::default(), tables, most, counters };
        for one in clients {
            // A standard client cannot open flows of other kinds.
            let most =
                FlowLimits { streams: one.max_flows, datagrams: one.max_datagram_flows, ip: 0 };
            let bounds = (most, one.flows_per_second, one.highest_class);
            let mut roster = fleet.roster.write();
            let number = roster.next_number();
            let client = Aircraft::new((number, &*one.login.name), None, bounds, None);
            roster.put(one.login.identity(), client);
        }
        fleet.set_aircraft(aircraft);
        fleet
    }

    /// Serves these aircraft too, besides the standard clients. Their limits apply to new flows, and
    /// ceilings of passengers to all.
    pub fn set_aircraft(&self, aircraft: &[AircraftConfig]) {
        let mut roster = self.roster.write();
        for one in aircraft {
            let key = one.key.as_bytes();
            let present = roster.by_key.get(key).cloned();
            if present.as_ref().is_some_and(|present| present.fits(one)) {
                continue;
            }
            let number = present.as_ref().map_or_else(|| roster.next_number(), |it| it.number);
            let mut aircraft = Aircraft::of(number, one);
            if let Some(present) = present {
                present.ceiling.set(one.classes.passenger_ceil());
                aircraft.ceiling = present.ceiling.clone();
            }
            roster.put(*key, aircraft);
        }
    }

    /// Serves no aircraft besides these any more. The flows of all others end.
    pub fn remove_others(&self, aircraft: &[AircraftConfig]) {
        let stay: BTreeSet<_> = aircraft.iter().map(|one| one.key).collect();
        for gone in self.roster.write().remove_except(&stay) {
            self.tables.end_flows(gone);
        }
    }

    /// Keys and names of the aircraft, in the order of the keys.
    pub fn aircraft(&self) -> Vec<(PublicKey, String)> {
        let roster = self.roster.read();
        let named = |one: &Arc<Aircraft>| Some((one.key?, one.name.clone()));
        let mut all: Vec<_> = roster.by_number.values().filter_map(named).collect();
        all.sort_unstable();
        all
    }

    /// Number of aircraft and standard clients.
    pub fn len(&self) -> usize {
        self.roster.read().by_key.len()
    }

    /// Returns `true` if nobody is served.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of an aircraft or standard client; empty for one that is not served any more.
    pub fn name_of(&self, key: &[u8; 32]) -> String {
        self.aircraft_of(key).map(|one| one.name.clone()).unwrap_or_default()
    }

    fn aircraft_of(&self, key: &[u8; 32]) -> Option<Arc<Aircraft>> {
        self.roster.read().by_key.get(key).cloned()
    }

    /// Number of open flows of all kinds and aircraft.
    pub fn open(&self) -> usize {
        let kinds = [Kind::Streams, Kind::Datagrams, Kind::Ip];
        kinds.into_iter().map(|kind| self.tables.of(kind).aircraft().total()).sum()
    }

    /// Admits a new flow of a passenger of the aircraft `key`, or returns the reason for refusal.
    /// If a table is full, the idlest flow of the largest holder is evicted.
    pub fn admit(
        &self,
        key: &[u8; 32],
        kind: Kind,
        passenger: u32,
    ) -> Result<FlowPermit, ResetCode> {
        let aircraft = self.aircraft_of(key).ok_or(ResetCode::Forbidden)?;
        let number = aircraft.number;
        // The passenger's share is checked first, so that its refused flows do not use the
        // aircraft's rate.
        let rates = aircraft.of_passengers.as_ref().map(|rates| &rates[kind as usize]);
        let opens = [Limit::TcpOpens, Limit::UdpOpens, Limit::IpOpens][kind as usize];
        if let Some(rates) = rates.filter(|rates| !rates.take(passenger)) {
            let most = rates.per_second() as usize;
            self.counters.refusals.refused(opens, || {
                let who = self.holding(number, kind, most);
                Holding { newcomer: format!("{} (passenger {passenger})", who.newcomer), ..who }
            });
            return Err(ResetCode::Limit);
        }
        if !aircraft.opening[kind as usize].take() {
            let most = aircraft.per_second as usize;
            self.counters.refusals.refused(opens, || self.holding(number, kind, most));
            return Err(ResetCode::Limit);
        }
        self.enter(aircraft, kind, passenger)
    }

    /// Admits a flow that the previous process had admitted. It counts for no rate.
    pub fn admit_again(
        &self,
        key: &[u8; 32],
        kind: Kind,
        passenger: u32,
    ) -> Result<FlowPermit, ResetCode> {
        let aircraft = self.aircraft_of(key).ok_or(ResetCode::Forbidden)?;
        self.enter(aircraft, kind, passenger)
    }

    fn enter(
        &self,
        aircraft: Arc<Aircraft>,
        kind: Kind,
        passenger: u32,
    ) -> Result<FlowPermit, ResetCode> {
        let number = aircraft.number;
        let limit = [Limit::TcpFlows, Limit::UdpFlows, Limit::IpFlows][kind as usize];
        let (each, all) = (aircraft.most.of(kind), self.most.of(kind));
        let entered = self.tables.of(kind).enter(Who { aircraft: number, passenger }, each, all);
        match entered {
            Ok(Entered { grip, ended }) => {
                if let Some((ended, most)) = ended {
                    let who = || self.holding(number, kind, most);
                    self.counters.refusals.evicted(limit, who);
                    ended.over().cancel();
                }
                let tables = self.tables.clone();
                Ok(FlowPermit { aircraft, number, tables, kind, grip })
            }
            Err(Full { most }) => {
                self.counters.refusals.refused(limit, || self.holding(number, kind, most));
                Err(ResetCode::Limit)
            }
        }
    }

    /// Reports that the process had no descriptor left for an admitted flow.
    pub fn report_lack_of_descriptors(&self, permit: &FlowPermit) {
        let most = descriptor_limit();
        let who = || self.holding(permit.number, permit.kind, most);
        self.counters.refusals.refused(Limit::Descriptors, who);
    }

    /// Flows of `kind` held by this aircraft, and by the aircraft with most.
    fn holding(&self, number: u32, kind: Kind, most: usize) -> Holding {
        let name = |number: u32| {
            let roster = self.roster.read();
            roster.by_number.get(&number).map(|one| one.name.clone()).unwrap_or_default()
        };
        let table = self.tables.of(kind);
        let aircraft = table.aircraft();
        Holding {
            newcomer: name(number),
            holds: aircraft.of(&number),
            held: aircraft.total(),
            most,
            largest: aircraft.largest().map(|(number, held)| (name(number), held)),
        }
    }
}

impl Tables {
    /// Ends all flows of an aircraft. Their permits leave the tables.
    fn end_flows(&self, aircraft: u32) {
        for table in &self.0 {
            table.lock().flows_of(aircraft).for_each(|flow| flow.over().cancel());
        }
    }

    fn of(&self, kind: Kind) -> MutexGuard<'_, Table> {
        self.0[kind as usize].lock()
    }
}

impl FlowPermit {
    /// Token that is cancelled when the flow is evicted.
    pub fn over(&self) -> CancellationToken {
        self.grip.over().clone()
    }

    /// Table entry that records the flow's activity.
    pub fn activity(&self) -> Arc<Grip> {
        self.grip.clone()
    }

    /// Name of the flow's aircraft.
    pub fn aircraft(&self) -> &str {
        &self.aircraft.name
    }

    /// Returns the class of the flow: the class that it `asked` for, or the aircraft's highest
    /// class.
    pub fn class(&self, asked: Class) -> Class {
        asked.max(self.aircraft.highest_class) // the highest class is the least value
    }

    /// Policer of a flow of `class` that belongs to this passenger.
    pub fn police(&self, class: Class, passenger: u32) -> Option<PolicerHandle> {
        self.aircraft.ceiling.of(class, passenger)
    }
}

impl Drop for FlowPermit {
    fn drop(&mut self) {
        self.tables.of(self.kind).leave(self.number, &self.grip);
    }
}

#[cfg(test)]
mod tests {
    use super::Kind::{Datagrams, Streams};
    use super::*;
    use bentpipe_config::{Classes, LeaseSource};
    use bentpipe_flow::passenger::{EVERYONE_ELSE, GATEWAY};
    use bentpipe_link::Share;
    use bentpipe_units::BitRate;
    use std::time::Duration;

    /// An aircraft whose key consists of `key`.
    fn one(name: &str, key: u8) -> AircraftConfig {
        AircraftConfig {
            name: name.to_owned(),
            key: PublicKey::from_bytes([key; 32]),
            rate: BitRate::from_bps(1_000_000),
            country: None,
            mtu: None,
            memory: None,
            lease: LeaseSource::Static,
            highest_class: Class::Assured,
            classes: Classes::default(),
            share: Share::default(),
            max_flows: 3,
            max_datagram_flows: 2,
            max_ip_flows: 1_024,
            flows_per_second: 2,
        }
    }

    fn fleet() -> Fleet {
        let aircraft = [one("D-A", 2), one("D-B", 1)];
        Fleet::new(&aircraft, &[], FlowLimits { streams: 4, datagrams: 3, ip: 1 }, Arc::default())
    }

    fn is_over(permits: &[FlowPermit]) -> Vec<bool> {
        permits.iter().map(|permit| permit.over().is_cancelled()).collect()
    }

    fn refused(admitted: Result<FlowPermit, ResetCode>) -> Option<ResetCode> {
        admitted.err()
    }

    #[tokio::test(start_paused = true)]
    async fn each_aircraft_has_its_own_bounds() {
        let fleet = fleet();
        let (a, b) = ([2; 32], [1; 32]);
        assert_eq!(refused(fleet.admit(&[7; 32], Streams, 0)), Some(ResetCode::Forbidden));
        let held: Vec<FlowPermit> =
            (0..4).filter_map(|_| fleet.admit(&a, Streams, 0).ok()).collect();
        assert_eq!(
            (held.len(), is_over(&held)),
            (4, vec![true, false, false, false]),
            "three at once"
        );
        assert_eq!(held[0].aircraft(), "D-A");
        let classes = Class::ALL.map(|asked| held[0].class(asked));
        let mut wanted = Class::ALL;
        wanted[..2].fill(Class::Assured);
        assert_eq!(classes, wanted);
        let other: Vec<FlowPermit> =
            (0..3).filter_map(|_| fleet.admit(&b, Streams, 0).ok()).collect();
        // Four in total: the other aircraft gets half, and then evicts its own flows.
        assert_eq!((fleet.open(), is_over(&held)), (4, vec![true, true, false, false]));
        assert_eq!(is_over(&other), [true, false, false]);
        assert_eq!(fleet.counters.refusals.count_evicted(Limit::TcpFlows), 3);
        drop((held, other));
        assert_eq!(fleet.open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn datagrams_take_no_room_of_streams() {
        let fleet = fleet();
        let admitted = |key: u8, kind| fleet.admit(&[key; 32], kind, 0).ok();
        let held: Vec<FlowPermit> = (0..2).filter_map(|_| admitted(2, Datagrams)).collect();
        let other: Vec<FlowPermit> = (0..2).filter_map(|_| admitted(1, Datagrams)).collect();
        assert_eq!((held.len(), other.len(), fleet.open()), (2, 2, 3), "three in all");
        let streams: Vec<FlowPermit> = (0..3).filter_map(|_| admitted(2, Streams)).collect();
        assert_eq!((streams.len(), fleet.open()), (3, 6));
        drop((held, other, streams));
        assert_eq!(fleet.open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn opening_is_paced() {
        let fleet = fleet();
        for _ in 0..4 {
            assert!(fleet.admit(&[2; 32], Streams, GATEWAY).is_ok());
        }
        assert_eq!(refused(fleet.admit(&[2; 32], Streams, GATEWAY)), Some(ResetCode::Limit));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(fleet.admit(&[2; 32], Streams, GATEWAY).is_ok());
        assert_eq!(refused(fleet.admit(&[2; 32], Streams, GATEWAY)), Some(ResetCode::Limit));
    }

    #[tokio::test(start_paused = true)]
    async fn one_passenger_does_not_use_up_the_aircrafts_rate() {
        let one = AircraftConfig { max_flows: 4_096, flows_per_second: 500, ..one("D-A", 2) };
        let counters = Arc::<Counters>::default();
        let most = FlowLimits { streams: 65_536, datagrams: 65_536, ip: 1 };
        let fleet = Fleet::new(&[one], &[], most, counters.clone());
        let (mut hostile, mut invented, mut others, mut gateway) = (0, 0, 0, 0);
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(100)).await;
            let opened = |passenger| usize::from(fleet.admit(&[2; 32], Streams, passenger).is_ok());
            hostile += (0..500).map(|_| opened(1)).sum::<usize>();
            invented += (0..500).map(|_| opened(EVERYONE_ELSE)).sum::<usize>();
            others += (2..22).map(opened).sum::<usize>();
            gateway += (0..10).map(|_| opened(GATEWAY)).sum::<usize>();
        }
        // Ten seconds at an eighth of the total of 500 a second, plus a burst of four times that.
        assert!((620..=880).contains(&hostile), "{hostile}");
        assert!((620..=880).contains(&invented), "{invented}");
        // More than a passenger's share of 62 a second.
        assert_eq!((others, gateway), (2_000, 1_000));
        let refused = counters.refusals.count_refused(Limit::TcpOpens);
        assert_eq!(refused, 100_000 - (hostile + invented) as u64);
    }
}
