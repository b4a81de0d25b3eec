//! Flows of one kind, by aircraft and by passenger.
//!
//! A full table evicts the idlest flow of the passenger with most flows. That passenger belongs to
//! the same aircraft if the aircraft is at its limit, or to the aircraft with most flows if the
//! ground gateway is at its limit. [`PoolLimits::payer`] implements the rule for both cases.

use std::collections::BTreeMap;
use std::sync::Arc;

use bentpipe_flow::quota::Holdings;
use tokio::time::Instant;

use bentpipe_relay::flows::{Full, Grip, Pool, PoolLimits};

/// All flows of one kind.
pub struct Table {
    began: Instant,
    last_id: u64,
    aircraft: Holdings<u32>,
    flows: BTreeMap<u32, Pool>,
}

/// A passenger of an aircraft, both by number.
#[derive(Debug, Clone, Copy)]
pub struct Who {
    /// Number of the aircraft.
    pub aircraft: u32,
    /// Number of its passenger.
    pub passenger: u32,
}

/// Result of a successful request for an entry.
pub struct Entered {
    /// The new entry.
    pub grip: Arc<Grip>,
    /// The evicted flow, and the limit that was reached.
    pub ended: Option<(Arc<Grip>, usize)>,
}

impl Table {
    /// Creates an empty table.
    pub fn new() -> Self {
        let (last_id, aircraft, flows) = Default::default();
        Self { began: Instant::now(), last_id, aircraft, flows }
    }

    /// Number of flows of each aircraft.
    pub fn aircraft(&self) -> &Holdings<u32> {
        &self.aircraft
    }

    /// Adds a flow of `who`. Its aircraft may have `each` flows, and the ground gateway `all`.
    pub fn enter(&mut self, who: Who, each: usize, all: usize) -> Result<Entered, Full> {
        let ended = match self.pays(who, each, all)? {
            Some((payer, most)) => self.idlest(payer).map(|grip| (payer.aircraft, grip, most)),
            None => None,
        };
        if let Some((aircraft, grip, _)) = &ended {
            self.leave(*aircraft, grip);
        }
        self.last_id += 1;
        let grip = Grip::new(self.last_id, who.passenger, self.began);
        self.flows.entry(who.aircraft).or_default().enter(&grip);
        self.aircraft.add(who.aircraft, 1);
        Ok(Entered { grip, ended: ended.map(|(_, grip, most)| (grip, most)) })
    }

    /// Flows of an aircraft.
    pub fn flows_of(&self, aircraft: u32) -> impl Iterator<Item = &Arc<Grip>> {
        self.flows.get(&aircraft).into_iter().flat_map(Pool::all)
    }

    /// Removes a flow if it is present.
    pub fn leave(&mut self, aircraft: u32, grip: &Grip) {
        let Some(pool) = self.flows.get_mut(&aircraft) else { return };
        if pool.leave(grip) {
            self.aircraft.remove(aircraft, 1);
            if pool.count().is_empty() {
                self.flows.remove(&aircraft);
            }
        }
    }

    /// Returns the passenger that must lose a flow for the next one of `who`, and the limit that
    /// was reached. Returns `None` if there is room.
    fn pays(&self, who: Who, each: usize, all: usize) -> Result<Option<(Who, usize)>, Full> {
        let Who { aircraft, passenger } = who;
        let most = |all| PoolLimits { all, each: usize::MAX, own_may_end: true };
        let nobody = Holdings::default();
        let own = self.flows.get(&aircraft).map_or(&nobody, Pool::count);
        if let Some(passenger) = most(each).payer(own, passenger)? {
            return Ok(Some((Who { aircraft, passenger }, each)));
        }
        let Some(payer) = most(all).payer(&self.aircraft, aircraft)? else { return Ok(None) };
        let passenger = if payer == aircraft {
            // Treat the aircraft as being at its own limit.
            most(own.total()).payer(own, passenger).map_err(|_| Full { most: all })?
        } else {
            self.flows.get(&payer).and_then(|pool| pool.count().largest()).map(|(number, _)| number)
        };
        Ok(passenger.map(|passenger| (Who { aircraft: payer, passenger }, all)))
    }

    fn idlest(&self, of: Who) -> Option<Arc<Grip>> {
        self.flows.get(&of.aircraft)?.idlest(of.passenger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PLENTY: usize = usize::MAX;

    fn who(aircraft: u32, passenger: u32) -> Who {
        Who { aircraft, passenger }
    }

    /// Creates a table with these numbers of flows.
    fn table(held: &[(Who, usize)]) -> Table {
        let mut table = Table::new();
        for (who, count) in held {
            for _ in 0..*count {
                assert!(table.enter(*who, PLENTY, PLENTY).is_ok_and(|it| it.ended.is_none()));
            }
        }
        table
    }

    /// Adds a flow of `who`; returns the passenger that lost a flow, and the limit.
    fn payer(table: &mut Table, who: Who, each: usize, all: usize) -> Result<(u32, usize), Full> {
        let before = table.aircraft.total();
        let ended = table.enter(who, each, all)?.ended.map(|(grip, most)| (grip.number(), most));
        assert_eq!(table.aircraft.total(), before + usize::from(ended.is_none()));
        Ok(ended.unwrap_or_default())
    }

    #[test]
    fn a_full_aircraft_ends_flows_of_its_largest_passenger() {
        let mut table = table(&[(who(1, 10), 6), (who(1, 11), 2), (who(2, 20), 50)]);
        assert_eq!(payer(&mut table, who(1, 12), 8, PLENTY), Ok((10, 8)));
        assert_eq!(payer(&mut table, who(1, 10), 8, PLENTY), Ok((10, 8)), "its own");
        assert_eq!(payer(&mut table, who(1, 11), 8, PLENTY), Ok((10, 8)));
        assert_eq!(table.aircraft.of(&2), 50, "another aircraft loses nothing");
    }

    #[test]
    fn a_full_ground_ends_flows_of_the_largest_aircraft() {
        let mut table = table(&[(who(1, 10), 2), (who(1, 11), 5), (who(2, 20), 3)]);
        assert_eq!(payer(&mut table, who(3, 30), PLENTY, 10), Ok((11, 10)));
        assert_eq!(payer(&mut table, who(2, 21), PLENTY, 10), Ok((11, 10)));
        assert_eq!(payer(&mut table, who(1, 12), PLENTY, 10), Ok((11, 10)), "its own aircraft");
        assert_eq!([1, 2, 3].map(|aircraft| table.aircraft.of(&aircraft)), [5, 4, 1]);
    }

    #[test]
    fn a_newcomer_is_refused_if_no_holder_has_two() {
        let mut table = table(&[(who(1, 10), 1), (who(2, 20), 1)]);
        assert_eq!(payer(&mut table, who(3, 30), PLENTY, 2), Err(Full { most: 2 }));
        assert_eq!(payer(&mut table, who(2, 21), PLENTY, 2), Err(Full { most: 2 }));
        assert_eq!(payer(&mut table, who(2, 20), PLENTY, 2), Ok((20, 2)), "its own");
    }

    #[tokio::test(start_paused = true)]
    async fn the_idlest_ends_and_nothing_is_kept_of_the_gone() {
        let mut table = table(&[]);
        let enter = |table: &mut Table| table.enter(who(1, 10), 3, PLENTY).unwrap();
        let held = [0; 3].map(|_| enter(&mut table).grip);
        tokio::time::advance(Duration::from_secs(1)).await;
        held[0].touch();
        let newcomer = enter(&mut table);
        let (ended, most) = newcomer.ended.unwrap();
        assert_eq!((ended.id(), most), (held[1].id(), 3));
        for grip in held.iter().chain([&newcomer.grip, &newcomer.grip]) {
            table.leave(1, grip);
        }
        assert!(table.flows.is_empty() && table.aircraft.total() == 0);
    }
}
